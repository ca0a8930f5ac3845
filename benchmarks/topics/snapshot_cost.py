"""The time of one look at the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.child import run_child
from benchmarks.formats import microseconds, noise, number
from benchmarks.report import Report, Row
from benchmarks.rounds import interleave
from benchmarks.stats import median, nanoseconds_per_call, paired_ratio
from benchmarks.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.effort import Deadline

TARGET = Target(what="SystemProbe.snapshot() ÷ bare reads of its files", limit=1.3)
CASES = {
    "snapshot": "SystemProbe.snapshot()",
    "reads": "bare reads of the snapshot's files",
    "own_use": "SystemProbe.own_use()",
    "own_reads": "bare reads of own_use()'s files",
    "virtual_memory": "psutil.virtual_memory()",
    "swap_memory": "psutil.swap_memory()",
}
# Short, so that all cases meet the same moments of a noisy machine, and most turns fit
# between two interruptions.
CALLS_PER_TURN = 8
WARM_UPS = 5


def measure(samples: int) -> dict[str, Any]:
    """Return ns per call of each case, taken in turn; runs in a child."""
    import psutil

    from benchmarks.reference import Reads, own_use_files, snapshot_files
    from lardon import SystemProbe

    probe = SystemProbe()
    files, own_files = snapshot_files(), own_use_files()
    calls: dict[str, Callable[[], object]] = {
        "snapshot": probe.snapshot,
        "reads": Reads(files).take,
        "own_use": probe.own_use,
        "own_reads": Reads(own_files).take,
        "virtual_memory": psutil.virtual_memory,
        "swap_memory": psutil.swap_memory,
    }
    turns: dict[str, list[float]] = {case: [] for case in calls}
    for _ in range(max(1, samples // CALLS_PER_TURN)):
        for case, call in calls.items():
            turns[case].append(nanoseconds_per_call(call, min(samples, CALLS_PER_TURN), WARM_UPS))
    result: dict[str, Any] = {case: median(times) for case, times in turns.items()}
    result["files"] = [*files, *own_files]
    result["ratio"] = paired_ratio(turns["snapshot"], turns["reads"])
    return result


def run(deadline: Deadline) -> Report:
    """Measure and judge."""
    effort = deadline.effort
    rounds = interleave(
        ("probe",),
        lambda _, timeout_s: run_child(
            "benchmarks.topics.snapshot_cost:measure",
            timeout_s=timeout_s,
            samples=effort.snapshot_samples,
        ),
        deadline,
        rounds=effort.rounds,
    )
    ratio = rounds.median("probe", "ratio")
    rows = []
    for case, label in CASES.items():
        verdict = None
        if case == "snapshot":
            verdict = TARGET.judge(ratio, reason=rounds.why_missing("probe"))
        ratios = [
            result[case] / result["reads"]
            for result in rounds.results["probe"]
            if result is not None
        ]
        rows.append(
            Row(
                label=label,
                figures=(
                    microseconds(rounds.median("probe", case), 2),
                    noise(rounds.spread_percent("probe", case)),
                    number(len(ratios)),
                ),
                ratio=ratio if case == "snapshot" else median(ratios) if ratios else None,
                verdict=verdict,
            )
        )
    first = next((result for result in rounds.results["probe"] if result is not None), None)
    files = ", ".join(first["files"]) if first else "unknown"
    return Report(
        topic="Snapshot",
        question="One reading of the machine, next to the bare reads of the same kept-open files.",
        columns=("µs", "noise", "rounds"),
        peer="bare reads",
        rows=tuple(rows),
        notes=(f"Files of one admission here: {files}.",),
        data=rounds.as_json(),
    )
