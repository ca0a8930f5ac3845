"""Timers of one and the same length: the first to start is the first to end."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lardon.locality.pending import PendingJob

# Below this, entries of jobs that were picked in time are not worth a compaction.
_COMPACT_FROM: Final = 64


class Lane:
    """
    Jobs that wait for the end of one constant delay.

    As the delay is constant and time does not go back, a FIFO is enough. A job that leaves
    early leaves a dead entry behind; the dead are at most as many as the living, and a few.
    Not thread-safe.
    """

    __slots__ = ("_live", "delay_s", "entries")

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.entries: deque[tuple[float, PendingJob]] = deque()
        """When each delay ends, the dead ones included; to see at once that there is none."""
        self._live = 0

    def __len__(self) -> int:
        """Return the number of entries, the dead ones included."""
        return len(self.entries)

    def enter(self, job: PendingJob, now: float) -> float:
        """Start the delay of *job*, and return when it ends."""
        deadline = now + self.delay_s
        job._lane = self
        self._live += 1
        self.entries.append((deadline, job))
        return deadline

    def leave(self, job: PendingJob) -> None:
        """Stop the timer of *job*, which is in this lane."""
        job._lane = None
        self._live -= 1
        if len(self.entries) > 2 * self._live + _COMPACT_FROM:
            self.entries = deque(entry for entry in self.entries if entry[1]._lane is self)

    def next_deadline(self) -> float | None:
        """Return when the first delay ends, or None."""
        entries = self.entries
        while entries:
            deadline, job = entries[0]
            if job._lane is self:
                return deadline
            entries.popleft()
        return None

    def pop_due(self, now: float) -> PendingJob | None:
        """Take out the first job whose delay is over; exactly over counts."""
        entries = self.entries
        while entries and entries[0][0] <= now:
            job = entries.popleft()[1]
            if job._lane is self:
                job._lane = None
                self._live -= 1
                return job
        return None
