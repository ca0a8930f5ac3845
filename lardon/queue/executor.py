"""A `concurrent.futures.Executor` view of a queue, for plain functions."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lardon.queue.watch import TaskFuture

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.queue.context import TaskContext
    from lardon.queue.task import Task
    from lardon.queue.task_queue import TaskQueue


class GovernedExecutor(concurrent.futures.Executor):
    """
    Runs plain functions as tasks of a queue, each under the same estimate.

    `map`, ``with``, `concurrent.futures.as_completed` and `asyncio`'s ``run_in_executor``
    work as with any executor. Shutting it down does not close the queue.

    Args:
        queue: Where the functions run, in turn with its other tasks.
        estimate: What each call needs.

    """

    def __init__(self, queue: TaskQueue, estimate: ResourceEstimate) -> None:
        self._queue = queue
        self._estimate = estimate
        # Guards the two attributes below; no call out is made under it.
        self._lock = threading.Lock()
        self._pending: set[Task] = set()
        self._shut_down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> TaskFuture:
        """
        Queue ``fn(*args, **kwargs)`` and return its future.

        Raises:
            RuntimeError: the executor was shut down, or the queue is closed.

        """
        with self._lock:
            if self._shut_down:
                message = "cannot submit to an executor that was shut down"
                raise RuntimeError(message)
        task = self._queue.submit(_call, fn, args, kwargs, estimate=self._estimate)
        with self._lock:
            self._pending.add(task)
        task.add_done_callback(self._forget)
        return task.future

    def _forget(self, task: Task) -> None:
        with self._lock:
            self._pending.discard(task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Refuse new calls; wait for those submitted here, or cancel those not started."""
        with self._lock:
            self._shut_down = True
            pending = list(self._pending)
        if cancel_futures:
            for task in pending:
                task.future.cancel()
        if wait:
            for task in pending:
                task.wait()


def _call(
    _context: TaskContext, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return fn(*args, **kwargs)
