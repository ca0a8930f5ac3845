"""Waits that only more readings can end: a queue asks again whatever the policy says."""

from __future__ import annotations

from typing import Final

import pytest

from lardon import Policy, ReasonCode, ResourceEstimate, TaskContext, TaskQueue, TaskState
from lardon.queue.lifecycle import FADING_RECHECK_S
from lardon.testing import ManualClock, ScriptedGovernor
from lardon.testing.governor import start, wait

WAIT_S: Final = 5
SMALL: Final = ResourceEstimate()
NEVER: Final = Policy(recheck_s=None)


@pytest.mark.parametrize("code", [ReasonCode.ZONE, ReasonCode.FORECAST])
def test_a_waiting_task_is_examined_again(code: ReasonCode) -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([wait(code=code)], policy=NEVER, clock=clock)
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: 7, estimate=SMALL)
        assert queue.wait_parked(WAIT_S)
        governor.script(start())
        clock.advance(FADING_RECHECK_S)

        assert task.result(WAIT_S) == 7
    assert len(governor.asked) == 2


@pytest.mark.parametrize(
    "code", [ReasonCode.RAM_SHORT, ReasonCode.MEMORY_PRESSURE, ReasonCode.CPUS_BUSY]
)
def test_another_wait_is_not(code: ReasonCode) -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([wait(code=code)], policy=NEVER, clock=clock)
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: None, estimate=SMALL)
        assert queue.wait_parked(WAIT_S)
        clock.advance(1000 * FADING_RECHECK_S)
        assert queue.wait_parked(WAIT_S)
        assert len(governor.asked) == 1

        governor.script(start())
        queue.resources_changed()
        assert task.wait(WAIT_S)


def test_a_break_that_waits_is_examined_again() -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([start(2), wait(code=ReasonCode.ZONE)], policy=NEVER, clock=clock)

    def callback(context: TaskContext) -> int:
        assert context.sequence_break(timeout=None)
        return context.contract.batch_size

    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=SMALL)
        assert queue.wait_parked(WAIT_S)
        assert task.state is TaskState.RUNNING
        governor.script(start(3))
        clock.advance(FADING_RECHECK_S)

        assert task.result(WAIT_S) == 3


def test_the_policys_own_period_comes_first() -> None:
    clock = ManualClock()
    governor = ScriptedGovernor(
        [wait(code=ReasonCode.ZONE)], policy=Policy(recheck_s=60.0), clock=clock
    )
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: None, estimate=SMALL)
        assert queue.wait_parked(WAIT_S)
        governor.script(start())
        clock.advance(59.0)
        assert queue.wait_parked(WAIT_S)
        assert len(governor.asked) == 1
        clock.advance(1.0)
        assert task.wait(WAIT_S)
