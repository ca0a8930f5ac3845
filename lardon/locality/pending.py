"""The handle of one unfinished job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lardon.clock import checked_timeout
from lardon.locality.job import Stage

if TYPE_CHECKING:
    import threading

    from lardon.locality.job import Job
    from lardon.locality.lane import Lane
    from lardon.locality.waiting_list import WaitingList
    from lardon.locality.worker_state import WorkerState


class Waiter(Protocol):
    """What lets a thread wait for the end of a job."""

    def wait_finished(self, handle: PendingJob, timeout: float | None) -> bool:
        """Block until *handle* is finished, at most *timeout* seconds; return whether it is."""
        ...


class PendingJob:
    """
    A scheduled job: what it is, where it stands, and how it ended.

    Made by `LocalityScheduler.schedule_job`; every caller that schedules the same id before
    the job is finished gets the same one. The attributes may be read from any thread; only
    `wait` blocks.
    """

    # Everything but `result` and `error` is guarded by the scheduler's lock, and changed by
    # `Placement` alone.
    __slots__ = (
        "__weakref__", "_condition", "_lane", "_lists", "_number", "_offered_again", "_runner",
        "_scheduled_at", "_stamp", "_waiter", "error", "job", "result", "stage",
    )  # fmt: skip

    def __init__(self, job: Job, number: int, now: float, waiter: Waiter | None = None) -> None:
        self.job = job
        """The job as it was scheduled first."""
        self.stage = Stage.DEPS
        """Who may take it now; as of the last call of the scheduler that looked at the clock."""
        self.result: Any = None
        """What the first report said, once `finished`."""
        self.error: BaseException | None = None
        """Why there is no result: what the first report said, or `WorkerLost`."""
        # Its place in every queue: the order of scheduling.
        self._number = number
        self._scheduled_at = now
        # The queues that it is in; empty unless it waits.
        self._lists: list[WaitingList] = []
        # Where its next stage is due; None when no timer runs.
        self._lane: Lane | None = None
        # The worker that has it; None unless it is PICKED.
        self._runner: WorkerState | None = None
        self._offered_again = False
        # When it was last offered, as the scheduler counts: see `LocalityScheduler._offer`.
        self._stamp = 0
        # None once it is finished, so that a handle does not keep the scheduler alive.
        self._waiter = waiter
        self._condition: threading.Condition | None = None

    @property
    def finished(self) -> bool:
        """Whether the result or the error is there; it does not change any more then."""
        return self.stage is Stage.FINISHED

    def wait(self, timeout: float | None = None) -> bool:
        """
        Block until the job is finished, at most *timeout* seconds; return whether it is.

        Any thread may call it. It returns False as soon as the scheduler is stopped with the
        job unfinished.

        Raises:
            ValueError: the timeout is negative or NaN.
            SchedulerStopped: called in a forked child, where the job is not known.

        """
        seconds = checked_timeout(timeout)
        waiter = self._waiter
        if waiter is None:
            return self.finished
        return waiter.wait_finished(self, seconds)

    def __repr__(self) -> str:
        return f"<PendingJob {self.job.id!r} {self.stage}>"
