"""
Batching policies under a real memory limit, against the best fixed batch in hindsight.

Regret is a policy's makespan over that of the fixed batch which turns out to be the fastest
of those that survive. It is known only after trying them all, so that 1.0 is no more than
luck or a scan can reach. Every run has a fresh limit of its own, a fresh interpreter, and
the same items; makespans include the start of the interpreter, as a user would wait for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.child import run_child
from benchmarks.formats import MISSING
from benchmarks.regret_race import Limit, race
from benchmarks.regret_results import (
    ITEMS,
    LARDON,
    OURS,
    POOL,
    POOL_OF_CPUS,
    SUPERVISOR,
    WARM,
    Results,
    fixed_label,
    is_fixed,
)
from benchmarks.regret_workloads import LIMIT_BYTES, MIB, WORKLOADS, Workload
from benchmarks.report import Report, Row
from benchmarks.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.effort import Deadline

REGRET: Final = Target(what="regret", limit=1.05)
PER_ITEM: Final = Target(what="map_items ÷ the fastest surviving thread pool", limit=1.05)
LEVEL: Final = Target(what="regret at equal item time", limit=1.05)
UNDER_SUPERVISOR: Final = Target(what="map_batches ÷ supervisor", limit=1.0)
UNHARMED: Final = Target(what="kills and failed items of lardon", limit=0, unit="")
# So many fixed batches are tried again before one of them is taken for the best.
FINALISTS: Final = 3


@attrs.frozen(kw_only=True)
class Policy:
    """One way to choose batches."""

    label: str
    arguments: Mapping[str, Any]
    rounds: int


def _fixed(size: int, rounds: int) -> Policy:
    arguments = {"policy": "fixed", "size": size}
    return Policy(label=fixed_label(size), arguments=arguments, rounds=rounds)


def policies(workload: Workload, rounds: int, history: Path, *, peers: bool) -> list[Policy]:
    """
    Return those to race on *workload*; the peers that nothing is judged by run once.

    Args:
        workload: What is processed.
        rounds: How often the others run.
        history: Where an earlier run has left what it learned.
        peers: Whether more than what is judged takes part.

    """

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
    judged.insert(1, one(WARM, "lardon_batches", rounds, history=str(history)))
    if not workload.neighbour_bytes:
        judged.append(one(SUPERVISOR, "supervisor", 1, size=most))
    eighth = most // 8
    return [
        *judged,
        *(_fixed(size, 1) for size in (eighth * 2, most) if size not in workload.scan),
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


def measure(workload: Workload, deadline: Deadline, limit: Limit) -> Results:
    """
    Race all policies on *workload*: first to find the best fixed batch, then to compare.

    The runs by which the best was found are not those that it is compared by: of several
    that are much the same, the one that seemed the fastest was the luckiest.
    """
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
    for _ in range(effort.regret_tries):
        for size in _fastest(results, scan)[:FINALISTS]:
            run(_fixed(size, 1))
    candidates = _fastest(results, scan)
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder, "history.json")
        lineup = policies(workload, effort.regret_rounds, history, peers=effort.regret_scan)
        if effort.regret_scan:
            # The run before the others, which leaves its history to them.
            remembering = {"policy": "lardon_batches", "history": str(history), "passes": passes}
            race(limit, workload, remembering, effort.child_s)
        for number in range(effort.regret_rounds):
            best = _take_best(results, candidates, effort.regret_rounds)
            turn = [policy for policy in (*best, *lineup) if number < policy.rounds]
            # Back and forth, so that none always comes first.
            for policy in turn if number % 2 == 0 else reversed(turn):
                run(policy)
    return results


def _take_best(results: Results, candidates: list[int], rounds: int) -> list[Policy]:
    """Return the fixed batch to compare with: the fastest candidate that has not died since."""
    while candidates:
        policy = _fixed(candidates[0], rounds)
        if policy.label != results.best:
            results.best = policy.label
            del results.runs[policy.label]
        if not results.runs.get(policy.label) or results.seconds(policy.label) is not None:
            return [policy]
        candidates.pop(0)
    return []


def _fastest(results: Results, scan: Iterable[int]) -> list[int]:
    """Return the fixed batches that survived, the fastest of those tried most first."""
    times = {size: results.seconds(fixed_label(size)) for size in scan}
    survived = [(took, size) for size, took in times.items() if took is not None]
    survived.sort(key=lambda one: (-len(results.runs[fixed_label(one[1])]), one[0]))
    return [size for _, size in survived]


def rows(results: Results) -> list[Row]:
    """Return the lines of one workload's table."""
    best = results.best_fixed()
    found = [Row(label=f"— {results.workload.label}", figures=("", "", "", ""))]
    for label, runs in results.runs.items():
        if is_fixed(label) and (best is None or label != best[0]):
            continue
        seconds = results.seconds(label)
        sizes = [size for run in runs for size in run.sizes]
        ratio = results.regret(label)
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
                if label == LARDON and results.workload.judged
                else None,
            )
        )
    return [*found, *_judged(results)]


def _count(results: Results) -> int:
    return sum(map(is_fixed, results.runs))


def _judged(results: Results) -> list[Row]:
    """Return the lines that hold what was to be reached beside the regret."""
    lines: list[tuple[str, Target, float | None]] = []
    level = results.level_regret(LARDON)
    if level is not None and results.workload.judged:
        lines.append((LEVEL.what, LEVEL, level))
    pool = results.fastest_pool()
    if pool is not None:
        ratio = results.ratio(ITEMS, pool)
        lines.append((PER_ITEM.what, PER_ITEM, ratio))
    if results.workload.neighbour_bytes and results.seconds(SUPERVISOR) is not None:
        ratio = results.ratio(LARDON, SUPERVISOR)
        lines.append((UNDER_SUPERVISOR.what, UNDER_SUPERVISOR, ratio))
    lines.append((UNHARMED.what, UNHARMED, results.harm(*OURS)))
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
            "Median makespans, the start of the interpreter included; ratios round by round.",
            "A policy that was killed or lost items has none.",
            "At equal item time: with the mean time in the items over all runs of both.",
            "Per-item forms pay no fixed cost of a batch.",
        ),
        data={
            results.workload.name: {
                "best": results.best,
                "runs": {
                    label: [attrs.asdict(run) for run in runs]
                    for label, runs in results.runs.items()
                },
            }
            for results in measured
        },
    )
