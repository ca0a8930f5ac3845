"""Time as the rest of lardon sees it, so that a test can drive it."""

from __future__ import annotations

import datetime
import math
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """What lardon asks of a clock; `lardon.testing.ManualClock` is the other one."""

    def monotonic(self) -> float:
        """Return seconds that never jump; only differences mean something."""
        ...

    def wall(self) -> datetime.datetime:
        """Return the time of day as an aware UTC datetime, for people to read."""
        ...

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        """
        Block until *predicate* holds or *timeout* seconds passed; return the predicate.

        The caller holds *condition*, as for `threading.Condition.wait_for`.
        """
        ...


class MachineClock:
    """
    The machine's own clocks.

    Durations come from `time.monotonic`, which on Linux and macOS stands still while the
    machine sleeps: time asleep does not count as waiting time.
    """

    # The built-in itself: a method around it would cost more than the reading.
    monotonic = staticmethod(time.monotonic)

    def wall(self) -> datetime.datetime:
        """Return the current UTC time."""
        return datetime.datetime.now(datetime.UTC)

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Block on the held *condition*; a timeout beyond the platform's longest is none."""
        if timeout is not None and timeout > threading.TIMEOUT_MAX:
            timeout = None
        return condition.wait_for(predicate, timeout)


def checked_timeout(timeout: float | None, name: str = "timeout") -> float | None:
    """
    Return *timeout* in seconds, or None for "no limit" (None and infinity).

    Raises:
        ValueError: the timeout is negative or NaN; the message starts with *name*.

    """
    if timeout is None:
        return None
    if isinstance(timeout, (str, bytes)):
        message = f"{name} must be None or a number of seconds, not {timeout!r}"
        raise TypeError(message)
    try:
        seconds = float(timeout)
    except OverflowError:  # an integer beyond every float
        seconds = math.copysign(math.inf, 1 if timeout > 0 else -1)
    if math.isnan(seconds) or seconds < 0:
        message = f"{name} must be None or at least 0 seconds, not {timeout!r}"
        raise ValueError(message)
    return None if math.isinf(seconds) else seconds
