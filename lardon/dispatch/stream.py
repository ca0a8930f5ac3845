"""What a watcher reads from: changes that somebody else sends, up to so many at a time."""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lardon.clock import checked_timeout
from lardon.dispatch.errors import WatchClosed

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.dispatch.model import Observation

# An event that somebody else sets notifies nobody, so a `get` that blocks looks again so often.
_CANCEL_LOOK_S: Final = 0.05


class BufferedStream:
    """
    The observations for one watcher; see `lardon.dispatch.spi.WatchStream`.

    Whoever learns of a change sends it, and never waits for the reader; any thread may read.

    Args:
        first: What it begins with, which does not count as being behind.
        room: How many changes the reader may be behind; one more ends the stream.
        clock: What the timeout of `get` is measured with.
        cancel: Ends the stream once it is set; None is never.

    """

    def __init__(
        self,
        first: Iterable[Observation],
        *,
        room: int,
        clock: Clock,
        cancel: threading.Event | None,
    ) -> None:
        # Guards the two deques and the flag. Taken inside the sender's lock, or alone.
        self._condition = threading.Condition()
        # What the watcher begins with, which does not count as being behind.
        self._first = collections.deque(first)
        self._changes: collections.deque[Observation] = collections.deque()
        self._room = room
        self._clock = clock
        self._cancel = cancel
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing more will be added."""
        with self._condition:
            return self._over()

    def get(self, timeout: float | None = None) -> Observation:
        """Return the next observation; wait for it up to *timeout* seconds of the clock."""
        seconds = checked_timeout(timeout)
        with self._condition:
            if not self._wait(seconds):
                raise queue.Empty
            return self._take()

    def get_nowait(self) -> Observation:
        """Return the next observation, or raise `queue.Empty`."""
        with self._condition:
            if not self._ready():
                raise queue.Empty
            return self._take()

    def close(self) -> None:
        """End the stream and drop what is in it."""
        with self._condition:
            self._end()
            self._condition.notify_all()

    def send(self, observation: Observation) -> None:
        """Add *observation*, or end the stream when its reader is too far behind."""
        with self._condition:
            if self._over():
                return
            if len(self._changes) >= self._room:
                self._closed = True
            else:
                self._changes.append(observation)
            self._condition.notify_all()

    def _over(self) -> bool:
        if self._cancel is not None and self._cancel.is_set():
            self._end()
        return self._closed

    def _end(self) -> None:
        self._closed = True
        self._first.clear()
        self._changes.clear()

    def _ready(self) -> bool:
        return self._over() or bool(self._first or self._changes)

    def _wait(self, seconds: float | None) -> bool:
        if self._cancel is None:
            return self._clock.wait_for(self._condition, self._ready, seconds)
        begun = self._clock.monotonic()
        while not self._ready():
            if seconds is not None and self._clock.monotonic() - begun >= seconds:
                return False
            self._condition.wait(_CANCEL_LOOK_S)
        return True

    def _take(self) -> Observation:
        for waiting in (self._first, self._changes):
            if waiting:
                return waiting.popleft()
        message = "the stream has ended; watch again to see every object as it is"
        raise WatchClosed(message)
