"""The most memory that this process held in a stretch of time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import psutil

_CLEAR: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
# What to write into the one so that the other counts afresh (see proc_pid_clear_refs(5)).
_RESET_PEAK: Final = "5"
_FIELD: Final = "VmHWM:"


class HighWater:
    """
    Tells the peak of the resident memory since the last `reset`; one at a time.

    Linux keeps it itself, to the page. Elsewhere it is the largest of the figures that
    `look` saw, so somebody should call that often.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        # Guards the one below, where the kernel does not count.
        self._lock = threading.Lock()
        self._seen = 0
        self.exact = self._reset_kernel()
        """Whether the kernel counts."""

    def now(self) -> int:
        """Return the resident memory of this process, in bytes."""
        return int(self._process.memory_info().rss)

    def reset(self) -> None:
        """Start afresh with what there is now."""
        if not self._reset_kernel():
            with self._lock:
                self._seen = self.now()

    def look(self) -> None:
        """Take note of the memory held now."""
        if not self.exact:
            now = self.now()
            with self._lock:
                self._seen = max(self._seen, now)

    def peak(self) -> int:
        """Return the most since `reset`, in bytes."""
        self.look()
        if not self.exact:
            return self._seen
        for line in _STATUS.read_text().splitlines():
            if line.startswith(_FIELD):
                return int(line.split()[1]) * 1024
        return self.now()

    def _reset_kernel(self) -> bool:
        try:
            _CLEAR.write_text(_RESET_PEAK)
            return _FIELD in _STATUS.read_text()
        except OSError:
            return False
