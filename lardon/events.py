"""Calling other people's callbacks: never under a lock, never fatal, never nested."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

logger: Final = logging.getLogger("lardon")


class _Pending(threading.local):
    """The deliveries that this thread still owes, while it is delivering."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] | None = None


_pending: Final = _Pending()


def deliver(callback: Callable[..., object], *args: Any) -> None:
    """
    Call ``callback(*args)`` on this thread; what it raises is logged and goes no further.

    A delivery that is asked for inside another one on the same thread runs when that one
    has returned, so a chain of callbacks of any length needs one stack frame. The caller
    must hold no lardon lock.
    """
    if _pending.calls is not None:
        _pending.calls.append((callback, args))
        return
    _pending.calls = deque([(callback, args)])
    try:
        while _pending.calls:
            call, arguments = _pending.calls.popleft()
            try:
                call(*arguments)
            except BaseException:  # a callback that exits or interrupts must not end a worker
                logger.exception("lardon: the callback %r raised", call)
            # Until the next delivery these names would keep the last callback alive.
            del call, arguments
    finally:
        _pending.calls = None


class Listeners:
    """
    A set of callbacks that may change while it is called.

    Subscribing and calling are safe from any thread. Calling holds no lock.
    """

    __slots__ = ("_lock", "callbacks")

    def __init__(self) -> None:
        # Re-entrant, because a finalizer may unsubscribe at any allocation.
        self._lock = threading.RLock()
        self.callbacks: tuple[Callable[..., object], ...] = ()
        """Replaced as a whole, so that it can be read without the lock."""

    def subscribe(self, callback: Callable[..., object]) -> Callable[[], None]:
        """Add *callback*, and return a function that takes it out again (once)."""
        if not callable(callback):
            message = f"a listener must be callable, not {callback!r}"
            raise TypeError(message)
        with self._lock:
            self.callbacks = (*self.callbacks, callback)
        active = True

        def unsubscribe() -> None:
            nonlocal active
            with self._lock:
                if not active:
                    return
                active = False
                rest = list(self.callbacks)
                rest.remove(callback)
                self.callbacks = tuple(rest)

        return unsubscribe

    def tell(self, *args: Any) -> None:
        """Call every callback with *args*, in order of subscription; see `deliver`."""
        for callback in self.callbacks:
            deliver(callback, *args)

    def poke(self) -> None:
        """
        Call every callback at once, without arguments.

        For callbacks that only say "look again": unlike `tell`, it may nest.
        """
        for callback in self.callbacks:
            try:
                callback()
            except BaseException:  # as in `deliver`
                logger.exception("lardon: the callback %r raised", callback)
