"""
Batching policies under a real memory limit, against the best fixed batch in hindsight.

Regret is a policy's makespan over that of the fixed batch which turns out to be the fastest
of those that survive. It is known only after trying them all, so that 1.0 is no more than
luck or a scan can reach. Every run has a fresh limit of its own, a fresh interpreter, and
the same items; makespans include the start of the interpreter, as a user would wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.child import run_child
from benchmarks.formats import MISSING
from benchmarks.regret_race import Limit, Run, race
from benchmarks.regret_workloads import LIMIT_BYTES, MIB, WORKLOADS, Workload
from benchmarks.report import Report, Row
from benchmarks.stats import median
from benchmarks.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.effort import Deadline

LARDON: Final = "lardon map_batches"
ITEMS: Final = "lardon map_items"
SUPERVISOR: Final = "supervisor: halve on SIGKILL from 64, go on"
POOL: Final = "ThreadPoolExecutor(), per item"
POOL_OF_CPUS: Final = "ThreadPoolExecutor(2), per item"
REGRET: Final = Target(what="regret", limit=1.05)
PER_ITEM: Final = Target(what="map_items ÷ the fastest surviving thread pool", limit=1.05)
UNDER_SUPERVISOR: Final = Target(what="map_batches ÷ supervisor", limit=1.0)
UNHARMED: Final = Target(what="kills and failed items of lardon", limit=0, unit="")


@attrs.frozen(kw_only=True)
class Policy:
    """One way to choose batches."""

    label: str
    arguments: Mapping[str, Any]
    rounds: int


def fixed_label(size: int) -> str:
    """Return the label of a fixed batch."""
    return f"fixed batch {size}"


def _fixed(size: int, rounds: int) -> Policy:
    arguments = {"policy": "fixed", "size": size}
    return Policy(label=fixed_label(size), arguments=arguments, rounds=rounds)


def policies(workload: Workload, rounds: int, *, peers: bool) -> list[Policy]:
    """Return those to race on *workload*; the peers that nothing is judged by run once."""

    def one(label: str, policy: str, rounds: int, **arguments: Any) -> Policy:
        return Policy(label=label, arguments={"policy": policy, **arguments}, rounds=rounds)

    most = workload.max_batch
    judged = [
        one(LARDON, "lardon_batches", rounds),
        one(ITEMS, "lardon_items", rounds),
        one(POOL_OF_CPUS, "threads", rounds, workers=2),
        one(POOL, "threads", rounds),
    ]
    if workload.neighbour_bytes:
        judged.append(one(SUPERVISOR, "supervisor", rounds, size=most))
    if not peers:
        return judged
    if not workload.neighbour_bytes:
        judged.append(one(SUPERVISOR, "supervisor", 1, size=most))
    eighth = most // 8
    return [
        *judged,
        *(_fixed(size, 1) for size in (eighth // 8, eighth, eighth * 2, most) if size),
        one("halve on MemoryError from the largest, restart", "halving", 1, size=most),
        one(
            "joblib n_jobs=2, per item" if eighth == 8 else "joblib n_jobs=2, small batches",
            "joblib",
            1,
            size=max(1, eighth // 8),
            workers=2,
        ),
        one(f"joblib n_jobs=2, batches of {eighth}", "joblib", 1, size=eighth, workers=2),
        one(
            "Dask LocalCluster(), per item" if eighth == 8 else "Dask, small batches",
            "dask",
            1,
            size=max(1, eighth // 8),
        ),
        one(f"Dask LocalCluster(), batches of {eighth}", "dask", 1, size=eighth),
    ]


@attrs.define
class Results:
    """All runs on one workload, by policy."""

    workload: Workload
    runs: dict[str, list[Run]] = attrs.field(factory=dict)

    def seconds(self, label: str) -> float | None:
        """Return the median makespan of a policy that finished every time."""
        runs = self.runs.get(label, [])
        if not runs or not all(run.finished(self.workload) for run in runs):
            return None
        return median([run.seconds for run in runs])

    def best_fixed(self) -> tuple[str, float] | None:
        """Return the fastest fixed batch that always survived unharmed, of the most tried."""
        tried = {label: runs for label, runs in self.runs.items() if label.startswith("fixed")}
        rounds = max((len(runs) for runs in tried.values()), default=0)
        found = [
            (seconds, label)
            for label, runs in tried.items()
            if len(runs) == rounds and (seconds := self.seconds(label)) is not None
        ]
        if not found:
            return None
        seconds, label = min(found)
        return label, seconds

    def harm(self, *labels: str) -> int:
        """Return how many kills and unfinished runs these policies had."""
        return sum(
            run.kills + (not run.finished(self.workload))
            for label in labels
            for run in self.runs.get(label, [])
        )

    def pools(self) -> float | None:
        """Return the makespan of the fastest thread pool that survived."""
        found = [self.seconds(label) for label in (POOL, POOL_OF_CPUS)]
        return min((seconds for seconds in found if seconds is not None), default=None)


def measure(workload: Workload, deadline: Deadline, limit: Limit) -> Results:
    """Race all policies on *workload*; the fixed batches first, to know which to repeat."""
    effort = deadline.effort
    passes = run_child("benchmarks.regret_child:calibrated", name=workload.name)["passes"]
    results = Results(workload)

    def run(policy: Policy) -> None:
        if deadline.left_s > 0:
            arguments = {**policy.arguments, "passes": passes}
            got = race(limit, workload, arguments, effort.child_s)
            results.runs.setdefault(policy.label, []).append(got)

    scan = workload.scan if effort.regret_scan else workload.scan[-5:-2]
    for size in scan:
        run(_fixed(size, 1))
    chosen = _fastest(results, scan)
    for size in chosen:
        # The run that made it the fastest was lucky, more often than not: it is not counted.
        del results.runs[fixed_label(size)]
    lineup = [_fixed(size, effort.regret_rounds) for size in chosen]
    lineup += policies(workload, effort.regret_rounds, peers=effort.regret_scan)
    for number in range(effort.regret_rounds):
        for policy in lineup:
            done = len(results.runs.get(policy.label, []))
            if done < policy.rounds and done <= number:
                run(policy)
    return results


def _fastest(results: Results, scan: Iterable[int]) -> list[int]:
    """Return the three fixed batches that were fastest in the scan."""
    times = {size: results.seconds(fixed_label(size)) for size in scan}
    survived = sorted((took, size) for size, took in times.items() if took is not None)
    return [size for _, size in survived[:3]]


def rows(results: Results) -> list[Row]:
    """Return the lines of one workload's table."""
    best = results.best_fixed()
    found = [Row(label=f"— {results.workload.label}", figures=("", "", "", ""))]
    for label, runs in results.runs.items():
        if label.startswith("fixed") and len(runs) == 1 and (best is None or label != best[0]):
            continue
        seconds = results.seconds(label)
        sizes = [size for run in runs for size in run.sizes]
        ratio = seconds / best[1] if seconds is not None and best is not None else None
        found.append(
            Row(
                label=f"{label} (the best of {_count(results)})"
                if best is not None and label == best[0]
                else label,
                figures=(
                    MISSING if seconds is None else f"{seconds:.2f}",
                    str(sum(run.kills for run in runs)),
                    f"{sum(run.finished(results.workload) for run in runs)}/{len(runs)}",
                    str(max(sizes)) if sizes else MISSING,
                ),
                ratio=ratio,
                verdict=REGRET.judge(ratio, reason="no run to compare")
                if label == LARDON
                else None,
            )
        )
    return [*found, *_judged(results)]


def _count(results: Results) -> int:
    return sum(label.startswith("fixed") for label in results.runs)


def _judged(results: Results) -> list[Row]:
    """Return the lines that hold what was to be reached beside the regret."""
    lines = []
    items, pools = results.seconds(ITEMS), results.pools()
    if pools is not None:
        ratio = None if items is None else items / pools
        lines.append(("map_items ÷ the fastest surviving thread pool", PER_ITEM, ratio))
    supervised, own = results.seconds(SUPERVISOR), results.seconds(LARDON)
    if results.workload.neighbour_bytes and supervised is not None:
        ratio = None if own is None else own / supervised
        lines.append(("map_batches ÷ supervisor", UNDER_SUPERVISOR, ratio))
    lines.append(("kills and failed items of lardon", UNHARMED, results.harm(LARDON, ITEMS)))
    return [
        Row(
            label=label,
            figures=("", "", "", ""),
            ratio=None if target is UNHARMED else ratio,
            verdict=target.judge(ratio, reason="no run to compare"),
        )
        for label, target, ratio in lines
    ]


def run(deadline: Deadline) -> Report:
    """Measure and judge."""
    limit = Limit()
    measured = [
        measure(WORKLOADS[name], deadline, limit)
        for name in deadline.effort.regret_workloads
        if deadline.left_s > 0
    ]
    return Report(
        topic="regret",
        question=(
            f"Batches under a limit of {LIMIT_BYTES // MIB} MiB ({limit.kind}): makespan over "
            "that of the best fixed batch in hindsight."
        ),
        columns=("seconds", "kills", "finished", "largest batch"),
        peer="best fixed",
        rows=tuple(row for results in measured for row in rows(results)),
        notes=(
            'lardon with trust="measured" on every workload, and nothing tuned between them.',
            "Median makespans, the start of the interpreter included.",
            "A policy that was killed or lost items has none.",
            "Per-item forms pay no fixed cost of a batch.",
        ),
        data={
            results.workload.name: {
                label: [attrs.asdict(run) for run in runs] for label, runs in results.runs.items()
            }
            for results in measured
        },
    )
