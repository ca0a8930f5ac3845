"""What happens to a task between its submission and its end, and who is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lardon.errors import QueueClosed
from lardon.events import Listeners, logger
from lardon.governor.checks import shown
from lardon.governor.like import LearningGovernor
from lardon.queue.context import TaskContext
from lardon.queue.line import Line
from lardon.queue.outcome import cancelled
from lardon.queue.signal import Signal
from lardon.queue.states import TaskState
from lardon.queue.table import TaskTable

if TYPE_CHECKING:
    from lardon.governor.decision import Decision
    from lardon.governor.like import GovernorLike
    from lardon.governor.reason import Reason
    from lardon.governor.reservation import Reservation
    from lardon.queue.task import Task
    from lardon.queue.watch import Watch


# Reading the wall clock for every task would cost more than its place in the line. Its
# jumps are noticed within this time.
ANCHOR_S: Final = 1.0
# A wait that only readings can end is examined this often where the policy says never: the
# policy's own default.
FADING_RECHECK_S: Final = 0.5


class Lifecycle:
    """
    The tasks of one queue and their transitions.

    Knows no thread and no `TaskQueue`. Everything is decided under the lock of `signal`
    and told to listeners, futures and done-callbacks without it.
    """

    __slots__ = (
        "anchor",
        "closing",
        "context",
        "governor",
        "learner",
        "line",
        "listeners",
        "name",
        "next_id",
        "signal",
        "table",
        "unsubscribe",
    )

    def __init__(self, governor: GovernorLike, name: str, history: int) -> None:
        if not callable(getattr(governor, "reserve", None)):
            message = f"governor must be a lardon.Governor, not {shown(governor)}"
            raise TypeError(message)
        self.governor = governor
        self.learner: LearningGovernor | None = (
            governor if isinstance(governor, LearningGovernor) else None
        )
        """The governor, if it wants to be told of batches."""
        self.name = name
        self.signal = Signal(governor.clock)
        self.line = Line()
        self.table = TaskTable(self.signal, history)
        self.listeners = Listeners()
        self.next_id = 1
        # A pair of monotonic and wall-clock time, renewed as tasks are submitted.
        self.anchor = (self.signal.clock.monotonic(), self.signal.clock.wall())
        self.closing = False
        self.context: TaskContext | None = None
        """The running callback; None between tasks."""
        # The governor keeps the signal alive by this, never the queue.
        self.unsubscribe = governor.subscribe(self.signal.poke)

    def check_open(self) -> None:
        """Raise unless tasks are taken. The caller holds the lock."""
        if self.closing or self.signal.error is not None:
            self.signal.check_worker()
            message = f"the queue {self.name!r} is closed"
            raise QueueClosed(message)

    @property
    def waiting(self) -> int:
        """How many tasks have not started, the paused ones included."""
        return len(self.table.live) - (self.context is not None)

    def enqueue(self, task: Task, start_timeout_s: float | None) -> None:
        """Put *task* in line. The caller holds the lock."""
        self.check_open()
        signal = self.signal
        task._submitted = now = signal.clock.monotonic()
        anchor = self.anchor
        if now - anchor[0] > ANCHOR_S:
            anchor = self.anchor = (now, signal.clock.wall())
        task._anchor = anchor
        if start_timeout_s is not None:
            task._expires = now + start_timeout_s
        task.id = number = self.next_id
        self.next_id = number + 1
        self.table.live[number] = task
        self.line.append(task)
        signal.poke()

    def pause(self, task: Task) -> bool:
        """Do what `Task.pause` says."""
        with self.signal.open_lock():
            if task._state.terminal or task._pausing:
                return False
            task._pausing = True
            if task.started:
                self.signal.steer()
                return True
            self.park(task)
            task._since, reason = None, task._reason
            self.signal.poke()
        self.publish(task, TaskState.PAUSED, TaskState.PENDING, reason)
        return True

    def resume(self, task: Task) -> bool:
        """Do what `Task.resume` says."""
        with self.signal.open_lock():
            if task._state.terminal or not task._pausing:
                return False
            task._pausing = False
            parked = task._state is TaskState.PAUSED and not task._cancelling
            state = TaskState.RUNNING if task.started else TaskState.PENDING
            if parked:
                task._move(state)
                self.table.paused -= 1
                if state is TaskState.PENDING:
                    self.line.restore(task)
            reason = task._reason
            self.signal.steer()
        if parked:
            self.publish(task, state, TaskState.PAUSED, reason)
        return True

    def cancel(self, task: Task, *, only_unstarted: bool = False) -> bool:
        """Do what `Task.cancel` says, to a task that runs only when the caller wants that."""
        with self.signal.open_lock():
            if task._state.terminal or task._cancelling:
                return False
            if task.started:
                if only_unstarted:
                    return False
                task._cancelling = True
                self.signal.steer()
                return True
            reason = cancelled()
            previous, watch = self.settle(task, TaskState.CANCELLED, reason)
            self.signal.poke()
        self.announce(task, TaskState.CANCELLED, previous, reason, watch)
        return True

    def park(self, task: Task) -> None:
        """Set *task* PAUSED. The caller holds the lock, and publishes it without."""
        task._move(TaskState.PAUSED)
        self.table.paused += 1
        self.signal.settle()

    def settle(
        self, task: Task, state: TaskState, reason: Reason
    ) -> tuple[TaskState, Watch | None]:
        """
        Put an end to *task*; return its state before, and who watches it.

        The caller holds the lock, and passes what is returned to `announce` without it.
        """
        signal, watch = self.signal, task._watch
        # First: a clock that raises must leave the task as it was.
        finished = signal.clock.monotonic()
        previous = task._move(state)
        if previous is TaskState.PAUSED:
            self.table.paused -= 1
        task._reason, task._since = reason, None
        task._finished = finished
        if task._started is None:
            task._fn, task._args, task._kwargs, task._variables = None, (), None, None
            self.line.discard(task)
        self.table.end(task)
        task._queue = None
        if watch is not None:
            watch.wake()
        if signal.watchers:
            signal.settle()
        return previous, watch

    def announce(
        self,
        task: Task,
        state: TaskState,
        previous: TaskState,
        reason: Reason,
        watch: Watch | None,
    ) -> None:
        """Tell listeners, future and done-callbacks of an end. No lock is held."""
        if self.listeners.callbacks:
            self.publish(task, state, previous, reason)
        if watch is not None:
            watch.finish(task)

    def publish(
        self, task: Task, state: TaskState, previous: TaskState, reason: Reason | None
    ) -> None:
        """Tell the listeners of a transition. No lock is held."""
        # Imported here: it is needed where somebody listens.
        from lardon.queue.views import TaskEvent

        at = self.signal.clock.wall()
        self.listeners.tell(TaskEvent(task.id, task.name, state, previous, reason, at))

    def late(self, head: Task | None) -> list[Task]:
        """Return the tasks whose time to start is over. The caller holds the lock."""
        return self.line.expired(self.signal.clock.monotonic(), head)

    def next_expiry(self) -> float | None:
        """Return in how many seconds the next waiting task is out of time."""
        with self.signal.lock:
            expiry = self.line.next_expiry()
        return None if expiry is None else max(0.0, expiry - self.signal.clock.monotonic())

    def recheck(self, reason: Reason) -> float | None:
        """Return after how many seconds a WAIT for *reason* is examined again."""
        if reason.code.slots_only:
            return None
        recheck = self.governor.policy.recheck_s
        return FADING_RECHECK_S if recheck is None and reason.code.fades else recheck

    def nap_length(self, reason: Reason) -> float | None:
        """Return how long to sleep on a WAIT for *reason*, if nothing happens."""
        recheck, expiry = self.recheck(reason), self.next_expiry()
        if recheck is None or expiry is None:
            return recheck if expiry is None else expiry
        return min(recheck, expiry)

    def begin(self, task: Task, decision: Decision, reservation: Reservation) -> TaskContext | None:
        """Start *task*, unless it is no longer the one to start."""
        signal = self.signal
        with signal.lock:
            started = signal.clock.monotonic()
            if self.closing or not self.line.take(task):
                return None
            task._move(TaskState.RUNNING)
            task._started = started
            task._contract = reservation.contract
            reason = task._reason = decision.reason
            task._decision, task._since = decision, None
            context = self.context = TaskContext(self, task, reservation)
            watch = task._watch
            if watch is not None and watch.future is not None:
                watch.future.set_running_or_notify_cancel()
            if signal.watchers:
                signal.settle()
        if self.listeners.callbacks:
            self.publish(task, TaskState.RUNNING, TaskState.PENDING, reason)
        return context

    def told_to_wait(self, task: Task, decision: Decision) -> bool:
        """Note a WAIT; return whether to sleep on it. Fails a task that is out of time."""
        signal, now = self.signal, self.signal.clock.monotonic()
        with signal.lock:
            if task._state is not TaskState.PENDING:
                return False
            before, task._reason, task._decision = task._reason, decision.reason, decision
            if task._since is None:
                task._since = now
        if before is None or before.code is not decision.reason.code:
            logger.info("lardon: task %s (%s) waits: %s", task.id, task.name, decision.reason)
        if task._expires is not None and now >= task._expires:
            self.refused_at_start(task, decision.reason, decision)
            return False
        return True

    def refused_at_start(self, task: Task, reason: Reason, decision: Decision | None) -> None:
        """Fail a task that never started, unless it was cancelled or paused meanwhile."""
        with self.signal.lock:
            if task._state is not TaskState.PENDING:
                return
            task._refused, task._decision = True, decision
            previous, watch = self.settle(task, TaskState.FAILED, reason)
        self.announce(task, TaskState.FAILED, previous, reason, watch)

    def worker_died(self, error: BaseException) -> None:
        """Release what is held, and wake everybody who would wait for ever."""
        signal = self.signal
        logger.critical("lardon: the worker of queue %r died", self.name, exc_info=error)
        with signal.lock:
            signal.error = error
            context, self.context = self.context, None
            watches = [task._watch for task in self.table.live.values() if task._watch]
            for watch in watches:
                watch.wake()
            signal.steer()
            signal.settle()
        if context is not None:
            context._give_back()
        self.unsubscribe()
        for watch in watches:
            if watch.future is not None:
                watch.future.abandon(signal.death())

    def unfinished(self) -> list[Task]:
        """Return the tasks that have not ended, in order of submission."""
        with self.signal.open_lock():
            return list(self.table.live.values())

    def cancel_waiting(self) -> None:
        """
        Cancel every task that has not started, because the queue closes.

        What started ends with its callback, unless the worker died in the middle of it.
        """
        for task in self.unfinished():
            with self.signal.lock:
                if task._state.terminal or (task.started and self.signal.error is None):
                    continue
                reason = cancelled(why="the queue was closed")
                previous, watch = self.settle(task, TaskState.CANCELLED, reason)
            self.announce(task, TaskState.CANCELLED, previous, reason, watch)
