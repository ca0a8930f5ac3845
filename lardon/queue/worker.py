"""
The worker thread: every thread that lardon starts, and every end of one, is here.

The thread holds its queue only while it works. Between two looks at the line it keeps
nothing but a weak reference and the `Signal`, so that a dropped queue can be collected.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lardon.events import logger
from lardon.governor.decision import DecisionKind
from lardon.governor.reason import Reason, ReasonCode
from lardon.queue.context import TaskContext, current
from lardon.queue.outcome import cancelled, forget_frames, governor_failed, raised
from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from lardon.queue.lifecycle import Lifecycle
    from lardon.queue.signal import Signal
    from lardon.queue.task import Task
    from lardon.queue.task_queue import TaskQueue

# How long the interpreter waits at its exit for callbacks that were told to stop.
EXIT_GRACE_S: Final = 5.0


class _ForkedChild(BaseException):
    """Raised where a callback has returned in a child that it forked."""


class Nap(NamedTuple):
    """What the worker does when nothing can run: sleep until news, or for a time."""

    seen: int
    timeout: float | None


def start(queue: TaskQueue) -> threading.Thread:
    """Start the worker of *queue* as a named daemon thread."""
    thread = threading.Thread(
        target=_serve,
        args=(weakref.ref(queue), queue._signal),
        name=f"lardon-worker-{queue.name}",
        daemon=True,
    )
    _queues.add(queue)
    thread.start()
    return thread


def join(thread: threading.Thread, timeout: float | None) -> bool:
    """Wait for the end of *thread*, at most *timeout* seconds; return whether it ended."""
    if timeout is not None and timeout > threading.TIMEOUT_MAX:
        timeout = None
    thread.join(timeout)
    return not thread.is_alive()


def _serve(ref: weakref.ref[TaskQueue], signal: Signal) -> None:
    """Work until the queue is closed or dropped."""
    signal.worker = threading.get_ident()
    try:
        while True:
            queue = ref()
            if queue is None:
                return
            nap = _work(queue._life)
            if nap is None:
                return
            del queue
            signal.sleep(nap.seen, nap.timeout)
    except _ForkedChild:
        # This thread is the only one of a child that a callback forked: the child ends here.
        return
    except BaseException as error:  # noqa: BLE001  whatever kills the worker is kept
        queue = ref()
        if queue is not None:
            queue._life.worker_died(error)
        else:
            logger.critical("lardon: the worker of a dropped queue died", exc_info=error)
    finally:
        with signal.lock:
            # The system may give the identifier to another thread.
            signal.worker = None
            orphans, signal.orphans = signal.orphans, None
        if orphans is not None:
            orphans.cancel_waiting()


def _work(life: Lifecycle) -> Nap | None:
    """Run what can run; return how long to sleep then, or None when the queue closes."""
    signal = life.signal
    task: Task | None = None
    late: list[Task] | None = None
    try:
        while True:
            with signal.lock:
                closing = life.closing
                seen = signal.changes
                task = life.line.head()
                late = life.late(task) if life.line.expiries else None
            if closing:
                life.cancel_waiting()
                life.unsubscribe()
                return None
            if late:
                for one in late:
                    _out_of_time(life, one)
                continue
            if task is None:
                return Nap(seen, life.next_expiry())
            nap = _admit(life, task, seen)
            if nap is not None:
                return nap
    finally:
        del life, task, late


def _admit(life: Lifecycle, task: Task, seen: int) -> Nap | None:
    """Ask the governor for the head of the line, and run it if it may."""
    try:
        decision, reservation = life.governor.reserve(task.estimate, holder=task._name or task.name)
    except BaseException as error:  # noqa: BLE001  a governor may raise anything
        logger.exception("lardon: the governor failed on task %s (%s)", task.id, task.name)
        life.refused_at_start(task, governor_failed(error), None)
        return None
    if reservation is not None:
        try:
            context = life.begin(task, decision, reservation)
        except BaseException:
            # An internal error, which ends the worker. Once there is a context it gives back.
            if life.context is None:
                reservation.release()
            raise
        if context is None:
            # Cancelled, paused or overtaken by a resumed task while the governor answered.
            reservation.release()
            return None
        # While the callback runs nothing here holds what a break replaces.
        del decision, reservation
        _run(life, task, context)
        del life, task, context
        return None
    if decision.kind is DecisionKind.REJECT:
        life.refused_at_start(task, decision.reason, decision)
        return None
    if life.told_to_wait(task, decision):
        return Nap(seen, life.nap_length(decision.reason))
    return None


def _out_of_time(life: Lifecycle, task: Task) -> None:
    """Fail a task that was not admitted in time, with the last answer it got."""
    reason = task.reason
    if reason is None:
        limit = (task._expires or 0.0) - task._submitted
        reason = Reason(code=ReasonCode.START_TIMEOUT, facts={"limit": round(limit, 6)})
    life.refused_at_start(task, reason, task._decision)


def _run(life: Lifecycle, task: Task, context: TaskContext) -> None:
    """Run the callback of *task*, and end the task."""
    value: Any = None
    failure: BaseException | None = None
    fn, args, kwargs, variables = task._fn, task._args, task._kwargs, task._variables
    assert fn is not None
    assert variables is not None
    # From here on only this frame keeps the call alive, not the handle.
    task._fn, task._args, task._kwargs, task._variables = None, (), None, None
    current.context = context
    try:
        if kwargs:
            value = variables.run(fn, context, *args, **kwargs)
        else:
            value = variables.run(fn, context, *args)
    except BaseException as error:  # noqa: BLE001  also SystemExit: the worker lives on
        failure = error
    finally:
        current.context = None
        if not life.signal.owned_here():
            # Tasks, events and reservations are the parent's.
            raise _ForkedChild
    del fn, args, kwargs, variables
    if failure is not None:
        # The first entry is this function's own.
        trace = failure.__traceback__
        failure.__traceback__ = trace.tb_next if trace is not None else None
        forget_frames(failure)
    try:
        _end(life, task, context, value, failure)
    finally:
        # The traceback of an error that somebody keeps leads back to the frames of this
        # module. They must not hold the error, nor the queue: `_admit` and `_work` neither.
        del value, failure, life, task, context


def _end(
    life: Lifecycle, task: Task, context: TaskContext, value: Any, failure: BaseException | None
) -> None:
    """Release what the task still holds, then publish how it ended."""
    context._over = True
    if context._measured is not None:
        from lardon.queue.meter import abandon

        abandon(context)
    context._give_back()
    with life.signal.lock:
        if task._refused:
            assert task._reason is not None
            state, reason, value = TaskState.FAILED, task._reason, None
        elif task._cancelling:
            state, reason, value = TaskState.CANCELLED, cancelled(failure, context._why), None
        elif failure is not None:
            state, reason = TaskState.FAILED, raised(failure)
        else:
            assert task._reason is not None
            state, reason = TaskState.COMPLETED, task._reason
        task._value, task._error = value, failure
        life.context = None
        previous, watch = life.settle(task, state, reason)
    life.announce(task, state, previous, reason, watch)


_queues: Final[weakref.WeakSet[TaskQueue]] = weakref.WeakSet()


def _close_all() -> None:
    """At the interpreter's exit: cancel everything, and give callbacks a moment to stop."""
    deadline = time.monotonic() + EXIT_GRACE_S
    queues = [queue for queue in list(_queues) if queue._signal.owned_here()]
    for queue in queues:
        queue._request_close()
    for queue in queues:
        join(queue._thread, max(0.0, deadline - time.monotonic()))


atexit.register(_close_all)
