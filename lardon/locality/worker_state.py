"""What is known of one registered worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lardon.locality.waiting_list import WaitingList

if TYPE_CHECKING:
    from lardon.locality.job import Artifact, WorkerId
    from lardon.locality.pending import PendingJob


class WorkerState:
    """A worker: what it holds, its two local queues, and what it is at."""

    __slots__ = ("first", "held", "id", "polling", "running", "second", "seen_at")

    def __init__(self, worker: WorkerId, now: float) -> None:
        self.id = worker
        self.held: dict[Artifact, None] = {}
        """A set in the order of the news."""
        self.first = WaitingList(self)
        """Jobs whose own result it holds."""
        self.second = WaitingList(self)
        """Jobs past the stage CACHE of which it holds a dependency."""
        self.running: dict[PendingJob, None] = {}
        self.seen_at = now
        """When it last called."""
        self.polling = 0
        """How many of its calls wait for a job now: a worker that waits is there."""
