"""The time of a break between two batches, next to the reads it cannot do without."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.child import run_child
from benchmarks.formats import microseconds, noise, number
from benchmarks.report import Report, Row
from benchmarks.rounds import interleave
from benchmarks.stats import percentile
from benchmarks.targets import Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline
    from lardon import TaskContext

TARGET = Target(what="sequence_break p50, lardon ÷ bare reads of the same files", limit=2.5)


def measure(samples: int) -> dict[str, Any]:
    """Return the percentiles of breaks and of bare reads, taken in turn; runs in a child."""
    from benchmarks.reference import Reads, admission_files
    from lardon import Governor, MiB, ResourceEstimate, TaskQueue

    estimate = ResourceEstimate(ram_bytes=1 * MiB, ram_bytes_per_item=1 * MiB, max_batch=8)
    reads = Reads(admission_files())

    def callback(context: TaskContext) -> dict[str, Any]:
        clock = time.perf_counter_ns
        breaks, bare = [], []
        for _ in range(samples):
            before = clock()
            admitted = context.sequence_break()
            after = clock()
            assert admitted
            breaks.append(after - before)
            before = clock()
            reads.take()
            bare.append(clock() - before)
        return {
            "break_p50": percentile(breaks, 50),
            "break_p95": percentile(breaks, 95),
            "reads_p50": percentile(bare, 50),
            "reads_p95": percentile(bare, 95),
            "samples": samples,
        }

    with TaskQueue(Governor()) as queue:
        queue.submit(lambda context: context.sequence_break(), estimate=estimate).result()
        result: dict[str, Any] = queue.submit(callback, estimate=estimate).result()
    reads.close()
    return result


def run(deadline: Deadline) -> Report:
    """Measure and judge."""
    effort = deadline.effort
    rounds = interleave(
        ("break",),
        lambda _, timeout_s: run_child(
            "benchmarks.topics.sequence_break:measure",
            timeout_s=timeout_s,
            samples=effort.break_samples,
        ),
        deadline,
        rounds=effort.rounds,
    )
    ratios = [
        result["break_p50"] / result["reads_p50"]
        for result in rounds.results["break"]
        if result is not None
    ]
    ratio = percentile(ratios, 50) if ratios else None
    rows = [
        Row(
            label=label,
            figures=(
                microseconds(rounds.median("break", f"{key}_p50")),
                microseconds(rounds.median("break", f"{key}_p95")),
                noise(rounds.spread_percent("break", f"{key}_p50")),
                number(len(ratios)),
            ),
            ratio=own_ratio,
            verdict=verdict,
        )
        for label, key, own_ratio, verdict in (
            (
                "lardon sequence_break()",
                "break",
                ratio,
                TARGET.judge(ratio, reason=rounds.why_missing("break")),
            ),
            ("bare reads of the same files", "reads", 1.0 if ratios else None, None),
        )
    ]
    return Report(
        topic="sequence_break",
        question="Release, fresh snapshot, decision, new reservation, inside a running callback.",
        columns=("p50 µs", "p95 µs", "noise of p50", "rounds"),
        peer="bare reads",
        rows=tuple(rows),
        notes=("Breaks and bare reads take turns on the worker's thread.",),
        data=rounds.as_json(),
    )
