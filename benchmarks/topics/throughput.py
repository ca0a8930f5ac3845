"""Throughput: no-op tasks per second, each admitted on a fresh snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.child import run_child
from benchmarks.formats import noise, number
from benchmarks.report import Report, Row
from benchmarks.rounds import Rounds, interleave
from benchmarks.systems import SYSTEMS
from benchmarks.tables import ratio_text
from benchmarks.targets import Bound, Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline

MEASURED = (
    "lardon",
    "plain_reads",
    "queue_reads",
    "queue_figures",
    "queue_snapshots",
    "queue_loop",
    "thread_pool",
    "joblib_inline",
    "joblib_threads",
    "dask",
)
PEER = "thread_pool"
REACH = 0.8
# The plan's words are "a bare loop that reads the same files"; every reading of them is
# judged, the strictest first.
REFERENCES = {
    "plain_reads": "bare loop + the same reads (no queue, no parsing)",
    "queue_reads": "queue.Queue loop + the same reads (no parsing)",
    "queue_figures": "queue.Queue loop + the same reads (parsed)",
}
READS_NOTE = (
    "`the same reads` are os.pread calls on kept-open descriptors of the files that one "
    "admission reads, without any parsing, which is stricter than any real gate; `parsed` gets "
    "one figure out of each file."
)
COLUMNS_NOTE = (
    "`worker alone`: everything was queued before the worker was let go. `CPU µs/task` is of the "
    "whole process: it bears a busy machine better than the rate does."
)


def measure(system: str, tasks: int) -> dict[str, Any]:
    """Return one system's tasks per second; runs in a child."""
    subject = SYSTEMS[system]()
    subject.start()
    subject.burst(max(5, tasks // 10))
    cpu_s = time.process_time()
    submit_s, total_s = subject.burst(tasks)
    cpu_s = time.process_time() - cpu_s
    drain_s = subject.drain(tasks)
    subject.stop()
    return {
        "rate": tasks / total_s,
        "cpu_us": cpu_s / tasks * 1e6,
        "submit_us": submit_s / tasks * 1e6 if submit_s else None,
        "drain_rate": tasks / drain_s if drain_s else None,
        "tasks": tasks,
    }


def run(deadline: Deadline) -> Report:
    """Measure every system and judge lardon against the reference loops."""
    effort = deadline.effort
    rounds = interleave(
        MEASURED,
        lambda name, timeout_s: run_child(
            "benchmarks.topics.throughput:measure",
            timeout_s=timeout_s,
            system=name,
            tasks=SYSTEMS[name].share(effort.tasks, effort),
        ),
        deadline,
        rounds=effort.rounds,
        context=[name for name in MEASURED if SYSTEMS[name].context],
    )
    rows = [_row(rounds, name) for name in MEASURED]
    rows += [_judged(rounds, name, words) for name, words in REFERENCES.items()]
    return Report(
        topic="Throughput of no-op tasks",
        question="Tasks per second from the first `submit` to the end of the last task; lardon "
        "admits each on a fresh snapshot.",
        columns=("tasks/s", "noise", "CPU µs/task", "submit µs", "worker alone/s", "rounds"),
        peer=SYSTEMS[PEER].label,
        rows=tuple(rows),
        notes=(
            READS_NOTE,
            COLUMNS_NOTE,
            *(f"{SYSTEMS[name].label}: {why}" for name, why in rounds.missing.items()),
        ),
        data=rounds.as_json(),
    )


def _row(rounds: Rounds, name: str) -> Row:
    return Row(
        label=SYSTEMS[name].label,
        figures=(
            number(rounds.median(name, "rate")),
            noise(rounds.spread_percent(name, "rate")),
            number(rounds.median(name, "cpu_us"), 1),
            number(rounds.median(name, "submit_us"), 1),
            number(rounds.median(name, "drain_rate")),
            number(len(rounds.values(name, "rate"))),
        ),
        ratio=rounds.ratio(name, PEER, "rate"),
    )


def _judged(rounds: Rounds, reference: str, words: str) -> Row:
    target = Target(what=f"throughput, lardon ÷ {words}", limit=REACH, bound=Bound.AT_LEAST)
    ratio = rounds.ratio("lardon", reference, "rate")
    cpu_ratio = rounds.ratio("lardon", reference, "cpu_us")
    return Row(
        label=f"lardon ÷ {SYSTEMS[reference].label}",
        figures=(ratio_text(ratio), "", ratio_text(cpu_ratio), "", "", ""),
        verdict=target.judge(ratio, reason=rounds.why_missing("lardon", reference)),
    )
