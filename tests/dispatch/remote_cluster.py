"""A pool on a cluster in memory, under a test's clock."""

from __future__ import annotations

from typing import Any, Final

from lardon import GiB, ResourceEstimate
from lardon.dispatch.enums import Shape, State
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.model import Observation, Ref
from lardon.dispatch.remote import RemoteHandle, RemotePool
from lardon.testing import ManualClock

PATIENCE_S: Final = 10.0
COMMAND: Final = ["python", "train.py"]
ONE: Final = ResourceEstimate(ram_bytes=GiB)


class RemoteCluster:
    """Makes a pool, and lets its cluster work one look at a time."""

    def __init__(self, clock: ManualClock, shape: Shape = Shape.SLURM, **settings: Any) -> None:
        self.clock = clock
        self.backend = MemoryBackend(clock=clock, shape=shape, **settings)
        self.env = self.backend.env()
        self.pools: list[RemotePool] = []

    def pool(self, **arguments: Any) -> RemotePool:
        limits = {"jobs": 4, "cpus": 8, "ram_bytes": 8 * GiB, "backend": self.backend}
        made = RemotePool(**{**limits, "clock": self.clock, **arguments})
        self.pools.append(made)
        self.rest()
        return made

    def rest(self) -> None:
        """Return once every waiter sleeps and nothing is due."""
        for pool in self.pools:
            if not pool._waiter.closing:
                assert pool.wait_parked(PATIENCE_S)

    def passes(self, seconds: float = 15.0) -> None:
        """Let time pass, and everything happen that is due then."""
        self.clock.advance(seconds)
        self.rest()

    def objects(self, handle: RemoteHandle) -> list[Observation]:
        return list(self.backend.find_all(handle.id))

    def ref(self, handle: RemoteHandle) -> Ref:
        (live,) = [one for one in self.objects(handle) if not one.ended]
        return live.ref

    def run(self, handle: RemoteHandle) -> Ref:
        """Run the job's object, and let the pool see it."""
        ref = self.ref(handle)
        self.env.run(ref)
        self.passes()
        return ref

    def finish(self, handle: RemoteHandle, exit_code: int = 0) -> None:
        """Let the job run and return, and the pool see that."""
        ref = self.ref(handle)
        if self.env.truth(ref).state is State.PENDING:
            self.env.run(ref)
        self.env.finish(ref, exit_code)
        self.passes()

    def close(self) -> None:
        for pool in self.pools:
            pool.close(wait=False)
