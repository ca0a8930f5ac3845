"""How fast others take memory: the steepest of the last second, fading, never negative."""

from __future__ import annotations

import itertools
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.governor.growth import (
    HALF_LIFE_S,
    MAX_SPAN_S,
    MIN_SPAN_S,
    NEAR_S,
    NEGLIGIBLE,
    NO_GROWTH,
    NOISE_BYTES,
    Growth,
    observed,
)
from lardon.units import GiB, MiB

# Binary fractions, so that sums of them are exact.
TICK: Final = 1 / 64


def after(*readings: tuple[float, int], start: Growth = NO_GROWTH) -> Growth:
    for at, used in readings:
        start = observed(start, at, used)
    return start


def test_two_readings_and_what_lies_between_less_the_noise() -> None:
    growth = after((10.0, GiB), (10.5, GiB + 58 * MiB))

    assert growth.bytes_per_s == 100 * MiB
    assert growth.rate(10.5) == 100 * MiB


def test_one_reading_knows_no_growth() -> None:
    assert after((10.0, 50 * GiB)).rate(10.0) == 0
    assert NO_GROWTH.rate(0.0) == 0


@pytest.mark.parametrize("change", [-GiB, -1, 0, 1, NOISE_BYTES])
def test_noise_and_release_are_no_growth(change: int) -> None:
    assert after((10.0, 2 * GiB), (10.5, 2 * GiB + change)).rate(10.5) == 0


def test_growth_that_began_a_moment_ago_counts_in_full() -> None:
    """A long quiet stretch before it does not flatten it."""
    quiet = [(10 + place / 8, GiB) for place in range(8)]

    assert after(*quiet, (11.0, GiB + 24 * MiB)).rate(11.0) == 128 * MiB


@pytest.mark.parametrize("span", [MIN_SPAN_S / 2])
def test_readings_too_close_say_nothing(span: float) -> None:
    assert after((10.0, 0), (10.0 + span, GiB)).rate(10.0 + span) == 0


@pytest.mark.parametrize("span", [MAX_SPAN_S * 1.01, 60.0])
def test_of_readings_that_are_far_apart_the_last_counts(span: float) -> None:
    """A queue whose batches are long asks seldom, and looks ahead all the same."""
    apart = after((10.0, 0), (10.0 + span, GiB), (10.0 + 2 * span, 2 * GiB))

    assert apart.rate(10.0 + 2 * span) == int((GiB - NOISE_BYTES) / span)
    assert len(apart.readings) == 1


@pytest.mark.parametrize("span", [0.0625, MAX_SPAN_S])
def test_readings_within_the_span_say_something(span: float) -> None:
    assert after((10.0, 0), (10.0 + span, GiB)).rate(10.0 + span) > 0


@pytest.mark.parametrize("at", [10.0, 9.0, -5.0])
def test_a_time_that_does_not_go_on_is_ignored(at: float) -> None:
    first = after((10.0, GiB))

    assert observed(first, at, 50 * GiB) is first


def test_growth_that_stopped_fades_to_nothing() -> None:
    growth = after((10.0, 0), (10.5, 4 * GiB))
    rate = growth.rate(10.5)

    assert growth.rate(10.5 + HALF_LIFE_S) == rate // 2
    assert growth.rate(10.5 + 3 * HALF_LIFE_S) == rate // 8
    assert growth.rate(10.5 + 60.0) == 0
    # A clock that seems to go back does not make it grow.
    assert growth.rate(9.0) == rate


def test_it_fades_as_well_between_readings_that_see_no_more_of_it() -> None:
    growth = after((10.0, 0), (10.5, 4 * GiB), (12.0, 4 * GiB))

    assert growth.rate(12.0) == int(after((10.0, 0), (10.5, 4 * GiB)).bytes_per_s / 8)
    assert after((20.0, 4 * GiB), start=growth) == Growth(((20.0, 4 * GiB),), 0.0)


def test_a_rate_that_is_negligible_is_none() -> None:
    assert Growth(((1.0, 0),), float(NEGLIGIBLE)).rate(1.0) == NEGLIGIBLE
    assert Growth(((1.0, 0),), NEGLIGIBLE - 1.0).rate(1.0) == 0


def steepest(readings: list[tuple[float, int]]) -> float:
    """Return the same from all readings that ever were, those too close together left out."""
    at, used = readings[-1]
    return max(
        (
            (used - before - NOISE_BYTES) / (at - then)
            for then, before in readings[:-1]
            if at - then >= MIN_SPAN_S and (at - then <= MAX_SPAN_S or then == readings[-2][0])
        ),
        default=0.0,
    )


STEPS: Final = st.lists(
    st.tuples(st.integers(4, 90), st.integers(-400, 400)), min_size=1, max_size=60
)


@given(STEPS)
def test_the_steepest_of_the_last_second(steps: list[tuple[int, int]]) -> None:
    readings, at, used = [], 5.0, 100 * GiB
    growth = NO_GROWTH
    for ticks, change in steps:
        at, used = at + ticks * TICK, used + change * MiB
        readings.append((at, used))
        faded = growth.rate(at)
        growth = observed(growth, at, used)

        assert growth.bytes_per_s == max(0.0, steepest(readings), faded)
        assert growth.rate(at) >= 0


@given(
    st.lists(st.tuples(st.floats(0.0001, 0.2), st.integers(-400, 400)), min_size=1, max_size=120)
)
def test_a_queue_that_asks_often_is_remembered_in_bounds(steps: list[tuple[float, int]]) -> None:
    growth, at, used = NO_GROWTH, 5.0, 100 * GiB
    for span, change in steps:
        at, used = at + span, used + change * MiB
        growth = observed(growth, at, used)

        times = [reading[0] for reading in growth.readings]
        assert at - times[-1] < NEAR_S
        assert len(times) <= 22
        assert at - times[0] <= MAX_SPAN_S
        gaps = [later - earlier for earlier, later in itertools.pairwise(times[:-1])]
        assert all(gap >= MIN_SPAN_S for gap in gaps)


def test_a_reading_too_near_to_the_last_is_not_taken_in() -> None:
    """However often it is asked, and however much was taken in between."""
    first = after((10.0, GiB))

    assert observed(first, 10.0 + NEAR_S / 2, 50 * GiB) is first
    assert observed(first, 10.0 + 2 * NEAR_S, 50 * GiB).readings[-1] == (
        10.0 + 2 * NEAR_S,
        50 * GiB,
    )


def test_steady_growth_is_seen_however_often_it_is_asked_for() -> None:
    """A thousand readings a second find what four find."""
    growth = NO_GROWTH
    for place in range(1024):
        growth = observed(growth, 5 + place / 1024, place * MiB)

    assert growth.bytes_per_s == pytest.approx(1024 * MiB, rel=0.02)
