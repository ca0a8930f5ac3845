"""What a test expects of tasks and queues: plain flags, moved by what the test did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lardon import TaskState
from tests.invariants.actor import Actor, Break, Raise, Return, SetProgress, Stage

if TYPE_CHECKING:
    from lardon import Task, TaskQueue
    from lardon.queue.views import TaskEvent
    from tests.invariants.actor import Command

TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})
STATISTICS = ("pending", "running", "paused", "completed", "failed", "cancelled")


@attrs.define(eq=False)
class ModelTask:
    """One task as the test knows it."""

    lane: Lane
    handle: Task
    actor: Actor
    expires: float | None = None
    pausing: bool = False
    cancelling: bool = False
    refused: bool = False
    stopped: bool = False
    """lardon said False: the callback should end, and every later call says False."""
    granted: int = 0
    """Breaks that said True."""
    paused_in_break: bool = False
    delayed: bool = False
    """Its break was paused before or in it, so that its deadline moved by an unknown time."""
    command: Command | None = None
    """The last one given to the callback."""
    commanded_at: float = 0.0
    state: TaskState = TaskState.PENDING
    """As the events tell it."""
    ends: int = 0
    """Terminal events."""
    end_checked: bool = False
    done_calls: int = 0
    done: float = 0
    total: float | None = None
    message: str = ""

    @property
    def name(self) -> str:
        return self.handle.name

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def held(self) -> list[int]:
        return self.lane.stage.recorder.held(self.name)

    def tell(self, command: Command, now: float) -> None:
        self.command, self.commanded_at = command, now
        self.paused_in_break, self.delayed = False, self.pausing
        if isinstance(command, SetProgress):
            self.done = max(self.done, command.done)
            self.message = command.message
            if command.total is not None:
                self.total = command.total
        self.actor.tell(command)

    def expected_end(self) -> TaskState:
        """Return how the task ends, now that its callback is over."""
        if self.refused:
            return TaskState.FAILED
        if self.cancelling:
            return TaskState.CANCELLED
        if isinstance(self.command, Raise):
            return TaskState.FAILED
        assert isinstance(self.command, Return)
        return TaskState.COMPLETED

    def waits_in_break(self) -> bool:
        """Whether the callback is inside a break, with nothing in hand and not paused."""
        return (
            self.actor.phase == "busy"
            and isinstance(self.command, Break)
            and self.state is TaskState.RUNNING
        )


@attrs.define(eq=False)
class Lane:
    """One queue and its tasks."""

    number: int
    queue: TaskQueue
    stage: Stage
    actors: list[Actor] = attrs.field(factory=list)
    """By submission, and in place before it: the worker may be quicker than `submit`."""
    tasks: list[ModelTask] = attrs.field(factory=list)
    events: list[tuple[TaskEvent, list[int], str]] = attrs.field(factory=list)
    """Each event, with what its task held at that moment and where its callback was."""
    closing: bool = False
    unheard: bool = False
    """The machine changed since the worker last looked, and nobody told it."""
    everyone: bool = False
    """This step steers all tasks one by one: some may start on the way."""

    def listen(self, event: TaskEvent) -> None:
        """Note an event, on the thread that caused it."""
        recorder = self.stage.recorder
        phase = self.actors[event.task_id - 1].phase
        self.events.append((event, recorder.held(event.name), phase))

    def running(self) -> ModelTask | None:
        """Return the task whose callback runs."""
        found = [task for task in self.tasks if task.actor.phase in {"ready", "busy"}]
        assert len(found) <= 1, f"several callbacks run in one queue: {found}"
        return found[0] if found else None

    def head(self) -> ModelTask | None:
        """Return the first task that waits and is not paused."""
        return next((task for task in self.tasks if task.state is TaskState.PENDING), None)

    def replay(self) -> None:
        """Take in the new events, and check their order and what was held meanwhile."""
        events, self.events = self.events, []
        for event, held, phase in _in_order(events, self.tasks):
            task = self.tasks[event.task_id - 1]
            assert event.name == task.name
            if event.state is TaskState.RUNNING and event.previous is TaskState.PENDING:
                self._started(task)
                assert len(held) == 1, f"{task.name} started with the reservations {held}"
            if event.state in TERMINAL:
                task.ends += 1
                # One that never ran may be cancelled while the governor books for it.
                assert held == [] or phase == "new", f"{task.name} ended and still held {held}"
                assert phase in {"new", "gone"}, f"{task.name} ended while its callback ran"
            task.state = event.state
            assert task.ends <= 1, f"{task.name} ended {task.ends} times"

    def _started(self, task: ModelTask) -> None:
        overtaken = [
            other.name
            for other in self.tasks[: task.handle.id - 1]
            if other.state is TaskState.PENDING and not other.pausing and not other.cancelling
        ]
        assert not overtaken, f"{task.name} started before {overtaken}"
        if not self.everyone:
            assert not task.cancelling, f"{task.name} started after its cancel"
            assert not task.pausing, f"{task.name} started while it was paused"


def _in_order(
    events: list[tuple[TaskEvent, list[int], str]], tasks: list[ModelTask]
) -> list[tuple[TaskEvent, list[int], str]]:
    """
    Sort events so that each starts from the state where the one before led to.

    They are told without a lock: when two threads move one task, the second may tell first.
    """
    at = {task.handle.id: task.state for task in tasks}
    todo, ordered = list(events), []
    while todo:
        for entry in todo:
            event = entry[0]
            if event.previous is at[event.task_id]:
                break
        else:
            told = [f"{e.task_id}: {e.previous} to {e.state}" for e, _, _ in todo]
            message = f"no chain of transitions: {told}, from {at}"
            raise AssertionError(message)
        at[event.task_id] = event.state
        ordered.append(entry)
        todo.remove(entry)
    return ordered
