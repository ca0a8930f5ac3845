"""The few statistics that the tables use, chosen to bear a noisy machine."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def median(values: Sequence[float]) -> float:
    """Return the middle value; one outlier does not move it."""
    return float(statistics.median(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """
    Return the nearest-rank percentile: a value that was measured, not one in between.

    Args:
        values: at least one figure, in any order.
        percent: 0 to 100.

    """
    ordered = sorted(values)
    rank = math.ceil(percent / 100 * len(ordered))
    return float(ordered[min(max(rank, 1), len(ordered)) - 1])


def spread_percent(values: Sequence[float]) -> float:
    """Return half the range over the median, in percent: how noisy the rounds were."""
    middle = median(values)
    if middle == 0:
        return 0.0
    return 100 * (max(values) - min(values)) / 2 / middle


def paired_ratio(values: Sequence[float | None], peers: Sequence[float | None]) -> float | None:
    """
    Return the median of value/peer over rounds measured next to each other, or None.

    A slow minute of the machine hits both sides of its round and cancels out, which the
    ratio of two medians does not do. Rounds that one side has not (None) are left out, and
    so are rounds whose peer is 0.
    """
    pairs = zip(values, peers, strict=False)
    ratios = [value / peer for value, peer in pairs if value is not None and peer]
    return median(ratios) if ratios else None


def nanoseconds_per_call(call: Callable[[], object], calls: int, warm_ups: int = 0) -> float:
    """
    Return the mean time of one call over a loop of *calls*, the loop's own cost included.

    The *warm_ups* before it are not timed: they bring the caches back that whatever ran
    before has taken.
    """
    clock = time.perf_counter_ns
    for _ in range(warm_ups):
        call()
    loop = range(calls)
    before = clock()
    for _ in loop:
        call()
    return (clock() - before) / calls
