"""A clock that moves only when a test says so."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Final

_EPOCH: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class ManualClock:
    """
    Monotonic and wall time under a test's control.

    Waiting threads wake when their condition is notified, or when `advance` brings the
    clock to their deadline; no real time passes for them.

    Args:
        start: The first `monotonic()` reading, in seconds.
        wall: The first `wall()` reading, an aware datetime.

    """

    def __init__(self, start: float = 0.0, wall: datetime.datetime = _EPOCH) -> None:
        if wall.tzinfo is None:
            message = f"wall must be an aware datetime, not {wall!r}"
            raise ValueError(message)
        # Guards the attributes below. Taken alone, or inside a waiter's condition.
        self._lock = threading.Lock()
        self._now = float(start)
        self._wall = wall.astimezone(datetime.UTC)
        self._waiters: list[threading.Condition] = []

    def monotonic(self) -> float:
        """Return the seconds that the test has set."""
        return self._now

    def wall(self) -> datetime.datetime:
        """Return the UTC time that the test has set."""
        return self._wall

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Block on the held *condition* until the predicate or the manual deadline."""
        deadline = None if timeout is None else self._now + timeout
        with self._lock:
            self._waiters.append(condition)
        try:
            while True:
                if predicate():
                    return True
                if deadline is not None and self._now >= deadline:
                    return False
                condition.wait()
        finally:
            with self._lock:
                self._waiters.remove(condition)

    def advance(self, seconds: float) -> None:
        """
        Move both clocks forward, and let every waiter look at its deadline.

        Call it with none of the waiters' locks held.
        """
        if not seconds >= 0:
            message = f"a monotonic clock cannot move by {seconds!r} seconds"
            raise ValueError(message)
        with self._lock:
            self._now += seconds
            self._wall += datetime.timedelta(seconds=seconds)
            waiters = list(self._waiters)
        for condition in waiters:
            with condition:
                condition.notify_all()

    def set_wall(self, wall: datetime.datetime) -> None:
        """Make the wall clock jump; durations must not notice."""
        if wall.tzinfo is None:
            message = f"wall must be an aware datetime, not {wall!r}"
            raise ValueError(message)
        with self._lock:
            self._wall = wall.astimezone(datetime.UTC)
