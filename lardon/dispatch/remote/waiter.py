"""The one thread of a remote pool, which waits for all its jobs at once."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from lardon.dispatch.remote.errors import PoolClosed
from lardon.errors import WouldDeadlock
from lardon.events import logger
from lardon.forks import forks
from lardon.governor.checks import described

if TYPE_CHECKING:
    import datetime

    from lardon.clock import Clock


# Steps of many jobs, or stops of many objects, may be due at one time; these are far more.
_MOST_AT_ONCE: Final = 100


class ForkedChild(BaseException):
    """Raised on the waiter's thread in a child that a callback forked, and that returned."""


class Waiter:
    """
    Makes turns: when somebody posts something, and when the last turn said so.

    Every method may be called from any thread. In a forked child, which has no such thread and
    may have a copy of a lock that is held for ever, each raises `PoolClosed`.

    Args:
        turn: Does all that is due, on the waiter's thread; returns when to come again.
        finish: Called last on that thread.
        clock: What time it is.
        retry_s: How long to wait after a turn that failed, and after too many at once.

    """

    def __init__(
        self,
        turn: Callable[[], datetime.datetime | None],
        finish: Callable[[], object],
        clock: Clock,
        retry_s: float,
    ) -> None:
        self._turn = turn
        self._finish = finish
        self._clock = clock
        self._retry_s = retry_s
        self.owner_pid = os.getpid()
        self._born = forks()
        # Guards every attribute below, and the pool's table of handles. Held for bookkeeping
        # alone: what was posted, turns and callbacks run with it released.
        self.lock = threading.RLock()
        # Notified when something is posted or ends, and when the waiter falls asleep.
        self._changed = threading.Condition(self.lock)
        self._inbox: list[Callable[[], object]] = []
        self._closing = False
        self._over = False
        self._asleep = False
        # When it wakes by itself, in monotonic seconds, while it sleeps.
        self._due_at: float | None = None
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="lardon-remote", daemon=True)

    @property
    def closing(self) -> bool:
        """Whether it was told to end."""
        return self._closing

    @property
    def over(self) -> bool:
        """Whether the last turn was made. The caller holds the lock."""
        return self._over

    @property
    def error(self) -> str | None:
        """What the last turn failed with, or what ended the thread; None where nothing did."""
        return self._error

    def owned_here(self) -> bool:
        """Whether this process is the one that made it."""
        return forks() == self._born

    def check_owner(self) -> None:
        """Raise `PoolClosed` in a forked child of the process that made it."""
        if not self.owned_here():
            message = (
                f"this pool belongs to process {self.owner_pid}; make one of your own after a fork"
            )
            raise PoolClosed(message, owner_pid=self.owner_pid)

    def open_lock(self) -> threading.RLock:
        """Return the lock, in the process that owns it."""
        self.check_owner()
        return self.lock

    def check_open(self) -> None:
        """Raise `PoolClosed` once it was told to end."""
        if self._closing:
            message = "the pool was closed"
            raise PoolClosed(message)

    def leave_child(self) -> None:
        """End this thread in a child that a callback on it forked: the jobs are the parent's."""
        if not self.owned_here():
            raise ForkedChild

    def start(self) -> None:
        """Start the thread; once."""
        self._thread.start()

    def post(self, act: Callable[[], object]) -> None:
        """Let *act* be called on the waiter's thread, before its next turn."""
        with self.open_lock():
            self._inbox.append(act)
            self._changed.notify_all()

    def notify(self) -> None:
        """Let everybody in `wait_for` look again."""
        with self.open_lock():
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """
        Block until *predicate* or the end of the thread; return the predicate.

        Raises:
            WouldDeadlock: called on the thread itself, before the predicate holds.

        """
        with self.open_lock():
            if self.is_current() and timeout != 0 and not predicate():
                message = "the pool's own thread cannot wait for what it brings about itself"
                raise WouldDeadlock(message)
            over = threading.Thread.is_alive
            self._changed.wait_for(lambda: predicate() or not over(self._thread), timeout)
            return predicate()

    def wait_parked(self, timeout: float | None) -> bool:
        """Block until it sleeps with nothing posted; return whether it does."""
        return self.wait_for(self._is_parked, timeout)

    def _is_parked(self) -> bool:
        """Whether it sleeps, and nothing is due to wake it. The caller holds the lock."""
        due = self._due_at is not None and self._clock.monotonic() >= self._due_at
        return self._asleep and not self._inbox and not due

    def is_current(self) -> bool:
        """Return whether the caller runs on the waiter's thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Let the thread end, and wait for that; from its own thread only the former."""
        with self.open_lock():
            self._closing = True
            self._changed.notify_all()
        if not self.is_current():
            self._thread.join()

    def _run(self) -> None:
        # The thread is the only one of a child that a callback forked: the child ends with it.
        with contextlib.suppress(ForkedChild):
            try:
                self._make_turns()
            except ForkedChild:
                raise
            except BaseException as error:  # noqa: BLE001  a store's code in a turn may exit
                self.leave_child()
                logger.critical("lardon: the waiter of a remote pool ended", exc_info=True)
                self._error = described(error)
            self.leave_child()
            with self.lock:
                self._closing = self._over = True
            self._finish()
            self.notify()

    def _make_turns(self) -> None:
        at_once, told = 0, False
        while True:
            with self.lock:
                if self._closing:
                    return
                inbox, self._inbox = self._inbox, []
            pause_s = self._one_turn(inbox)
            at_once = at_once + 1 if pause_s == 0 and not inbox else 0
            if at_once == _MOST_AT_ONCE:
                # A store or a backend that contradicts itself must not keep it busy for ever.
                if not told:
                    logger.error("lardon: each turn of a remote pool asks for another at once")
                at_once, told, pause_s = 0, True, self._retry_s
            with self.lock:
                self._sleep(pause_s)

    def _one_turn(self, inbox: Sequence[Callable[[], object]]) -> float | None:
        """Make one turn; return how long to sleep, None: until something is posted."""
        left = list(inbox)
        try:
            while left:
                left[0]()
                del left[0]
            wake_at = self._turn()
        except Exception as error:  # noqa: BLE001  a full disk, say: the next turn tries again
            logger.exception("lardon: the waiter of a remote pool failed, and tries again")
            with self.lock:
                self._error = described(error)
                self._inbox[:0] = left
            return self._retry_s
        finally:
            self.leave_child()
        self._error = None
        if wake_at is None:
            return None
        return max(0.0, (wake_at - self._clock.wall()).total_seconds())

    def _sleep(self, seconds: float | None) -> None:
        """Sleep until there is news, or *seconds* passed. The caller holds the lock."""
        news = bool(self._inbox) and self._error is None
        if news or self._closing:
            return
        seen = len(self._inbox)
        self._due_at = None if seconds is None else self._clock.monotonic() + seconds
        self._asleep = True
        self._changed.notify_all()
        self._clock.wait_for(
            self._changed, lambda: self._closing or len(self._inbox) > seen, seconds
        )
        self._asleep = False
