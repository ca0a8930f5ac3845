"""Whether this process has, or had, child processes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    from resource import RUSAGE_CHILDREN as _CHILDREN
    from resource import getrusage
except ImportError:  # Windows keeps no account of children
    getrusage = None  # type: ignore[assignment]  # stands for "not here"

_waitid: Callable[..., Any] | None = getattr(os, "waitid", None)


class Children:
    """
    The children from its making until `seen` is asked.

    Those that live are found by a wait that takes none of them away; those that came and
    went in between by the times that the kernel adds up for a parent that waited for them.
    """

    def __init__(self) -> None:
        self._before = has_children()
        self._account = _account()

    def seen(self) -> bool:
        """Return whether there was a child at the beginning, is one now, or was in between."""
        return self._before or has_children() or self._account != _account()


def has_children() -> bool:
    """
    Return whether this process has a child, running or not yet waited for.

    The resource tracker of `multiprocessing` is none: it stays as long as the program, and
    does no work of a batch.
    """
    if _waitid is not None:
        try:
            _waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if _tracker() is None:
            return True
    # Also on macOS before Python 3.13, and on Windows.
    import psutil

    return any(child.pid != _tracker() for child in psutil.Process().children())


def _tracker() -> int | None:
    """Return the process number of the resource tracker, if it was started."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return getattr(getattr(module, "_resource_tracker", None), "_pid", None)


def _account() -> object:
    """Return something that differs after a child was waited for."""
    if getrusage is None:
        return None
    use = getrusage(_CHILDREN)
    return use.ru_utime, use.ru_stime, use.ru_minflt, use.ru_majflt, use.ru_maxrss
