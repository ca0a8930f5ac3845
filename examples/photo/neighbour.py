"""Somebody else on the same machine: a process that takes memory for a while and gives it back."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import attrs

from lardon.units import GiB, format_bytes

if TYPE_CHECKING:
    from lardon import ResourceSnapshot, SystemProbe
    from lardon.governor.snapshot import OwnUse, PeakWatch

# The machine that both share, where no --memory-limit says how large it is.
DEFAULT_LIMIT_BYTES: Final = 2 * GiB
# It comes after the first batch of this task, and goes after the third, or after a time: on
# a small limit there may be no room for a third as long as it is there.
TASK: Final = "features"
COMES_AFTER: Final = 1
GOES_AFTER: Final = 3
GOES_AFTER_S: Final = 10.0

# Takes as many bytes as it is told and touches them; 0 gives them back.
_PROGRAM: Final = """
import sys
held = b""
for line in sys.stdin:
    held = b""
    held = b"\\1" * int(line)
    print(len(held), flush=True)
"""


class Neighbour:
    """A real process with real memory, inside a ``with`` block."""

    def __init__(self, share_bytes: int) -> None:
        self.share_bytes = share_bytes
        """What it takes while it is there."""
        self.held_bytes = 0
        """What it has now."""
        self._batches = 0
        # Guards the talk with the process, and what it holds.
        self._lock = threading.Lock()
        self._timer = threading.Timer(GOES_AFTER_S, self._hold, (0,))
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603  the program above
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the program; the neighbour ends with it.
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()

    def batch_done(self, task: str) -> str | None:
        """Come or go between two batches; return what happened in words, if anything did."""
        if task != TASK:
            return None
        self._batches += 1
        if self._batches == COMES_AFTER:
            self._hold(self.share_bytes)
            self._timer.start()
            return f"a neighbour takes {format_bytes(self.share_bytes)}"
        if self._batches == GOES_AFTER:
            self._timer.cancel()
            self._hold(0)
            return "the neighbour gives its memory back"
        return None

    def _hold(self, size: int) -> None:
        """Return when the neighbour has *size* bytes; raises OSError when it has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{size}\n")
            self._process.stdin.flush()
            if self._process.stdout.readline() != f"{size}\n":
                message = f"the neighbour could not take {format_bytes(size)}"
                raise OSError(message)
            self.held_bytes = size


class SharedProbe:
    """
    Shows the machine as though it had no more RAM than a limit, for both of them together.

    A real machine is too large to be filled for an example. Everything else is as the real
    probe says: what this process uses, and what the neighbour holds.
    """

    def __init__(self, inner: SystemProbe, neighbour: Neighbour, limit_bytes: int) -> None:
        self._inner = inner
        self._neighbour = neighbour
        self._limit_bytes = limit_bytes

    def snapshot(self) -> ResourceSnapshot:
        """Return the real reading, with less RAM."""
        found, own = self._inner.snapshot(), self._inner.own_use()
        total = min(found.ram_total_bytes, self._limit_bytes)
        used = self._neighbour.held_bytes + (0 if own is None else own.ram_bytes)
        note = f"RAM is bound by --memory-limit: {format_bytes(total)} for this and a neighbour"
        return attrs.evolve(
            found,
            ram_total_bytes=total,
            ram_available_bytes=max(0, min(found.ram_available_bytes, total - used)),
            limits=(*found.limits, note),
        )

    def own_use(self) -> OwnUse | None:
        """Return what this process itself uses."""
        return self._inner.own_use()

    def watch_peak(self) -> PeakWatch | None:
        """Begin to watch the most that this process uses."""
        return self._inner.watch_peak()
