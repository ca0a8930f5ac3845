"""What the batches of one kind teach: how much the next ones need, and how large they may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from lardon.governor.envelope import Envelope, Point, fit
from lardon.governor.history import MOST

if TYPE_CHECKING:
    from lardon.governor.batch_record import BatchRecord

# After a batch ran out of memory the next have at most half its items, and twice as many each
# time that so many batches went well: a machine that is short for good then loses one batch
# in 17.
RETRY_AFTER: Final = 16
MICROSECONDS: Final = 1_000_000


class Lesson(NamedTuple):
    """The window of one kind, digested. Memory in bytes, durations in microseconds."""

    batches: int
    """How many batches it rests on."""
    ram: Envelope | None
    """None when no peak is known."""
    gpu: Envelope | None
    duration_us: Envelope | None
    """None also where nobody asked for it."""
    largest: int
    """The largest batch that went well and whose RAM peak is known; 0 for none."""
    ceiling: int | None
    """Half of a batch that ran out of memory, twice as much after each `RETRY_AFTER` successes."""


NOTHING_LEARNED: Final = Lesson(
    batches=0, ram=None, gpu=None, duration_us=None, largest=0, ceiling=None
)


def learn(window: Sequence[BatchRecord], *, timed: bool = True) -> Lesson:
    """
    Return what *window*, oldest first, teaches.

    Args:
        window: The batches.
        timed: Whether their durations are fitted as well, which takes as long as the rest.

    """
    well = [record for record in window if not record.failed]
    failed = [record for record in window if record.failed]
    return Lesson(
        batches=len(window),
        ram=fit(_ram_peaks(well), _ram_peaks(failed)),
        gpu=fit(_gpu_peaks(well), _gpu_peaks(failed)),
        duration_us=fit(_durations(well)) if timed else None,
        largest=max(
            (record.items for record in well if record.peak_ram_bytes is not None), default=0
        ),
        ceiling=_ceiling(window),
    )


def _ram_peaks(records: Iterable[BatchRecord]) -> list[Point]:
    return [
        (record.items, record.peak_ram_bytes)
        for record in records
        if record.peak_ram_bytes is not None
    ]


def _durations(records: Iterable[BatchRecord]) -> list[Point]:
    return [(record.items, round(record.duration_s * MICROSECONDS)) for record in records]


def _gpu_peaks(records: Iterable[BatchRecord]) -> list[Point]:
    return [
        (record.items, record.peak_gpu_bytes)
        for record in records
        if record.peak_gpu_bytes is not None
    ]


def _ceiling(window: Sequence[BatchRecord]) -> int | None:
    """Return half of the smallest failure, doubled for every `RETRY_AFTER` successes since."""
    ceiling: int | None = None
    successes = 0
    for record in reversed(window):
        if not record.failed:
            successes += 1
            continue
        doublings = (successes + record.well_since) // RETRY_AFTER
        # Beyond that no batch is too large.
        allowed = max(1, record.items // 2) << min(doublings, MOST.bit_length())
        if ceiling is None or allowed < ceiling:
            ceiling = allowed
    return ceiling
