"""One worker of a pool: it claims a job, puts it into its queue, and reports how it ended."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from lardon.events import logger
from lardon.governor.checks import described
from lardon.governor.decision import DecisionKind
from lardon.locality.child import Call
from lardon.locality.current import CurrentWorker, current
from lardon.locality.pinned import PinnedGovernor
from lardon.locality.pool_task import cancelled
from lardon.locality.pool_views import WorkerView
from lardon.locality.process import ChildProcess, ProcessDied
from lardon.queue.states import TaskState
from lardon.queue.task_queue import TaskQueue

if TYPE_CHECKING:
    from lardon.governor.decision import Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.locality.choice import Fits
    from lardon.locality.job import Artifact
    from lardon.locality.pending import PendingJob
    from lardon.locality.pool import WorkerPool
    from lardon.locality.pool_task import Execution
    from lardon.locality.worker_spec import WorkerSpec
    from lardon.queue.context import TaskContext
    from lardon.queue.task import Task

# An answer of the governor stands for equal estimates for so long, or until something is
# booked or released. Shorter than what a reading may be old by the default policy.
ANSWER_S: Final = 0.01
# How long the queue of a killed process may take to notice.
JOIN_S: Final = 5.0


class Slot:
    """
    A worker: its queue, its process if it is one, and the thread that feeds it.

    The feeding thread claims one job at a time and waits for its end, so that the next one is
    chosen by what the worker holds then.
    """

    def __init__(self, pool: WorkerPool, spec: WorkerSpec) -> None:
        self.pool = pool
        self.spec = spec
        self.name = spec.name
        self.governor = PinnedGovernor(pool.governor, spec.device)
        self.queue = TaskQueue(self.governor, name=f"{pool.name}-{spec.name}")
        # Set to make the thread look up from `pick_job`: closing, pausing, or a job that
        # does not fit now and has to be asked about again.
        self.wake = threading.Event()
        # The pool's lock guards these four.
        self.paused = False
        self.gone: str | None = None
        """Why there is no worker any more; None while there is."""
        self.held: dict[Artifact, None] = {}
        self.execution: Execution | None = None
        """What it has now."""
        self.child: ChildProcess | None = None
        self.resident = CurrentWorker(spec.name, spec.device, pool.max_artifacts, self.news)
        """What stays on a worker that is a thread."""
        # Whether a job was passed over that may fit without any news of the governor's.
        self._again = False
        self.thread = threading.Thread(
            target=self._serve, name=f"lardon-feeder-{pool.name}-{spec.name}", daemon=True
        )

    def start(self) -> None:
        """Start the process, if it is one, and the thread."""
        if self.spec.process:
            self.child = self._new_child()
        self.thread.start()

    def _new_child(self) -> ChildProcess:

        return ChildProcess(self.spec, self.pool.max_artifacts, self.news)

    def news(self, added: tuple[Artifact, ...], removed: tuple[Artifact, ...]) -> None:
        """Take note of what this worker has begun and ceased to hold."""
        with self.pool._lock:
            self.held.update(dict.fromkeys(added))
            for artifact in removed:
                self.held.pop(artifact, None)
            if self.paused:
                return
            # Under the pool's lock, so that two news of one worker keep their order.
            self.pool.scheduler.add_artifacts(self.name, added)
            self.pool.scheduler.remove_artifacts(self.name, removed)

    def view(self) -> WorkerView:
        """Return a copy of what there is to see. The caller holds the pool's lock."""
        child = self.child
        return WorkerView(
            name=self.name,
            device=self.spec.device,
            pid=None if child is None else child.pid,
            ready=self.gone is None and (not self.spec.process if child is None else child.ready),
            paused=self.paused,
            gone=self.gone,
            task=None if self.execution is None else self.execution.name,
            artifacts=tuple(self.held),
        )

    def let_go(self) -> Execution | None:
        """Forget what it holds, and return the job that it had. The caller holds the lock."""
        self.held.clear()
        execution, self.execution = self.execution, None
        if execution is not None:
            # Before it is offered again: its next worker sets them.
            execution.task = execution.slot = None
        return execution

    def join(self, deadline: float | None) -> bool:
        """Wait for the end of this worker, which was told to; kill its process if it is late."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ended = self.queue.close(left)
        child = self.child
        if not ended and child is not None:
            child.kill()
            ended = self.queue.close(JOIN_S)
        self.thread.join(None if ended else 0)
        return ended and not self.thread.is_alive()

    # The feeding thread ------------------------------------------------------------

    def _serve(self) -> None:
        why = "the pool was closed"
        try:
            while self._ready():
                handle = self._claim()
                if handle is None:
                    break
                self._do(handle)
            else:
                why = "its process does not start"
        except BaseException as error:  # noqa: BLE001  whatever ends the thread is told
            why = f"an internal error: {described(error)}"
            logger.exception("lardon: the worker %r of pool %r died", self.name, self.pool.name)
        finally:
            self.pool._worker_gone(self, why)
            if self.child is not None:
                self.child.stop()

    def _ready(self) -> bool:
        """Have a process that takes calls, if this is one; return False if it cannot be had."""
        if not self.spec.process:
            return True
        if self.child is None:
            self.child = self._new_child()
        try:
            self.child.wait_ready()
        except ProcessDied as error:
            if not self.pool.closing:
                logger.error("lardon: %s before it took a call", error)
                return False
        return True

    def _claim(self) -> PendingJob | None:
        """Block until there is a job for this worker; None when the pool is closed."""
        nap: float | None = None
        precedence = self.pool.precedence
        while True:
            # What sets it has changed a flag before: nothing is overlooked.
            self.wake.clear()
            if self.pool.closing:
                return None
            if self.paused:
                if precedence.abandon(self):
                    self.pool.scheduler.resources_changed()
                self.wake.wait()
                continue
            self._again = False
            fits = precedence.before(self._fits(wake=nap is None))
            handle = self.pool.scheduler.pick_job(
                self.name, timeout=nap, cancel=self.wake, fits=fits
            )
            if handle is not None:
                return handle
            nap = self.governor.policy.recheck_s if self._again else None

    def _fits(self, *, wake: bool) -> Fits:
        """
        Return what is asked inside the claim.

        With *wake*, a job that waits for a live reading ends the call, which is then made
        again with a timeout: nobody reports memory that another process gives back.
        """
        answers: dict[ResourceEstimate, tuple[object, Decision]] = {}
        pool, clock = self.pool, self.pool.governor.clock

        def decide(estimate: ResourceEstimate) -> Decision:
            # Jobs of one kind are many, and each question reads the machine.
            moment = (pool.changes, clock.monotonic() // ANSWER_S)
            known = answers.get(estimate)
            if known is None or known[0] != moment:
                known = answers[estimate] = (moment, self.governor.decide(estimate))
            return known[1]

        def fits(handle: PendingJob) -> bool:
            estimate = handle.job.payload.estimate
            while True:
                seen, decision = pool.changes, decide(estimate)
                if decision.admitted:
                    return True
                if decision.kind is DecisionKind.REJECT:
                    # Never here. If it is never anywhere, this worker's queue says so.
                    return pool._rejected_elsewhere(self, estimate)
                pool.short = True
                if pool.changes == seen:
                    break
            pool.precedence.note(handle, self)
            if not decision.reason.code.slots_only:
                self._again = True
                if wake and self.governor.policy.recheck_s is not None:
                    self.wake.set()
            return False

        return fits

    def _do(self, handle: PendingJob) -> None:
        """Run a claimed job, and report how it ended."""
        execution: Execution = handle.job.payload
        if self.child is not None and not self.child.alive:
            # It died with nothing to do, and the job is none the worse for it.
            self.pool.scheduler.give_back(self.name, handle.job.id)
            self._bury(self.child)
            return
        task = self._place(execution)
        if task is not None:
            task.wait()
            self._report(execution, task)

    def _place(self, execution: Execution) -> Task | None:
        """Put a claimed job into this worker's queue, unless it is not wanted any more."""
        handle = execution.handle
        with self.pool._lock:
            if handle.finished:
                return None
            if self.paused or self.pool.closing:
                self.pool.scheduler.give_back(self.name, handle.job.id)
                return None
            self.execution = execution
            execution.slot, execution.worker = self, self.name
            execution.task = self.queue.submit(
                self._call, execution, estimate=execution.estimate, name=execution.name
            )
            if execution.paused:
                # It was paused between the claim and now.
                execution.task.pause()
            return execution.task

    def _taken_back(self, execution: Execution) -> bool:
        """Return a job that was cancelled here because this worker was paused."""
        with self.pool._lock:
            if not self.paused or self.pool.closing or execution.unwanted is not None:
                return False
            self.execution = execution.slot = execution.task = None
            self.pool.scheduler.give_back(self.name, execution.handle.job.id)
            return True

    def _ended(self, execution: Execution, value: Any, error: BaseException | None) -> None:
        """Report the end of a job; what this worker holds of it counts from now."""
        scheduler, job_id = self.pool.scheduler, execution.handle.job.id
        with self.pool._lock:
            self.execution = None
            scheduler.on_job_complete(self.name, job_id, error=error)
            if self.paused or job_id not in self.held:
                # Not an artifact that anybody named, or evicted already.
                scheduler.remove_artifacts(self.name, (job_id,))
        self.pool.executions.end(execution, value, error)

    def _call(self, context: TaskContext, execution: Execution) -> Any:
        """Do the job, on the thread of this worker's queue."""
        self.pool.executions.started(execution)
        fn, args, kwargs = execution.call
        if self.child is None:
            current.worker = self.resident
            try:
                value = execution.variables.copy().run(fn, context, *args, **kwargs)
            finally:
                current.worker = None
            self.resident.add_artifacts(execution.leaves)
            return value
        call = Call(fn, args, kwargs, execution.name, context.contract, execution.leaves)
        answer = self.child.ask(call, lambda: context.cancel_requested)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _report(self, execution: Execution, task: Task) -> None:
        if task.state is TaskState.CANCELLED:
            if task.started or not self._taken_back(execution):
                self._ended(execution, None, cancelled(execution.handle.job.id))
            return
        error = task.exception()
        if error is None:
            self._ended(execution, task.result(), None)
        elif isinstance(error, ProcessDied):
            assert self.child is not None
            self._bury(self.child)
        else:
            self._ended(execution, None, error)

    def _bury(self, child: ChildProcess) -> None:
        """Have what a dead process held forgotten, and its job offered again."""
        logger.error("lardon: %s", child.death())
        child.stop()
        self.child = None
        self.pool._worker_lost(self)
