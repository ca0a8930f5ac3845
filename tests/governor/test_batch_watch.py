"""`watch_batch`: whose peak it was, and when nothing is known."""

from __future__ import annotations

from typing import Final

import attrs
import pytest

from lardon import GiB, Governor, MiB, Policy, Reservation, ResourceEstimate, ResourceSnapshot
from lardon.governor.batch_watch import BatchFigures
from lardon.governor.snapshot import GpuSnapshot, OwnUse
from lardon.testing import ManualClock

CARDS: Final = tuple(
    GpuSnapshot(index=place, uuid=uuid, total_bytes=16 * GiB, free_bytes=16 * GiB)
    for place, uuid in enumerate(("GPU-a", "GPU-b"))
)
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=16 * GiB, cpus=8, gpus=CARDS
)


class Peak:
    """A watch that a test ends as it likes."""

    def __init__(self, probe: WatchingProbe) -> None:
        self.start = probe.start
        self._probe = probe

    def stop(self) -> OwnUse | None:
        self._probe.stopped += 1
        if isinstance(self._probe.peak, Exception):
            raise self._probe.peak
        return self._probe.peak


class WatchingProbe:
    """A machine on which use and peak are what a test says."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.use: OwnUse | None = OwnUse(ram_bytes=100)
        self.peak: OwnUse | Exception | None = OwnUse(ram_bytes=700)
        self.start: OwnUse | None = None
        self.refusal: Exception | None = None
        self.stopped = 0

    def snapshot(self) -> ResourceSnapshot:
        return attrs.evolve(MACHINE, taken_at=self._clock.monotonic())

    def own_use(self) -> OwnUse | None:
        return self.use

    def watch_peak(self) -> Peak:
        if self.refusal is not None:
            raise self.refusal
        return Peak(self)


@pytest.fixture
def probe(clock: ManualClock) -> WatchingProbe:
    return WatchingProbe(clock)


@pytest.fixture
def governor(probe: WatchingProbe, clock: ManualClock) -> Governor:
    return Governor(Policy.unlimited(tasks_per_gpu=2), probe=probe, clock=clock)


def book(governor: Governor, gpus: int = 0) -> Reservation:
    reservation = governor.reserve(ResourceEstimate(ram_bytes=MiB, gpus=gpus))[1]
    assert reservation is not None
    return reservation


def test_the_sole_holders_peak_is_its_growth_since_the_booking(
    governor: Governor, probe: WatchingProbe, clock: ManualClock
) -> None:
    reservation = book(governor)
    probe.use = OwnUse(ram_bytes=300)  # what was gained since counts as well
    watch = governor.watch_batch(reservation)
    clock.advance(2.5)

    assert watch.stop() == BatchFigures(2.5, 600, None)
    assert probe.stopped == 1


def test_a_process_that_shrank_took_nothing(governor: Governor, probe: WatchingProbe) -> None:
    probe.peak = OwnUse(ram_bytes=99)

    assert governor.watch_batch(book(governor)).stop() == BatchFigures(0.0, 0, None)


def test_a_clock_that_goes_back_gives_no_negative_duration(
    governor: Governor, clock: ManualClock
) -> None:
    watch = governor.watch_batch(book(governor))
    clock._now -= 5.0

    assert watch.stop().duration_s == 0.0


@pytest.mark.parametrize("event", ["booking", "came and went", "release", "policy"])
def test_whatever_moves_the_book_meanwhile_makes_the_peak_unknown(
    governor: Governor, probe: WatchingProbe, clock: ManualClock, event: str
) -> None:
    reservation = book(governor)
    watch = governor.watch_batch(reservation)
    clock.advance(1.0)
    if event == "release":
        reservation.release()
    elif event == "policy":
        governor.set_policy(governor.policy)
    else:
        other = book(governor)
        if event == "came and went":
            other.release()

    assert watch.stop() == BatchFigures(1.0, None, None)
    assert probe.stopped == 1, "what was begun is ended"


def test_beside_another_holder_nothing_is_watched(
    governor: Governor, probe: WatchingProbe, clock: ManualClock
) -> None:
    first, second = book(governor), book(governor)
    watch = governor.watch_batch(second)
    first.release()

    assert watch.stop() == BatchFigures(0.0, None, None)
    assert probe.stopped == 0


def test_a_reservation_that_is_not_active_is_not_watched(
    governor: Governor, probe: WatchingProbe
) -> None:
    released = book(governor)
    released.release()
    assert governor.watch_batch(released).stop().peak_ram_bytes is None
    book(governor)
    assert governor.watch_batch(released).stop().peak_ram_bytes is None
    assert probe.stopped == 0


def test_a_question_meanwhile_disturbs_nothing(governor: Governor) -> None:
    watch = governor.watch_batch(book(governor))
    governor.decide(ResourceEstimate())
    governor.reserve(ResourceEstimate(ram_bytes=64 * GiB))
    governor.record_batch("kind", 1, 1.0)

    assert watch.stop().peak_ram_bytes == 600


def test_a_probe_without_the_method_knows_no_peak(clock: ManualClock) -> None:
    class Plain:
        def snapshot(self) -> ResourceSnapshot:
            return attrs.evolve(MACHINE, taken_at=clock.monotonic())

    governor = Governor(probe=Plain(), clock=clock)
    watch = governor.watch_batch(book(governor))
    clock.advance(1.0)

    assert watch.stop() == BatchFigures(1.0, None, None)


@pytest.mark.parametrize("when", ["watch", "peak"])
def test_a_probe_that_raises_is_logged_once_and_harms_nothing(
    governor: Governor, probe: WatchingProbe, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    if when == "watch":
        probe.refusal = OSError("no mark")
    else:
        probe.peak = OSError("no status")
    reservation = book(governor)

    for _ in range(3):
        assert governor.watch_batch(reservation).stop() == BatchFigures(0.0, None, None)

    assert [record.message for record in caplog.records] == [f"lardon: the probe's {when} failed"]


def test_a_peak_that_cannot_be_told_is_unknown(governor: Governor, probe: WatchingProbe) -> None:
    probe.peak = None

    assert governor.watch_batch(book(governor)).stop() == BatchFigures(0.0, None, None)


def test_without_a_measurement_at_the_booking_the_batch_counts_from_its_start(
    governor: Governor, probe: WatchingProbe
) -> None:
    probe.use = None
    reservation = book(governor)
    probe.use = OwnUse(ram_bytes=400)
    assert governor.watch_batch(reservation).stop().peak_ram_bytes == 300

    probe.use, probe.start = None, OwnUse(ram_bytes=650)
    assert governor.watch_batch(reservation).stop().peak_ram_bytes == 50

    probe.start = None
    assert governor.watch_batch(reservation).stop().peak_ram_bytes is None


def test_gpu_memory_is_the_growth_on_the_card_that_grew_most(
    governor: Governor, probe: WatchingProbe
) -> None:
    probe.use = OwnUse(ram_bytes=0, gpu_bytes={"GPU-a": 50, "GPU-b": 10})
    both = book(governor, gpus=2)
    probe.peak = OwnUse(ram_bytes=0, gpu_bytes={"GPU-a": 80, "GPU-b": 70, "GPU-x": 900})

    assert governor.watch_batch(both).stop().peak_gpu_bytes == 60
    both.release()
    first = book(governor, gpus=1)
    assert first.contract.gpus == ("GPU-a",)
    assert governor.watch_batch(first).stop().peak_gpu_bytes == 30, "other cards are not its own"


@pytest.mark.parametrize("now", [{"GPU-a": 50}, {"GPU-a": 20}, {}])
def test_without_growth_on_a_card_its_peak_is_unknown(
    governor: Governor, probe: WatchingProbe, now: dict[str, int]
) -> None:
    """The driver has no high-water mark: what came and went was not seen."""
    probe.use = OwnUse(ram_bytes=0, gpu_bytes={"GPU-a": 50})
    reservation = book(governor, gpus=1)
    probe.peak = OwnUse(ram_bytes=7, gpu_bytes=now)

    assert governor.watch_batch(reservation).stop() == BatchFigures(0.0, 7, None)


def test_a_card_that_was_not_listed_at_the_booking_counts_in_full(
    governor: Governor, probe: WatchingProbe
) -> None:
    reservation = book(governor, gpus=1)
    probe.peak = OwnUse(ram_bytes=0, gpu_bytes={"GPU-a": 5})

    assert governor.watch_batch(reservation).stop().peak_gpu_bytes == 5


def succeed(governor: Governor, last: Reservation) -> Reservation:
    """Return what a break books in the place of *last*."""
    last.release()
    reservation = governor.reserve(ResourceEstimate(ram_bytes=MiB), replaces=last)[1]
    assert reservation is not None
    return reservation


def held_over(governor: Governor, probe: WatchingProbe) -> Reservation:
    """Return the reservation of a batch before which the process kept 300 MiB of the last."""
    first = book(governor)
    probe.use = OwnUse(ram_bytes=100 + 300 * MiB)
    return succeed(governor, first)


def test_what_a_larger_batch_left_in_the_allocator_is_no_peak_of_a_smaller(
    governor: Governor, probe: WatchingProbe
) -> None:
    """Such a peak would be taken for fixed, and the smallest batch wait for what is not there."""
    governor.record_batch("kind", 64, 1.0, 300 * MiB)
    reservation = held_over(governor, probe)
    probe.peak = OwnUse(ram_bytes=100 + 301 * MiB)

    assert governor.watch_batch(reservation).stop("kind", 8) == BatchFigures(0.0, None, None)
    assert governor.watch_batch(reservation).stop("kind", 64).peak_ram_bytes is None
    # Of larger ones, and of other kinds, it is the best that is known.
    assert governor.watch_batch(reservation).stop("kind", 65).peak_ram_bytes == 301 * MiB
    assert governor.watch_batch(reservation).stop("other", 8).peak_ram_bytes == 301 * MiB
    assert governor.watch_batch(reservation).stop().peak_ram_bytes == 301 * MiB


def test_a_peak_beyond_what_was_held_over_is_the_batchs_own(
    governor: Governor, probe: WatchingProbe
) -> None:
    governor.record_batch("kind", 64, 1.0, 300 * MiB)
    reservation = held_over(governor, probe)
    probe.peak = OwnUse(ram_bytes=100 + 309 * MiB)

    assert governor.watch_batch(reservation).stop("kind", 8).peak_ram_bytes == 309 * MiB


def test_little_that_was_held_over_does_not_count(governor: Governor, probe: WatchingProbe) -> None:
    governor.record_batch("kind", 64, 1.0, 300 * MiB)
    first = book(governor)
    probe.use = OwnUse(ram_bytes=100 + 8 * MiB)
    reservation = succeed(governor, first)
    probe.peak = OwnUse(ram_bytes=100 + 9 * MiB)

    assert governor.watch_batch(reservation).stop("kind", 8).peak_ram_bytes == 9 * MiB


@pytest.mark.parametrize(
    ("peak", "failed"), [(None, False), (300 * MiB, True)], ids=["unknown", "ran out"]
)
def test_a_batch_that_says_nothing_of_its_need_covers_no_smaller_one(
    governor: Governor, probe: WatchingProbe, peak: int | None, failed: bool
) -> None:
    governor.record_batch("kind", 64, 1.0, peak, failed=failed)
    reservation = held_over(governor, probe)
    probe.peak = OwnUse(ram_bytes=100 + 301 * MiB)

    assert governor.watch_batch(reservation).stop("kind", 8).peak_ram_bytes == 301 * MiB


def test_a_peak_stands_where_nobody_knows_what_was_held_before(
    governor: Governor, probe: WatchingProbe
) -> None:
    governor.record_batch("kind", 64, 1.0, 300 * MiB)
    probe.use = None
    reservation = book(governor)
    probe.use = OwnUse(ram_bytes=100)

    assert governor.watch_batch(reservation).stop("kind", 8).peak_ram_bytes == 600
