"""The trace in real processes: lardon's pool, and Dask with one process per worker."""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections import OrderedDict
from typing import Final

import attrs

from benchmarks.child import Unavailable
from benchmarks.locality_trace import KEPT, LOAD_S, WORKERS, Trace

# What this process keeps; in every worker its own.
_kept: Final[OrderedDict[int, None]] = OrderedDict()
# For Dask, which goes by sizes: as large as what is dear to move.
SIZE: Final = 1 << 30


def work(artifact: int, compute_s: float, load_s: float) -> bool:
    """Load the artifact unless it is here, and compute; return whether it was."""
    hit = artifact in _kept
    if not hit:
        time.sleep(load_s)
    _kept[artifact] = None
    _kept.move_to_end(artifact)
    if len(_kept) > KEPT:
        _kept.popitem(last=False)
    time.sleep(compute_s)
    return hit


def ready(barrier_s: float) -> int:
    """Be there; long enough for every worker to take one of these."""
    time.sleep(barrier_s)
    return os.getpid()


def in_pool(context: object, artifact: int, compute_s: float, load_s: float) -> bool:
    """Do `work` as a callback of lardon's."""
    del context
    return work(artifact, compute_s, load_s)


class Anchor:
    """Stands for an artifact among Dask's data: small to send, large by what it says."""

    def __init__(self, artifact: int) -> None:
        self.artifact = artifact

    def __sizeof__(self) -> int:
        return SIZE


def work_of(anchor: Anchor, compute_s: float, load_s: float) -> bool:
    """Do `work` for Dask, which prefers the worker that has the anchor."""
    return work(anchor.artifact, compute_s, load_s)


def measure(system: str, jobs: int, second_s: float) -> dict[str, float]:
    """Run the trace with a second of it taking *second_s*; runs in a child."""
    trace = Trace.of(jobs)
    run = {"lardon": _run_lardon, "dask": _run_dask}[system]
    hits, makespan_s = run(trace, second_s)
    return trace.judged(hits, makespan_s / second_s)


def _run_lardon(trace: Trace, second_s: float) -> tuple[int, float]:
    from lardon import Governor, Policy, ResourceEstimate, ResourceSnapshot, SystemProbe
    from lardon.locality import WorkerPool

    class ForSleepers(SystemProbe):
        """Reads the machine, which may have fewer CPUs than workers: jobs that sleep need none."""

        def snapshot(self) -> ResourceSnapshot:
            return attrs.evolve(super().snapshot(), cpus=WORKERS)

    estimate = ResourceEstimate()
    with WorkerPool(
        Governor(Policy.unlimited(), probe=ForSleepers()),
        workers=WORKERS,
        process=True,
        max_artifacts=KEPT,
    ) as pool:
        while not all(view.ready for view in pool.workers()):
            time.sleep(0.01)
        before = time.perf_counter()
        tasks = [
            pool.submit(
                in_pool, artifact, compute_s * second_s, LOAD_S * second_s,
                estimate=estimate, deps=[artifact],
            )
            for artifact, compute_s in zip(trace.artifacts, trace.compute_s, strict=True)
        ]  # fmt: skip
        hits = sum(task.result() for task in tasks)
        return hits, time.perf_counter() - before


def _run_dask(trace: Trace, second_s: float) -> tuple[int, float]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        message = "distributed is not installed (pip install 'lardon[bench]')"
        raise Unavailable(message) from None
    with (
        distributed.LocalCluster(
            processes=True,
            n_workers=WORKERS,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(ready, [0.5] * WORKERS, pure=False))
        before = time.perf_counter()
        anchors = {
            artifact: client.submit(Anchor, artifact, pure=False)
            for artifact in sorted(set(trace.artifacts))
        }
        futures = client.map(
            work_of,
            [anchors[artifact] for artifact in trace.artifacts],
            [compute_s * second_s for compute_s in trace.compute_s],
            [LOAD_S * second_s] * len(trace.artifacts),
            pure=False,
        )
        hits = sum(client.gather(futures))
        return hits, time.perf_counter() - before
