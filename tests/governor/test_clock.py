"""Clocks: the machine's own, the manual one, and the timeouts that both take."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

from lardon.clock import Clock, MachineClock, checked_timeout
from lardon.testing import ManualClock

WAIT_S: Final = 5
CLOCKS: Final[list[Callable[[], Clock]]] = [MachineClock, ManualClock]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), (float("inf"), None), (0, 0.0), (0.5, 0.5), (3, 3.0), (1e300, 1e300)],
)
def test_h80_timeouts_that_are_taken(given: float | None, seconds: float | None) -> None:
    assert checked_timeout(given) == seconds


@pytest.mark.parametrize("given", [-1, -1e-9, float("-inf"), float("nan")])
def test_h80_timeouts_that_are_refused(given: float) -> None:
    with pytest.raises(ValueError, match="start_timeout_s must be None or at least 0 seconds"):
        checked_timeout(given, "start_timeout_s")


@pytest.mark.parametrize("make", CLOCKS)
def test_monotonic_never_goes_back_and_wall_is_utc(make: Callable[[], Clock]) -> None:
    clock = make()

    first, second = clock.monotonic(), clock.monotonic()

    assert isinstance(first, float)
    assert second >= first
    assert clock.wall().tzinfo is datetime.UTC


def test_the_machines_clock_is_the_machines() -> None:
    before = time.monotonic()
    assert before <= MachineClock().monotonic() <= time.monotonic()
    assert abs(MachineClock().wall() - datetime.datetime.now(datetime.UTC)).total_seconds() < 60


@pytest.mark.parametrize("make", CLOCKS)
@pytest.mark.parametrize("timeout", [None, 0.0, 1e300])
def test_a_predicate_that_holds_is_not_waited_for(
    make: Callable[[], Clock], timeout: float | None
) -> None:
    condition = threading.Condition()
    with condition:
        assert make().wait_for(condition, lambda: True, timeout) is True


@pytest.mark.parametrize("make", CLOCKS)
def test_a_timeout_of_zero_only_looks(make: Callable[[], Clock]) -> None:
    condition = threading.Condition()
    with condition:
        assert make().wait_for(condition, lambda: False, 0.0) is False


@pytest.mark.parametrize("make", CLOCKS)
@pytest.mark.parametrize("timeout", [None, 1e300, threading.TIMEOUT_MAX, 1000.0])
def test_h80_a_wait_that_is_as_good_as_endless_ends_at_a_notice(
    make: Callable[[], Clock], timeout: float | None
) -> None:
    condition = threading.Condition()
    happened: list[int] = []

    def happen() -> None:
        with condition:
            happened.append(1)
            condition.notify_all()

    notice = threading.Thread(target=happen, daemon=True)
    with condition:
        # The other thread gets the condition when this one has begun to wait.
        notice.start()
        assert make().wait_for(condition, lambda: bool(happened), timeout) is True
    notice.join(timeout=WAIT_S)


def test_the_machines_clock_ends_a_wait_by_itself() -> None:
    condition = threading.Condition()
    with condition:
        assert MachineClock().wait_for(condition, lambda: False, 0.001) is False


def test_a_manual_clock_moves_only_when_told() -> None:
    start = datetime.datetime(2026, 5, 4, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    clock = ManualClock(start=7.0, wall=start)

    clock.advance(2.5)
    assert clock.monotonic() == 9.5
    assert clock.wall() == start + datetime.timedelta(seconds=2.5)
    clock.set_wall(start)
    assert (clock.monotonic(), clock.wall()) == (9.5, start)
    clock.advance(0)
    assert clock.monotonic() == 9.5


def test_a_manual_clock_refuses_what_no_clock_does() -> None:
    naive = datetime.datetime(2026, 1, 1)  # noqa: DTZ001  that is the point
    clock = ManualClock()
    for seconds in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="cannot move by"):
            clock.advance(seconds)
    with pytest.raises(ValueError, match="aware"):
        ManualClock(wall=naive)
    with pytest.raises(ValueError, match="aware"):
        clock.set_wall(naive)
    assert clock.monotonic() == 0.0
