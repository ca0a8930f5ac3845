"""A cluster in memory with objects that no record claims, and who looks for them."""

from __future__ import annotations

import secrets
from typing import Any, Final

from lardon.dispatch import JobSpec, Ref, State, UnmatchedPolicy, new_ulid
from lardon.dispatch.enums import Shape
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.records import MemoryRecords
from lardon.dispatch.supervisor import Supervisor
from lardon.testing import ManualClock

LEAVE, REPORT, STOP = UnmatchedPolicy
POLL_S: Final = 15.0
GRACE_S: Final = 40.0


class Core:
    """A cluster, a store, and who looks after it."""

    def __init__(self, clock: ManualClock, shape: Shape = Shape.SLURM, **settings: Any) -> None:
        self.clock = clock
        self.backend = MemoryBackend(clock=clock, shape=shape, **settings)
        self.env = self.backend.env()
        self.records = MemoryRecords()
        self.operator = Operator(self.backend, self.records, clock)

    def supervisor(self, unmatched: Any, grace_s: float | None = GRACE_S) -> Supervisor:
        how: dict[str, Any] = {"unmatched": unmatched, "unmatched_grace_s": grace_s}
        return Supervisor("one", self.operator, **how)

    def stray(self) -> Ref:
        job = new_ulid(self.clock.wall(), secrets.randbits)
        return self.backend.start(JobSpec(id=job, command=["stray"]))

    def stands(self, stray: Ref) -> bool:
        return self.env.truth(stray).state in (State.PENDING, State.RUNNING)


def refs(supervisor: Supervisor) -> list[Ref]:
    return [one.ref for one in supervisor.unmatched()]


def turns(core: Core, supervisor: Supervisor, count: int) -> None:
    for _ in range(count):
        supervisor.turn()
        core.clock.advance(POLL_S)
