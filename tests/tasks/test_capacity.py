"""Capacity: `submit` waits for room, `submit_nowait` says QueueFull, a callback may do neither."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from lardon import QueueFull, ResourceEstimate, TaskQueue, TaskState, WouldDeadlock
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import Task, TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


class WatchedClock(ManualClock):
    """A clock that says when a thread of the test begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Semaphore(0)

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        if threading.current_thread().name.startswith("submitter"):
            self.waiting.release()
        return super().wait_for(condition, predicate, timeout)


def test_submit_nowait_raises_when_there_is_no_room(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()]), capacity=2) as queue:
        running = queue.submit_nowait(gate, estimate=ANY)
        gate.wait_entered()
        # The running task is not pending.
        first = queue.submit_nowait(lambda _: None, estimate=ANY)
        queue.submit_nowait(lambda _: None, estimate=ANY)
        with pytest.raises(QueueFull, match="2 tasks are waiting") as caught:
            queue.submit_nowait(lambda _: None, estimate=ANY)
        assert caught.value.capacity == 2
        assert queue.statistics().submitted == 3

        first.cancel()
        queue.submit_nowait(lambda _: None, estimate=ANY)
        gate.open()
        assert running.wait(PATIENCE_S)


def start_submitter(queue: TaskQueue, submitted: list[Task], number: int = 0) -> threading.Thread:
    def submit() -> None:
        submitted.append(queue.submit(lambda _: "ran", estimate=ANY))

    thread = threading.Thread(target=submit, name=f"submitter-{number}")
    thread.start()
    return thread


@pytest.mark.parametrize("how", ["start", "cancel"])
def test_submit_waits_until_a_task_leaves_the_line(how: str) -> None:
    clock = WatchedClock()
    governor = ScriptedGovernor([wait()], clock=clock)
    with TaskQueue(governor, capacity=1) as queue:
        head = queue.submit(lambda _: None, estimate=ANY)
        submitted: list[Task] = []
        thread = start_submitter(queue, submitted)
        assert clock.waiting.acquire(timeout=PATIENCE_S)
        assert not submitted
        assert queue.statistics().submitted == 1
        if how == "cancel":
            head.cancel()
        governor.script(start())
        queue.resources_changed()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

        assert submitted[0].result(PATIENCE_S) == "ran"


def test_many_submitters_never_exceed_the_capacity() -> None:
    clock = WatchedClock()
    governor = ScriptedGovernor([wait()], clock=clock)
    most: list[int] = []
    with TaskQueue(governor, capacity=3) as queue:
        submitted: list[Task] = [queue.submit(lambda _: None, estimate=ANY) for _ in range(3)]
        threads = [start_submitter(queue, submitted, number) for number in range(10)]
        for _ in threads:
            assert clock.waiting.acquire(timeout=PATIENCE_S)
        governor.on_answer = lambda: most.append(queue.statistics().pending)
        governor.script(start())
        queue.resources_changed()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    assert len(submitted) == 13
    assert max(most) <= 3


def test_a_paused_task_takes_room(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()]), capacity=1) as queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        paused = queue.submit(lambda _: None, estimate=ANY)
        paused.pause()
        with pytest.raises(QueueFull):
            queue.submit_nowait(lambda _: None, estimate=ANY)
        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        with pytest.raises(QueueFull):
            queue.submit_nowait(lambda _: None, estimate=ANY)
        paused.resume()

    assert paused.state is TaskState.COMPLETED


def test_a_callback_that_would_wait_for_room_is_told() -> None:
    """Only its own worker could make room."""

    def callback(_context: TaskContext) -> None:
        first = queue.submit(lambda _: None, estimate=ANY)
        with pytest.raises(WouldDeadlock):
            queue.submit(lambda _: None, estimate=ANY)
        with pytest.raises(QueueFull):
            queue.submit_nowait(lambda _: None, estimate=ANY)
        first.cancel()
        queue.submit(lambda _: None, estimate=ANY)

    with TaskQueue(ScriptedGovernor([start()]), capacity=1) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.result(PATIENCE_S) is None

    assert queue.statistics().submitted == 3


@pytest.mark.parametrize("capacity", [0, -1, True])
def test_a_capacity_is_at_least_one(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity must be an integer of at least 1"):
        TaskQueue(ScriptedGovernor([start()]), capacity=capacity)
