"""`with TaskQueue() as queue`: waits for the tasks, or cancels them all, and always closes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


def test_a_normal_exit_waits_for_the_tasks() -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        tasks = [queue.submit(lambda _: "ran", estimate=ANY) for _ in range(50)]

    assert all(task.state is TaskState.COMPLETED for task in tasks)
    assert not queue.statistics().worker_alive


def test_a_normal_exit_waits_for_tasks_that_tasks_submit() -> None:
    ran: list[int] = []

    def callback(context: TaskContext) -> None:
        ran.append(context.task_id)
        if context.task_id < 10:
            queue.submit(callback, estimate=ANY)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.submit(callback, estimate=ANY)

    assert ran == list(range(1, 11))


def test_a_normal_exit_cancels_what_is_still_paused_and_names_it(gate: Gate) -> None:
    queue = TaskQueue(ScriptedGovernor([start()]), name="photos")
    warned = pytest.warns(RuntimeWarning, match="'photos'.*paused tasks.*: parked, one, two$")
    with warned, queue:
        parked = queue.submit(gate, estimate=ANY, name="parked")
        gate.wait_entered()
        parked.pause()
        one = queue.submit(lambda _: None, estimate=ANY, name="one")
        ran = queue.submit(lambda _: "ran", estimate=ANY)
        two = queue.submit(lambda _: None, estimate=ANY, name="two")
        one.pause()
        two.pause()
        gate.open()

    assert [task.state for task in (parked, one, two)] == [TaskState.CANCELLED] * 3
    # What was only behind them is waited for.
    assert ran.result(timeout=0) == "ran"


def test_a_pause_that_comes_late_does_not_hold_up_the_exit(gate: Gate) -> None:
    """The task parks while the block is being left; nobody is there to resume it."""
    queue = TaskQueue(ScriptedGovernor([start()]))
    leaver = threading.Thread(target=gate.open)
    warned = pytest.warns(RuntimeWarning, match="task-1")
    with warned, queue:
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        task.pause()
        leaver.start()

    leaver.join(PATIENCE_S)
    assert task.state is TaskState.CANCELLED


def test_a_pause_withdrawn_during_the_exit_lets_the_task_go_on(gate: Gate) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with TaskQueue(ScriptedGovernor([start()])) as queue:
            task = queue.submit(gate, estimate=ANY)
            gate.wait_entered()
            task.pause()
            helper = threading.Thread(target=lambda: (task.resume(), gate.open()))
            helper.start()

    helper.join(PATIENCE_S)
    assert task.result(timeout=0) is True


def test_an_exception_in_the_body_cancels_everything(gate: Gate) -> None:
    governor = ScriptedGovernor([start()])
    with pytest.raises(OSError, match="in the body"), TaskQueue(governor) as queue:
        running = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        others = [queue.submit(lambda _: None, estimate=ANY) for _ in range(3)]
        others[0].pause()
        others[1].add_done_callback(lambda _: gate.open())
        raise OSError("in the body")

    assert {task.state for task in (running, *others)} == {TaskState.CANCELLED}
    assert governor.reservations() == ()


def test_a_queue_closed_in_the_body_is_left_at_once() -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.close(PATIENCE_S)

    assert task.state is TaskState.CANCELLED


class WatchedClock(ManualClock):
    """A clock that calls back when the main thread begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.on_main_waits: Callable[[], object] | None = None

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        if threading.current_thread() is threading.main_thread() and self.on_main_waits:
            self.on_main_waits()
        return super().wait_for(condition, predicate, timeout)


def test_a_queue_closed_while_the_block_is_left(gate: Gate) -> None:
    clock = WatchedClock()
    with TaskQueue(ScriptedGovernor([start()], clock=clock)) as queue:
        running = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        pending = queue.submit(lambda _: None, estimate=ANY)
        pending.add_done_callback(lambda _: gate.open())
        closer = threading.Thread(target=queue.close)
        # It gets the lock once the main thread sleeps.
        clock.on_main_waits = closer.start

    closer.join(PATIENCE_S)
    assert (running.state, pending.state) == (TaskState.CANCELLED, TaskState.CANCELLED)


def test_ctrl_c_while_the_block_is_left_closes_the_queue() -> None:
    """The tasks are cancelled as by an exception in the body; the interrupt comes through."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock = WatchedClock()
    queue = TaskQueue(ScriptedGovernor([wait()], clock=clock))
    with pytest.raises(KeyboardInterrupt), queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        clock.on_main_waits = interrupt

    assert task.state is TaskState.CANCELLED
    assert not queue.statistics().worker_alive


def test_a_callback_may_leave_a_block_of_its_own_queue() -> None:
    """It cannot wait for itself: the queue is closed when the callback ends."""

    def callback(_context: TaskContext) -> None:
        with queue:
            pass

    queue = TaskQueue(ScriptedGovernor([start()]))
    task = queue.submit(callback, estimate=ANY)

    assert task.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert task.state is TaskState.CANCELLED
