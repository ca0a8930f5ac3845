"""The FIFO queue: submits, steers and lists tasks; one worker thread runs them."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from lardon.clock import MachineClock, checked_timeout
from lardon.errors import InvalidEstimate, QueueFull, WouldDeadlock
from lardon.governor.checks import described, refuse, shown, text
from lardon.governor.estimate import ResourceEstimate
from lardon.queue import worker
from lardon.queue.lifecycle import Lifecycle
from lardon.queue.states import TaskState
from lardon.queue.task import Task

if TYPE_CHECKING:
    from types import TracebackType

    from lardon.governor.like import GovernorLike
    from lardon.queue.statistics import QueueStatistics
    from lardon.queue.views import TaskEvent, TaskSnapshot


class TaskQueue:
    """
    A FIFO queue with one worker thread that asks a governor before every task.

    Every method may be called from any thread. Nothing blocks except `join`, `close`,
    `wait_parked`, leaving the ``with`` block, and `submit` to a queue that is full.

    ``with TaskQueue() as queue`` waits at its end for the tasks, cancels those still
    paused (with a warning that names them) and closes; an exception in the block cancels
    everything instead.

    Args:
        governor: Who decides; None is `default_governor()`. Its clock is the queue's.
        name: Part of the worker thread's name.
        capacity: How many tasks may wait; None is no limit.
        history: How many ended tasks stay listed when nobody holds them.

    """

    def __init__(
        self,
        governor: GovernorLike | None = None,
        *,
        name: str = "lardon",
        capacity: int | None = None,
        history: int = 64,
    ) -> None:
        self._capacity = None if capacity is None else _count("capacity", capacity, 1)
        self.name = text("name", name)
        history = _count("history", history, 0)
        if governor is None:
            from lardon.governor.default import default_governor

            governor = default_governor()
        self._life = Lifecycle(governor, name, history)
        self._signal = self._life.signal
        self._thread = worker.start(self)

    # Submitting ----------------------------------------------------------------

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        estimate: ResourceEstimate,
        name: str | None = None,
        start_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Task:
        """
        Queue ``fn(context, *args, **kwargs)`` and return its handle.

        The submitter's context variables are visible in the callback. Blocks only while
        *capacity* tasks are waiting.

        Args:
            fn: The callback; its first argument is a `TaskContext`.
            args: More arguments for it.
            estimate: What a batch of it needs.
            name: For people to read; None is ``task-<id>``.
            start_timeout_s: Fail the task, with the governor's last answer, if it is not
                admitted within so many seconds.
            kwargs: Keyword arguments for the callback.

        Raises:
            QueueClosed: the queue was closed, or belongs to another process.
            WorkerDied: the worker is dead, so nothing would run.
            WouldDeadlock: called from a callback of this queue while the queue is full.

        """
        task = self._new_task(fn, args, kwargs, estimate, name)
        expires = checked_timeout(start_timeout_s, "start_timeout_s")
        with self._signal.open_lock():
            if self._capacity is not None:
                self._wait_for_room(self._capacity)
            self._life.enqueue(task, expires)
        return task

    def submit_nowait(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        estimate: ResourceEstimate,
        name: str | None = None,
        start_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Task:
        """Queue like `submit`, but raise `QueueFull` instead of waiting for room."""
        task = self._new_task(fn, args, kwargs, estimate, name)
        expires = checked_timeout(start_timeout_s, "start_timeout_s")
        with self._signal.open_lock():
            self._life.check_open()
            if self._capacity is not None and self._life.waiting >= self._capacity:
                message = f"{self._life.waiting} tasks are waiting, as many as the queue may hold"
                raise QueueFull(message, capacity=self._capacity)
            self._life.enqueue(task, expires)
        return task

    def _new_task(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        estimate: ResourceEstimate,
        name: str | None,
    ) -> Task:
        if not callable(fn):
            message = f"a task must be callable, not {shown(fn)}"
            raise TypeError(message)
        if not isinstance(estimate, ResourceEstimate):
            raise refuse(InvalidEstimate, "estimate", estimate, "a lardon.ResourceEstimate")
        name = name if name is None else text("name", name)
        return Task(self, self._signal, fn, args, kwargs or None, estimate, name)

    def _wait_for_room(self, capacity: int) -> None:
        """Wait until the queue takes another task. The caller holds the lock."""
        signal, life = self._signal, self._life
        if life.waiting < capacity:
            return
        if signal.would_deadlock():
            message = f"a callback cannot wait for room in its own queue ({capacity} are waiting)"
            raise WouldDeadlock(message)
        signal.watch(
            lambda: life.waiting < capacity or life.closing or signal.error is not None,
            None,
            signal.clock,
        )

    # Looking -------------------------------------------------------------------

    def get(self, task_id: int) -> Task:
        """
        Return the handle of a task.

        Raises:
            UnknownTask: no task of this id, or it has ended, nobody holds its handle, and
                the history is past it.

        """
        with self._signal.open_lock():
            return self._life.table.get(task_id)

    def tasks(self) -> tuple[TaskSnapshot, ...]:
        """Return the unfinished tasks and the history, in order of submission."""
        with self._signal.open_lock():
            return self._life.table.snapshots()

    def statistics(self) -> QueueStatistics:
        """Return a consistent count of the tasks by state."""
        from lardon.queue.statistics import QueueStatistics

        with self._signal.open_lock():
            life, table, error = self._life, self._life.table, self._signal.error
            current = life.context._task._state if life.context is not None else None
            running = int(current is TaskState.RUNNING)
            return QueueStatistics(
                pending=len(table.live) - table.paused - running,
                running=running,
                paused=table.paused,
                completed=table.ended[TaskState.COMPLETED],
                failed=table.ended[TaskState.FAILED],
                cancelled=table.ended[TaskState.CANCELLED],
                submitted=life.next_id - 1,
                worker_alive=self._thread.is_alive() and error is None,
                worker_error=None if error is None else described(error),
            )

    def subscribe(self, listener: Callable[[TaskEvent], object]) -> Callable[[], None]:
        """
        Call *listener* with a `TaskEvent` after each transition of a task.

        It runs on the thread that caused the transition, with no lock held; what it
        raises is logged. Returns a function that ends the subscription.
        """
        self._signal.open_lock()
        return self._life.listeners.subscribe(listener)

    # Steering ------------------------------------------------------------------

    def pause(self, task_id: int) -> bool:
        """Pause a task; see `Task.pause`. Raises `UnknownTask`."""
        return self.get(task_id).pause()

    def resume(self, task_id: int) -> bool:
        """Resume a task; see `Task.resume`. Raises `UnknownTask`."""
        return self.get(task_id).resume()

    def cancel(self, task_id: int) -> bool:
        """Cancel a task; see `Task.cancel`. Raises `UnknownTask`."""
        return self.get(task_id).cancel()

    def pause_all(self) -> int:
        """Pause every unfinished task; return how many requests were new."""
        return sum(task.pause() for task in self._life.unfinished())

    def resume_all(self) -> int:
        """Resume every paused task; return how many there were."""
        return sum(task.resume() for task in self._life.unfinished())

    def cancel_all(self) -> int:
        """Cancel every unfinished task; return how many requests were new."""
        return sum(task.cancel() for task in self._life.unfinished())

    def resources_changed(self) -> None:
        """Say that something outside gave resources back: the head is examined again."""
        self._signal.open_lock()
        self._signal.poke()

    # Ending --------------------------------------------------------------------

    def join(self, timeout: float | None = None) -> bool:
        """
        Block until every task has ended; return whether they have (a paused one has not).

        Raises:
            ValueError: the timeout is negative or NaN.
            WouldDeadlock: called from a callback of this queue.
            WorkerDied: the worker died before they ended.

        """
        seconds = checked_timeout(timeout)
        return self._wait_until(lambda: not self._life.table.live, seconds)

    def _wait_until(self, predicate: Callable[[], bool], seconds: float | None) -> bool:
        signal = self._signal
        with signal.open_lock():
            if predicate():
                return True
            if signal.would_deadlock() and seconds != 0:
                message = f"a callback cannot wait for its own queue {self.name!r}"
                raise WouldDeadlock(message)
            signal.watch(lambda: predicate() or signal.error is not None, seconds, signal.clock)
            if predicate():
                return True
            signal.check_worker()
            return False

    def wait_parked(self, timeout: float | None = None) -> bool:
        """
        Block until the worker sleeps and nothing is due to wake it; return whether it does.

        It sleeps when the line is empty, the head has to wait, or the running callback is
        paused or waits in a break. For tests; the timeout is in real seconds.
        """
        seconds = checked_timeout(timeout)
        signal = self._signal
        signal.open_lock()
        slept = signal.watch(lambda: signal.asleep() or bool(signal.error), seconds, MachineClock())
        signal.check_worker()
        return slept  # not looked at again: somebody may have woken it since

    def close(self, timeout: float | None = None) -> bool:
        """
        Refuse new tasks, cancel everything, and wait for the worker to end.

        Pending tasks are CANCELLED at once. A running callback sees `cancel_requested`;
        its reservation is released when it returns. From a callback of this queue, or
        from a signal handler that interrupted a call of this queue, it requests the same
        and returns at once.

        Args:
            timeout: How many real seconds to wait; None is no limit.

        Returns:
            Whether the worker has ended. Calling it again waits again.

        """
        seconds = checked_timeout(timeout)
        self._signal.open_lock()
        if not self._request_close():
            return False
        return worker.join(self._thread, seconds)

    def _request_close(self) -> bool:
        """Tell everything to end; return whether the caller may wait for it."""
        signal = self._signal
        # A signal handler may have interrupted this thread inside a locked section. Then
        # the worker cancels what waits, and this thread must not wait for the worker.
        interrupted = signal.held_by_caller()
        with signal.lock:
            self._life.closing = True
            if self._life.context is not None:
                self._life.context._task._cancelling = True
            signal.steer()
            signal.settle()
        if interrupted or signal.would_deadlock():
            return False
        self._life.cancel_waiting()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        still_paused: list[str] = []
        try:
            if error is None and not self._life.closing and not self._signal.would_deadlock():
                still_paused = self._run_down()
        finally:
            # Also when Ctrl-C or a dead worker ends the waiting.
            self.close()
        if still_paused:
            names = ", ".join(still_paused)
            warnings.warn(
                f"queue {self.name!r} was left with paused tasks, now cancelled: {names}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _run_down(self) -> list[str]:
        """Wait for the tasks; cancel the paused when only they are left to wait for."""
        names: list[str] = []
        self._wait_until(self._stuck, None)
        while self._life.unfinished():
            names.extend(
                task.name
                for task in self._life.unfinished()
                if task.state is TaskState.PAUSED and task.cancel()
            )
            self._wait_until(self._stuck, None)
        return names

    def _stuck(self) -> bool:
        """Whether nothing but a resume or cancel can go on. The caller holds the lock."""
        if self._life.closing:
            return True
        table, context = self._life.table, self._life.context
        if context is not None:
            task = context._task
            return task._state is TaskState.PAUSED and not task._cancelling
        return table.paused == len(table.live)

    def __del__(self) -> None:
        # Reached with a live worker only when the queue was dropped: nobody holds it, or a
        # task of it, and the worker sleeps.
        if getattr(self, "_thread", None) is None or not self._signal.owned_here():
            return
        life, signal = self._life, self._signal
        waiting = life.waiting
        # A finalizer runs on any thread, perhaps inside a locked section of another queue or
        # of a governor. What is told to others is told by the worker, if it still runs.
        with signal.lock:
            life.closing = True
            worker_ended = signal.worker is None
            if not worker_ended:
                signal.orphans = life
            signal.steer()
        if worker_ended:
            life.cancel_waiting()
        life.unsubscribe()
        if waiting:
            warnings.warn(
                f"queue {self.name!r} was dropped with {waiting} waiting tasks, now cancelled; "
                f"close it, or use it in a with block",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )


def _count(name: str, value: int, minimum: int) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or number < minimum:
        message = f"{name} must be an integer of at least {minimum}, not {value!r}"
        raise ValueError(message)
    return number
