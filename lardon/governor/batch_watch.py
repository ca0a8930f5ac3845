"""Measuring one batch: how long it took, and the most memory it held."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.clock import Clock
    from lardon.governor.reader import Reader
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
    """

    __slots__ = ("_baseline", "_clock", "_gpus", "_peak", "_reader", "_started", "_undisturbed")

    def __init__(
        self,
        clock: Clock,
        reader: Reader,
        undisturbed: Callable[[], bool],
        baseline: OwnUse | None,
        gpus: tuple[str, ...],
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._undisturbed = undisturbed
        self._gpus = gpus
        self._peak: PeakWatch | None = reader.watch_peak() if undisturbed() else None
        if baseline is None and self._peak is not None:
            baseline = reader.own_use() or self._peak.start
        self._baseline = baseline
        self._started = clock.monotonic()

    def stop(self) -> BatchFigures:
        """Return the figures up to now. Call it once, while the reservation is held."""
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
        return BatchFigures(
            duration, max(0, peak.ram_bytes - baseline.ram_bytes), gpu if gpu > 0 else None
        )
