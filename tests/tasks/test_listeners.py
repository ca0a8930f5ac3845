"""Events, done-callbacks and listeners: in order, exactly once, unlocked, and harmless."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState, current_task
from lardon.testing import ManualClock, ScriptedGovernor, reject, start, wait

if TYPE_CHECKING:
    from lardon import Task, TaskContext
    from lardon.queue.views import TaskEvent
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)
CHAIN: Final = 5_000


# Listeners ---------------------------------------------------------------------------------


def test_an_event_says_what_happened() -> None:
    clock = ManualClock()
    events: list[TaskEvent] = []
    governor = ScriptedGovernor([wait("not yet")], clock=clock)
    with TaskQueue(governor) as queue:
        unsubscribe = queue.subscribe(events.append)
        task = queue.submit(lambda _: None, estimate=ANY, name="one")
        assert queue.wait_parked(PATIENCE_S)
        task.pause()
        clock.advance(1.0)
        task.resume()
        governor.script(start())
        queue.resources_changed()
        assert task.wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        unsubscribe()
        unsubscribe()
        queue.submit(lambda _: None, estimate=ANY)

    assert [(event.previous, event.state) for event in events] == [
        (TaskState.PENDING, TaskState.PAUSED),
        (TaskState.PAUSED, TaskState.PENDING),
        (TaskState.PENDING, TaskState.RUNNING),
        (TaskState.RUNNING, TaskState.COMPLETED),
    ]
    assert {(event.task_id, event.name) for event in events} == {(task.id, "one")}
    assert str(events[0].reason) == "not yet"
    assert events[3].reason == task.reason
    assert (events[1].at - events[0].at).total_seconds() == 1.0
    with pytest.raises(AttributeError):
        events[0].state = TaskState.FAILED  # type: ignore[misc]


def test_exactly_one_terminal_event_per_task() -> None:
    def callback(context: TaskContext, number: int) -> None:
        if number % 5 == 1:
            raise OSError("its own")
        if number % 5 == 2:
            queue.cancel(context.task_id)
            queue.cancel(context.task_id)
        if number % 5 == 3:
            context.sequence_break()

    events: list[TaskEvent] = []
    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        queue.subscribe(events.append)
        tasks = [queue.submit(callback, number, estimate=ANY) for number in range(100)]
        for task in tasks[::7]:
            task.cancel()

    ends = Counter(event.task_id for event in events if event.state.terminal)
    assert ends == dict.fromkeys(range(1, 101), 1)
    for task in tasks:
        (last,) = [event for event in events if event.task_id == task.id and event.state.terminal]
        assert last.state is task.state
        # Events of one task lead from one to the next.
        chain = [event for event in events if event.task_id == task.id]
        assert [event.previous for event in chain[1:]] == [event.state for event in chain[:-1]]


def test_listeners_and_callbacks_run_unlocked(gate: Gate) -> None:
    """Another thread can use queue and task meanwhile."""
    answers: list[object] = []

    def use_it_elsewhere(task_id: int) -> None:
        def use_it() -> None:
            queue.statistics()
            queue.tasks()
            answers.append(queue.get(task_id).snapshot().state)
            queue.submit(lambda _: None, estimate=ANY).cancel()

        thread = threading.Thread(target=use_it)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        unsubscribe = queue.subscribe(
            lambda event: use_it_elsewhere(event.task_id) if event.task_id == 1 else None
        )
        task = queue.submit(gate, estimate=ANY)
        task.add_done_callback(lambda task: use_it_elsewhere(task.id))
        gate.wait_entered()
        gate.open()
        assert task.wait(PATIENCE_S)
        assert queue.join(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        unsubscribe()

    assert answers == [TaskState.RUNNING, TaskState.COMPLETED, TaskState.COMPLETED]


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_one_that_raises_is_logged_and_harms_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_anything: object) -> None:
        raise error

    heard: list[object] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.subscribe(fail)
        queue.subscribe(heard.append)
        task = queue.submit(lambda _: "value", estimate=ANY)
        assert task.wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        assert len(heard) == 2

        task.add_done_callback(fail)
        task.add_done_callback(heard.append)
        assert heard[-1] is task
        assert queue.submit(lambda _: "next", estimate=ANY).result(PATIENCE_S) == "next"

    assert task.result(timeout=0) == "value"
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 5
    assert {record.name for record in errors} == {"lardon"}


def test_a_governors_subscriber_that_raises_is_logged_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise SystemExit(3)

    governor = ScriptedGovernor([start()])
    governor.subscribe(fail)
    with TaskQueue(governor) as queue:
        assert queue.submit(lambda _: "ran", estimate=ANY).result(PATIENCE_S) == "ran"

    assert governor.released == 1
    assert len(caplog.records) == 2


def test_what_cannot_be_called_is_refused() -> None:
    with (
        TaskQueue(ScriptedGovernor([start()])) as queue,
        pytest.raises(TypeError, match="callable"),
    ):
        queue.subscribe(5)  # type: ignore[arg-type]


# Done-callbacks ----------------------------------------------------------------------------


def test_done_callbacks_run_once_in_order_after_the_end(gate: Gate) -> None:
    called: list[tuple[int, TaskState, str]] = []
    with TaskQueue(ScriptedGovernor([start()]), name="theirs") as queue:
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        for number in range(5):
            task.add_done_callback(
                lambda task, number=number: called.append(  # type: ignore[misc]
                    (number, task.state, threading.current_thread().name)
                )
            )
        assert not called
        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        assert called == [
            (number, TaskState.COMPLETED, "lardon-worker-theirs") for number in range(5)
        ]

        task.add_done_callback(lambda task: called.append((9, task.state, "now")))
        assert called[5:] == [(9, TaskState.COMPLETED, "now")]


@pytest.mark.parametrize("how", ["cancelled", "rejected", "closed"])
def test_done_callbacks_run_for_tasks_that_never_started(how: str) -> None:
    called: list[TaskState] = []
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        task.add_done_callback(lambda task: called.append(task.state))
        if how == "cancelled":
            task.cancel()
        elif how == "closed":
            queue.close()
        else:
            governor.script(reject())
            queue.resources_changed()
            assert task.wait(PATIENCE_S)

    assert called == [TaskState.FAILED if how == "rejected" else TaskState.CANCELLED]


def test_current_task_is_there_in_the_callback_alone() -> None:
    seen: dict[str, object] = {}
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.subscribe(lambda event: seen.setdefault(f"listener {event.state}", current_task()))

        def callback(context: TaskContext) -> bool:
            thread = threading.Thread(
                target=lambda: seen.setdefault("other thread", current_task())
            )
            thread.start()
            thread.join(PATIENCE_S)
            return current_task() is context

        task = queue.submit(callback, estimate=ANY)
        task.add_done_callback(lambda _: seen.setdefault("done-callback", current_task()))
        assert task.result(PATIENCE_S) is True

    assert seen == {
        "listener RUNNING": None,
        "other thread": None,
        "listener COMPLETED": None,
        "done-callback": None,
    }
    assert current_task() is None


# Chains ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_chain_of_submissions_needs_one_stack_frame() -> None:
    """Each done-callback submits the next task, on the worker's thread."""
    ended = threading.Event()
    started = 0

    def next_one(_task: Task | None) -> None:
        nonlocal started
        if started == CHAIN:
            ended.set()
            return
        started += 1
        queue.submit(lambda _: None, estimate=ANY).add_done_callback(next_one)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        next_one(None)
        assert ended.wait(PATIENCE_S)

    assert queue.statistics().completed == CHAIN


@pytest.mark.slow
def test_a_chain_of_cancels_needs_one_stack_frame() -> None:
    """Each done-callback cancels the next pending task, on the cancelling thread."""
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        tasks = [queue.submit(lambda _: None, estimate=ANY) for _ in range(CHAIN)]
        for one, after in itertools.pairwise(tasks):
            one.add_done_callback(lambda _, after=after: after.cancel())  # type: ignore[misc]
        tasks[0].cancel()

        assert queue.statistics().cancelled == CHAIN
    assert all(task.state is TaskState.CANCELLED for task in tasks)


@pytest.mark.slow
def test_a_chain_of_events_needs_one_stack_frame() -> None:
    """A listener that cancels the next task at every end."""
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        tasks = [queue.submit(lambda _: None, estimate=ANY) for _ in range(CHAIN)]
        queue.subscribe(
            lambda event: tasks[event.task_id].cancel() if event.task_id < CHAIN else None
        )
        tasks[0].cancel()

        assert queue.statistics().cancelled == CHAIN
