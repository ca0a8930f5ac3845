"""The governor that everything in one process shares unless told otherwise."""

from __future__ import annotations

import os
import threading
from typing import Final

from lardon.governor.governor import Governor

_lock: Final = threading.Lock()
_default: dict[int, Governor] = {}


def default_governor() -> Governor:
    """
    Return this process's own governor, made at the first call with the default policy.

    A forked child gets one of its own. Any thread may call it.
    """
    pid = os.getpid()
    governor = _default.get(pid)
    if governor is None:
        with _lock:
            governor = _default.get(pid)
            if governor is None:
                _default.clear()
                governor = _default[pid] = Governor()
    return governor


if hasattr(os, "register_at_fork"):
    # Another thread of the parent may be inside `default_governor` at the fork.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release,
                        after_in_child=_lock.release)  # fmt: skip
