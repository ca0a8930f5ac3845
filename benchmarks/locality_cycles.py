"""What one job costs the placement, and whether many leave anything behind."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.child import Unavailable
from benchmarks.locality_trace import CONFIGURATIONS, TIMEOUTS
from benchmarks.procfs import resident_bytes
from benchmarks.stats import median

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from lardon.locality import Job

# A few milliseconds: on a busy machine most turns then fit between two interruptions.
CYCLES_PER_TURN: Final = 500
# Artifacts that stay known, of those that the jobs leave.
KEPT: Final = 1000


class Handle:
    """What the bare loop hands out."""

    __slots__ = ("error", "job", "result", "stage")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.stage = "waiting"
        self.result: object = None
        self.error: object = None


class Bare:
    """One queue, one lock, and the same three operations: nothing is placed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.lock = threading.Lock()
        self.queue: deque[Handle] = deque()
        self.live: dict[Hashable, Handle] = {}
        self.where: dict[Hashable, set[int]] = {}

    def cycles(self, jobs: Sequence[Job]) -> None:
        """Schedule, pick and complete each."""
        lock, queue, live, where = self.lock, self.queue, self.live, self.where
        for number, job in enumerate(jobs):
            with lock:
                if job.id not in live:
                    handle = live[job.id] = Handle(job)
                    queue.append(handle)
            worker = number % self.workers
            with lock:
                handle = queue.popleft()
                handle.stage = "picked"
            with lock:
                handle = live.pop(handle.job.id)
                handle.result, handle.stage = number, "finished"
                where.setdefault(job.id, set()).add(worker)


class BareMethods(Bare):
    """The same with a method for each operation, as threads would call them."""

    def cycles(self, jobs: Sequence[Job]) -> None:
        """Schedule, pick and complete each."""
        for number, job in enumerate(jobs):
            self.schedule(job)
            worker = number % self.workers
            handle = self.pick()
            self.complete(worker, handle.job.id, number)

    def schedule(self, job: Job) -> Handle:
        """Return the handle of *job*, a new one unless it is live."""
        with self.lock:
            handle = self.live.get(job.id)
            if handle is None:
                handle = self.live[job.id] = Handle(job)
                self.queue.append(handle)
        return handle

    def pick(self) -> Handle:
        """Take the first job."""
        with self.lock:
            handle = self.queue.popleft()
            handle.stage = "picked"
        return handle

    def complete(self, worker: int, job_id: Hashable, result: object) -> bool:
        """Finish the job, and note where its result is."""
        with self.lock:
            handle = self.live.pop(job_id, None)
            if handle is not None:
                handle.result, handle.stage = result, "finished"
            self.where.setdefault(job_id, set()).add(worker)
        return handle is not None


class Placed:
    """A `Placement` behind the same lock."""

    def __init__(self, workers: int, configuration: str) -> None:
        from lardon.locality import Placement
        from lardon.locality.options import Options

        self.workers = workers
        self.lock = threading.Lock()
        self.placement = Placement(
            Options(**TIMEOUTS, **CONFIGURATIONS[configuration]), random.Random(0)
        )
        # Long enough for a job that waits to be offered to everybody.
        self.step_s = 0.0 if configuration == "pool" else TIMEOUTS["deps_timeout_s"]
        self.now = 0.0
        for worker in range(workers):
            self.placement.register(worker, 0.0)

    def cycles(self, jobs: Sequence[Job]) -> None:
        """Schedule, pick and complete each; the time is looked at in every call."""
        lock, placement, now = self.lock, self.placement, self.now
        for number, job in enumerate(jobs):
            with lock:
                placement.tick(now)
                placement.schedule(job, now)
            now += self.step_s
            worker = number % self.workers
            with lock:
                placement.tick(now)
                handle = placement.pick(worker, now)
            assert handle is not None
            with lock:
                placement.tick(now)
                placement.complete(worker, handle.job.id, now, number)
        self.now = now


def measure_cycles(cycles: int) -> dict[str, Any]:
    """Return µs per cycle of each, turn by turn, so that noise falls on all alike."""
    from lardon.locality import Job

    subjects: dict[str, Callable[[Sequence[Job]], None]] = {}
    for workers in (4, 256):
        subjects[f"bare_{workers}"] = Bare(workers).cycles
        subjects[f"methods_{workers}"] = BareMethods(workers).cycles
        for configuration in CONFIGURATIONS:
            name = f"{configuration}_{workers}"
            subjects[name] = Placed(workers, configuration).cycles
    turns: dict[str, list[float]] = {name: [] for name in subjects}
    size = min(cycles, CYCLES_PER_TURN)
    for turn in range(max(1, cycles // size)):
        jobs = [Job(number) for number in range(turn * size, (turn + 1) * size)]
        for name, run in subjects.items():
            before = time.perf_counter()
            run(jobs)
            turns[name].append((time.perf_counter() - before) / size * 1e6)
    result = {name: median(times) for name, times in turns.items()}
    for configuration in CONFIGURATIONS:
        for workers in (4, 256):
            own = turns[f"{configuration}_{workers}"]
            for peer in ("bare", "methods"):
                theirs = turns[f"{peer}_{workers}"]
                reach = [bare / placed for bare, placed in zip(theirs, own, strict=True)]
                result[f"{configuration}_{workers}_{peer}"] = median(reach)
        pairs = zip(turns[f"{configuration}_4"], turns[f"{configuration}_256"], strict=True)
        result[f"{configuration}_growth"] = median([large / small for small, large in pairs])
    return result


def measure_memory(jobs: int) -> dict[str, float]:
    """Return the growth per job over the last four fifths of a run that evicts; in a child."""
    if not Path("/proc/self/smaps_rollup").exists():
        message = "this system has no /proc/self/smaps_rollup"
        raise Unavailable(message)
    from lardon.locality import Job

    subject = Placed(8, "document")
    left: deque[Hashable] = deque()
    step = max(1, min(1000, jobs // 10))
    readings: list[tuple[int, int]] = []
    for start in range(0, jobs, step):
        batch = [Job(number, (number - 1,)) for number in range(start, start + step)]
        subject.cycles(batch)
        left.extend(job.id for job in batch)
        while len(left) > KEPT:
            artifact = left.popleft()
            holder = subject.placement.locate(artifact)
            assert holder is not None
            subject.placement.forget(holder, (artifact,))
        done = start + step
        if not readings and done >= jobs // 5:
            readings.append((done, _settled_bytes()))
    readings.append((done, _settled_bytes()))
    (early, before), (late, after) = readings
    return {"bytes": (after - before) / max(1, late - early), "growth": float(after - before)}


def _settled_bytes() -> int:
    gc.collect()
    return resident_bytes()
