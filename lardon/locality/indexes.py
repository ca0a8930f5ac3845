"""Which worker holds what, which jobs wait, and in whose queues that puts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lardon.errors import UnknownWorker
from lardon.governor.checks import shown
from lardon.locality.job import Stage
from lardon.locality.waiting_list import WaitingList

if TYPE_CHECKING:
    from lardon.locality.job import Artifact, WorkerId
    from lardon.locality.pending import PendingJob
    from lardon.locality.worker_state import WorkerState

_CACHE: Final = Stage.CACHE
_PICKED: Final = Stage.PICKED


class Indexes:
    """
    The state of a `Placement`, and what news of artifacts changes in it.

    Pure, and not thread-safe.
    """

    def __init__(self) -> None:
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

    # Artifacts -------------------------------------------------------------------

    def learn(self, worker: WorkerId, artifacts: Iterable[Artifact]) -> list[PendingJob]:
        """Note that *worker* holds *artifacts*; return the jobs that this offers to it."""
        state = self._workers.get(worker)
        if state is None:
            self._unregistered.setdefault(worker, {}).update(dict.fromkeys(artifacts))
            return []
        offered: list[PendingJob] = []
        for artifact in artifacts:
            if artifact not in state.held:
                offered += self._hold(state, artifact)
        return offered

    def _hold(self, worker: WorkerState, artifact: Artifact) -> list[PendingJob]:
        """Note that *worker* holds one artifact more; return the jobs that this offers to it."""
        worker.held[artifact] = None
        holders = self._where.get(artifact)
        if holders is None:
            self._where[artifact] = {worker: None}
        else:
            holders[worker] = None
        offered: list[PendingJob] = []
        job = self._live.get(artifact)
        if job is not None and job.stage is not _PICKED:
            worker.first.add(job)
            offered.append(job)
        dependents = self._dependents.get(artifact)
        if dependents is not None:
            offered += [
                job for job in dependents if job.stage is not _CACHE and worker.second.add(job)
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

    def state_of(self, worker: WorkerId) -> WorkerState:
        """Return the state of a registered worker, or raise `UnknownWorker`."""
        try:
            return self._workers[worker]
        except KeyError:
            raise self._unknown(worker) from None

    def _unknown(self, worker: WorkerId) -> UnknownWorker:
        message = f"no worker {shown(worker)} is registered ({len(self._workers)} are)"
        return UnknownWorker(message, worker=worker)
