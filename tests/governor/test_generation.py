"""`generation`, `subscribe` and `wait_for_change`: who is told what, when, and where."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

import pytest

from lardon import DecisionKind, Governor, InvalidPolicy, Policy, ResourceEstimate, ResourceSnapshot
from lardon.governor.reservation import Reservation
from lardon.testing import ManualClock, ScriptedProbe

MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1000, ram_available_bytes=1000, cpus=8
)
HALF: Final = ResourceEstimate(ram_bytes=500)
WAIT_S: Final = 5


class WatchedClock(ManualClock):
    """A manual clock that tells when somebody has begun to wait."""

    def __init__(self) -> None:
        super().__init__(start=100.0)
        self.waiting = threading.Event()

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        def asked() -> bool:
            self.waiting.set()
            return predicate()

        return super().wait_for(condition, asked, timeout)


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
def governor(clock: WatchedClock) -> Governor:
    return Governor(Policy.unlimited(), probe=ScriptedProbe(MACHINE, clock=clock), clock=clock)


def book(governor: Governor, estimate: ResourceEstimate = HALF) -> Reservation:
    reservation = governor.reserve(estimate)[1]
    assert reservation is not None
    return reservation


def test_the_generation_grows_at_bookings_releases_and_policies_alone(governor: Governor) -> None:
    seen = [governor.generation]

    def note() -> None:
        seen.append(governor.generation)

    first = book(governor)
    note()
    second = book(governor)
    note()
    assert governor.reserve(HALF)[0].kind is DecisionKind.WAIT
    assert governor.reserve(ResourceEstimate(ram_bytes=2000))[0].kind is DecisionKind.REJECT
    governor.decide(HALF)
    governor.explain(HALF)
    governor.record_batch("general", 1, 1.0)
    note()
    first.release()
    note()
    first.release()
    note()
    governor.set_policy(governor.policy)
    note()
    with pytest.raises(InvalidPolicy):
        governor.set_policy(Policy.unlimited(ram_limit_bytes=499))
    note()
    second.release()
    note()

    assert seen == [0, 1, 2, 2, 3, 3, 4, 4, 5]
    assert governor.statistics().generation == 5


def test_subscribers_are_called_once_per_change_after_it_on_its_thread(
    governor: Governor,
) -> None:
    calls: list[tuple[int, int, threading.Thread]] = []

    def look() -> None:
        calls.append(
            (governor.generation, len(governor.reservations()), threading.current_thread())
        )

    governor.subscribe(look)
    reservation = book(governor)
    governor.reserve(ResourceEstimate(ram_bytes=501))
    reservation.release()
    reservation.release()
    governor.set_policy(Policy.unlimited())

    me = threading.current_thread()
    assert calls == [(1, 1, me), (2, 0, me), (3, 0, me)]


def test_subscribers_run_without_a_lock(governor: Governor) -> None:
    """Another thread gets through to the governor while a subscriber runs."""
    done: list[bool] = []

    def let_another_thread_in() -> None:
        thread = threading.Thread(target=governor.statistics, daemon=True)
        thread.start()
        thread.join(timeout=WAIT_S)
        done.append(not thread.is_alive())

    governor.subscribe(let_another_thread_in)
    reservation = book(governor)
    reservation.release()
    governor.set_policy(Policy.unlimited())

    assert done == [True, True, True]


def test_a_subscriber_may_use_the_governor(governor: Governor) -> None:
    calls: list[int] = []

    def book_one_more() -> None:
        calls.append(governor.generation)
        if len(calls) <= 3:
            book(governor, ResourceEstimate(ram_bytes=1))

    governor.subscribe(book_one_more)
    book(governor).release()

    assert calls == [1, 2, 3, 4, 5]
    assert [reservation.id for reservation in governor.reservations()] == [2, 3, 4]


def test_a_subscriber_that_raises_is_logged_and_harms_nothing(
    governor: Governor, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def fail() -> None:
        raise SystemExit(3)

    governor.subscribe(lambda: calls.append("before"))
    governor.subscribe(fail)
    governor.subscribe(lambda: calls.append("after"))
    with caplog.at_level(logging.ERROR, logger="lardon"):
        reservation = book(governor)
        assert reservation.release() is True

    assert calls == ["before", "after"] * 2
    assert [record.name for record in caplog.records] == ["lardon", "lardon"]
    assert governor.statistics().reserved_ram_bytes == 0


def test_unsubscribing_ends_one_subscription_once(governor: Governor) -> None:
    calls: list[int] = []

    def note() -> None:
        calls.append(1)

    stop = governor.subscribe(note)
    governor.subscribe(note)
    stop()
    stop()
    book(governor)

    assert calls == [1]


def test_only_a_callable_may_subscribe(governor: Governor) -> None:
    with pytest.raises(TypeError, match="callable"):
        governor.subscribe("note")  # type: ignore[arg-type]


def test_a_change_that_has_happened_is_not_waited_for(governor: Governor) -> None:
    seen = governor.generation
    book(governor)

    assert governor.wait_for_change(seen) is True
    assert governor.wait_for_change(seen, 0) is True
    assert governor.wait_for_change(governor.generation, 0) is False
    assert governor.wait_for_change(-1, 0) is True
    assert governor.wait_for_change(99, 0) is True


def waiter(governor: Governor, timeout: float | None) -> tuple[threading.Thread, list[bool]]:
    answers: list[bool] = []
    seen = governor.generation
    thread = threading.Thread(
        target=lambda: answers.append(governor.wait_for_change(seen, timeout)), daemon=True
    )
    thread.start()
    return thread, answers


@pytest.mark.parametrize("change", ["booking", "release", "policy"])
def test_each_change_ends_a_wait(governor: Governor, clock: WatchedClock, change: str) -> None:
    reservation = book(governor)
    thread, answers = waiter(governor, None)
    assert clock.waiting.wait(WAIT_S)

    if change == "booking":
        book(governor)
    elif change == "release":
        reservation.release()
    else:
        governor.set_policy(Policy.unlimited())
    thread.join(timeout=WAIT_S)

    assert answers == [True]


def test_a_wait_ends_at_its_timeout(governor: Governor, clock: WatchedClock) -> None:
    thread, answers = waiter(governor, 10.0)
    assert clock.waiting.wait(WAIT_S)

    clock.advance(9.5)
    governor.reserve(ResourceEstimate(ram_bytes=2000))
    assert not answers
    clock.advance(0.5)
    thread.join(timeout=WAIT_S)

    assert answers == [False]


def test_all_waiters_are_woken(governor: Governor) -> None:
    waiters = [waiter(governor, 1000.0) for _ in range(4)]

    book(governor)

    for thread, answers in waiters:
        thread.join(timeout=WAIT_S)
        assert answers == [True]


def test_h80_timeouts_of_any_size(clock: WatchedClock) -> None:
    """Infinity and None have no limit, huge values clamp, negative ones and NaN are errors."""
    governor = Governor(Policy.unlimited(), probe=ScriptedProbe(MACHINE))
    for wrong in (-1, -0.001, float("nan"), -float("inf")):
        with pytest.raises(ValueError, match="timeout must be None or at least 0"):
            governor.wait_for_change(governor.generation, wrong)

    for endless in (None, float("inf"), 1e300, threading.TIMEOUT_MAX * 2):
        reserved = threading.Thread(
            target=governor.reserve, args=(ResourceEstimate(),), daemon=True
        )
        with governor._lock:
            # The booking needs this lock, so it comes when the wait has begun.
            reserved.start()
            assert governor.wait_for_change(governor.generation, endless) is True
        reserved.join(timeout=WAIT_S)


def test_the_clock_is_the_one_given(governor: Governor, clock: WatchedClock) -> None:
    assert governor.clock is clock
