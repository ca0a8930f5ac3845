"""The trace of the locality measures, and a run of it in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lardon.locality import Placement

ARTIFACTS: Final = 32
WORKERS: Final = 8
KEPT: Final = 8
"""Artifacts that a worker keeps; the least recently used goes."""
LOAD_S: Final = 2.0
"""What a miss costs on top; the computation of a job is exponential with a mean of 1 s."""

CONFIGURATIONS: Final[dict[str, dict[str, Any]]] = {
    "pool": {"order": "local-first", "cold": "now", "max_age_s": 3600.0},
    "document": {},
}
"""What `WorkerPool` uses, and the defaults."""
TIMEOUTS: Final[dict[str, Any]] = {"cache_timeout_s": 0.1, "deps_timeout_s": 1.0}


@attrs.frozen
class Trace:
    """Jobs that are all there at time 0: the artifact that each needs, and how long it computes."""

    artifacts: tuple[int, ...]
    compute_s: tuple[float, ...]

    @classmethod
    def of(cls, jobs: int, seed: int = 0) -> Trace:
        """Return *jobs* jobs over the artifacts by Zipf's law with exponent 1."""
        rng = random.Random(seed)
        weights = [1 / (rank + 1) for rank in range(ARTIFACTS)]
        return cls(
            tuple(rng.choices(range(ARTIFACTS), weights, k=jobs)),
            tuple(rng.expovariate(1.0) for _ in range(jobs)),
        )

    @property
    def used(self) -> int:
        """How many artifacts are needed at all: an omniscient run loads each once."""
        return len(set(self.artifacts))

    @property
    def ceiling(self) -> float:
        """The hit share of an omniscient run; the workers together can keep all artifacts."""
        return 1 - self.used / len(self.artifacts)

    @property
    def bound_s(self) -> float:
        """No run is shorter: the work over the workers, or the longest job."""
        work = sum(self.compute_s) + LOAD_S * self.used
        return max(work / WORKERS, *self.compute_s)

    def judged(self, hits: int, makespan_s: float) -> dict[str, float]:
        """Return the two figures of a run."""
        jobs = len(self.artifacts)
        return {
            "hit_share": hits / jobs / self.ceiling if self.ceiling else 1.0,
            "makespan": makespan_s / self.bound_s,
            "misses": jobs - hits,
        }


def simulate(jobs: int, configuration: str, seed: int) -> dict[str, float]:
    """Run the trace on a `Placement` in virtual time; runs in a child."""
    from lardon.locality import Placement
    from lardon.locality.options import Options

    options = Options(**TIMEOUTS, **CONFIGURATIONS[configuration])
    return _Simulation(Trace.of(jobs, seed), Placement(options, random.Random(seed))).run()


class _Simulation:
    """Workers that pick whenever they are free, and what time it is."""

    def __init__(self, trace: Trace, placement: Placement) -> None:
        from lardon.locality import Job

        self.trace = trace
        self.placement = placement
        self.kept: list[OrderedDict[Hashable, None]] = [OrderedDict() for _ in range(WORKERS)]
        self.hits = 0
        self.order = itertools.count()
        # (time, order, worker, the job that it ends then).
        self.events: list[tuple[float, int, int, int | None]] = []
        self.idle: set[int] = set()
        for worker in range(WORKERS):
            placement.register(worker, 0.0)
            self._wake(worker, 0.0)
        for number, artifact in enumerate(trace.artifacts):
            placement.schedule(Job(number, (("artifact", artifact),)), 0.0)

    def _wake(self, worker: int, at: float) -> None:
        heapq.heappush(self.events, (at, next(self.order), worker, None))

    def run(self) -> dict[str, float]:
        """Go on until nothing happens any more."""
        now = 0.0
        while self.events or self.idle:
            deadline = self.placement.next_deadline()
            if self.idle and deadline is not None:
                if not self.events or deadline < self.events[0][0]:
                    now = deadline
                    self._wake_idle(now)
            elif not self.events:
                break
            now, _, worker, done = heapq.heappop(self.events)
            self.placement.tick(now)
            if done is not None:
                self._end(worker, done, now)
            self._pick(worker, now)
        return self.trace.judged(self.hits, now)

    def _wake_idle(self, now: float) -> None:
        for worker in sorted(self.idle):
            self._wake(worker, now)
        self.idle.clear()

    def _end(self, worker: int, job: int, now: float) -> None:
        self.placement.complete(worker, job, now)
        # The result is nobody's artifact; what it needed is.
        self.placement.forget(worker, (job,))
        self.placement.learn(worker, (("artifact", self.trace.artifacts[job]),))
        self._wake_idle(now)

    def _pick(self, worker: int, now: float) -> None:
        handle = self.placement.pick(worker, now)
        if handle is None:
            self.idle.add(worker)
            return
        number = handle.job.id
        assert isinstance(number, int)
        kept, artifact = self.kept[worker], ("artifact", self.trace.artifacts[number])
        takes_s = self.trace.compute_s[number]
        if artifact in kept:
            self.hits += 1
            kept.move_to_end(artifact)
        else:
            takes_s += LOAD_S
            kept[artifact] = None
            if len(kept) > KEPT:
                self.placement.forget(worker, (kept.popitem(last=False)[0],))
        heapq.heappush(self.events, (now + takes_s, next(self.order), worker, number))
