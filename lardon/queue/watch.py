"""What waits for the end of one task; made only for tasks that somebody watches."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from lardon.errors import WouldDeadlock
from lardon.events import deliver
from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.queue.task import Task


def own_queue(task_id: int) -> WouldDeadlock:
    """Return the error of a callback that waits for a task of its own queue."""
    message = f"a callback of this queue cannot wait for task {task_id}: both need its worker"
    return WouldDeadlock(message, task_id=task_id)


class Watch:
    """The waiters, done-callbacks and future of one task."""

    __slots__ = ("callbacks", "condition", "future")

    def __init__(self) -> None:
        self.condition: threading.Condition | None = None
        self.callbacks: list[Callable[[Task], object]] = []
        self.future: TaskFuture | None = None

    def wake(self) -> None:
        """Wake the threads in `Task.wait`. The caller holds the queue's lock."""
        if self.condition is not None:
            self.condition.notify_all()

    def finish(self, task: Task) -> None:
        """Tell future and callbacks that *task* ended. No lock is held."""
        if self.future is not None:
            deliver(self.future.finish, task)
        for callback in self.callbacks:
            deliver(callback, task)
        self.callbacks.clear()


class TaskFuture(Future[Any]):
    """
    A `concurrent.futures.Future` that mirrors the end of a task.

    `cancel` cancels a task that has not started, and answers False once it runs.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task: Task | None = task

    def cancel(self) -> bool:
        """Cancel the task if it has not started; returns whether it is cancelled."""
        task = self._task
        if task is not None and task._cancel_unstarted():
            # The end of the task does the same; inside a delivery it comes later.
            super().cancel()
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        """Return the result; from a callback of the same queue, only once it is there."""
        self._refuse_to_block()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error; from a callback of the same queue, only once it is there."""
        self._refuse_to_block()
        return super().exception(timeout)

    def _refuse_to_block(self) -> None:
        task = self._task
        if task is not None and not self.done() and task._signal.would_deadlock():
            raise own_queue(task.id)

    def finish(self, task: Task) -> None:
        """Take over how *task* ended, unless that was done before."""
        if not self._claimed():
            return
        if task.state is TaskState.CANCELLED and not task.started:
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        error = task._failure()
        if isinstance(error, StopIteration):
            # A future cannot carry it: asyncio refuses it, and its waiter would hang.
            wrapped = RuntimeError(f"the callback of task {task.id} raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        if error is None:
            self.set_result(task._value)
        else:
            self.set_exception(error)

    def abandon(self, error: BaseException) -> None:
        """End with *error*, because the task will never end."""
        if self._claimed():
            self.set_exception(error)

    def _claimed(self) -> bool:
        """Whether the caller is the one to end this future: the first to ask."""
        task = self._task
        if task is None:
            return False
        with task._signal.lock:
            self._task, claimed = None, self._task is not None
        return claimed
