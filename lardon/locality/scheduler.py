"""The scheduler as threads see it: one lock, calls that sleep, and who is woken for what."""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from lardon.clock import Clock, MachineClock, checked_timeout
from lardon.errors import SchedulerStopped
from lardon.forks import forks
from lardon.governor.checks import shown
from lardon.locality.cancelling import on_set
from lardon.locality.job import Job, several
from lardon.locality.options import Cold, Options, Order
from lardon.locality.picker import Picker
from lardon.locality.placement import Placement
from lardon.locality.wakeups import Wakeups

if TYPE_CHECKING:
    from lardon.locality.choice import Fits, RandomSource
    from lardon.locality.job import Artifact, WorkerId
    from lardon.locality.pending import PendingJob
    from lardon.locality.statistics import LocalityStatistics


class LocalityScheduler:
    """
    Hands each job to a worker that already holds its data, if there is one that is free in time.

    A job whose result some worker holds waits `cache_timeout_s` for those workers, then, like
    every other job, `deps_timeout_s` for the holders of its dependencies, and then for
    anybody. The second wait starts when a call, or a sleeping one, notices the end of the first.

    Every method may be called from any thread. Only `pick_job`, `PendingJob.wait` and
    `wait_parked` block. There is no thread of its own: delays that are over are noticed by
    the next call, or by a call of `pick_job` that sleeps. In a forked child every call raises
    `SchedulerStopped`. Leaving a ``with`` block calls `stop`.

    Args:
        cache_timeout_s: At least 0, and less than the next.
        deps_timeout_s: Seconds.
        order: ``"random"`` draws one of the worker's queues that have a job, each as likely
            as the others; ``"local-first"`` takes the first local queue, then the second,
            then the global one.
        cold: ``"wait"``, or ``"now"``: a job for which no worker holds anything is offered to
            everybody at once.
        max_age_s: A job scheduled so long ago goes before younger ones, whatever queue of
            the worker it is in. None: never.
        lease_s: A worker that neither calls nor sleeps in `pick_job` for so long loses its
            jobs: each is offered again, once, to everybody. None: never.
        clock: None is the machine's.
        rng: Anything with ``randrange(n)``; None is a `random.Random` of its own.

    Raises:
        InvalidOption: an option breaks its rule.

    """

    def __init__(
        self,
        *,
        cache_timeout_s: float,
        deps_timeout_s: float,
        order: Order = "random",
        cold: Cold = "wait",
        max_age_s: float | None = None,
        lease_s: float | None = None,
        clock: Clock | None = None,
        rng: RandomSource | None = None,
    ) -> None:
        options = Options(
            cache_timeout_s=cache_timeout_s,
            deps_timeout_s=deps_timeout_s,
            order=order,
            cold=cold,
            max_age_s=max_age_s,
            lease_s=lease_s,
        )
        self._clock: Clock = clock if clock is not None else MachineClock()
        self.owner_pid = os.getpid()
        self._born = forks()
        # Guards every attribute below and the placement with its jobs. Held for bookkeeping
        # and while `fits` is asked. Re-entrant, because a signal handler, a finalizer or
        # `fits` may call in. Order: this lock, then the lock of one picker's condition; under
        # that one nothing else is taken.
        self._lock = threading.RLock()
        generator = rng if rng is not None else random.Random()  # noqa: S311  not a secret
        self._placement = Placement(options, generator, waiter=self)
        self._wakeups = Wakeups(self._placement, self._clock)
        self._stopped = False
        self._waits = 0
        # Notified when a call has looked or falls asleep; `wait_parked` waits on it.
        self._parked = threading.Condition(self._lock)

    def _open_lock(self) -> threading.RLock:
        """Return the lock; in a forked child, where it may be held for ever, raise instead."""
        if forks() != self._born:
            message = f"this scheduler belongs to process {self.owner_pid}; a fork needs its own"
            raise SchedulerStopped(message, owner_pid=self.owner_pid)
        return self._lock

    # Jobs ------------------------------------------------------------------------

    def schedule_job(self, job: Job) -> PendingJob:
        """
        Return the handle of *job*; never blocks.

        While a job of this id is unfinished it is that one's handle, and nothing changes.

        Raises:
            SchedulerStopped: after `stop`.

        """
        if not isinstance(job, Job):
            message = f"job must be a lardon.locality.Job, not {shown(job)}"
            raise TypeError(message)
        with self._open_lock():
            if self._stopped:
                message = "the scheduler was stopped"
                raise SchedulerStopped(message)
            now = self._clock.monotonic()
            news = self._placement.tick(now)
            handle, new = self._placement.schedule(job, now)
            if new:
                news.append(handle)
            self._tell(news)
        return handle

    def pick_job(
        self,
        worker: WorkerId,
        *,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
        fits: Fits | None = None,
    ) -> PendingJob | None:
        """
        Take a job for *worker*; blocks until one of its three queues has one.

        Args:
            worker: A registered worker.
            timeout: The most seconds to wait; None is no limit, 0 does not wait.
            cancel: Set it from any thread to make the call return None; no job is taken then.
            fits: Asked, with a `PendingJob`, inside the claim and so under the scheduler's
                lock: it must be quick, and not wait for another thread. A job that does not
                fit is passed over and stays; `resources_changed` asks again. What it raises
                comes through, and takes nothing.

        Returns:
            The job, which is the caller's now; or None: cancelled, timed out or stopped.

        Raises:
            UnknownWorker: the worker is not registered, or was removed during the call.

        """
        seconds = checked_timeout(timeout)
        deadline = None if seconds is None else self._clock.monotonic() + seconds
        picker = Picker(worker, deadline, cancel)
        with on_set(cancel, picker.ring) as picker.told:
            try:
                while True:
                    with self._open_lock():
                        handle, over = self._look(picker, fits)
                        if over:
                            return handle
                        self._park(picker)
                    picker.sleep(self._clock)
            except BaseException:
                # Ctrl-C in its sleep; or there was no sleep, and then nothing is to be done.
                if picker.state is not None:
                    with self._lock:
                        self._look(picker, None, gone=True)
                raise

    def _look(
        self, picker: Picker, fits: Fits | None, *, gone: bool = False
    ) -> tuple[PendingJob | None, bool]:
        """Take a job if there is one; return it, and whether the call is over."""
        wakeups, now = self._wakeups, self._clock.monotonic()
        wanted = wakeups.rise(picker)
        news = self._placement.tick(now)
        wakeups.stamp(news)
        if wanted is not None:
            news.append(wanted)
        handle, stays = None, False
        try:
            if not (gone or self._stopped or picker.cancelled):
                handle = self._placement.pick(picker.worker, now, fits)
                late = picker.deadline is not None and now >= picker.deadline
                stays = handle is None and not late
        finally:
            picker.seen = wakeups.changes
            # What it was woken for and did not take is somebody else's.
            wakeups.hand_out(news)
            if not stays:
                wakeups.set_alarm()
            self._parked.notify_all()
        return handle, not stays

    def _park(self, picker: Picker) -> None:
        """Have *picker* fall asleep. The caller holds the lock."""
        if picker.condition is None:
            self._waits += 1
        self._wakeups.park(picker)
        self._parked.notify_all()

    def resources_changed(self) -> None:
        """Say that a job that did not fit may fit now: every sleeping call asks again."""
        with self._open_lock():
            self._tell(self._placement.tick(self._clock.monotonic()))
            self._wakeups.wake_all(self._wakeups.idle)

    def _tell(self, news: list[PendingJob]) -> None:
        """Offer jobs to those who sleep. The caller holds the lock."""
        self._wakeups.stamp(news)
        self._wakeups.hand_out(news)
        self._wakeups.set_alarm()

    def on_job_complete(
        self,
        worker: WorkerId,
        job_id: Artifact,
        result: Any = None,
        *,
        error: BaseException | None = None,
    ) -> bool:
        """
        Report that *worker* has done the job of this id, whether anybody scheduled it or not.

        Args:
            worker: Who holds the result now. If it is not registered, that counts from when
                it is.
            job_id: The job, and its artifact.
            result: What the handle will show.
            error: The job failed: the handle shows this, and no location is recorded.

        Returns:
            Whether a live handle was finished. The first report wins; a second one adds the
            location alone.

        """
        with self._open_lock():
            now = self._clock.monotonic()
            news = self._placement.tick(now)
            finished, offered = self._placement.complete(worker, job_id, now, result, error)
            if finished is not None:
                news.append(finished)
            self._tell(news + offered)
        return finished is not None

    def give_back(self, worker: WorkerId, job_id: Artifact) -> bool:
        """
        Return a job that *worker* has picked and not begun; it is offered to everybody.

        That is no loss: it does not count as offered again. Returns whether the worker had it.
        """
        with self._open_lock():
            news = self._placement.tick(self._clock.monotonic())
            returned = self._placement.give_back(worker, job_id)
            self._tell(news + returned)
        return bool(returned)

    def wait_finished(self, handle: PendingJob, timeout: float | None) -> bool:
        """Do what `PendingJob.wait` says."""
        with self._open_lock():
            if handle._condition is None:
                handle._condition = threading.Condition(self._lock)
            now = self._clock.monotonic()
            deadline = math.inf if timeout is None else now + timeout
            while True:
                # A wait notices a delay or a lease that is over, like every other call.
                self._tell(self._placement.tick(now))
                left = min(deadline, self._placement.next_deadline() or deadline) - now
                over = self._clock.wait_for(
                    handle._condition, lambda: handle.finished or self._stopped, max(0.0, left)
                )
                now = self._clock.monotonic()
                if over or now >= deadline:
                    return handle.finished

    # Workers and artifacts -------------------------------------------------------

    def register_worker(self, worker: WorkerId) -> None:
        """Make *worker* known; a second time is a sign of life and nothing else."""
        with self._open_lock():
            now = self._clock.monotonic()
            self._tell(self._placement.tick(now) + self._placement.register(worker, now))

    def remove_worker(self, worker: WorkerId) -> None:
        """
        Forget *worker* and all that it holds; its calls of `pick_job` raise `UnknownWorker`.

        Its unfinished jobs are offered again to everybody; those that were offered again
        before fail with `WorkerLost`. A result that it reports later still counts.

        Raises:
            UnknownWorker: the worker is not registered.

        """
        with self._open_lock():
            now = self._clock.monotonic()
            self._tell(self._placement.tick(now) + self._placement.remove(worker))
            self._wakeups.wake_worker(worker)

    def renew(self, worker: WorkerId) -> None:
        """Start the lease of a worker with a long job anew; raises `UnknownWorker`."""
        with self._open_lock():
            now = self._clock.monotonic()
            # Before the time is looked at: a worker that calls is there.
            self._placement.renew(worker, now)
            self._tell(self._placement.tick(now))

    def add_artifacts(self, worker: WorkerId, ids: Iterable[Artifact]) -> None:
        """Note that *worker* holds these artifacts; no job is finished by that."""
        artifacts = several(ids)
        with self._open_lock():
            self._tell(self._heard(worker) + self._placement.learn(worker, artifacts))

    def remove_artifacts(self, worker: WorkerId, ids: Iterable[Artifact]) -> None:
        """Note that *worker* has dropped these artifacts; others than it had do no harm."""
        artifacts = several(ids)
        with self._open_lock():
            news = self._heard(worker)
            self._placement.forget(worker, artifacts)
            self._tell(news)

    def _heard(self, worker: WorkerId) -> list[PendingJob]:
        self._placement.heard(worker, now := self._clock.monotonic())
        return self._placement.tick(now)

    def locate_artifact(self, artifact: Artifact) -> WorkerId | None:
        """Return a registered worker that holds *artifact*, or None."""
        with self._open_lock():
            self._tell(self._placement.tick(self._clock.monotonic()))
            return self._placement.locate(artifact)

    # Looking ---------------------------------------------------------------------

    def queues(
        self, worker: WorkerId
    ) -> tuple[tuple[Artifact, ...], tuple[Artifact, ...], tuple[Artifact, ...]]:
        """
        Return what *worker* could take: the ids in its first, its second and the global queue.

        Raises:
            UnknownWorker: the worker is not registered.

        """
        with self._open_lock():
            self._tell(self._placement.tick(self._clock.monotonic()))
            return self._placement.queues(worker)

    def statistics(self) -> LocalityStatistics:
        """Return a consistent copy of the counts."""
        with self._open_lock():
            self._tell(self._placement.tick(self._clock.monotonic()))
            return self._placement.statistics(self._waits)

    def wait_parked(self, calls: int = 1, timeout: float | None = None) -> bool:
        """
        Block until *calls* calls of `pick_job` sleep and none is due to wake.

        Returns whether they do. For tests; the timeout is in real seconds.
        """
        seconds = checked_timeout(timeout)
        with self._open_lock():
            return MachineClock().wait_for(
                self._parked, lambda: self._wakeups.asleep() >= calls, seconds
            )

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    # Ending ----------------------------------------------------------------------

    def stop(self) -> None:
        """
        Refuse new jobs, and end every call that waits; there is no thread to end.

        `pick_job` returns None from now on and `PendingJob.wait` whether the job is finished;
        jobs that workers have may still be reported.
        """
        with self._open_lock():
            self._stopped = True
            self._wakeups.wake_all(self._wakeups.idle)
            for handle in self._placement.unfinished():
                if handle._condition is not None:
                    handle._condition.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
