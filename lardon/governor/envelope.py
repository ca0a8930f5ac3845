"""A line above what batches were seen to take: `fixed + per_item * items`, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

Point: TypeAlias = tuple[int, int]
"""Items of a batch, and what it took in whole units (bytes, microseconds)."""
Line: TypeAlias = tuple[int, int]
"""A fixed part and a part per item."""

# The line passes above the 95th percentile: of 20 batches one may lie higher. It is the
# usual compromise of capacity planning between the mean (half of all batches are over it)
# and the maximum (one freak decides for a whole window).
TRIMMED_ONE_IN: Final = 20
# Beyond that, a tenth, also for what is the same every time: allocators round up, and a
# neighbour that begins to grow while the batch runs takes some of what was free. Under a limit
# of 600 MiB, with one that grows by 300 to 350 MiB/s, batches with a margin of 5 % were killed
# in 2 runs of 6 (`python -m benchmarks --full regret`).
MARGIN_ONE_IN: Final = 10
# Or, if that is more, a standard deviation: costs that differ by item are above the 95th
# percentile in one batch of 20, and one deviation higher in one of 250 (normal distribution).
# What is beyond lands in the policy's reserve. Of 20,000 windows of 16 batches of 1 to 12
# items with lognormal costs (sigma 0.5), the next batch passed the line alone in 10.4 %, with
# this margin in 1.8 % (tests/governor/test_envelope.py draws some of them again).
MARGIN_DEVIATIONS: Final = 1.0
# Few batches seldom show the worst, and tell the deviation badly: four get two and a half
# times the margin of many. In 300 simulated runs of 200 lognormal items (sigma 0.5, at most
# 2.5 times the mean) on a machine that holds 14 of them, 14 passed the limit with this, and
# 35 without.
_FEW: Final = 3.0
# Three batches that happen to disagree must not make the smallest impossible.
MARGIN_MOST_ONE_IN: Final = 2
_PARAMETERS: Final = 2


class Envelope(NamedTuple):
    """
    What a batch needs by experience: a line up to the largest batch seen, a ray beyond.

    Within the sizes that were seen the line tells apart what is fixed and what comes with
    each item. Beyond them nothing supports that split, so that all of it is put on the
    items: the need of twice the largest batch is twice that batch's.
    """

    fixed: int
    per_item: int
    largest: int
    """The largest batch that the line rests on."""

    @property
    def beyond(self) -> int:
        """The need per item of batches larger than all that were seen."""
        return -(-(self.fixed + self.per_item * self.largest) // self.largest)

    @property
    def lines(self) -> tuple[Line, Line]:
        """Two lines whose maximum is the need at every size."""
        return (self.fixed, self.per_item), (0, self.beyond)

    def need(self, items: int) -> int:
        """Return what a batch of *items* needs."""
        return max(fixed + per_item * items for fixed, per_item in self.lines)


def fit(points: Sequence[Point], floors: Sequence[Point] = ()) -> Envelope | None:
    """
    Return the envelope of *points*, or None without any.

    It is the line with no negative part that lies above all points but the trimmed ones
    and above all *floors*, and of those the lowest on average over the sizes from 1 to the
    largest: sizes that were hardly told apart say nothing of what is fixed. Then the margin.
    Exact integer arithmetic, but for rankings.

    Args:
        points: What batches took.
        floors: Lower bounds: batches that ran out of memory took this and wanted more.

    """
    kept = _trimmed(points) or list(floors)
    if not kept:
        return None
    largest = max(x for x, _ in (*kept, *floors))
    # The mean of 1 to the largest.
    line = tightest_line([*kept, *floors], largest + 1, 2)
    fixed, per_item = _margin(kept, line, largest)
    return Envelope(line[0] + fixed, line[1] + per_item, largest)


def _margin(points: Sequence[Point], line: Line, largest: int) -> Line:
    """Return what to add to *line*: a tenth, or the deviations of a batch of *largest*."""
    least = -(-line[0] // MARGIN_ONE_IN), -(-line[1] // MARGIN_ONE_IN)
    margin = min(
        MARGIN_DEVIATIONS * _deviation(points) * math.sqrt(largest),
        (line[0] + line[1] * largest) / MARGIN_MOST_ONE_IN,
    )
    # The tangent to deviation * sqrt(items) at the largest: above it everywhere.
    fixed, per_item = math.ceil(margin / 2), math.ceil(margin / 2 / largest)
    return max(least[0], fixed), max(least[1], per_item)


def _deviation(points: Sequence[Point]) -> float:
    """
    Return by how much one item deviates, as a standard deviation; 0 for fewer than three.

    A batch sums up independent items, so that it deviates by the root of its size as much.
    The two parameters of the trend are allowed for.
    """
    spare = len(points) - _PARAMETERS
    if spare <= 0:
        return 0.0
    fixed, per_item = _trend(points)
    residuals = [(y - fixed - per_item * x, x) for x, y in points]
    squares = sum([residual * residual / x for residual, x in residuals])
    return math.sqrt(squares / spare) * (1 + _FEW / spare)


def tightest_line(points: Sequence[Point], sum_of_sizes: int, count: int) -> Line:
    """
    Return the lowest line above *points* at the mean size, *sum_of_sizes* / *count*.

    Both parts are at least 0, and rounded up. Of lines that are equally low there the
    steepest is taken: the side on which a larger batch is not underestimated.

    Raises:
        ValueError: the mean is larger than every size of *points*.

    """
    hull = _upper_hull(points)
    for (x1, y1), (x2, y2) in pairwise(hull):
        if sum_of_sizes <= x2 * count:
            per_item = max(0, -((y1 - y2) // (x2 - x1)))
            break
    else:
        message = "the mean of the sizes is larger than the largest"
        raise ValueError(message)
    return max(0, *(y - per_item * x for x, y in hull)), per_item


def _upper_hull(points: Sequence[Point]) -> list[Point]:
    """Return the upper convex hull from the origin on, by increasing size."""
    highest: dict[int, int] = {0: 0}
    for x, y in points:
        if y > highest.get(x, -1):
            highest[x] = y
    hull: list[Point] = []
    for x, y in sorted(highest.items()):
        while len(hull) > 1 and _below(hull[-1], hull[-2], (x, y)):
            hull.pop()
        hull.append((x, y))
    return hull


def _below(middle: Point, left: Point, right: Point) -> bool:
    """Return whether *middle* lies on or below the line from *left* to *right*."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (
        middle[0] - left[0]
    )


def _trimmed(points: Sequence[Point]) -> list[Point]:
    """Leave out the one in twenty that lies highest in proportion to the common trend."""
    spare = len(points) // TRIMMED_ONE_IN
    if not spare:
        return list(points)
    fixed, per_item = _trend(points)
    usual = {x: max(1.0, fixed + per_item * x) for x in {x for x, _ in points}}
    height = [y / usual[x] for x, y in points]
    ranked = sorted(range(len(points)), key=height.__getitem__)
    return [points[place] for place in ranked[:-spare]]


def _trend(points: Sequence[Point]) -> tuple[float, float]:
    """Return the least-squares line; a constant where all sizes are the same."""
    # Sums of integers are exact, so that one pass is enough.
    count, sum_x, sum_y, sum_xx, sum_xy = len(points), 0, 0, 0, 0
    for x, y in points:
        sum_x += x
        sum_y += y
        sum_xx += x * x
        sum_xy += x * y
    spread = count * sum_xx - sum_x * sum_x
    if not spread:
        return sum_y / count, 0.0
    slope = (count * sum_xy - sum_x * sum_y) / spread
    return (sum_y - slope * sum_x) / count, slope


def sums(one: Sequence[Line], other: Sequence[Line]) -> Iterator[Line]:
    """Yield lines whose maximum is the sum of the maxima of two sets of lines."""
    for fixed, per_item in one:
        for more, more_per_item in other:
            yield fixed + more, per_item + more_per_item
