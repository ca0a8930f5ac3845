"""`start_timeout_s`: a task that is not admitted in time is FAILED with the last WAIT's reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from lardon import Policy, ReasonCode, ResourceEstimate, TaskQueue, TaskRefused, TaskState
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import Decision, Task
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
SLOTS: Final = wait("no slot", code=ReasonCode.CPUS_BUSY)


def assert_late(task: Task, text: str) -> None:
    assert task.wait(PATIENCE_S)
    assert task.state is TaskState.FAILED
    assert not task.started
    assert task.reason is not None
    assert text in task.reason.text
    with pytest.raises(TaskRefused, match=text):
        task.result(timeout=0)


@pytest.mark.parametrize("answer", [SLOTS, wait("no slot")], ids=["slots", "live"])
def test_a_waiting_head_fails_with_the_last_answer(answer: Decision) -> None:
    """By a timer of its own, also where the wait itself needs none."""
    clock = ManualClock()
    governor = ScriptedGovernor([answer], clock=clock, policy=Policy(recheck_s=0.5))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.25)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1.0)
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PENDING
        clock.advance(0.25)

        assert_late(task, "no slot")
        with pytest.raises(TaskRefused) as caught:
            task.result(timeout=0)
        assert caught.value.decision == answer


def test_the_head_is_asked_for_once_more_at_its_deadline() -> None:
    """What came free in the last moment is taken, on a fresh snapshot."""
    clock = ManualClock()
    governor = ScriptedGovernor([SLOTS, start()], clock=clock)
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: "ran", estimate=ANY, start_timeout_s=1.0)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1.0)

        assert task.result(PATIENCE_S) == "ran"


def test_a_task_behind_a_waiting_head_fails_in_its_own_time() -> None:
    """It was never asked for; the reason says what stood in its way."""
    clock = ManualClock()
    governor = ScriptedGovernor([SLOTS], clock=clock)
    with TaskQueue(governor) as queue:
        head = queue.submit(lambda _: None, estimate=ANY)
        slow = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=3.0)
        fast = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.0)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1.0)
        assert_late(fast, "within 1.0 s")
        assert fast.reason is not None
        assert fast.reason.code is ReasonCode.START_TIMEOUT
        assert queue.wait_parked(PATIENCE_S)
        assert (head.state, slow.state) == (TaskState.PENDING, TaskState.PENDING)
        clock.advance(2.0)
        assert_late(slow, "within 3.0 s")
        assert queue.wait_parked(PATIENCE_S)
        head.cancel()


def test_a_task_behind_a_running_one_fails_when_the_worker_is_free(gate: Gate) -> None:
    clock = ManualClock()
    with TaskQueue(ScriptedGovernor([start()], clock=clock)) as queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        late = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.0)
        in_time = queue.submit(lambda _: "ran", estimate=ANY, start_timeout_s=3.0)
        clock.advance(2.0)
        gate.open()

        assert_late(late, "within 1.0 s")
        assert in_time.result(PATIENCE_S) == "ran"


def test_a_task_that_was_asked_for_earlier_keeps_its_reason() -> None:
    """Told to wait, then overtaken by an older task that is resumed: its own answer counts."""
    clock = ManualClock()
    governor = ScriptedGovernor([SLOTS], clock=clock)
    with TaskQueue(governor) as queue:
        older = queue.submit(lambda _: None, estimate=ANY)
        older.pause()
        task = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.0)
        assert queue.wait_parked(PATIENCE_S)
        governor.script(wait("for the older"))
        older.resume()
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1.0)

        assert_late(task, "no slot")
        assert queue.wait_parked(PATIENCE_S)
        assert older.state is TaskState.PENDING
        older.cancel()


def test_an_expired_head_that_an_older_task_overtakes_still_fails() -> None:
    """Granted at its deadline, and overtaken during the answer: it has no second chance."""
    clock = ManualClock()
    governor = ScriptedGovernor([SLOTS], clock=clock)
    with TaskQueue(governor) as queue:
        older = queue.submit(lambda _: None, estimate=ANY)
        older.pause()
        task = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.0)
        assert queue.wait_parked(PATIENCE_S)

        def overtake() -> None:
            governor.on_answer = None
            older.resume()

        governor.on_answer = overtake
        governor.script(start(), SLOTS)
        clock.advance(1.0)

        assert_late(task, "no slot")
        assert queue.wait_parked(PATIENCE_S)
        assert older.state is TaskState.PENDING
        older.cancel()
    assert governor.reservations() == ()


def test_a_paused_task_is_not_failed_before_it_is_resumed() -> None:
    clock = ManualClock()
    with TaskQueue(ScriptedGovernor([SLOTS], clock=clock)) as queue:
        task = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.0)
        other = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        task.pause()
        clock.advance(1_000.0)
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PAUSED
        task.resume()

        assert_late(task, "no slot")
        other.cancel()


def test_a_task_resumed_in_time_has_its_old_deadline() -> None:
    clock = ManualClock()
    with TaskQueue(ScriptedGovernor([SLOTS], clock=clock)) as queue:
        task = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=2.0)
        assert queue.wait_parked(PATIENCE_S)
        task.pause()
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1.0)
        task.resume()
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PENDING
        clock.advance(1.0)

        assert_late(task, "no slot")


def test_a_started_task_has_no_deadline(gate: Gate) -> None:
    clock = ManualClock()
    with TaskQueue(ScriptedGovernor([start()], clock=clock)) as queue:
        task = queue.submit(gate, estimate=ANY, start_timeout_s=1.0)
        gate.wait_entered()
        clock.advance(10.0)
        queue.resources_changed()
        gate.open()

        assert task.result(PATIENCE_S) is True


def test_a_task_paused_while_it_runs_out_of_time_is_not_failed() -> None:
    """The pause came first, during the very answer that would have ended it."""
    clock = ManualClock()
    governor = ScriptedGovernor([SLOTS], clock=clock)
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1.0)
        assert queue.wait_parked(PATIENCE_S)
        governor.on_answer = task.pause
        clock.advance(1.0)
        assert queue.wait_parked(PATIENCE_S)

        assert task.state is TaskState.PAUSED
        task.cancel()


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_nonsense_is_refused_at_submit(timeout: float) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        for submit in (queue.submit, queue.submit_nowait):
            with pytest.raises(ValueError, match="start_timeout_s"):
                submit(lambda _: None, estimate=ANY, start_timeout_s=timeout)
        assert queue.statistics().submitted == 0


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300])
def test_no_limit_and_huge_limits(timeout: float | None) -> None:
    """With the machine's clock: nothing overflows on the worker's thread."""
    governor = ScriptedGovernor([SLOTS])
    with TaskQueue(governor) as queue:
        task = queue.submit_nowait(lambda _: "ran", estimate=ANY, start_timeout_s=timeout)
        assert queue.wait_parked(PATIENCE_S)
        governor.script(start())
        queue.resources_changed()

        assert task.result(PATIENCE_S) == "ran"


def test_a_time_of_zero_asks_once() -> None:
    """As a lock is tried: admitted now, or refused with the governor's own answer."""
    governor = ScriptedGovernor([start(), wait("no room")])
    with TaskQueue(governor) as queue:
        admitted = queue.submit(lambda context: "ran", estimate=ANY, start_timeout_s=0)
        assert admitted.result(timeout=10) == "ran"
        refused = queue.submit(lambda context: "ran", estimate=ANY, start_timeout_s=0)
        assert refused.wait(timeout=10)

    assert refused.state is TaskState.FAILED
    assert str(refused.reason) == "no room"
    assert len(governor.asked) == 2
