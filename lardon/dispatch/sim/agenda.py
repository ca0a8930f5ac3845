"""What is due when, on a clock that moves only when something fires."""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from lardon.testing import ManualClock


@attrs.define(eq=False)
class Timer:
    """One thing that is due; two with the same text are two."""

    due_at: datetime.datetime
    text: str
    _act: Callable[[], object] | None

    @property
    def pending(self) -> bool:
        """Whether it will fire."""
        return self._act is not None

    def cancel(self) -> bool:
        """Let it not fire; return whether it would have."""
        pending, self._act = self.pending, None
        return pending

    def _fire(self) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()


class Agenda:
    """
    Timers by their time, those of one time in the order in which they were added.

    Nothing happens by itself and nobody sleeps: `fire_next` moves the clock to what is due
    first, and adding a timer moves nothing. One thread uses it.

    Args:
        clock: The clock that is moved, and that nobody else moves back.

    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[datetime.datetime, int, Timer]] = []
        self._added = 0

    def add(self, after_s: float, act: Callable[[], object], text: str = "") -> Timer:
        """
        Let *act* be called so many seconds from now; 0 is the next time that something fires.

        Raises:
            ValueError: *after_s* is negative or NaN.

        """
        if not after_s >= 0:
            message = f"after_s must be at least 0 seconds, not {after_s!r}"
            raise ValueError(message)
        timer = Timer(self._clock.wall() + datetime.timedelta(seconds=after_s), text, act)
        self._added += 1
        heapq.heappush(self._heap, (timer.due_at, self._added, timer))
        return timer

    @property
    def next_at(self) -> datetime.datetime | None:
        """When something is due next; None is never."""
        self._drop_cancelled()
        return self._heap[0][0] if self._heap else None

    def fire_next(self) -> Timer | None:
        """Move the clock to what is due first, call it, and return it; None: nothing is due."""
        self._drop_cancelled()
        if not self._heap:
            return None
        due_at, _, timer = heapq.heappop(self._heap)
        ahead = (due_at - self._clock.wall()).total_seconds()
        if ahead > 0:
            self._clock.advance(ahead)
        timer._fire()
        return timer

    def _drop_cancelled(self) -> None:
        while self._heap and not self._heap[0][2].pending:
            heapq.heappop(self._heap)
