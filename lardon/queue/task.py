"""The handle of one submitted task."""

from __future__ import annotations

import contextvars
import datetime
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from lardon.clock import checked_timeout
from lardon.errors import InvalidTransition, TaskNotFinished, UnknownTask
from lardon.events import deliver
from lardon.governor.checks import shown
from lardon.queue.outcome import cancellation, refusal
from lardon.queue.progress import NO_PROGRESS, Progress
from lardon.queue.states import TRANSITIONS, TaskState
from lardon.queue.watch import TaskFuture, Watch, own_queue

if TYPE_CHECKING:
    from lardon.governor.decision import Contract, Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.reason import Reason
    from lardon.queue.signal import Signal
    from lardon.queue.task_queue import TaskQueue
    from lardon.queue.views import TaskSnapshot

FORGOTTEN: Final = object()
"""Stands for a result that went with the last handle of its task."""


class Task:
    """
    One submitted task: its state, its result, and how to steer it.

    Made by `TaskQueue.submit`. Every method may be called from any thread. Only `wait`,
    `result`, `exception` and ``await`` block, until the task has ended: its callback is
    over and its reservation released. From a callback of the same queue they raise
    `WouldDeadlock` instead, unless the task has ended.
    """

    # The handle is all that a waiting task costs, beside an entry in its queue's line and
    # table. Everything with an underscore is guarded by the queue's lock.
    __slots__ = (
        "__weakref__", "_anchor", "_args", "_cancelling", "_contract", "_decision", "_error",
        "_expires", "_finished", "_fn", "_in_line", "_kwargs", "_name", "_pausing", "_progress",
        "_queue", "_reason", "_refused", "_signal", "_since", "_started", "_state", "_submitted",
        "_value", "_variables", "_watch", "estimate", "id",
    )  # fmt: skip

    def __init__(
        self,
        queue: TaskQueue | None,
        signal: Signal,
        fn: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        estimate: ResourceEstimate,
        name: str | None,
    ) -> None:
        # None once the task has ended, so that its handle does not keep the queue alive.
        self._queue = queue
        self._signal = signal
        self._fn = fn
        self._args = args
        self._kwargs = kwargs
        self._name = name
        self.estimate = estimate
        """What was asked for; never changes."""
        self.id = 0
        """1, 2, 3 … in order of submission to its queue."""
        self._variables: contextvars.Context | None = contextvars.copy_context()
        self._state = TaskState.PENDING
        self._reason: Reason | None = None
        self._decision: Decision | None = None
        self._contract: Contract | None = None
        self._progress = NO_PROGRESS
        self._in_line = True
        self._pausing = False
        self._cancelling = False
        # Set when the governor refused a break: the task ends FAILED, whatever comes.
        self._refused = False
        self._expires: float | None = None
        self._since: float | None = None
        self._started: float | None = None
        self._finished: float | None = None
        self._value: Any = None
        self._error: BaseException | None = None
        self._watch: Watch | None = None
        # Set by the queue, which knows the clock.
        self._submitted: float
        # A moment of the monotonic clock and the wall-clock time at it; shared by tasks.
        self._anchor: tuple[float, datetime.datetime]

    # Reading -----------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name given at submission, or ``task-<id>``."""
        return self._name if self._name is not None else f"task-{self.id}"

    @property
    def kind(self) -> str:
        """The estimate's kind."""
        return self.estimate.kind

    @property
    def state(self) -> TaskState:
        """Where the task is now."""
        return self._state

    @property
    def reason(self) -> Reason | None:
        """Why it waits, was granted what it has, or ended; None before the first answer."""
        return self._reason

    @property
    def contract(self) -> Contract | None:
        """What was granted last, or None before the start."""
        return self._contract

    @property
    def progress(self) -> Progress:
        """How far the callback says it is."""
        return self._progress

    @property
    def started(self) -> bool:
        """Whether the callback was ever called."""
        return self._started is not None

    def snapshot(self) -> TaskSnapshot:
        """Return a consistent copy of everything there is to see."""
        if self._queue is None:
            return self._view()
        with self._signal.open_lock():
            return self._view()

    def _view(self) -> TaskSnapshot:
        # Imported here: not every user looks.
        from lardon.queue.views import TaskSnapshot

        contract = self._contract
        return TaskSnapshot(
            id=self.id,
            name=self.name,
            kind=self.kind,
            state=self._state,
            reason=self._reason,
            contract=contract,
            sequence=contract.sequence if contract is not None else 0,
            progress=self._progress,
            submitted_at=self._wall(self._submitted),
            started_at=None if self._started is None else self._wall(self._started),
            finished_at=None if self._finished is None else self._wall(self._finished),
            waiting_since=self._since,
        )

    def _wall(self, moment: float) -> datetime.datetime:
        since, wall = self._anchor
        return wall + datetime.timedelta(seconds=moment - since)

    def __repr__(self) -> str:
        return f"<Task {self.id} {self.name!r} {self._state}>"

    # Steering ----------------------------------------------------------------

    def pause(self) -> bool:
        """
        Ask the task to pause; returns at once, True when this request is new.

        A pending task is passed over until `resume`. A running one parks at its next
        pause point and keeps its reservation meanwhile.
        """
        queue = self._queue
        return queue._life.pause(self) if queue is not None else False

    def resume(self) -> bool:
        """End a pause, or withdraw one that was not reached; True when there was one."""
        queue = self._queue
        return queue._life.resume(self) if queue is not None else False

    def cancel(self) -> bool:
        """
        Ask the task to end; returns at once, True when this request is new.

        A task that has not started is CANCELLED now. A running callback sees it at its
        next checkpoint or break.
        """
        queue = self._queue
        return queue._life.cancel(self) if queue is not None else False

    def _cancel_unstarted(self) -> bool:
        queue = self._queue
        return queue is not None and queue._life.cancel(self, only_unstarted=True)

    # Waiting -----------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """
        Block until the task has ended, at most *timeout* seconds; return whether it has.

        Raises:
            ValueError: the timeout is negative or NaN.
            WouldDeadlock: called from a callback of the same queue before the end.
            WorkerDied: the queue's worker died, so the task will never end.

        """
        seconds = checked_timeout(timeout)
        signal = self._signal
        if self._queue is None:
            return True
        with signal.open_lock():
            if self._state.terminal:
                return True
            if seconds != 0 and signal.would_deadlock():
                raise own_queue(self.id)
            return self._wait(signal, seconds)

    def _wait(self, signal: Signal, seconds: float | None) -> bool:
        """Wait for the end. The caller holds the lock."""
        watch = self._watched()
        if watch.condition is None:
            watch.condition = threading.Condition(signal.lock)
        signal.clock.wait_for(
            watch.condition, lambda: self._state.terminal or signal.error is not None, seconds
        )
        if self._state.terminal:
            return True
        signal.check_worker()
        return False

    def result(self, timeout: float | None = None) -> Any:
        """
        Return what the callback returned; blocks like `wait`.

        Raises:
            TaskNotFinished: not within *timeout* seconds.
            TaskCancelled: the task was cancelled.
            TaskRefused: the governor refused it, at its start or at a break.
            BaseException: whatever the callback raised.

        """
        self._finish_within(timeout)
        error = self._failure()
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # The traceback of the error leads to this frame, and back through these.
            del error, self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what `result` would raise, or None; raises `TaskCancelled` like it."""
        self._finish_within(timeout)
        if self._state is TaskState.CANCELLED:
            raise cancellation(self)
        return self._failure()

    def _finish_within(self, timeout: float | None) -> None:
        if not self.wait(timeout):
            message = f"task {self.id} ({self.name}) did not finish within {timeout} s"
            raise TaskNotFinished(message, task_id=self.id, timeout=timeout)

    def _failure(self) -> BaseException | None:
        """Return the error that stands for the end of this task, or None."""
        if self._state is TaskState.CANCELLED:
            return cancellation(self)
        if self._refused:
            return refusal(self)
        if self._value is FORGOTTEN:
            message = f"the result of task {self.id} was dropped with its last handle"
            return UnknownTask(message, task_id=self.id)
        return self._error

    def add_done_callback(self, fn: Callable[[Task], object]) -> None:
        """
        Call ``fn(task)`` once the task has ended: now, if it has.

        It runs on the thread that ended the task, with no lock held. What it raises is
        logged. A callback that ends another task does not nest: it is queued.
        """
        if not callable(fn):
            message = f"a done-callback must be callable, not {shown(fn)}"
            raise TypeError(message)
        with self._signal.open_lock():
            if not self._state.terminal:
                self._watched().callbacks.append(fn)
                return
        deliver(fn, self)

    @property
    def future(self) -> TaskFuture:
        """A `concurrent.futures.Future` of this task; always the same one."""
        with self._signal.open_lock():
            watch = self._watched()
            if watch.future is not None:
                return watch.future
            future = watch.future = TaskFuture(self)
            if self.started:
                future.set_running_or_notify_cancel()
            ended, dead = self._state.terminal, self._signal.error is not None
        if ended:
            future.finish(self)
        elif dead:
            future.abandon(self._signal.death())
        return future

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self.future).__await__()

    # For the queue, under its lock ---------------------------------------------

    def _move(self, target: TaskState) -> TaskState:
        """Go to *target* and return the state before. The only place that sets a state."""
        previous = self._state
        if target not in TRANSITIONS[previous]:
            message = f"task {self.id} cannot go from {previous} to {target}"
            raise InvalidTransition(message, task_id=self.id, state=previous, target=target)
        self._state = target
        return previous

    def _watched(self) -> Watch:
        if self._watch is None:
            self._watch = Watch()
        return self._watch

    def _summary(self) -> tuple[Any, ...]:
        """Return the facts that a history keeps: nothing that the callback made."""
        return (
            self.id, self._name, self.estimate, self._state, self._reason, self._refused,
            self._contract, self._progress, self._submitted, self._anchor, self._started,
            self._finished,
        )  # fmt: skip

    @classmethod
    def _recalled(cls, signal: Signal, summary: tuple[Any, ...]) -> Task:
        """Return a handle made from a `_summary`; its result is forgotten."""
        task = cls(None, signal, None, (), None, summary[2], summary[1])
        (
            task.id, _, _, task._state, task._reason, task._refused,
            task._contract, task._progress, task._submitted, task._anchor, task._started,
            task._finished,
        ) = summary  # fmt: skip
        task._variables, task._in_line, task._value = None, False, FORGOTTEN
        return task
