"""Being told when a caller's event is set, without a thread and without polling."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, cast

# How often an event is looked at that cannot tell: see `on_set`.
POLL_S: Final = 0.05


class _Bell:
    """Stands among the waiters of an event; `set` releases each of them once."""

    __slots__ = ("_ring", "_waiters")

    def __init__(self, ring: Callable[[], object], waiters: deque[object]) -> None:
        self._ring = ring
        self._waiters = waiters

    def release(self) -> None:
        """Do what the event's condition does to a waiter: let it go on."""
        # Whoever is told is taken out afterwards. An event that is cleared again at once,
        # before the call has looked, may be set a second time.
        self._waiters.append(self)
        self._ring()


@contextlib.contextmanager
def on_set(event: threading.Event | None, ring: Callable[[], object]) -> Iterator[bool]:
    """
    Call *ring* when *event* is set within the block, on the thread that sets it.

    The event is the caller's, and `threading.Event` has no public way to be told. What it
    has, from Python 3.3 to 3.14, is a condition `_cond` with a deque `_waiters`, of which
    `set` calls ``release()`` on each. A thread per call that waits for the event could not
    be ended without setting it, and looking at it again and again would wake an idle
    machine; so this stands in that deque. An event that is built otherwise yields False,
    and has to be looked at every `POLL_S`.

    *ring* runs under the event's own lock: it may take no lock under which somebody sets an
    event. It may be called although the event is not set, never not although it is; the
    caller has to look.
    """
    condition = getattr(event, "_cond", None)
    waiters = getattr(condition, "_waiters", None)
    if event is None:
        yield True
        return
    if not (isinstance(condition, threading.Condition) and isinstance(waiters, deque)):
        yield False
        return
    bell = cast(threading.Lock, _Bell(ring, waiters))
    with condition:
        waiters.append(bell)
    try:
        yield True
    finally:
        with condition, contextlib.suppress(ValueError):
            waiters.remove(bell)
