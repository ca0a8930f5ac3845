"""The lock of one queue and its tasks, and how threads wait under it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from lardon.errors import QueueClosed, WorkerDied
from lardon.forks import forks
from lardon.governor.checks import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.clock import Clock
    from lardon.queue.lifecycle import Lifecycle


class Signal:
    """
    One lock per queue, shared by its tasks, and three conditions over it.

    The worker's thread keeps this object alive, never the queue: so a queue that nobody
    holds can be collected while its worker sleeps.
    """

    __slots__ = (
        "_awake", "_born", "_deadline", "changed", "changes", "clock", "control", "error",
        "helpers", "lock", "orphans", "owner_pid", "settled", "watchers", "worker",
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.owner_pid = os.getpid()
        self._born = forks()
        # Guards the queue, its line and the state of its tasks. Held for bookkeeping
        # alone: the governor, callbacks, listeners and done-callbacks are called with it
        # released. Re-entrant, because a signal handler or a finalizer may call in at
        # any moment. The governor's own lock is never taken under it.
        self.lock = threading.RLock()
        # Notified by `poke`. The worker waits on it, between tasks or inside a break.
        self.changed = threading.Condition(self.lock)
        # Moves at every poke, so that news which lands between the governor's answer and
        # the worker's sleep is not slept through.
        self.changes = 0
        # Notified on pause, resume, cancel and close. A parked callback waits on it.
        self.control = threading.Condition(self.lock)
        # Notified when a task ends or leaves the line, and when the worker falls asleep.
        # `join`, `submit` to a full queue and `wait_parked` wait on it.
        self.settled = threading.Condition(self.lock)
        self.watchers = 0
        """How many threads wait for `settle`."""
        self.worker: int | None = None
        # The threads on which the callback's items run; see `lardon.queue.crew`.
        self.helpers: set[int] = set()
        """Identifier of the worker's thread, while it runs."""
        self.orphans: Lifecycle | None = None
        """The tasks of a dropped queue, which the worker cancels before it ends."""
        self.error: BaseException | None = None
        """What killed the worker."""
        self._awake: Callable[[], bool] | None = None
        self._deadline: float | None = None

    def open_lock(self) -> threading.RLock:
        """
        Return the lock, in the process that owns the queue.

        In a forked child it could be held for ever, by a thread that is not there: every
        call raises `QueueClosed` instead.
        """
        if forks() != self._born:
            message = (
                f"this queue belongs to process {self.owner_pid}; make one of your own after a fork"
            )
            raise QueueClosed(message, owner_pid=self.owner_pid)
        return self.lock

    def owned_here(self) -> bool:
        """Whether this process is the one that made the queue."""
        return forks() == self._born

    def held_by_caller(self) -> bool:
        """
        Whether the calling thread is inside a locked section, as a signal handler can be.

        `threading.Condition` itself asks its lock the same question in the same way.
        """
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]  # not in typeshed

    def on_worker(self) -> bool:
        """Whether the calling thread is the worker, inside a callback or a listener."""
        return threading.get_ident() == self.worker

    def would_deadlock(self) -> bool:
        """Whether the calling thread works for the callback that runs: it must not wait for it."""
        here = threading.get_ident()
        return here == self.worker or here in self.helpers

    def check_worker(self) -> None:
        """Raise `WorkerDied`, with the error that killed it as the cause, if it did."""
        if self.error is not None:
            raise self.death()

    def death(self) -> WorkerDied:
        """Return the error that says why the worker died. Only after `error` was set."""
        assert self.error is not None
        error = WorkerDied(f"the worker died: {described(self.error)}")
        error.__cause__ = self.error
        return error

    def poke(self) -> None:
        """Say that something changed; wakes the worker if it sleeps. Any thread."""
        if threading.get_ident() == self.worker:
            # It is awake, and compares `changes` only with what it has read before. A count
            # that is lost to another thread at this instant still differs from that.
            self.changes += 1
            return
        with self.lock:
            self.changes += 1
            if self._awake is not None:
                self.changed.notify_all()

    def steer(self) -> None:
        """Say that a task was paused, resumed or cancelled, or the queue closed."""
        with self.lock:
            self.control.notify_all()
            self.poke()

    def settle(self) -> None:
        """Tell the watchers to look again. The caller holds `lock`."""
        self.settled.notify_all()

    def sleep(self, seen: int, timeout: float | None) -> None:
        """Put the worker to sleep until `changes` differs from *seen*, or the timeout."""
        with self.lock:
            self.sleep_until(self.changed, lambda: self.changes != seen, timeout)

    def sleep_until(
        self,
        condition: threading.Condition,
        awake: Callable[[], bool],
        timeout: float | None = None,
    ) -> None:
        """Sleep on the worker's thread until *awake* holds. The caller holds `lock`."""
        self._awake = awake
        self._deadline = None if timeout is None else self.clock.monotonic() + timeout
        self.settle()
        try:
            self.clock.wait_for(condition, awake, timeout)
        finally:
            self._awake = None

    def asleep(self) -> bool:
        """Whether the worker sleeps and nothing is due to wake it. The caller holds `lock`."""
        if self._awake is None or self._awake():
            return False
        return self._deadline is None or self.clock.monotonic() < self._deadline

    def watch(self, predicate: Callable[[], bool], timeout: float | None, clock: Clock) -> bool:
        """Block a caller until *predicate* holds, examined at each `settle`."""
        with self.lock:
            self.watchers += 1
            try:
                return clock.wait_for(self.settled, predicate, timeout)
            finally:
                self.watchers -= 1
