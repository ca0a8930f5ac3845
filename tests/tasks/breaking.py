"""A queue whose task breaks its sequence, and what must hold where a break ends the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import (
    Contract,
    Policy,
    ReasonCode,
    ResourceEstimate,
    TaskCancelled,
    TaskQueue,
    TaskRefused,
    TaskState,
)
from lardon.testing import ManualClock, ScriptedGovernor, reject, start, wait

if TYPE_CHECKING:
    from lardon import Decision, Task, TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=8)
ANSWERS: Final[dict[str, Decision | BaseException]] = {
    "start": start(batch_size=2),
    "wait": wait(),
    "reject": reject(),
    "raise": OSError("the governor broke"),
}


class Breaker:
    """
    A queue whose one task is in its callback, and what was seen at every answer.

    `run` submits a callback; `answers` notes, at each question, the active reservations and
    the contract that a reader saw.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.governor = ScriptedGovernor(
            [start(batch_size=4)], clock=self.clock, policy=Policy(recheck_s=0.5)
        )
        self.queue = TaskQueue(self.governor)
        self.task: Task | None = None
        self.actions: list[Callable[[], object]] = []
        self.active: list[int] = []
        self.contracts: list[Contract | None] = []
        self.governor.on_answer = self._answering

    def _answering(self) -> None:
        self.active.append(len(self.governor.reservations()))
        self.contracts.append(self.queue.get(1).contract)
        if len(self.active) > 1 and self.actions:
            self.actions.pop(0)()

    def run(
        self, callback: Callable[[TaskContext], Any], *answers: Decision | BaseException
    ) -> Task:
        """Run *callback*, whose breaks get *answers*."""
        self.governor.script(start(batch_size=4), *answers)
        self.task = self.queue.submit(callback, estimate=ANY)
        return self.task

    def during_break(self, *actions: Callable[[], object]) -> None:
        """Do one of *actions* at each answer to a break."""
        self.actions.extend(actions)

    def parked(self) -> Task:
        """Wait until the worker sleeps inside the callback."""
        assert self.queue.wait_parked(PATIENCE_S)
        assert self.task is not None
        return self.task

    def held(self) -> int:
        return len(self.governor.reservations())


def assert_refused(task: Task, reason: str, decision: Decision | None) -> None:
    assert task.wait(PATIENCE_S)
    assert task.state is TaskState.FAILED
    assert task.reason is not None
    assert reason in task.reason.text
    with pytest.raises(TaskRefused, match=reason) as caught:
        task.result(timeout=0)
    assert caught.value.task_id == task.id
    assert caught.value.decision == decision


def assert_cancelled(task: Task) -> None:
    assert task.wait(PATIENCE_S)
    assert task.state is TaskState.CANCELLED
    assert task.reason is not None
    assert task.reason.code is ReasonCode.CANCELLED
    with pytest.raises(TaskCancelled):
        task.result(timeout=0)
