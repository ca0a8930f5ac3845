"""The part of a governor that learns: batches in, lessons kept, saved and loaded."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from lardon.governor.experience import Experience

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.batch_record import BatchRecord
    from lardon.governor.batch_watch import BatchWatch
    from lardon.governor.ledger import Ledger
    from lardon.governor.policy import Policy
    from lardon.governor.reader import Reader
    from lardon.governor.reservation import Reservation
    from lardon.governor.snapshot import OwnUse, ResourceSnapshot
    from lardon.governor.zones import Zone


# After shorter batches the allocator is not asked to walk through its arenas for what it could
# give back, which takes 50 microseconds in a small process.
TIDY_AFTER_S: Final = 0.01


class Learner:
    """What `Governor` offers to those who report batches. Not made by itself."""

    _clock: Clock
    _reader: Reader
    _policy: Policy
    # Guards what follows.
    _lock: threading.RLock
    _generation: int
    _ledger: Ledger
    _experience: Experience
    # Whether a batch has run since the allocator last gave back what was freed.
    _untidy: bool

    def watch_batch(self, reservation: Reservation) -> BatchWatch:
        """
        Begin to measure a batch that runs under *reservation*; `BatchWatch.stop` ends it.

        Called by the thread that runs the batch, right before it. Reads the machine, at
        most a millisecond. On Linux the peak is exact: the kernel's high-water mark of
        this process (``VmHWM``) is reset here and read at the end.
        """
        from lardon.governor.batch_watch import BatchWatch

        with self._lock:
            seen = self._generation
            alone = len(self._ledger) == 1 and self._ledger.bookings.get(reservation.id)

        def undisturbed() -> bool:
            return alone is reservation and self._generation == seen

        return BatchWatch(
            self._clock,
            self._reader,
            undisturbed,
            reservation,
            self._covers,
        )

    def _covers(self, kind: str, items: int) -> bool:
        """Return whether a batch of *kind* at least so large is remembered with its RAM peak."""
        with self._lock:
            return any(
                one.items >= items and one.peak_ram_bytes is not None and not one.failed
                for one in self._experience.history.batches(kind)
            )

    def record_batch(
        self,
        kind: str,
        items: int,
        duration_s: float,
        peak_ram_bytes: int | None = None,
        peak_gpu_bytes: int | None = None,
        failed: bool = False,  # noqa: FBT001, FBT002  the design's own signature
    ) -> None:
        """
        Remember what a batch of *kind* took; the newest are kept. See `BatchRecord`.

        Queues call it after every batch of `map_batches`, `batches` and `map_items`.
        Neither blocks nor moves the generation.

        Raises:
            ValueError: a figure breaks its rule; the message names it.

        """
        # Imported here, above and below: who measures no batch does not pay for it.
        from lardon.governor.batch_record import checked_kind, checked_record

        checked_kind(kind)
        record = checked_record(items, duration_s, peak_ram_bytes, peak_gpu_bytes, failed)
        with self._lock:
            self._experience.record(kind, record)
            self._untidy = self._untidy or duration_s >= TIDY_AFTER_S

    def history(self, kind: str) -> tuple[BatchRecord, ...]:
        """Return the batches remembered of *kind*, oldest first."""
        with self._lock:
            return self._experience.history.batches(kind)

    def save_history(self, path: str | os.PathLike[str]) -> None:
        """Write the history as JSON, whole or not at all; raises OSError."""
        from lardon.governor.batch_record import write_history

        with self._lock:
            history = self._experience.history.copy()
        write_history(path, history)

    def load_history(self, path: str | os.PathLike[str]) -> None:
        """Replace the history by the file's; OSError or ValueError change nothing."""
        from lardon.governor.batch_record import read_history

        history = read_history(path)
        with self._lock:
            self._experience.replace_history(history)

    @property
    def zone(self) -> Zone:
        """The pressure zone after the last observation."""
        return self._experience.pressure.zone

    def observe(self, snapshot: ResourceSnapshot) -> Zone:
        """
        Take in one reading of the machine, and return the pressure zone after it.

        `reserve` does so once per call. An application that reads the machine anyway may
        feed its own readings, so that a queue which asks seldom recovers sooner; one that
        contradicts itself, or is too old to decide on, is ignored.
        """
        now = self._clock.monotonic()
        with self._lock:
            self._observe(snapshot, now)
            return self._experience.pressure.zone

    def _observe(
        self,
        snapshot: ResourceSnapshot,
        now: float,
        own: OwnUse | None = None,
        credit_bytes: int = 0,
    ) -> None:
        """Move the experience on. The caller holds `_lock`."""
        age = now - snapshot.taken_at
        if snapshot.contradiction is None and 0 <= age <= self._policy.snapshot_max_age_s:
            self._experience.observe(snapshot, self._policy, own, credit_bytes)
