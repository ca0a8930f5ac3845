"""What must hold of the objects that no record claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.sim.faults import job_of

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.dispatch.memory import MemoryEnvironment
    from lardon.dispatch.model import Observation, Ref
    from lardon.dispatch.sim.store import SimRecords


class SweepJudge:
    """
    Knows since when each object is without a record, and so which of them may be stopped.

    Args:
        records: The store, of which it asks what can be seen.
        env: The truth.
        clock: What time it is.
        policy: What the supervisors of the run are told.
        grace_s: For how long an object has to be without a record before it is stopped.

    """

    def __init__(
        self,
        records: SimRecords,
        env: MemoryEnvironment,
        clock: Clock,
        policy: UnmatchedPolicy,
        grace_s: float,
    ) -> None:
        self._records = records
        self._env = env
        self._clock = clock
        self._policy = policy
        self._grace_s = grace_s
        self._since_s: dict[Ref, float] = {}
        self.stopped = 0
        """How many stops went out to objects that no record claims."""

    def look(self) -> None:
        """Note after a step which objects are without a record now."""
        now_s = self._clock.monotonic()
        before, self._since_s = self._since_s, {}
        for ref in self._env.refs():
            if self._records.load(job_of(ref.name)) is None:
                self._since_s[ref] = before.get(ref, now_s)

    def verdict(self, ref: Ref) -> str | None:
        """Return what is wrong with a stop of *ref* that no record plans, or None."""
        if ref not in self._env.refs():
            return None  # nothing can come of it
        since_s = self._since_s.get(ref)
        if since_s is None and self._policy is UnmatchedPolicy.LEAVE:
            return None  # no look for strays was made, so it was stopped for another reason
        if since_s is None:
            return "an object of a job on record was stopped as if it were nobody's"
        if self._policy is not UnmatchedPolicy.STOP:
            return f"an object of no record was stopped, and the policy is {self._policy}"
        waited_s = self._clock.monotonic() - since_s
        if waited_s < self._grace_s:
            return f"an object was stopped {waited_s:g} s after its record, before the grace"
        self.stopped += 1
        return None

    def end(self, live: Iterable[Ref], listed: Iterable[Observation]) -> str | None:
        """Return what is wrong with what a supervisor lists at the end, or None."""
        there = set() if self._policy is UnmatchedPolicy.LEAVE else set(live)
        seen = {one.ref for one in listed}
        if seen != there:
            return f"{len(seen)} objects of no record are listed, and {len(there)} are there"
        return None
