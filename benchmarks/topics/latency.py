"""Latency: from `submit` to the start of the callback, with the worker asleep."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from benchmarks.child import run_child
from benchmarks.formats import microseconds, noise, number
from benchmarks.report import Report, Row
from benchmarks.rounds import interleave
from benchmarks.stats import percentile
from benchmarks.systems import SYSTEMS
from benchmarks.targets import Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline

TARGET = Target(what="submit→start p50, lardon ÷ ThreadPoolExecutor(1)", limit=4.0)
MEASURED = ("lardon", "thread_pool", "queue_loop", "joblib_inline", "joblib_threads", "dask")
PEER = "thread_pool"
# Long enough for the worker to be asleep, and uneven, so as not to march with any timer.
PAUSE_S = (0.001, 0.003)
NOTE = (
    "lardon takes a fresh snapshot and books a reservation within this time; the others look "
    "at nothing."
)


def measure(system: str, samples: int) -> dict[str, Any]:
    """Return the percentiles of one system's latency in ns; runs in a child."""
    subject = SYSTEMS[system]()
    subject.start()
    for _ in range(min(20, samples)):
        subject.latency_ns()
    latencies = []
    for _ in range(samples):
        time.sleep(random.uniform(*PAUSE_S))
        latencies.append(subject.latency_ns())
    subject.stop()
    return {"p50": percentile(latencies, 50), "p95": percentile(latencies, 95), "samples": samples}


def run(deadline: Deadline) -> Report:
    """Measure every system and judge lardon's median."""
    effort = deadline.effort
    rounds = interleave(
        MEASURED,
        lambda name, timeout_s: run_child(
            "benchmarks.topics.latency:measure",
            timeout_s=timeout_s,
            system=name,
            samples=SYSTEMS[name].share(effort.latency_samples, effort),
        ),
        deadline,
        rounds=effort.rounds,
        context=[name for name in MEASURED if SYSTEMS[name].context],
    )
    rows = []
    for name in MEASURED:
        ratio = rounds.ratio(name, PEER, "p50")
        verdict = None
        if name == "lardon":
            verdict = TARGET.judge(ratio, reason=rounds.why_missing("lardon", PEER))
        rows.append(
            Row(
                label=SYSTEMS[name].label,
                figures=(
                    microseconds(rounds.median(name, "p50")),
                    microseconds(rounds.median(name, "p95")),
                    noise(rounds.spread_percent(name, "p50")),
                    number(len(rounds.values(name, "p50"))),
                ),
                ratio=ratio,
                verdict=verdict,
            )
        )
    return Report(
        topic="Latency: submit → start",
        question="From the call of `submit` to the first line of the callback, worker asleep.",
        columns=("p50 µs", "p95 µs", "noise of p50", "rounds"),
        peer=SYSTEMS[PEER].label,
        rows=tuple(rows),
        notes=(NOTE, *(f"{SYSTEMS[name].label}: {why}" for name, why in rounds.missing.items())),
        data=rounds.as_json(),
    )
