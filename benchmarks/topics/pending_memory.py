"""The memory that one pending task takes."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Unavailable, run_child
from benchmarks.formats import noise, number
from benchmarks.procfs import resident_bytes
from benchmarks.report import Report, Row
from benchmarks.rounds import Rounds, interleave
from benchmarks.systems import SYSTEMS
from benchmarks.systems.base import Submitting
from benchmarks.targets import Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline

MEASURED = ("lardon", "thread_pool")
PEER = "thread_pool"
LIMIT = 0.4
NOTE = (
    "The handles are kept in a list on both sides; all of lardon's tasks share one estimate, "
    "as tasks of one kind do."
)


def measure(system: str, tasks: int) -> dict[str, Any]:
    """Return bytes per task queued behind a held worker, handles kept; runs in a child."""
    if not Path("/proc/self/smaps_rollup").exists():
        message = "this system has no /proc/self/smaps_rollup"
        raise Unavailable(message)
    subject = SYSTEMS[system]()
    assert isinstance(subject, Submitting)
    subject.start()
    subject.burst(50)
    release = subject.hold()
    gc.collect()
    before = resident_bytes()
    started = time.perf_counter()
    handles = subject.submit_noops(tasks)
    submit_s = time.perf_counter() - started
    gc.collect()
    after = resident_bytes()
    # A million tasks need not run for this figure: the interpreter ends with them.
    del handles, release
    return {"bytes": (after - before) / tasks, "submit_us": submit_s / tasks * 1e6, "tasks": tasks}


def measure_and_leave(system: str, tasks: int) -> None:
    """Measure, report, and end the child at once with its tasks still pending."""
    import os

    from benchmarks.child import UNAVAILABLE, tell

    try:
        tell(measure(system, tasks))
    except Unavailable as error:
        tell({UNAVAILABLE: str(error)})
    os._exit(0)


def run(deadline: Deadline) -> Report:
    """Measure at each count, judge each."""
    effort = deadline.effort
    rows: list[Row] = []
    data: dict[str, Any] = {}
    notes: list[str] = []
    for tasks in effort.pending:
        rounds = _measure_all(tasks, deadline)
        rows += [_row(rounds, name, tasks) for name in MEASURED]
        data[str(tasks)] = rounds.as_json()
        notes += [
            f"{SYSTEMS[name].label}, {tasks:,}: {why}" for name, why in rounds.missing.items()
        ]
    return Report(
        topic="Memory of a pending task",
        question="Growth of the process (PSS) over the number of tasks submitted behind a held "
        "worker.",
        columns=("bytes/task", "noise", "submit µs", "rounds"),
        peer=SYSTEMS[PEER].label,
        rows=tuple(rows),
        notes=(NOTE, *notes),
        data=data,
    )


def _measure_all(tasks: int, deadline: Deadline) -> Rounds:
    return interleave(
        MEASURED,
        lambda name, timeout_s: run_child(
            "benchmarks.topics.pending_memory:measure_and_leave",
            timeout_s=timeout_s,
            system=name,
            tasks=tasks,
        ),
        deadline,
        rounds=deadline.effort.pending_rounds,
    )


def _row(rounds: Rounds, name: str, tasks: int) -> Row:
    ratio = rounds.ratio(name, PEER, "bytes")
    target = Target(
        what=f"memory per pending task at {tasks:,}, lardon ÷ ThreadPoolExecutor(1)", limit=LIMIT
    )
    return Row(
        label=f"{SYSTEMS[name].label}, {tasks:,} pending",
        figures=(
            number(rounds.median(name, "bytes")),
            noise(rounds.spread_percent(name, "bytes")),
            number(rounds.median(name, "submit_us"), 1),
            number(len(rounds.values(name, "bytes"))),
        ),
        ratio=ratio,
        verdict=target.judge(ratio, reason=rounds.why_missing(*MEASURED))
        if name == "lardon"
        else None,
    )
