"""The time of one decision on a snapshot that is there already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.child import Unavailable, run_child
from benchmarks.formats import microseconds, noise, number
from benchmarks.report import Report, Row
from benchmarks.rounds import interleave
from benchmarks.stats import median, nanoseconds_per_call
from benchmarks.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.effort import Deadline
    from lardon import Governor, ResourceEstimate, ResourceSnapshot

LIMIT_US = 10.0
CASES = {
    "start": "START: RAM, nothing held",
    "start_held": "START: RAM, one reservation held",
    "reduce": "REDUCE_BATCH: RAM short",
    "wait": "WAIT: IO slot busy",
    "reject": "REJECT: above capacity",
    "start_gpu": "START: RAM and the only GPU",
    "start_gpus": "START: RAM and one of 8 GPUs",
}
NOTE = (
    "The limit is in µs and so depends on the machine; the ratio to a fixed loop of plain "
    "Python, taken in turn with the decisions, does not."
)
GPUS = {"start_gpu": 1, "start_gpus": 8}
# A millisecond or less: on a busy machine most turns then fit between two interruptions, and
# the median is one that did. A reading of 1 s would be stale.
CALLS_PER_TURN = 8
YARDSTICKS_PER_TURN = 8
WARM_UPS = 5


def yardstick() -> int:
    """Do a fixed piece of pure Python; its time tells how fast the machine was just then."""
    total = 0
    for number_ in range(100):
        total += number_ * number_ % 7
    return total


def prepare(case: str) -> tuple[Governor, ResourceEstimate, ResourceSnapshot]:
    """Return the governor, the estimate and a reading that lead to the *case*."""
    from lardon import GiB, Governor, GpuSnapshot, MiB, ResourceEstimate, ResourceSnapshot

    gpus = tuple(
        GpuSnapshot(
            index=index,
            uuid=f"GPU-{index:08d}",
            name="card",
            total_bytes=80 * GiB,
            free_bytes=(79 - index) * GiB,
        )
        for index in range(GPUS.get(case, 0))
    )
    reading = ResourceSnapshot(
        taken_at=time.monotonic(),
        ram_total_bytes=64 * GiB,
        ram_available_bytes=32 * GiB,
        cpus=16,
        load1=1.0,
        cpu_pressure=0.0,
        memory_pressure=0.0,
        io_pressure=0.0,
        gpus=gpus,
    )
    # With the machine's own probe, as a user has it; it is not asked for a snapshot.
    governor = Governor()
    with_gpu = ResourceEstimate(ram_bytes=GiB, gpu_bytes=GiB, gpu_bytes_per_item=MiB, max_batch=8)
    estimate = {
        "reduce": ResourceEstimate(ram_bytes=GiB, ram_bytes_per_item=GiB, max_batch=64),
        "wait": ResourceEstimate(ram_bytes=MiB, io_slots=1),
        "reject": ResourceEstimate(ram_bytes=1024 * GiB),
        "start_gpu": with_gpu,
        "start_gpus": with_gpu,
    }.get(case, ResourceEstimate(ram_bytes=MiB, ram_bytes_per_item=MiB, max_batch=8))
    held = {"start_held": estimate, "wait": ResourceEstimate(io_slots=1)}
    if case in held and governor.reserve(held[case])[1] is None:
        message = "this machine does not even admit a small task now"
        raise Unavailable(message)
    return governor, estimate, reading


def measure(calls: int) -> dict[str, Any]:
    """Return ns per decision for each case, and for the yardstick; runs in a child."""
    subjects = {case: prepare(case) for case in CASES}
    for case, (governor, estimate, reading) in subjects.items():
        kind = governor.decide(estimate, attrs.evolve(reading, taken_at=time.monotonic())).kind
        assert case.startswith(kind.name.partition("_")[0].lower()), (case, kind)
    chunks: dict[str, list[float]] = {case: [] for case in (*CASES, "yardstick")}
    for _ in range(max(1, calls // CALLS_PER_TURN)):
        for case, (governor, estimate, reading) in subjects.items():
            fresh = attrs.evolve(reading, taken_at=time.monotonic())
            call = _bind(governor.decide, estimate, fresh)
            chunks[case].append(nanoseconds_per_call(call, min(calls, CALLS_PER_TURN), WARM_UPS))
        chunks["yardstick"].append(nanoseconds_per_call(yardstick, YARDSTICKS_PER_TURN))
    return {case: median(times) for case, times in chunks.items()}


def _bind(
    decide: Callable[[ResourceEstimate, ResourceSnapshot], object],
    estimate: ResourceEstimate,
    reading: ResourceSnapshot,
) -> Callable[[], object]:
    return lambda: decide(estimate, reading)


def run(deadline: Deadline) -> Report:
    """Measure all cases and judge each."""
    effort = deadline.effort
    rounds = interleave(
        ("decide",),
        lambda _, timeout_s: run_child(
            "benchmarks.topics.decide:measure", timeout_s=timeout_s, calls=effort.decide_calls
        ),
        deadline,
        rounds=effort.rounds,
    )
    rows = []
    for case, label in CASES.items():
        nanoseconds = rounds.median("decide", case)
        ratios = [
            result[case] / result["yardstick"]
            for result in rounds.results["decide"]
            if result is not None
        ]
        target = Target(what=f"decide() on a given snapshot, {label}", limit=LIMIT_US, unit="µs")
        rows.append(
            Row(
                label=label,
                figures=(
                    microseconds(nanoseconds, 2),
                    noise(rounds.spread_percent("decide", case)),
                    number(len(ratios)),
                ),
                ratio=median(ratios) if ratios else None,
                verdict=target.judge(
                    None if nanoseconds is None else nanoseconds / 1000,
                    reason=rounds.why_missing("decide"),
                ),
            )
        )
    rows.append(
        Row(
            label="yardstick: 100 turns of plain Python",
            figures=(
                microseconds(rounds.median("decide", "yardstick"), 2),
                noise(rounds.spread_percent("decide", "yardstick")),
                number(len(rounds.values("decide", "yardstick"))),
            ),
        )
    )
    return Report(
        topic="decide() on a given snapshot",
        question="One decision on a reading that is there already; nothing is booked.",
        columns=("µs", "noise", "rounds"),
        peer="yardstick",
        rows=tuple(rows),
        notes=(NOTE,),
        data=rounds.as_json(),
    )
