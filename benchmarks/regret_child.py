"""
One batching policy at work under a limit, in a process of its own.

    python -m benchmarks.regret_child '{"policy": "fixed", "workload": "constant", …}'

Progress goes to standard output, one JSON object a line, so that a parent can tell what was
done when the process is killed, and a supervisor can go on from there.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.regret_workloads import MIB, WORKLOADS, Workload

# How the neighbour moves: ten steps of a tenth of a second, as the first measurements did.
STEPS: Final = 10
STEP_S: Final = 0.1
HOLD_S: Final = 2.0
START_S: Final = 0.7


def tell(**facts: Any) -> None:
    """Print *facts* for the parent."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def enter(cgroup: str | None, limit_bytes: int) -> None:
    """Put this process under the limit: into *cgroup*, or under RLIMIT_AS without one."""
    if cgroup is None:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    else:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


class Work:
    """The processing of items: all memory of a batch at once, then one item after the other."""

    def __init__(self, workload: Workload, passes: float) -> None:
        import numpy as np

        self._np = np
        self._passes = passes
        self._workload = workload
        self.busy_s = 0.0
        """How long the items of all batches took, without what a batch costs besides."""

    def items(self, costs: Sequence[int]) -> float:
        """Hold the memory of all items, touch it, and work on each."""
        np = self._np
        arrays = [np.empty(cost // 4, np.float32) for cost in costs]
        for array in arrays:
            array.fill(2.0)
        total = 0.0
        whole = int(self._passes)
        part = self._passes - whole
        for array in arrays:
            for _ in range(whole):
                np.sqrt(array, out=array)
            if part:
                head = array[: int(len(array) * part)]
                np.sqrt(head, out=head)
            total += float(array[0])
        return total

    def batch(self, costs: Sequence[int]) -> float:
        """Process a batch, its fixed cost included."""
        time.sleep(self._workload.batch_s)
        before = time.perf_counter()
        try:
            return self.items(costs)
        finally:
            self.busy_s += time.perf_counter() - before

    def item(self, cost: int) -> float:
        """Process one item without a batch's fixed cost."""
        return self.items([cost])


def calibrate(workload: Workload) -> float:
    """Return how many passes make an item of mean size take `item_s` on this machine."""
    best: tuple[float, float] | None = None
    count = max(1, int(64 * MIB // workload.item_bytes)) if workload.item_bytes < MIB else 2
    costs = [workload.item_bytes] * count
    for _ in range(3):
        found = []
        for passes in (0, 4):
            work = Work(workload, passes)
            before = time.perf_counter()
            work.items(costs)
            found.append((time.perf_counter() - before) / count)
        figures = (found[0], (found[1] - found[0]) / 4)
        best = figures if best is None or sum(figures) < sum(best) else best
    assert best is not None
    return max(0.0, (workload.item_s - best[0]) / max(1e-9, best[1]))


def calibrated(name: str) -> dict[str, float]:
    """Return the passes for a workload; runs in a child, without the limit."""
    return {"passes": calibrate(WORKLOADS[name])}


def _loop(work: Work, costs: list[int], done: int, size: int) -> None:
    while done < len(costs):
        batch = costs[done : done + size]
        work.batch(batch)
        done += len(batch)
        tell(done=done, size=len(batch), busy_s=work.busy_s)


def fixed(work: Work, workload: Workload, *, size: int, done: int = 0) -> None:
    """Take batches of one size."""
    _loop(work, workload.costs, done, size)


def halving(work: Work, workload: Workload, *, size: int) -> None:
    """Halve on MemoryError and call the whole loop again, as find_executable_batch_size does."""
    while size:
        try:
            _loop(work, workload.costs, 0, size)
        except MemoryError:
            size //= 2
        else:
            return
    message = "not even one item fits"
    raise SystemExit(message)


def threads(work: Work, workload: Workload, *, workers: int | None = None) -> None:
    """Hand single items to a thread pool."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        done = sum(1 for _ in pool.map(work.item, workload.costs))
    tell(done=done, size=1)


def _batch_elsewhere(name: str, passes: float, costs: list[int]) -> float:
    return Work(WORKLOADS[name], passes).batch(costs)


def _cut(costs: list[int], size: int) -> list[list[int]]:
    return [costs[start : start + size] for start in range(0, len(costs), size)]


def joblib(work: Work, workload: Workload, *, size: int, workers: int) -> None:
    """Hand batches to joblib's processes."""
    from joblib import Parallel, delayed

    Parallel(n_jobs=workers)(
        delayed(_batch_elsewhere)(workload.name, work._passes, batch)
        for batch in _cut(workload.costs, size)
    )
    tell(done=len(workload.costs), size=size)


def dask(work: Work, workload: Workload, *, size: int) -> None:
    """Hand batches to a Dask cluster on this machine, as it starts by default."""
    import importlib
    import logging

    distributed = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(dashboard_address=None, silence_logs=logging.CRITICAL) as cluster,
        distributed.Client(cluster) as client,
    ):
        batches = _cut(workload.costs, size)
        futures = [
            client.submit(_batch_elsewhere, workload.name, work._passes, batch, pure=False)
            for batch in batches
        ]
        client.gather(futures)
    tell(done=len(workload.costs), size=size)


def _governed(
    work: Work,
    workload: Workload,
    run: Callable[[Any, Work, Workload], None],
    history: Path | None = None,
) -> None:
    from lardon import Governor, Policy, ResourceEstimate, TaskQueue

    governor = Governor(Policy(trust="measured"))
    known = history is not None and history.exists()
    if history is not None and known:
        governor.load_history(history)
    estimate = ResourceEstimate(
        ram_bytes_per_item=workload.declared_bytes,
        max_batch=workload.max_batch,
        cpus=os.cpu_count() or 1,
        min_cpus=1,
        kind=workload.name,
    )
    with TaskQueue(governor) as queue:
        queue.submit(run, work, workload, estimate=estimate).result()
    if history is not None and not known:
        governor.save_history(history)


def lardon_batches(work: Work, workload: Workload, *, history: str | None = None) -> None:
    """Let lardon choose the batches, by the *history* of an earlier run; the first writes it."""
    done = 0

    def batch(costs: list[int]) -> None:
        nonlocal done
        work.batch(costs)
        done += len(costs)
        tell(done=done, size=len(costs), busy_s=work.busy_s)

    _governed(
        work,
        workload,
        lambda task, *_: task.map_batches(batch, workload.costs),
        None if history is None else Path(history),
    )


def lardon_items(work: Work, workload: Workload) -> None:
    """Let lardon run single items."""
    _governed(work, workload, lambda task, *_: task.map_items(work.item, workload.costs))
    tell(done=len(workload.costs), size=1)


POLICIES: Final[dict[str, Callable[..., None]]] = {
    "fixed": fixed,
    "halving": halving,
    "threads": threads,
    "joblib": joblib,
    "dask": dask,
    "lardon_batches": lardon_batches,
    "lardon_items": lardon_items,
}


def neighbour(total_bytes: int) -> None:
    """Take memory step by step, hold it, and let go; then stay until killed."""
    time.sleep(START_S)
    held = []
    for _ in range(STEPS):
        held.append(b"\1" * (total_bytes // STEPS))
        time.sleep(STEP_S)
    time.sleep(HOLD_S)
    held.clear()
    time.sleep(600)


def main(arguments: dict[str, Any]) -> None:
    """Run what *arguments* say under the limit."""
    enter(arguments.pop("cgroup"), arguments.pop("limit_bytes"))
    if "neighbour_bytes" in arguments:
        neighbour(arguments["neighbour_bytes"])
        return
    # The kernel should take the policy, not the neighbour, when memory runs out.
    Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    policy, workload = arguments.pop("policy"), WORKLOADS[arguments.pop("workload")]
    POLICIES[policy](Work(workload, arguments.pop("passes")), workload, **arguments)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
