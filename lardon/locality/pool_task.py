"""What a pool was asked to do, and the handles of those who asked."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

from lardon.clock import checked_timeout
from lardon.errors import TaskCancelled, TaskNotFinished, WouldDeadlock
from lardon.events import deliver
from lardon.governor.checks import shown
from lardon.queue.progress import NO_PROGRESS, Progress
from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from lardon.governor.decision import Contract
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.reason import Reason
    from lardon.locality.job import Artifact
    from lardon.locality.pending import PendingJob
    from lardon.locality.pool import WorkerPool
    from lardon.locality.slot import Slot
    from lardon.queue.task import Task


class Execution:
    """One job of a pool; the pool's lock guards everything that changes."""

    def __init__(
        self,
        call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]],
        estimate: ResourceEstimate,
        name: str,
        leaves: tuple[Artifact, ...],
    ) -> None:
        self.call = call
        self.estimate = estimate
        self.name = name
        self.leaves = leaves
        """What a worker holds after it: its dependencies, and its result if it has a key."""
        self.variables = contextvars.copy_context()
        self.handle: PendingJob
        """Its place in the scheduler; set as it is submitted."""
        self.views: list[PoolTask] = []
        """The handles that still want its result."""
        self.unwanted: PoolTask | None = None
        """The last of them, if it asked for the end while a worker had the job."""
        self.paused = False
        """Whether no worker may take it, and the one that has it is to pause it."""
        self.slot: Slot | None = None
        """The worker that has it now."""
        self.worker: str | None = None
        """The worker that has it, or had it last."""
        self.task: Task | None = None
        """What it is in that worker's queue."""


class PoolTask:
    """
    One submission to a pool: its state, its result, and how to cancel it.

    Made by `WorkerPool.submit`. Several submissions of one key share one job, and each has
    a handle of its own. Every method may be called from any thread. Only `wait`, `result`,
    `exception` and ``await`` block; timeouts are in real seconds. From a callback of the
    same pool they raise `WouldDeadlock` unless the task has ended.
    """

    def __init__(self, pool: WorkerPool, execution: Execution, key: Artifact) -> None:
        self.key = key
        """The id of the job."""
        self.name = execution.name
        """For people to read."""
        self.estimate = execution.estimate
        """What was asked for."""
        self.future: Future[Any] = _PoolFuture(self)
        """A `concurrent.futures.Future` that mirrors the end."""
        self._pool = pool
        self._execution = execution

    @property
    def worker(self) -> str | None:
        """The worker that has it, or had it last; None before."""
        return self._execution.worker

    @property
    def state(self) -> TaskState:
        """Where it is in its life; PENDING also while it waits for a worker."""
        if self.future.done():
            if self.future.cancelled():
                return TaskState.CANCELLED
            error = self.future.exception()
            if isinstance(error, TaskCancelled):
                return TaskState.CANCELLED
            return TaskState.COMPLETED if error is None else TaskState.FAILED
        task = self._execution.task
        if task is None or task.state.terminal:
            return TaskState.PAUSED if self._execution.paused else TaskState.PENDING
        return task.state

    @property
    def kind(self) -> str:
        """The estimate's kind."""
        return self.estimate.kind

    @property
    def started(self) -> bool:
        """Whether a worker that has it, or had it last, ever called the callback."""
        task = self._execution.task
        return task is not None and task.started

    @property
    def progress(self) -> Progress:
        """How far the callback says it is; of one in a process nothing is known."""
        task = self._execution.task
        return NO_PROGRESS if task is None else task.progress

    @property
    def contract(self) -> Contract | None:
        """What the governor granted, or None before the start."""
        task = self._execution.task
        return None if task is None else task.contract

    @property
    def reason(self) -> Reason | None:
        """What the governor said last, or how it ended; None before it has a worker."""
        task = self._execution.task
        return None if task is None else task.reason

    def done(self) -> bool:
        """Whether it has ended."""
        return self.future.done()

    def pause(self) -> bool:
        """
        Ask the task to pause; returns at once, True when this request is new.

        No worker takes it until `resume`. On a worker that is a thread a running one parks at
        its next pause point, as any `Task`, and keeps worker and reservation meanwhile. A job
        that another submission of its key wants too is not paused.
        """
        return self._pool.executions.pause(self)

    def resume(self) -> bool:
        """End a pause, or withdraw one that was not reached; True when there was one."""
        return self._pool.executions.resume(self)

    def cancel(self) -> bool:
        """
        Ask the task to end; returns at once, True when this request is new.

        The job goes on while another submission of its key wants it. A job that has not
        started never does; one that runs sees `cancel_requested`.
        """
        return self._pool.executions.cancel(self)

    def wait(self, timeout: float | None = None) -> bool:
        """
        Block until the task has ended, at most *timeout* seconds; return whether it has.

        Raises:
            ValueError: the timeout is negative or NaN.
            WouldDeadlock: called from a callback of the same pool before the end.

        """
        seconds = checked_timeout(timeout)
        if self.future.done():
            return True
        if seconds != 0 and self._pool.on_worker():
            message = f"a callback of this pool cannot wait for task {shown(self.key)}"
            raise WouldDeadlock(message)
        try:
            self.future.exception(seconds)
        except (FutureTimeout, CancelledError):
            return self.future.done()
        return True

    def result(self, timeout: float | None = None) -> Any:
        """
        Return what the callback returned; blocks like `wait`.

        Raises:
            TaskNotFinished: not within *timeout* seconds.
            TaskCancelled: the task was cancelled.
            TaskRefused: the governor refused it.
            WorkerLost: two workers died over it.
            BaseException: whatever the callback raised.

        """
        error = self.exception(timeout)
        if error is None:
            return self.future.result()
        try:
            raise error
        finally:
            del error, self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what `result` would raise, or None; raises `TaskCancelled` like it."""
        if not self.wait(timeout):
            message = f"task {shown(self.key)} did not finish within {timeout} s"
            raise TaskNotFinished(message, task_id=self.key, timeout=timeout)
        if self.future.cancelled():
            raise cancelled(self.key)
        error = self.future.exception()
        if isinstance(error, TaskCancelled):
            raise error
        return error

    def add_done_callback(self, fn: Callable[[PoolTask], object]) -> None:
        """Call ``fn(task)`` once it has ended, on the thread that ended it; now, if it has."""
        self.future.add_done_callback(lambda _: deliver(fn, self))

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self.future).__await__()

    def __repr__(self) -> str:
        return f"<PoolTask {self.key!r} {self.state}>"

    def _finish(self, value: Any, error: BaseException | None) -> None:
        """End it; the caller has taken it off its execution's views, so it is the only one."""
        future = self.future
        if isinstance(error, TaskCancelled) and not future.running():
            Future.cancel(future)
            future.set_running_or_notify_cancel()
        elif error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


class _PoolFuture(Future[Any]):
    """Its `cancel` cancels the task, unless that runs."""

    def __init__(self, task: PoolTask) -> None:
        super().__init__()
        self._task = task

    def cancel(self) -> bool:
        """Cancel the task if it has not started; returns whether it is cancelled."""
        if not self.running():
            self._task.cancel()
        return self.cancelled()


def cancelled(key: Artifact, why: str = "cancelled on request") -> TaskCancelled:
    """Return the error of a task that was cancelled."""
    return TaskCancelled(f"task {shown(key)}: {why}", task_id=key)
