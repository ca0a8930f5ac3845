"""Workers that have a job, in the order in which they were last seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lardon.locality.worker_state import WorkerState


class Leases:
    """
    Which worker with a job has been silent for too long.

    A worker that waits for more jobs is there, however long it waits. Every call costs O(1).
    Not thread-safe.
    """

    __slots__ = ("_workers", "lease_s")

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._workers: dict[WorkerState, None] = {}

    def hold(self, worker: WorkerState) -> None:
        """Watch *worker*, which was seen just now: it has a job."""
        self._workers.pop(worker, None)
        self._workers[worker] = None

    def release(self, worker: WorkerState) -> None:
        """Watch *worker* no longer, if it was: it has no job."""
        self._workers.pop(worker, None)

    def seen(self, worker: WorkerState, now: float) -> None:
        """Start the lease of *worker* anew."""
        worker.seen_at = now
        if worker in self._workers:
            self.hold(worker)

    def next_deadline(self) -> float | None:
        """Return when the first lease is over, or None."""
        worker = next(iter(self._workers), None)
        return None if worker is None else worker.seen_at + self.lease_s

    def pop_due(self, now: float) -> WorkerState | None:
        """Take out the first worker whose lease is over; exactly over counts."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            worker = next(iter(self._workers))
            if not worker.polling:
                del self._workers[worker]
                return worker
            self.seen(worker, now)
        return None
