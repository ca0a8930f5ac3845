"""Measuring one batch: how long it took, and the most memory it held."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lardon.governor.measured import SLACK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.clock import Clock
    from lardon.governor.reader import Reader
    from lardon.governor.reservation import Reservation
    from lardon.governor.snapshot import OwnUse, PeakWatch


class BatchFigures(NamedTuple):
    """What a batch took. Peaks are growth above the use at booking; None is unknown."""

    duration_s: float
    peak_ram_bytes: int | None
    peak_gpu_bytes: int | None
    """On the GPU of the contract that grew most."""


class BatchWatch:
    """
    Runs from `Governor.watch_batch` to `stop`, on the thread that runs the batch.

    A peak belongs to a batch only if nobody else worked in this process meanwhile: if the
    governor booked or released anything in between, the peaks are unknown.

    Args:
        clock: Measures the duration.
        reader: Measures the use of this process.
        undisturbed: Whether nobody else has worked so far.
        reservation: What the batch runs under.
        covered: Whether what a batch of a kind and size takes is known from one at least as
            large.

    """

    __slots__ = (
        "_baseline",
        "_clock",
        "_covered",
        "_gpus",
        "_held",
        "_peak",
        "_reader",
        "_started",
        "_undisturbed",
    )

    def __init__(
        self,
        clock: Clock,
        reader: Reader,
        undisturbed: Callable[[], bool],
        reservation: Reservation,
        covered: Callable[[str, int], bool],
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._undisturbed = undisturbed
        self._covered = covered
        self._gpus = reservation.contract.gpus
        self._held = reservation._at_booking
        baseline = reservation._baseline
        self._peak: PeakWatch | None = reader.watch_peak() if undisturbed() else None
        if baseline is None and self._peak is not None:
            baseline = reader.own_use() or self._peak.start
        self._baseline = baseline
        self._started = clock.monotonic()

    def leave_out(self, seconds: float) -> None:
        """Do not count *seconds* that have passed since the start: the batch stood still."""
        self._started += seconds

    def stop(self, kind: str | None = None, items: int = 0) -> BatchFigures:
        """
        Return the figures up to now. Call it once, while the reservation is held.

        Args:
            kind: The kind of the batch. An allocator may keep what a larger batch before this
                one has freed: then the peak is that one's, and is told as unknown. Without
                the kind it is told as it was read.
            items: How many items the batch had.

        """
        duration = max(0.0, self._clock.monotonic() - self._started)
        watch, baseline = self._peak, self._baseline
        if watch is None:
            return BatchFigures(duration, None, None)
        peak = self._reader.peak(watch)
        if peak is None or baseline is None or not self._undisturbed():
            return BatchFigures(duration, None, None)
        grown = [
            used - baseline.gpu_bytes.get(uuid, 0)
            for uuid, used in peak.gpu_bytes.items()
            if uuid in self._gpus
        ]
        gpu = max(grown, default=0)
        # Without growth that is still there nothing is known: the driver has no high-water
        # mark, so that memory which came and went within the batch was not seen.
        ram: int | None = max(0, peak.ram_bytes - baseline.ram_bytes)
        if kind is not None and self._is_held_over(peak, baseline) and self._covered(kind, items):
            ram = None
        return BatchFigures(duration, ram, gpu if gpu > 0 else None)

    def _is_held_over(self, peak: OwnUse, baseline: OwnUse) -> bool:
        """Whether the batch took no more than what this process held before it, for nothing."""
        if self._held is None:
            return False
        held = self._held.ram_bytes
        return held - baseline.ram_bytes > SLACK_BYTES and peak.ram_bytes - held <= SLACK_BYTES
