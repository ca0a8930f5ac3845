"""The line of waiting tasks against a model that sorts everything, every time."""

from __future__ import annotations

from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lardon import ResourceEstimate, TaskState
from lardon.queue.line import Line
from lardon.queue.signal import Signal
from lardon.queue.task import Task
from lardon.testing import ManualClock

SIGNAL: Final = Signal(ManualClock())
ESTIMATE: Final = ResourceEstimate()
EXPIRIES: Final = st.none() | st.integers(0, 20).map(float)


def new_task(number: int, expires: float | None = None) -> Task:
    task = Task(None, SIGNAL, None, (), None, ESTIMATE, None)
    task.id = number
    task._expires = expires
    task._submitted = -1.0
    return task


class LineMachine(RuleBasedStateMachine):
    """Does to a line what a queue does, and keeps a plain list beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.tasks: list[Task] = []
        self.now = 0.0

    def pending(self) -> list[Task]:
        """Return what a naive line would hold: every pending task, by id."""
        waiting = (task for task in self.tasks if task.state is TaskState.PENDING)
        return sorted(waiting, key=lambda task: task.id)

    def pick(self, data: st.DataObject, *states: TaskState) -> Task | None:
        some = [task for task in self.tasks if task.state in states]
        return data.draw(st.sampled_from(some)) if some else None

    @rule(expires=EXPIRIES, count=st.integers(1, 40))
    def submit(self, expires: float | None, count: int) -> None:
        for _ in range(count):
            later = None if expires is None else self.now + expires
            task = new_task(len(self.tasks) + 1, later)
            self.tasks.append(task)
            self.line.append(task)

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        task = self.pick(data, TaskState.PENDING)
        if task is not None:
            task._move(TaskState.PAUSED)
            task._since = None

    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        task = self.pick(data, TaskState.PAUSED)
        if task is not None:
            task._move(TaskState.PENDING)
            self.line.restore(task)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = self.pick(data, TaskState.PENDING, TaskState.PAUSED)
        if task is not None:
            task._move(TaskState.CANCELLED)
            self.line.discard(task)

    @rule()
    def cancel_most(self) -> None:
        for task in self.pending()[::2] + self.pending()[1::3]:
            if task.state is TaskState.PENDING:
                task._move(TaskState.CANCELLED)
                self.line.discard(task)

    @rule()
    def start(self) -> None:
        # As the worker does: the head was asked for long ago, it may be another by now.
        pending = self.pending()
        if pending:
            assert self.line.take(pending[0])
            pending[0]._move(TaskState.RUNNING)
            pending[0]._started = self.now

    @rule(data=st.data())
    def start_one_that_is_not_the_head(self, data: st.DataObject) -> None:
        task = self.pick(data, TaskState.PENDING, TaskState.PAUSED, TaskState.CANCELLED)
        if task is not None and task not in self.pending()[:1]:
            assert not self.line.take(task)

    @rule()
    def answer_wait(self) -> None:
        head = self.line.head()
        if head is not None:
            head._since = self.now

    @rule(seconds=st.integers(0, 10))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        head = self.line.head()
        late = {
            task.id
            for task in self.pending()
            if task._expires is not None
            and task._expires <= self.now
            # The governor is asked once more for a head that it told to wait.
            and not (task is head and task._since is not None)
        }

        found = self.line.expired(self.now, head)

        assert {task.id for task in found} == late
        assert len(found) == len(late)
        for task in found:
            task._move(TaskState.FAILED)
            self.line.discard(task)

    @invariant()
    def head_is_the_oldest_pending_task(self) -> None:
        pending = self.pending()
        assert self.line.head() is (pending[0] if pending else None)

    @invariant()
    def next_expiry_is_the_earliest_of_the_pending(self) -> None:
        expiries = [task._expires for task in self.pending() if task._expires is not None]
        assert self.line.next_expiry() == min(expiries, default=None)


LineMachine.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLine = pytest.mark.slow(LineMachine.TestCase)


def test_cancelled_entries_behind_a_waiting_head_are_cleared_away() -> None:
    """Cancelling costs no search, and yet a long-lived head does not pile up the ended."""
    line = Line()
    head = new_task(1)
    line.append(head)
    longest = 0
    for number in range(2, 5_000):
        task = new_task(number, expires=1e9)
        line.append(task)
        task._move(TaskState.CANCELLED)
        line.discard(task)
        longest = max(longest, len(line))

    assert line.head() is head
    assert longest <= 200
    assert line.next_expiry() is None


def test_a_pause_and_resume_over_and_over_leaves_nothing_behind() -> None:
    line = Line()
    first, second = new_task(1, expires=1.0), new_task(2, expires=2.0)
    line.append(first)
    line.append(second)
    for _ in range(1_000):
        second._move(TaskState.PAUSED)
        second._move(TaskState.PENDING)
        line.restore(second)

    assert len(line) == 2
    assert len(line.expiries) == 2


def test_an_entry_of_a_task_paused_again_does_not_hide_the_head() -> None:
    line = Line()
    older, head = new_task(1), new_task(2)
    line.append(older)
    line.append(head)
    older._move(TaskState.PAUSED)
    assert line.head() is head
    older._move(TaskState.PENDING)
    line.restore(older)
    older._move(TaskState.PAUSED)

    assert line.take(head)
    assert line.head() is None
    assert len(line) == 0


def test_a_resumed_task_is_taken_from_its_old_place() -> None:
    line = Line()
    tasks = [new_task(number) for number in (1, 2, 3)]
    for task in tasks:
        line.append(task)
    for task in tasks[:2]:
        task._move(TaskState.PAUSED)
    assert line.head() is tasks[2]
    for task in reversed(tasks[:2]):
        task._move(TaskState.PENDING)
        line.restore(task)

    order = []
    while (head := line.head()) is not None:
        line.take(head)
        order.append(head.id)

    assert order == [1, 2, 3]
