"""Which sleeping call is woken for which job, and for which deadline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lardon.locality.job import Stage

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.locality.job import WorkerId
    from lardon.locality.pending import PendingJob
    from lardon.locality.picker import Picker
    from lardon.locality.placement import Placement


class Wakeups:
    """
    The calls of `pick_job` that sleep.

    Every job that is offered wakes one sleeper that may have it, or nobody. A sleeper that
    was woken and takes something else, or nothing, passes the job on to the next. One of the
    sleepers, the keeper, wakes for deadlines; the others sleep without a timer. The
    scheduler's lock guards all of it.
    """

    def __init__(self, placement: Placement, clock: Clock) -> None:
        self._placement = placement
        self._clock = clock
        # The longest sleeper first; and the same by worker.
        self.idle: dict[Picker, None] = {}
        self._idle_of: dict[WorkerId, dict[Picker, None]] = {}
        # Calls that were woken and have not looked yet: they will look at the deadlines too.
        self._rising = 0
        self._keeper: Picker | None = None
        # Counts offers, so that nobody is woken twice for a job that did not fit.
        self.changes = 0

    def park(self, picker: Picker) -> None:
        """Put *picker* to sleep; its thread does so once it has let go of the lock."""
        picker.state = self._placement.state_of(picker.worker)
        picker.state.polling += 1
        picker.awake = False
        picker.until = picker.deadline
        self.idle[picker] = None
        self._idle_of.setdefault(picker.worker, {})[picker] = None
        if self._keeper is not None:
            self.set_alarm()
            return
        self._keeper = picker
        deadline = self._placement.next_deadline()
        if picker.until is None or (deadline is not None and deadline < picker.until):
            picker.until = deadline

    def asleep(self) -> int:
        """Return how many sleep for good; 0 while one is due to wake."""
        now = self._clock.monotonic()
        for picker in self.idle:
            if picker.cancelled or (picker.until is not None and picker.until <= now):
                return 0
        return 0 if self._rising else len(self.idle)

    def rise(self, picker: Picker) -> PendingJob | None:
        """Note that *picker* is up; return the job that it was woken for."""
        if picker.state is None:
            return None  # It was not asleep.
        self._placement.polled(picker.state, self._clock.monotonic())
        picker.state = None
        if picker in self.idle:
            self._take_out(picker)
        else:
            self._rising -= 1
        wanted, picker.assigned = picker.assigned, None
        return wanted

    def _take_out(self, picker: Picker) -> None:
        del self.idle[picker]
        others = self._idle_of[picker.worker]
        del others[picker]
        if not others:
            del self._idle_of[picker.worker]
        if self._keeper is picker:
            self._keeper = None

    def _wake(self, picker: Picker, job: PendingJob | None = None) -> None:
        self._take_out(picker)
        self._rising += 1
        picker.assigned = job
        picker.awake = True
        picker.ring()

    def wake_all(self, pickers: Iterable[Picker]) -> None:
        """Let all these look again."""
        for picker in tuple(pickers):
            self._wake(picker)

    def wake_worker(self, worker: WorkerId) -> None:
        """Let every call for *worker* look again."""
        self.wake_all(self._idle_of.get(worker, ()))

    def stamp(self, jobs: Iterable[PendingJob]) -> None:
        """Count an offer for each of *jobs*: whoever looked before may be woken for it."""
        for job in jobs:
            self.changes += 1
            job._stamp = self.changes

    def hand_out(self, jobs: Iterable[PendingJob]) -> None:
        """Wake one sleeper for each of *jobs* that waits."""
        for job in jobs:
            if job.stage is Stage.FINISHED:
                if job._condition is not None:
                    job._condition.notify_all()
            elif self.idle and job.stage is not Stage.PICKED:
                picker = self._picker_for(job)
                if picker is not None:
                    self._wake(picker, job)

    def _picker_for(self, job: PendingJob) -> Picker | None:
        """Return the longest sleeper that may have *job* and has not seen it: holders first."""
        owners = [queue.owner for queue in job._lists]
        groups = [self._idle_of.get(owner.id, {}) for owner in owners if owner is not None]
        if None in owners:
            groups.append(self.idle)
        for group in groups:
            for picker in group:
                if picker.seen < job._stamp:
                    return picker
        return None

    def set_alarm(self) -> None:
        """Make the keeper sleep to the next deadline and no longer."""
        if self._rising or not self.idle:
            return
        deadline = self._placement.next_deadline()
        if deadline is None:
            return
        keeper = self._keeper
        if keeper is None:
            # Any of them becomes it as it falls asleep again.
            self._wake(next(iter(self.idle)))
        elif keeper.until is None or keeper.until > deadline:
            self._wake(keeper)
