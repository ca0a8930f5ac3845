"""The handle of one unfinished job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from lardon.clock import checked_timeout
from lardon.locality.job import Stage

if TYPE_CHECKING:
    import threading

    from lardon.locality.job import Job
    from lardon.locality.lane import Lane
    from lardon.locality.waiting_list import WaitingList
    from lardon.locality.worker_state import WorkerState

# A member of an enumeration costs a look-up in its class.
_DEPS: Final = Stage.DEPS
_FINISHED: Final = Stage.FINISHED


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

    # Guarded by the scheduler's lock, and changed by `Placement` alone. Of most jobs most of
    # these never change: as attributes of the class they cost a new job nothing.
    stage: Stage = _DEPS
    """Who may take it now; as of the last call of the scheduler that looked at the clock."""
    result: Any = None
    """What the first report said, once `finished`."""
    error: BaseException | None = None
    """Why there is no result: what the first report said, or `WorkerLost`."""
    # Where its next stage is due; None when no timer runs.
    _lane: Lane | None = None
    # The worker that has it; None unless it is PICKED.
    _runner: WorkerState | None = None
    _offered_again = False
    # When it was last offered, as `Wakeups` counts.
    _stamp = 0
    _condition: threading.Condition | None = None

    def __init__(self, job: Job, number: int, now: float, waiter: Waiter | None = None) -> None:
        self.job = job
        """The job as it was scheduled first."""
        # Its place in every queue: the order of scheduling.
        self._number = number
        self._scheduled_at = now
        # The queues that it is in; empty unless it waits.
        self._lists: list[WaitingList] = []
        # None once it is finished, so that a handle does not keep the scheduler alive.
        self._waiter = waiter

    @property
    def finished(self) -> bool:
        """Whether the result or the error is there; it does not change any more then."""
        return self.stage is _FINISHED

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
