"""One queue of waiting jobs: first scheduled, first out."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

    from lardon.locality.job import Artifact
    from lardon.locality.pending import PendingJob
    from lardon.locality.worker_state import WorkerState

# Below this, entries of jobs that left are not worth a compaction.
_COMPACT_FROM: Final = 32


class WaitingList:
    """
    Jobs in order of scheduling, whatever the order in which they came in.

    A job that leaves from the middle leaves a dead entry behind; the dead are at most as
    many as the living, and a few. Every call costs O(log n), amortised. Not thread-safe.
    """

    __slots__ = ("_heap", "members", "owner")

    def __init__(self, owner: WorkerState | None = None) -> None:
        self.owner = owner
        """The worker that may take from it; None is everybody."""
        self.members: set[PendingJob] = set()
        # (number, job). A job that left and came back may have two entries.
        self._heap: list[tuple[int, PendingJob]] = []

    def __len__(self) -> int:
        """Return the number of entries, the dead ones included."""
        return len(self._heap)

    def add(self, job: PendingJob) -> bool:
        """Put *job* in, and say so on the job; return whether it was not there."""
        members = self.members
        if job in members:
            return False
        members.add(job)
        job._lists.append(self)
        heapq.heappush(self._heap, (job._number, job))
        return True

    def drop(self, job: PendingJob) -> None:
        """Take *job* out, which is in it; the job's own list is the caller's to change."""
        members, heap = self.members, self._heap
        members.remove(job)
        if heap and heap[0][1] is job:
            heapq.heappop(heap)
        elif len(heap) > 2 * len(members) + _COMPACT_FROM:
            self._heap = sorted((one._number, one) for one in members)

    def head(self) -> PendingJob | None:
        """Return the job that was scheduled first, or None."""
        heap, members = self._heap, self.members
        while heap:
            job = heap[0][1]
            if job in members:
                return job
            heapq.heappop(heap)
        return None

    def in_order(self) -> Generator[PendingJob, None, None]:
        """
        Yield the jobs in order, at O(log n) for each that is asked for.

        The list may change meanwhile. Close the generator, so that its entries come back.
        """
        passed: list[tuple[int, PendingJob]] = []
        try:
            while (job := self.head()) is not None:
                entry = heapq.heappop(self._heap)
                if passed and passed[-1][1] is job:
                    continue  # its second entry
                passed.append(entry)
                yield job
        finally:
            for entry in passed:
                if entry[1] in self.members:
                    heapq.heappush(self._heap, entry)

    def ids(self) -> tuple[Artifact, ...]:
        """Return the ids of the jobs, in order."""
        ordered = sorted(self.members, key=lambda job: job._number)
        return tuple(job.job.id for job in ordered)
