"""The most memory that this process holds during a batch."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from lardon.forks import forks
from lardon.governor.probes.children import Children
from lardon.governor.probes.making import make_own_use

if TYPE_CHECKING:
    from lardon.governor.snapshot import OwnUse

# Between two looks where the kernel keeps no high-water mark: a batch of a tenth of a second
# is seen five times, and looking costs a thousandth of one CPU.
SAMPLE_S: Final = 0.02
THREAD_NAME: Final = "lardon-peak"

Bytes: TypeAlias = Callable[[], "int | None"]
GpuBytes: TypeAlias = Callable[[], Mapping[str, int]]


class _Watch:
    """
    What both ways of watching have in common: whose the peak is.

    The figures are the whole process's. Two watches at a time would each measure the
    other's work, and one that had children does not see theirs: then nothing is known.
    """

    def __init__(self, gpu_bytes: GpuBytes) -> None:
        self._gpu_bytes = gpu_bytes
        self._forks = forks()
        others = [other for other in _running if other._forks == self._forks]
        self._overlapped = bool(others)
        for other in others:
            other._overlapped = True
        _running.add(self)
        self._children = Children()

    def _alone(self) -> bool:
        """Return whether what was measured is the work of this process alone."""
        _running.discard(self)
        return not self._overlapped and self._forks == forks() and not self._children.seen()

    def _made(self, ram_bytes: int | None) -> OwnUse | None:
        if ram_bytes is None or not self._alone():
            return None
        return make_own_use(ram_bytes, dict(self._gpu_bytes()))


_running: Final[weakref.WeakSet[_Watch]] = weakref.WeakSet()


class MarkedPeak(_Watch):
    """Rests on the kernel's high-water mark, which was reset right before: exact."""

    start: OwnUse | None = None

    def __init__(self, read: Bytes, gpu_bytes: GpuBytes) -> None:
        super().__init__(gpu_bytes)
        self._read = read

    def stop(self) -> OwnUse | None:
        """Return the most used since the beginning, None when it is unknown."""
        return self._made(self._read())


class SampledPeak(_Watch):
    """Looks every `SAMPLE_S`, on a thread of its own, where there is no mark to reset."""

    def __init__(self, read: Bytes, gpu_bytes: GpuBytes) -> None:
        super().__init__(gpu_bytes)
        self._read = read
        first = read()
        self.start = None if first is None else make_own_use(first, dict(gpu_bytes()))
        # Shared with the thread, which must not keep this object alive.
        self._most = [first or 0]
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=_sample, args=(read, self._most, self._over), name=THREAD_NAME, daemon=True
        )
        if first is not None:
            self._thread.start()
        weakref.finalize(self, self._over.set)

    def stop(self) -> OwnUse | None:
        """Return the most used since the beginning, None when it is unknown."""
        last = self._read()
        self._over.set()
        if self.start is None or last is None:
            self._alone()
            return None
        self._thread.join()
        return self._made(max(*self._most, last))


def _sample(read: Bytes, most: list[int], over: threading.Event) -> None:
    while not over.wait(SAMPLE_S):
        most[0] = max(most[0], read() or 0)


def reset_mark(root: str) -> bool:
    """
    Reset the high-water mark of this process's resident memory; return whether it could be.

    Linux since 4.0 (``CONFIG_PROC_PAGE_MONITOR``): "5" in ``/proc/self/clear_refs``, see
    proc_pid_clear_refs(5). It also resets what `resource.getrusage` calls ``ru_maxrss``.
    """
    try:
        fd = os.open(os.path.join(root, "proc/self/clear_refs"), os.O_WRONLY)  # noqa: PTH118
    except OSError:
        return False
    try:
        os.write(fd, b"5")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
