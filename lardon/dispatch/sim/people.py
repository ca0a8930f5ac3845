"""The people of a simulated run: they submit jobs, hold, release and stop them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from lardon.dispatch.enums import Action, Cause
from lardon.dispatch.errors import DispatchError
from lardon.dispatch.model import JobSpec
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.ulid import new_ulid

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.sim.invariants import Judge

_RESTARTABLE: Final = (
    Cause.PREEMPTED,
    Cause.NODE_LOST,
    Cause.OUT_OF_MEMORY,
    Cause.NON_ZERO_EXIT,
    Cause.CANCELLED,
    Cause.UNKNOWN,
)
# How often a policy has a rule for a cause.
_RULED: Final = 0.7
_WISHES: Final = {"hold": 3, "release": 4, "stop": 1}


class People:
    """
    Asks for what people ask for, as the seed has it.

    Args:
        operator: Who takes it down.
        rng: What is asked for next.
        judge: Told of every job.
        most: How many jobs there will be.

    """

    def __init__(self, operator: Operator, rng: random.Random, judge: Judge, most: int) -> None:
        self.jobs: list[str] = []
        """What was submitted, in order."""
        self._operator = operator
        self._rng = rng
        self._judge = judge
        self._most = most

    def act(self) -> str | None:
        """Ask for one thing; return what, or None where there was nothing to ask for."""
        if len(self.jobs) < self._most and self._rng.choice([False, True]):
            return self.submit()
        unfinished = self.unfinished()
        if not unfinished:
            return None
        job = self._rng.choice(unfinished)
        what = self._rng.choices(list(_WISHES), weights=list(_WISHES.values()))[0]
        try:
            getattr(self._operator, what)(job)
        except DispatchError:
            return None
        return f"person: {what} {job[-8:]}"

    def submit(self) -> str | None:
        """Submit the next job, or return None when all were."""
        if len(self.jobs) >= self._most:
            return None
        job = new_ulid(self._operator.clock.wall(), self._rng.getrandbits)
        spec = JobSpec(id=job, command=["work"], ram_bytes=self._rng.choice([None, 1 << 30]))
        record = self._operator.submit(spec, policy=self._policy())
        self._judge.submitted(record)
        self.jobs.append(job)
        return f"person: submit {job[-8:]}"

    def release_all(self) -> None:
        """Release every job that is held."""
        for job in self.unfinished():
            record = self._operator.records.load(job)
            if record is not None and record.outcome is None:
                self._operator.release(job)

    def unfinished(self) -> list[str]:
        """Return the jobs of which something can still come."""
        loaded = (self._operator.records.load(job) for job in self.jobs)
        return [record.id for record in loaded if record is not None and not record.closed]

    def _policy(self) -> RecoveryPolicy:
        rng = self._rng
        rules = [
            RecoveryRule(
                cause,
                rng.choice([Action.RESTART, Action.RESTART, Action.REQUEUE]),
                limit=rng.choice([1, 2, 5]),
                delay_s=rng.choice([0, 5]),
                ram_factor=1.5 if cause is Cause.OUT_OF_MEMORY else 1.0,
            )
            for cause in _RESTARTABLE
            if rng.random() < _RULED
        ]
        return RecoveryPolicy(rules, max_executions=rng.choice([3, 20]))
