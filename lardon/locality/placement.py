"""Which worker may have which job: the whole state, without a clock, a thread or a lock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from lardon.errors import UnknownWorker, WorkerLost
from lardon.governor.checks import shown
from lardon.locality.choice import Choice, Fits, RandomSource
from lardon.locality.job import Stage
from lardon.locality.lane import Lane
from lardon.locality.leases import Leases
from lardon.locality.pending import PendingJob, Waiter
from lardon.locality.statistics import LocalityStatistics
from lardon.locality.waiting_list import WaitingList
from lardon.locality.worker_state import WorkerState

if TYPE_CHECKING:
    from lardon.locality.job import Artifact, Job, WorkerId
    from lardon.locality.options import Options

_CACHE: Final = Stage.CACHE
_PICKED: Final = Stage.PICKED
_NOBODY: Final[dict[WorkerState, None]] = {}


class Placement:
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
        self._cold_now = options.cold == "now"
        self._leases = None if options.lease_s is None else Leases(options.lease_s)
        self._choice = Choice(options, rng)
        self._waiter = waiter
        self._workers: dict[WorkerId, WorkerState] = {}
        # Unfinished jobs by id.
        self._live: dict[Artifact, PendingJob] = {}
        # Registered workers by what they hold, as `WorkerState.held` the other way round.
        self._where: dict[Artifact, dict[WorkerState, None]] = {}
        # What workers that are not registered have reported; counts once they register.
        self._unregistered: dict[WorkerId, dict[Artifact, None]] = {}
        # Waiting jobs by dependency.
        self._dependents: dict[Artifact, dict[PendingJob, None]] = {}
        self._global = WaitingList()
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
        while (job := self._cache_lane.pop_due(now)) is not None:
            self._enter_deps(job, now)
            offered.append(job)
        while (job := self._deps_lane.pop_due(now)) is not None:
            self._enter_global(job)
            offered.append(job)
        if self._leases is not None:
            while (worker := self._leases.pop_due(now)) is not None:
                offered += self._lose(worker)
        deadline = self.next_deadline()
        self._quiet_until = math.inf if deadline is None else deadline
        return offered

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do next, if nothing happens until then."""
        deadlines = [self._cache_lane.next_deadline(), self._deps_lane.next_deadline()]
        if self._leases is not None:
            deadlines.append(self._leases.next_deadline())
        return min((one for one in deadlines if one is not None), default=None)

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
        elif self._cold_now and not any(dep in self._where for dep in job.deps):
            self._enter_global(handle)
        else:
            self._enter_deps(handle, now)
        return handle, True

    def _start(self, job: PendingJob, lane: Lane, now: float) -> None:
        deadline = lane.enter(job, now)
        if deadline < self._quiet_until:
            self._quiet_until = deadline

    def _enter_deps(self, job: PendingJob, now: float) -> None:
        job.stage = Stage.DEPS
        self._join_second(job)
        self._start(job, self._deps_lane, now)

    def _join_second(self, job: PendingJob) -> None:
        for dep in job.job.deps:
            for worker in self._where.get(dep, _NOBODY):
                worker.second.add(job)

    def _enter_global(self, job: PendingJob) -> None:
        job.stage = Stage.GLOBAL
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
        chosen = self._choice.of((state.first, state.second, self._global), now, fits)
        if chosen is None:
            return None
        job, queue = chosen
        if queue is state.first:
            self._picks_own += 1
        elif queue is state.second:
            self._picks_deps += 1
        else:
            self._picks_global += 1
            # A job with a local queue of this worker would be in it.
            if len(job._lists) == 1 or not any(one.owner is state for one in job._lists):
                self._misses += 1
        self._withdraw(job)
        job.stage = _PICKED
        job._runner = state
        state.running[job] = None
        if self._leases is not None:
            self._leases.hold(state)
            self._quiet_until = min(self._quiet_until, now + self._leases.lease_s)
        return job

    def _withdraw(self, job: PendingJob) -> None:
        """Take a waiting job out of every queue, lane and index."""
        for queue in job._lists:
            queue.drop(job)
        job._lists.clear()
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
        # A failure leaves nothing behind; a result does, whoever asked for it.
        return job, self.learn(worker, (job_id,)) if error is None else []

    def _finish(self, job: PendingJob, result: Any, error: BaseException | None) -> None:
        if job.stage is not _PICKED:
            self._withdraw(job)
        self._free(job)
        del self._live[job.job.id]
        job._waiter = None
        job.result, job.error = result, error
        job.stage = Stage.FINISHED
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

    def polled(self, worker: WorkerState, now: float) -> None:
        """Note that a call of *worker* that slept is over; until now the worker was there."""
        worker.polling -= 1
        if self._leases is not None:
            self._leases.seen(worker, now)

    def state_of(self, worker: WorkerId) -> WorkerState:
        """Return the state of a registered worker, or raise `UnknownWorker`."""
        try:
            return self._workers[worker]
        except KeyError:
            raise self._unknown(worker) from None

    def _unknown(self, worker: WorkerId) -> UnknownWorker:
        message = f"no worker {shown(worker)} is registered ({len(self._workers)} are)"
        return UnknownWorker(message, worker=worker)

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

    # Artifacts -------------------------------------------------------------------

    def learn(self, worker: WorkerId, artifacts: Iterable[Artifact]) -> list[PendingJob]:
        """Note that *worker* holds *artifacts*; return the jobs that this offers to it."""
        state = self._workers.get(worker)
        if state is None:
            self._unregistered.setdefault(worker, {}).update(dict.fromkeys(artifacts))
            return []
        offered: list[PendingJob] = []
        for artifact in artifacts:
            if artifact in state.held:
                continue
            state.held[artifact] = None
            self._where.setdefault(artifact, {})[state] = None
            job = self._live.get(artifact)
            if job is not None and job.stage is not _PICKED:
                state.first.add(job)
                offered.append(job)
            offered += [
                job
                for job in self._dependents.get(artifact, ())
                if job.stage is not _CACHE and state.second.add(job)
            ]
        return offered

    def forget(self, worker: WorkerId, artifacts: Iterable[Artifact]) -> None:
        """Note that *worker* holds *artifacts* no longer; what it never held is passed over."""
        state = self._workers.get(worker)
        if state is None:
            known = self._unregistered.get(worker, {})
            for artifact in artifacts:
                known.pop(artifact, None)
            if not known:
                self._unregistered.pop(worker, None)
            return
        for artifact in artifacts:
            if artifact not in state.held:
                continue
            del state.held[artifact]
            holders = self._where[artifact]
            del holders[state]
            if not holders:
                del self._where[artifact]
            job = self._live.get(artifact)
            if job is not None and job in state.first.members:
                state.first.drop(job)
                job._lists.remove(state.first)
            for job in self._dependents.get(artifact, ()):
                if job in state.second.members and state.held.keys().isdisjoint(job.job.deps):
                    state.second.drop(job)
                    job._lists.remove(state.second)

    def locate(self, artifact: Artifact) -> WorkerId | None:
        """Return the registered worker that has held *artifact* longest, or None."""
        holder = next(iter(self._where.get(artifact, ())), None)
        return None if holder is None else holder.id

    # Looking ---------------------------------------------------------------------

    def queues(
        self, worker: WorkerId
    ) -> tuple[tuple[Artifact, ...], tuple[Artifact, ...], tuple[Artifact, ...]]:
        """Return the ids in the worker's two local queues and in the global one, in order."""
        state = self.state_of(worker)
        return state.first.ids(), state.second.ids(), self._global.ids()

    def unfinished(self) -> tuple[PendingJob, ...]:
        """Return the live handles, in order of scheduling."""
        return tuple(self._live.values())

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
