"""The line above what batches took, against every line that could have been drawn instead."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lardon.governor.envelope import (
    MARGIN_ONE_IN,
    TRIMMED_ONE_IN,
    Envelope,
    Line,
    Point,
    fit,
    sums,
    tightest_line,
)

POINT: Final = st.tuples(st.integers(1, 12), st.integers(0, 40))
POINTS: Final = st.lists(POINT, min_size=1, max_size=12)


def candidates(points: list[Point]) -> list[tuple[Fraction, Fraction]]:
    """Return the lines through two points or the origin, and the level ones; all above."""
    corners = [(0, 0), *points]
    lines = [(Fraction(y), Fraction(0)) for _, y in points]
    for (x1, y1), (x2, y2) in itertools.combinations(corners, 2):
        if x1 != x2:
            slope = Fraction(y2 - y1, x2 - x1)
            lines.append((y1 - slope * x1, slope))
    return [
        (fixed, slope)
        for fixed, slope in lines
        if fixed >= 0 and slope >= 0 and all(y <= fixed + slope * x for x, y in points)
    ]


def best_line(points: list[Point], mean: Fraction) -> Line:
    """Return the lowest candidate at *mean*, the steepest of equals, in whole units."""
    _, slope = min(
        candidates(points), key=lambda line: (line[0] + line[1] * mean, -line[1], line[0])
    )
    per_item = -(-slope.numerator // slope.denominator)
    return max(0, *(y - per_item * x for x, y in points)), per_item


@given(points=POINTS, data=st.data())
@example(points=[(1, 10), (5, 2)], data=None)
@example(points=[(2, 10), (4, 11)], data=None)
def test_no_line_through_the_points_is_lower_at_the_mean(
    points: list[Point], data: st.DataObject | None
) -> None:
    sizes = [x for x, _ in points]
    if data is not None:
        sizes = data.draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=12))

    line = tightest_line(points, sum(sizes), len(sizes))

    assert line == best_line(points, Fraction(sum(sizes), len(sizes)))


@given(POINTS)
def test_the_line_is_above_all_points_and_has_no_negative_part(points: list[Point]) -> None:
    fixed, per_item = tightest_line(points, sum(x for x, _ in points), len(points))

    assert fixed >= 0
    assert per_item >= 0
    assert all(y <= fixed + per_item * x for x, y in points)


@pytest.mark.parametrize(
    ("points", "mean", "line"),
    [
        ([(4, 40)], 4, (0, 10)),  # one size alone: all of it is put on the items
        ([(2, 30), (4, 40)], 3, (20, 5)),  # a fixed part shows where two sizes are known
        ([(2, 30), (4, 40)], 2, (0, 15)),  # a tie goes to the steeper line
        ([(3, 10)], 3, (0, 4)),  # parts are rounded up
        ([(1, 3), (4, 4)], 3, (2, 1)),  # … and what the steeper line spares comes off again
        ([(2, 30), (4, 20)], 3, (30, 0)),  # larger batches that took less do not slope down
        ([(5, 0)], 5, (0, 0)),
    ],
)
def test_lines_by_hand(points: list[Point], mean: int, line: Line) -> None:
    assert tightest_line(points, mean, 1) == line


def test_a_mean_beyond_every_size_has_no_line() -> None:
    with pytest.raises(ValueError, match="larger than the largest"):
        tightest_line([(1, 1), (2, 2)], 5, 2)


def with_margin(amount: int) -> int:
    return amount + -(-amount // MARGIN_ONE_IN)


@given(st.lists(POINT, min_size=1, max_size=TRIMMED_ONE_IN - 1))
def test_below_twenty_batches_the_envelope_is_the_line_above_all_and_a_margin(
    points: list[Point],
) -> None:
    largest = max(x for x, _ in points)
    fixed, per_item = best_line(points, Fraction(largest + 1, 2))

    envelope = fit(points)

    assert envelope is not None
    assert envelope.largest == largest
    least = Envelope(with_margin(fixed), with_margin(per_item), largest)
    if len(points) <= 2:  # no deviation is known of so few
        assert envelope == least
    assert envelope.need(largest) >= least.need(largest)
    for items in range(1, largest + 1):
        assert envelope.need(items) >= fixed + per_item * items


def test_what_differs_by_item_gets_a_larger_margin() -> None:
    """Three batches of one size and three of another: every figure by hand."""
    points = [(4, 400), (4, 480), (16, 1600), (16, 1760), (16, 1680), (4, 440)]

    envelope = fit(points)

    # The trend is 26 2/3 + 103 1/3 * items. Residuals of 40 on 4 items, and of 80 on 16, are
    # 20 by item; two of each, and two of 0.
    deviation = math.sqrt(4 * 20**2 / (6 - 2)) * (1 + 3 / 4)
    margin = deviation * math.sqrt(16)
    line = tightest_line(points, 17, 2)
    assert envelope == Envelope(
        line[0] + math.ceil(margin / 2),
        max(line[1] + math.ceil(margin / 32), with_margin(line[1])),
        16,
    )


def test_three_batches_that_disagree_do_not_make_the_smallest_impossible() -> None:
    """The margin is at most half of the line, however badly the deviation is known."""
    points = [(1, 10), (2, 900), (4, 100)]

    envelope = fit(points)

    line = tightest_line(points, 5, 2)
    assert envelope is not None
    assert envelope.need(4) <= (line[0] + line[1] * 4) * 3 // 2 + 8


@given(
    points=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1000)), min_size=1, max_size=70),
    floors=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2000)), max_size=3),
)
def test_few_batches_lie_above_and_no_floor(points: list[Point], floors: list[Point]) -> None:
    envelope = fit(points, floors)

    assert envelope is not None

    def covered(point: Point) -> bool:
        # The margin is on top: a tenth more than the line, which is above the point.
        return envelope.need(point[0]) * MARGIN_ONE_IN >= point[1] * (MARGIN_ONE_IN + 1)

    above = sum(not covered(point) for point in points)
    assert above <= len(points) // TRIMMED_ONE_IN
    assert all(covered(floor) for floor in floors)


def test_one_freak_in_twenty_does_not_decide() -> None:
    usual = [(size, 100 + 10 * size) for size in range(1, 20)]

    assert fit([*usual, (3, 5000)]) == Envelope(110, 11, 19)
    # Nineteen are too few to leave one out.
    freak = fit([*usual[:-1], (3, 5000)])
    assert freak is not None
    assert freak.need(3) >= 5000


def test_what_is_left_out_lies_highest_in_proportion_to_the_trend() -> None:
    """The largest batches took most; the one that took twice its due goes."""
    usual = [(size, 10 * size) for size in range(1, 20)]

    envelope = fit([*usual, (2, 40)])

    assert envelope == Envelope(0, 11, 19)


def test_batches_of_one_size_leave_the_highest_out() -> None:
    assert fit([(4, 400)] * 39 + [(4, 900), (4, 800)]) == Envelope(0, 110, 4)


@given(POINTS)
def test_the_need_grows_with_the_batch_and_in_proportion_beyond(points: list[Point]) -> None:
    envelope = fit(points)
    assert envelope is not None
    largest = envelope.largest

    needs = [envelope.need(items) for items in range(1, 3 * largest)]
    assert needs == sorted(needs)
    for items in range(1, largest + 1):
        line = envelope.fixed + envelope.per_item * items
        assert line <= envelope.need(items) < line + largest, "rounding up alone"
    for items in range(largest, 3 * largest):
        assert envelope.need(items) == envelope.beyond * items
    assert envelope.need(2 * largest) == 2 * envelope.need(largest)
    assert envelope.beyond * largest >= envelope.fixed + envelope.per_item * largest


def test_without_any_batch_there_is_no_envelope() -> None:
    assert fit([]) is None
    assert fit([], []) is None


def test_failures_alone_are_an_envelope_too() -> None:
    assert fit([], [(4, 40), (2, 30)]) == Envelope(22, 6, 4)


def test_a_failure_beyond_the_sizes_seen_counts_as_seen() -> None:
    envelope = fit([(2, 20)], [(8, 100)])

    assert envelope is not None
    assert envelope.largest == 8
    assert envelope.need(8) >= 110


@given(one=st.lists(POINT, min_size=1, max_size=3), other=st.lists(POINT, min_size=1, max_size=3))
def test_sums_of_lines_are_lines_of_sums(one: list[Line], other: list[Line]) -> None:
    together = list(sums(one, other))
    for items in range(1, 9):
        highest = max(fixed + per_item * items for fixed, per_item in together)
        assert highest == max(f + p * items for f, p in one) + max(f + p * items for f, p in other)


@pytest.mark.slow
def test_how_often_the_next_batch_is_above() -> None:
    """The figures beside `MARGIN_DEVIATIONS`, drawn again from fewer windows."""
    windows, generator = 2000, random.Random(20)

    def batch() -> Point:
        items = generator.randint(1, 12)
        return items, round(sum(generator.lognormvariate(0, 0.5) for _ in range(items)) * 10**6)

    above_line = above_margin = 0
    for _ in range(windows):
        seen = [batch() for _ in range(16)]
        items, took = batch()
        envelope = fit(seen)
        assert envelope is not None
        fixed, per_item = tightest_line(seen, envelope.largest + 1, 2)
        above_line += took > Envelope(fixed, per_item, envelope.largest).need(items)
        above_margin += took > envelope.need(items)

    # Three standard errors of so many draws.
    assert above_line / windows == pytest.approx(0.104, abs=0.020)
    assert above_margin / windows == pytest.approx(0.018, abs=0.009)
