"""Which worker may have which job: the whole state, without a clock, a thread or a lock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from lardon.errors import WorkerLost
from lardon.governor.checks import shown
from lardon.locality.choice import Choice, Fits, RandomSource
from lardon.locality.indexes import Indexes
from lardon.locality.job import Stage
from lardon.locality.lane import Lane
from lardon.locality.leases import Leases
from lardon.locality.pending import PendingJob, Waiter
from lardon.locality.statistics import LocalityStatistics
from lardon.locality.worker_state import WorkerState

if TYPE_CHECKING:
    from lardon.locality.job import Artifact, Job, WorkerId
    from lardon.locality.options import Options

_CACHE: Final = Stage.CACHE
_DEPS: Final = Stage.DEPS
_GLOBAL: Final = Stage.GLOBAL
_PICKED: Final = Stage.PICKED
_FINISHED: Final = Stage.FINISHED
_NOBODY: Final[dict[WorkerState, None]] = {}


class Placement(Indexes):
    """
    Which artifacts are where, which jobs wait, and for whom.

    Pure: the time is an argument of every call, and must not go back. A call that makes
    jobs available to more workers returns them. Nothing happens by itself: `tick` moves
    jobs whose delay is over, and the caller calls it before everything else. Not
    thread-safe; `LocalityScheduler` puts a lock around it.
    """

    def __init__(
        self, options: Options, rng: RandomSource, *, waiter: Waiter | None = None
    ) -> None:
        super().__init__()
        self._cold_now = options.cold == "now"
        self._leases = None if options.lease_s is None else Leases(options.lease_s)
        self._choice = Choice(options, rng)
        self._waiter = waiter
        self._cache_lane = Lane(options.cache_timeout_s)
        self._deps_lane = Lane(options.deps_timeout_s)
        # Nothing is due before this time.
        self._quiet_until = math.inf
        self._scheduled = self._finished = self._failed = self._again = 0
        self._picks_own = self._picks_deps = self._picks_global = self._misses = 0

    # Time ------------------------------------------------------------------------

    def tick(self, now: float) -> list[PendingJob]:
        """Move every job whose delay is over by one stage, and take jobs from silent workers."""
        offered: list[PendingJob] = []
        if now < self._quiet_until:
            return offered
        cache, deps, leases = self._cache_lane, self._deps_lane, self._leases
        if cache.entries:
            while (job := cache.pop_due(now)) is not None:
                self._enter_deps(job, now)
                offered.append(job)
        if deps.entries:
            while (job := deps.pop_due(now)) is not None:
                self._enter_global(job)
                offered.append(job)
        if leases is not None:
            while (worker := leases.pop_due(now)) is not None:
                offered += self._lose(worker)
        self._quiet_until = math.inf
        if cache.entries or deps.entries or leases is not None:
            deadline = self.next_deadline()
            if deadline is not None:
                self._quiet_until = deadline
        return offered

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do next, if nothing happens until then."""
        deadline = self._cache_lane.next_deadline()
        other = self._deps_lane.next_deadline()
        if deadline is None or (other is not None and other < deadline):
            deadline = other
        if self._leases is not None:
            other = self._leases.next_deadline()
            if deadline is None or (other is not None and other < deadline):
                deadline = other
        return deadline

    # Jobs ------------------------------------------------------------------------

    def schedule(self, job: Job, now: float) -> tuple[PendingJob, bool]:
        """Return the handle of *job*, and whether it is a new one."""
        live = self._live.get(job.id)
        if live is not None:
            return live, False
        self._scheduled += 1
        handle = PendingJob(job, self._scheduled, now, self._waiter)
        self._live[job.id] = handle
        for dep in job.deps:
            self._dependents.setdefault(dep, {})[handle] = None
        holders = self._where.get(job.id)
        if holders:
            handle.stage = _CACHE
            for worker in holders:
                worker.first.add(handle)
            self._start(handle, self._cache_lane, now)
        elif self._cold_now and self._where.keys().isdisjoint(job.deps):
            self._enter_global(handle)
        else:
            self._enter_deps(handle, now)
        return handle, True

    def _start(self, job: PendingJob, lane: Lane, now: float) -> None:
        deadline = lane.enter(job, now)
        if deadline < self._quiet_until:
            self._quiet_until = deadline

    def _enter_deps(self, job: PendingJob, now: float) -> None:
        job.stage = _DEPS
        if job.job.deps:
            self._join_second(job)
        self._start(job, self._deps_lane, now)

    def _join_second(self, job: PendingJob) -> None:
        for dep in job.job.deps:
            for worker in self._where.get(dep, _NOBODY):
                worker.second.add(job)

    def _enter_global(self, job: PendingJob) -> None:
        job.stage = _GLOBAL
        self._global.add(job)

    def pick(self, worker: WorkerId, now: float, fits: Fits | None = None) -> PendingJob | None:
        """
        Take a job out of one of the worker's queues, or return None.

        Args:
            worker: Who will do it.
            now: The time.
            fits: Asked for one job after the other; the first that fits is taken.

        Raises:
            UnknownWorker: the worker is not registered.

        """
        state = self._workers.get(worker)
        if state is None:
            raise self._unknown(worker)
        if self._leases is not None:
            self._leases.seen(state, now)
        first, second, shared = state.first, state.second, self._global
        if fits is None and not first.members and not second.members:
            # There is nothing to choose.
            queue, found = shared, shared.head()
            if found is None:
                return None
            job = found
        else:
            chosen = self._choice.of((first, second, shared), now, fits)
            if chosen is None:
                return None
            job, queue = chosen
        if queue is shared:
            self._picks_global += 1
            # A job of which this worker holds anything is in one of its queues, too.
            if job not in first.members and job not in second.members:
                self._misses += 1
        elif queue is first:
            self._picks_own += 1
        else:
            self._picks_deps += 1
        self._withdraw(job)
        job.stage, job._runner = _PICKED, state
        state.running[job] = None
        if self._leases is not None:
            self._leases.hold(state)
            self._quiet_until = min(self._quiet_until, now + self._leases.lease_s)
        return job

    def _withdraw(self, job: PendingJob) -> None:
        """Take a waiting job out of every queue, lane and index."""
        lists = job._lists
        for queue in lists:
            queue.drop(job)
        lists.clear()
        if job._lane is not None:
            job._lane.leave(job)
        for dep in job.job.deps:
            waiting = self._dependents[dep]
            del waiting[job]
            if not waiting:
                del self._dependents[dep]

    def complete(
        self,
        worker: WorkerId,
        job_id: Artifact,
        now: float,
        result: Any = None,
        error: BaseException | None = None,
    ) -> tuple[PendingJob | None, list[PendingJob]]:
        """Return the handle that this report finished, if any, and jobs that it offers."""
        if self._leases is not None and worker in self._workers:
            self._leases.seen(self._workers[worker], now)
        job = self._live.get(job_id)
        if job is not None:
            self._finish(job, result, error)
        if error is not None:
            # A failure leaves nothing behind; a result does, whoever asked for it.
            return job, []
        state = self._workers.get(worker)
        if state is None:
            return job, self.learn(worker, (job_id,))
        return job, [] if job_id in state.held else self._hold(state, job_id)

    def _finish(self, job: PendingJob, result: Any, error: BaseException | None) -> None:
        if job.stage is not _PICKED:
            self._withdraw(job)
        self._free(job)
        del self._live[job.job.id]
        job._waiter = None
        job.result, job.error = result, error
        job.stage = _FINISHED
        if error is None:
            self._finished += 1
        else:
            self._failed += 1

    def _free(self, job: PendingJob) -> None:
        """Take *job* from the worker that has it, if one has."""
        runner, job._runner = job._runner, None
        if runner is not None:
            del runner.running[job]
            if self._leases is not None and not runner.running:
                self._leases.release(runner)

    def give_back(self, worker: WorkerId, job_id: Artifact) -> list[PendingJob]:
        """Put a job that *worker* has picked and not begun back, at GLOBAL; return it."""
        job = self._live.get(job_id)
        if job is None or job._runner is None or job._runner.id != worker:
            return []
        self._free(job)
        self._return(job)
        return [job]

    # Workers ---------------------------------------------------------------------

    def register(self, worker: WorkerId, now: float) -> list[PendingJob]:
        """Make *worker* known, with what it has reported before."""
        state = self._workers.get(worker)
        if state is None:
            self._workers[worker] = WorkerState(worker, now)
            return self.learn(worker, self._unregistered.pop(worker, ()))
        self.renew(worker, now)
        return []

    def renew(self, worker: WorkerId, now: float) -> None:
        """Note that *worker* is at work; raises `UnknownWorker`."""
        state = self.state_of(worker)
        if self._leases is not None:
            self._leases.seen(state, now)

    def heard(self, worker: WorkerId, now: float) -> None:
        """Note a sign of life of *worker*, if it is registered."""
        if self._leases is not None and worker in self._workers:
            self._leases.seen(self._workers[worker], now)

    def polled(self, worker: WorkerState, now: float) -> None:
        """Note that a call of *worker* that slept is over; until now the worker was there."""
        worker.polling -= 1
        if self._leases is not None:
            self._leases.seen(worker, now)

    def remove(self, worker: WorkerId) -> list[PendingJob]:
        """
        Forget *worker* and what it holds; return its jobs: offered again, or failed.

        Raises:
            UnknownWorker: it is not registered, and has not reported anything either.

        """
        if self._unregistered.pop(worker, None) is not None:
            return []
        state = self.state_of(worker)
        self.forget(worker, tuple(state.held))
        del self._workers[worker]
        if self._leases is not None:
            self._leases.release(state)
        return self._lose(state)

    def _lose(self, worker: WorkerState) -> list[PendingJob]:
        """Offer the jobs of a lost worker again, at GLOBAL; fail those that were before."""
        lost, worker.running = worker.running, {}
        for job in lost:
            job._runner = None
            if job._offered_again:
                message = (
                    f"job {shown(job.job.id)} was offered twice and lost twice, "
                    f"the last time by worker {shown(worker.id)}"
                )
                error = WorkerLost(message, job_id=job.job.id, worker=worker.id)
                self._finish(job, None, error)
            else:
                job._offered_again = True
                self._again += 1
                self._return(job)
        return list(lost)

    def _return(self, job: PendingJob) -> None:
        """Put a picked job back in every queue that is its, for everybody."""
        for dep in job.job.deps:
            self._dependents.setdefault(dep, {})[job] = None
        for worker in self._where.get(job.job.id, _NOBODY):
            worker.first.add(job)
        self._join_second(job)
        self._enter_global(job)

    # Looking ---------------------------------------------------------------------

    def statistics(self, waits: int = 0) -> LocalityStatistics:
        """Return the counts; *waits* is known to the caller alone."""
        running = sum(job.stage is _PICKED for job in self._live.values())
        return LocalityStatistics(
            scheduled=self._scheduled,
            finished=self._finished,
            failed=self._failed,
            waiting=len(self._live) - running,
            running=running,
            picks_own=self._picks_own,
            picks_deps=self._picks_deps,
            picks_global=self._picks_global,
            misses=self._misses,
            waits=waits,
            offered_again=self._again,
            workers=len(self._workers),
            artifacts=sum(len(worker.held) for worker in self._workers.values()),
        )
