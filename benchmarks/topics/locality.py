"""Jobs that go where their data is: hits, makespan, and what the placement costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.child import run_child
from benchmarks.formats import MISSING, noise, number
from benchmarks.locality_trace import ARTIFACTS, CONFIGURATIONS, KEPT, WORKERS
from benchmarks.report import Report, Row
from benchmarks.rounds import Rounds, interleave
from benchmarks.targets import Bound, Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline

HITS = Target(what="hit share over its ceiling", limit=0.95, bound=Bound.AT_LEAST)
MAKESPAN = Target(what="makespan over the bound", limit=1.05)
REACH_LIMIT = 0.25
FLAT_LIMIT = 2.0
FLAT_MEMORY = Target(what="memory over the jobs", limit=1.0, unit="bytes/job")

LABELS = {
    "pool": "as WorkerPool has it: local-first, cold jobs at once",
    "document": "defaults: random queue, cold jobs wait",
}
PEERS = {"bare": "one bare loop", "methods": "a bare method each"}
PROCESSES = (
    "Processes: {:,} jobs of the trace, a second of it in {:g} ms, in real processes; the "
    "overheads of both count."
)
REAL = {"lardon": "lardon, 8 processes", "dask": "Dask distributed, 8 processes"}


def run(deadline: Deadline) -> Report:
    """Measure everything and judge it."""
    effort = deadline.effort
    simulated = interleave(
        tuple(CONFIGURATIONS),
        lambda name, timeout_s: run_child(
            "benchmarks.locality_trace:simulate",
            timeout_s=timeout_s,
            jobs=effort.locality_jobs,
            configuration=name,
            seed=0,
        ),
        deadline,
        rounds=1,
    )
    costs = interleave(
        ("cycles", "memory"),
        lambda name, timeout_s: run_child(
            f"benchmarks.locality_cycles:measure_{name}",
            timeout_s=timeout_s,
            **{"cycles": {"cycles": effort.locality_cycles}, "memory": {"jobs": effort.evicted}}[
                name
            ],
        ),
        deadline,
        rounds=effort.locality_rounds,
    )
    real = interleave(
        tuple(REAL),
        lambda name, timeout_s: run_child(
            "benchmarks.locality_real:measure",
            timeout_s=timeout_s,
            system=name,
            jobs=effort.real_jobs,
            second_s=effort.real_second_s,
        ),
        deadline,
        rounds=1,
        context=tuple(REAL),
    )
    rows = [row for name in CONFIGURATIONS for row in _simulated_rows(simulated, name)]
    rows += [row for name in CONFIGURATIONS for row in _cost_rows(costs, name)]
    rows.append(_memory_row(costs, effort.evicted))
    rows += [row for name in REAL for row in _real_rows(real, name)]
    return Report(
        topic="Locality",
        question=f"{effort.locality_jobs:,} jobs at time 0, one of {ARTIFACTS} artifacts each "
        f"(Zipf 1.0), {WORKERS} workers that keep {KEPT}, exp(1 s) of work, 2 s for a miss.",
        columns=("figure", "noise", "rounds"),
        peer="ceiling, bound or bare loop",
        rows=tuple(rows),
        notes=(
            "Simulated: the real Placement in virtual time, so these two are exact.",
            PROCESSES.format(effort.real_jobs, effort.real_second_s * 1000),
            "Dask is told that each artifact is 1 GiB of data, which makes it prefer its holder.",
            *(f"{REAL[name]}: {why}" for name, why in real.missing.items()),
        ),
        data={"simulated": simulated.as_json(), "costs": costs.as_json(), "real": real.as_json()},
    )


def _row(
    rounds: Rounds, system: str, figure: str, label: str, target: Target | None, **show: Any
) -> Row:
    value = rounds.median(system, figure)
    reason = rounds.why_missing(system)
    return Row(
        label=label,
        figures=(
            number(rounds.median(system, show.get("shown", figure)), show.get("digits", 3)),
            noise(rounds.spread_percent(system, figure)) if value else MISSING,
            number(len(rounds.values(system, figure))),
        ),
        ratio=value if show.get("ratio", True) else None,
        verdict=None if target is None else target.judge(value, reason=reason),
    )


def _simulated_rows(rounds: Rounds, name: str) -> list[Row]:
    hits, makespan = (HITS, MAKESPAN) if name == "pool" else (None, None)
    return [
        _row(rounds, name, "hit_share", f"hits ÷ ceiling, {LABELS[name]}", hits),
        _row(rounds, name, "makespan", f"makespan ÷ bound, {LABELS[name]}", makespan),
    ]


def _cost_rows(rounds: Rounds, name: str) -> list[Row]:
    short = LABELS[name].partition(":")[0]
    rows = []
    for workers in (4, 256):
        for peer, why in PEERS.items():
            what = f"cycles/s ÷ {why}, 256 workers, {short}"
            reach = Target(what=what, limit=REACH_LIMIT, bound=Bound.AT_LEAST)
            rows.append(
                _row(
                    rounds,
                    "cycles",
                    f"{name}_{workers}_{peer}",
                    f"µs a cycle, {workers} workers, {short}; ÷ {why}",
                    reach if workers == 256 else None,
                    shown=f"{name}_{workers}",
                    digits=2,
                )
            )
    label = f"256 workers ÷ 4, {short}"
    flat = Target(what=f"time of a cycle, {label}", limit=FLAT_LIMIT)
    return [*rows, _row(rounds, "cycles", f"{name}_growth", label, flat)]


def _memory_row(rounds: Rounds, jobs: int) -> Row:
    label = f"bytes a job left behind, {jobs:,} jobs with eviction"
    return _row(rounds, "memory", "bytes", label, FLAT_MEMORY, ratio=False)


def _real_rows(rounds: Rounds, name: str) -> list[Row]:
    return [
        _row(rounds, name, "hit_share", f"hits ÷ ceiling, {REAL[name]}", None),
        _row(rounds, name, "makespan", f"makespan ÷ bound, {REAL[name]}", None),
    ]
