"""What a window of batches teaches."""

from __future__ import annotations

from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.governor.batch_record import BatchRecord
from lardon.governor.envelope import Envelope, fit
from lardon.governor.history import MOST, MOST_S
from lardon.governor.lesson import MICROSECONDS, RETRY_AFTER, Lesson, learn

WELL: Final = BatchRecord(items=4, duration_s=2.0, peak_ram_bytes=400, peak_gpu_bytes=40)


def failed(items: int, ram: int | None = None, gpu: int | None = None) -> BatchRecord:
    return BatchRecord(
        items=items, duration_s=9.0, peak_ram_bytes=ram, peak_gpu_bytes=gpu, failed=True
    )


def test_a_window_of_one() -> None:
    assert learn([WELL]) == Lesson(
        batches=1,
        ram=Envelope(0, 110, 4),
        gpu=Envelope(0, 11, 4),
        duration_us=Envelope(0, 550_000, 4),
        largest=4,
        ceiling=None,
    )


def test_unknown_peaks_teach_nothing_of_memory() -> None:
    lesson = learn([BatchRecord(items=64, duration_s=1.0), BatchRecord(items=2, duration_s=0.5)])

    assert (lesson.ram, lesson.gpu, lesson.largest, lesson.ceiling) == (None, None, 0, None)
    assert lesson.duration_us is not None, "how long they took is known all the same"
    assert lesson.batches == 2


def test_an_unknown_peak_beside_known_ones_changes_nothing() -> None:
    both = learn([WELL, BatchRecord(items=64, duration_s=32.0)])

    assert (both.ram, both.gpu, both.largest) == (Envelope(0, 110, 4), Envelope(0, 11, 4), 4)


def test_a_peak_of_zero_is_known() -> None:
    lesson = learn([BatchRecord(items=3, duration_s=0.0, peak_ram_bytes=0)])

    assert (lesson.ram, lesson.largest) == (Envelope(0, 0, 3), 3)


def test_a_failure_is_a_lower_bound() -> None:
    lesson = learn([WELL, failed(8, ram=1200, gpu=200)])

    assert lesson.ram is not None
    assert lesson.gpu is not None
    assert lesson.ram.need(8) >= 1320
    assert lesson.gpu.need(8) >= 220
    assert lesson.largest == 4, "what failed is no size that went well"


def test_a_failure_that_took_less_than_is_known_changes_no_need() -> None:
    assert learn([WELL, failed(4, ram=100, gpu=1)]).ram == learn([WELL]).ram


def test_a_lower_bound_is_never_left_out_as_a_freak() -> None:
    lesson = learn([failed(4, ram=9000), *[WELL] * 60])

    assert lesson.ram is not None
    assert lesson.ram.need(4) >= 9900


def test_a_failure_without_a_peak_lowers_the_ceiling_alone() -> None:
    lesson = learn([WELL, failed(8)])

    assert lesson.ram == learn([WELL]).ram
    assert lesson.ceiling == 4


def test_a_failure_teaches_no_duration() -> None:
    assert learn([failed(8, ram=1)]).duration_us is None
    assert learn([WELL, failed(8)]).duration_us == learn([WELL]).duration_us


def test_durations_are_fitted_in_microseconds() -> None:
    window = [BatchRecord(items=size, duration_s=0.5 + 0.25 * size) for size in (1, 3, 8)]

    envelope = learn(window).duration_us

    assert envelope == fit([(r.items, round(r.duration_s * MICROSECONDS)) for r in window])
    assert envelope == Envelope(550_000, 275_000, 8)


@pytest.mark.parametrize(("smallest", "ceiling"), [(1, 1), (2, 1), (3, 1), (9, 4), (64, 32)])
def test_the_ceiling_is_half_of_what_failed(smallest: int, ceiling: int) -> None:
    assert learn([failed(64), failed(smallest)]).ceiling == ceiling
    assert learn([failed(smallest), failed(64)]).ceiling == ceiling


def test_the_ceiling_is_lifted_by_enough_batches_that_went_well() -> None:
    window = [failed(8), *[WELL] * (RETRY_AFTER - 1)]

    assert learn(window).ceiling == 4
    assert learn([*window, WELL]).ceiling == 8
    assert learn([*window, *[WELL] * (RETRY_AFTER + 1)]).ceiling == 16


def test_what_is_not_remembered_itself_counts_too() -> None:
    long_ago = attrs.evolve(failed(8), well_since=2 * RETRY_AFTER - 1)

    assert learn([long_ago]).ceiling == 8
    assert learn([long_ago, WELL]).ceiling == 16
    assert learn([attrs.evolve(long_ago, well_since=MOST)]).ceiling == 4 << 128


def test_other_failures_count_neither_for_nor_against_it() -> None:
    half = [WELL] * (RETRY_AFTER // 2)

    assert learn([failed(4), *half, failed(32), *half]).ceiling == 4
    assert learn([failed(4), *half, failed(32), *half[1:]]).ceiling == 2


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=3 * RETRY_AFTER))
def test_the_ceiling_against_its_definition(batches: list[tuple[int, bool]]) -> None:
    window = [
        failed(size) if bad else BatchRecord(items=size, duration_s=1) for size, bad in batches
    ]
    allowed = [
        max(1, size // 2)
        * 2 ** (sum(not later for _, later in batches[place + 1 :]) // RETRY_AFTER)
        for place, (size, bad) in enumerate(batches)
        if bad
    ]

    assert learn(window).ceiling == min(allowed, default=None)


def test_the_largest_figures_that_are_taken_in_can_be_computed_with() -> None:
    most = BatchRecord(items=MOST, duration_s=MOST_S, peak_ram_bytes=MOST, peak_gpu_bytes=MOST)
    least = BatchRecord(items=1, duration_s=0.0, peak_ram_bytes=0, peak_gpu_bytes=0)

    lesson = learn([most, least] * 40)

    assert lesson.ram is not None
    assert lesson.ram.need(MOST) >= MOST
