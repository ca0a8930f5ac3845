"""The book of a pool: which jobs are on their way, who wants them, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lardon.errors import TaskCancelled
from lardon.events import deliver
from lardon.governor.checks import shown, text
from lardon.locality.job import Job
from lardon.locality.pool_task import Execution, PoolTask, cancelled

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.estimate import ResourceEstimate
    from lardon.locality.job import Artifact
    from lardon.locality.pool import WorkerPool
    from lardon.locality.precedence import Precedence
    from lardon.locality.scheduler import LocalityScheduler


class Unnamed:
    """The id of a job that was given no key; equal to nothing else."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"#{self._number}"


class Executions:
    """
    The unfinished jobs of a pool.

    Every method may be called from any thread, and takes the pool's lock; handles are ended
    without it.
    """

    def __init__(
        self, lock: threading.RLock, scheduler: LocalityScheduler, precedence: Precedence
    ) -> None:
        self._lock = lock
        self._scheduler = scheduler
        self._precedence = precedence
        # Notified when a task ends. `wait_settled` waits on it.
        self._settled = threading.Condition(lock)
        self._live: dict[Artifact, Execution] = {}
        self.submitted = self.completed = self.failed = self.cancelled = 0

    @property
    def unfinished(self) -> int:
        """How many submissions have not ended."""
        return self.submitted - self.completed - self.failed - self.cancelled

    def wait_settled(self, clock: Clock, timeout: float | None) -> bool:
        """Block until all have ended; return whether they have. The caller holds the lock."""
        return clock.wait_for(self._settled, lambda: not self.unfinished, timeout)

    def add(
        self,
        pool: WorkerPool,
        call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]],
        estimate: ResourceEstimate,
        key: Artifact,
        deps: Iterable[Artifact],
        name: str | None,
    ) -> PoolTask:
        """Return a handle of a new job, or of the one of this key. The caller holds the lock."""
        job = Job(key if key is not None else Unnamed(self.submitted + 1), deps)
        execution = self._live.get(job.id)
        if execution is None:
            label = text("name", name) if name is not None else f"task {shown(job.id)}"
            leaves = job.deps if key is None else (*job.deps, key)
            execution = Execution(call, estimate, label, leaves)
            self._schedule(execution, job)
        task = PoolTask(pool, execution, job.id)
        if any(view.future.running() for view in execution.views):
            task.future.set_running_or_notify_cancel()
        execution.views.append(task)
        self.submitted += 1
        return task

    def _schedule(self, execution: Execution, job: Job) -> None:
        # The lock is held: nobody looks at the handle before it is set.
        execution.handle = self._scheduler.schedule_job(Job(job.id, job.deps, execution))
        self._live[job.id] = execution

    def started(self, execution: Execution) -> None:
        """Note that the callback begins: a future can no longer be cancelled."""
        with self._lock:
            for view in execution.views:
                if not view.future.running():
                    view.future.set_running_or_notify_cancel()
        self._let_pass(execution)

    def _let_pass(self, execution: Execution) -> None:
        """Have the others examined again, if they waited for this one to have its room."""
        if self._precedence.leave(execution.handle):
            self._scheduler.resources_changed()

    def cancel(self, task: PoolTask) -> bool:
        """Do what `PoolTask.cancel` says."""
        execution = task._execution
        with self._lock:
            if task not in execution.views or execution.unwanted is task:
                return False
            shared = len(execution.views) > 1
            if shared:
                # The others still want it.
                execution.views.remove(task)
            else:
                # Who joins in from now on gets a run of its own.
                execution.unwanted = task
            if not shared and execution.task is not None:
                # Its worker ends it, and the handle with it. The task first: a process that
                # is about to be asked looks at it after it has forgotten the last cancel.
                requested = execution.task.cancel()
                if execution.slot is not None and execution.slot.child is not None:
                    execution.slot.child.cancel()
                return requested
            error = cancelled(task.key)
            if not shared:
                self._scheduler.on_job_complete(None, task.key, error=error)
        if shared:
            self._finish([task], None, error)
        else:
            self.end(execution, None, error)
        return True

    def pause(self, task: PoolTask) -> bool:
        """Do what `PoolTask.pause` says."""
        execution = task._execution
        with self._lock:
            if execution.views != [task] or execution.paused:
                return False
            if execution.task is not None and not execution.task.pause():
                # It ends just now, or is told to.
                return False
            execution.paused = True
        self._let_pass(execution)
        return True

    def resume(self, task: PoolTask) -> bool:
        """Do what `PoolTask.resume` says."""
        execution = task._execution
        with self._lock:
            if task not in execution.views or not execution.paused:
                return False
            execution.paused = False
            if execution.task is not None:
                return execution.task.resume()
        self._scheduler.resources_changed()
        return True

    def cancel_all(self) -> None:
        """Cancel everything, because the pool closes."""
        with self._lock:
            views = [view for execution in self._live.values() for view in execution.views]
        for view in views:
            view.cancel()

    def end_all(self, error: BaseException) -> None:
        """End everything with *error*, because no worker is left."""
        with self._lock:
            executions = list(self._live.values())
        for execution in executions:
            self.end(execution, None, error)

    def lost(self, execution: Execution, *, closing: bool) -> None:
        """Note that the worker of a job died: it waits again, or this was the second time."""
        with self._lock:
            error = execution.handle.error
            if error is None and (closing or execution.unwanted is not None):
                error = cancelled(execution.handle.job.id)
                self._scheduler.on_job_complete(None, execution.handle.job.id, error=error)
        if error is not None:
            self.end(execution, None, error)

    def end(self, execution: Execution, value: Any, error: BaseException | None) -> None:
        """End a job with its result or its error, and every handle that wants it."""
        job = execution.handle.job
        with self._lock:
            if self._live.get(job.id) is not execution:
                return
            del self._live[job.id]
            views, execution.views = execution.views, []
            if isinstance(error, TaskCancelled):
                # Who came after the last one had cancelled wants it done all the same.
                again = [view for view in views if execution.unwanted not in {None, view}]
                if again and not self._scheduler.stopped:
                    views = [execution.unwanted] if execution.unwanted in views else []
                    self._start_again(execution, again)
        self._let_pass(execution)
        self._finish(views, value, error)

    def _finish(self, views: list[PoolTask], value: Any, error: BaseException | None) -> None:
        """End handles, and count them once they are ended: who joins finds them so."""
        for view in views:
            deliver(view._finish, value, error)
        with self._lock:
            if isinstance(error, TaskCancelled):
                self.cancelled += len(views)
            elif error is None:
                self.completed += len(views)
            else:
                self.failed += len(views)
            self._settled.notify_all()

    def _start_again(self, execution: Execution, views: list[PoolTask]) -> None:
        fresh = Execution(execution.call, execution.estimate, execution.name, execution.leaves)
        fresh.views = views
        for view in views:
            view._execution = fresh
        self._schedule(fresh, execution.handle.job)
