"""Reports on time and waiting: jumping clocks, sleeping machines, huge timeouts, signals."""

from __future__ import annotations

import datetime
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import Policy, QueueClosed, ResourceEstimate, TaskQueue, TaskState
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
DAY: Final = datetime.timedelta(days=1)


class WaitingClock(ManualClock):
    """A clock that says when another thread than the worker waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        if threading.current_thread().name == "waiter":
            self.waits.set()
        return super().wait_for(condition, predicate, timeout)


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_h78_a_jump_of_the_wall_clock_moves_no_deadline(jump: datetime.timedelta) -> None:
    clock = WaitingClock()
    governor = ScriptedGovernor([wait()], clock=clock, policy=Policy(recheck_s=0.5))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: "ran", estimate=ANY, start_timeout_s=1_000.0)
        assert queue.wait_parked(PATIENCE_S)
        answers: list[bool] = []
        waiter = threading.Thread(
            target=lambda: answers.append(task.wait(timeout=5.0)), name="waiter"
        )
        waiter.start()
        assert clock.waits.wait(PATIENCE_S)
        # The waiter sleeps once it has let go of the lock.
        with queue._signal.lock:
            pass
        clock.set_wall(clock.wall() + jump)
        clock.advance(4.9)
        assert queue.wait_parked(PATIENCE_S)
        assert not answers
        assert task.state is TaskState.PENDING
        clock.advance(0.1)
        waiter.join(PATIENCE_S)
        assert answers == [False]

        governor.script(start())
        queue.resources_changed()
        assert task.result(PATIENCE_S) == "ran"
    view = task.snapshot()
    assert view.started_at is not None
    assert view.finished_at is not None
    assert (view.started_at - view.submitted_at).total_seconds() == pytest.approx(5.0)
    assert view.finished_at >= view.started_at


def test_h79_after_a_gap_a_fresh_answer_decides() -> None:
    """
    Time asleep does not count, for the machine's monotonic clock stands still meanwhile.

    On a clock that counts it, the first look after the gap asks the governor before it
    fails anything that was asked for.
    """
    clock = ManualClock()
    governor = ScriptedGovernor([wait()], clock=clock)
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: "ran", estimate=ANY, start_timeout_s=600.0)
        assert queue.wait_parked(PATIENCE_S)
        governor.script(start())
        # The gap on a machine that slept: wall time went on, monotonic time did not.
        clock.set_wall(clock.wall() + datetime.timedelta(minutes=30))
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PENDING
        asked = len(governor.asked)
        clock.advance(1_800.0)

        assert task.result(PATIENCE_S) == "ran"
    assert len(governor.asked) == asked + 1


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 1e18])
def test_h80_endless_and_huge_timeouts_wait_and_do_not_overflow(
    gate: Gate, timeout: float | None
) -> None:
    """With the machine's own clock, in the caller's thread and in the worker's."""
    governor = ScriptedGovernor([start(), wait()], policy=Policy(recheck_s=1e300))
    with TaskQueue(governor) as queue:
        task = queue.submit(
            lambda context: gate(context) and context.sequence_break(timeout=timeout),
            estimate=ANY,
            start_timeout_s=timeout,
        )
        gate.wait_entered()
        answers: list[object] = []
        calls: list[Callable[[], object]] = [
            lambda: task.wait(timeout),
            lambda: task.result(timeout),
            lambda: task.exception(timeout),
            lambda: queue.join(timeout),
        ]
        threads = [
            threading.Thread(target=lambda call=call: answers.append(call())) for call in calls
        ]
        for thread in threads:
            thread.start()
        gate.open()
        assert queue.wait_parked(timeout)
        governor.script(start())
        queue.resources_changed()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert len(answers) == 4
        assert queue.close(timeout)


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan"), float("-inf")])
def test_h80_negative_timeouts_are_refused(timeout: float) -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        calls: list[Callable[[float], object]] = [
            task.wait,
            task.result,
            task.exception,
            queue.join,
            queue.close,
            queue.wait_parked,
        ]
        for call in calls:
            with pytest.raises(ValueError, match="timeout"):
                call(timeout)
        with pytest.raises(ValueError, match="start_timeout_s"):
            queue.submit(lambda _: None, estimate=ANY, start_timeout_s=timeout)
        assert queue.statistics().submitted == 1
        task.cancel()


class Interruption:
    """Calls something at the n-th step of the interpreter inside lardon, like a signal."""

    def __init__(self, at: int, handler: Callable[[], object]) -> None:
        self._left = at
        self._handler = handler
        self.happened = False

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if "lardon" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if not self.happened:
            self._left -= 1
            if self._left <= 0:
                self.happened = True
                self._handler()
        return self


@pytest.mark.slow
@pytest.mark.parametrize("phase", range(4))
def test_h82_closing_inside_an_interrupted_submit_never_blocks(phase: int) -> None:
    """At every single step of `submit`: what a handler of a signal would do there."""
    step, happened = 1 + phase, True
    tries = 0
    while happened:
        queue = TaskQueue(ScriptedGovernor([start()]))
        answers: list[bool] = []
        # What is interrupted on this thread is the call, and the handler runs inside it.
        interruption = Interruption(step, lambda: answers.append(queue.close(PATIENCE_S)))  # noqa: B023
        before = sys.gettrace()
        sys.settrace(interruption)
        try:
            task = queue.submit(lambda _: None, estimate=ANY)
        except QueueClosed:
            task = None
        finally:
            sys.settrace(before)
        assert queue.close(PATIENCE_S)
        assert task is None or task.state.terminal
        assert queue.join(timeout=0)
        happened = interruption.happened
        assert len(answers) == happened
        step += 4
        tries += 1

    assert tries > 20


def test_h82_a_signal_handler_closes_the_queue_of_a_submit_loop() -> None:
    """A real signal, from another thread, at some moment of the loop."""
    main = threading.main_thread().ident
    assert main is not None
    before = signal.getsignal(signal.SIGUSR1)
    try:
        for _ in range(50):
            queue = TaskQueue(ScriptedGovernor([start()]))
            signal.signal(signal.SIGUSR1, lambda _number, _frame: queue.close(PATIENCE_S))  # noqa: B023
            sender = threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGUSR1))
            with pytest.raises(QueueClosed):
                for number in range(1_000_000):
                    queue.submit(lambda _: None, estimate=ANY)
                    if number == 5:
                        sender.start()
            sender.join(PATIENCE_S)
            assert queue.close(PATIENCE_S)
            assert queue.join(timeout=0)
    finally:
        signal.signal(signal.SIGUSR1, before)
