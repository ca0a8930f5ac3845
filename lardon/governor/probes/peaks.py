"""The most memory that this process holds during a batch."""

from __future__ import annotations

import functools
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
        self._overlapped = False
        # First in, then looked around: of two that begin at once the later sees the other.
        _running[id(self)] = self
        for other in [ref() for ref in _running.valuerefs()]:
            if other is not None and other is not self and other._forks == self._forks:
                self._overlapped = other._overlapped = True
        self._children = Children()

    def _end(self) -> None:
        _running.pop(id(self), None)

    def _made(self, ram_bytes: int | None) -> OwnUse | None:
        """Return the use, None when it is unknown or not the work of this process alone."""
        if ram_bytes is None or self._overlapped or self._forks != forks() or self._children.seen():
            return None
        return make_own_use(ram_bytes, dict(self._gpu_bytes()))


# By id. One is made and looked for on any thread: a set would not bear being looked through
# while it grows.
_running: Final[weakref.WeakValueDictionary[int, _Watch]] = weakref.WeakValueDictionary()


class MarkedPeak(_Watch):
    """Rests on the kernel's high-water mark, which was reset right before: exact."""

    start: OwnUse | None = None

    def __init__(self, read: Bytes, gpu_bytes: GpuBytes) -> None:
        super().__init__(gpu_bytes)
        self._read = read

    def stop(self) -> OwnUse | None:
        """Return the most used since the beginning, None when it is unknown."""
        self._end()
        return self._made(self._read())


class SampledPeak(_Watch):
    """Looks every `SAMPLE_S`, on a thread of its own, where there is no mark to reset."""

    def __init__(self, read: Bytes, gpu_bytes: GpuBytes) -> None:
        super().__init__(gpu_bytes)
        self._read = read
        first = read()
        self.start = None if first is None else make_own_use(first, dict(gpu_bytes()))
        # Shared with the thread, which must not keep this object alive.
        self._most = [first]
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=_sample, args=(read, self._most, self._over), name=THREAD_NAME, daemon=True
        )
        if first is not None:
            self._thread.start()
        weakref.finalize(self, self._over.set)

    def stop(self) -> OwnUse | None:
        """Return the most used since the beginning, None when it is unknown."""
        self._end()
        self._over.set()
        if self.start is None:
            return None
        self._thread.join()
        most, last = self._most[0], self._read()
        return None if most is None or last is None else self._made(max(most, last))


def _sample(read: Bytes, most: list[int | None], over: threading.Event) -> None:
    while not over.wait(SAMPLE_S):
        try:
            now = read()
        except Exception:  # noqa: BLE001  whatever it is, the most is not known any more
            now = None
        if now is None or most[0] is None:
            most[0] = None
            return
        most[0] = max(most[0], now)


def reset_mark(root: str) -> bool:
    """
    Reset the high-water mark of this process's resident memory; return whether it could be.

    Linux since 4.0 (``CONFIG_PROC_PAGE_MONITOR``): "5" in ``/proc/self/clear_refs``, see
    proc_pid_clear_refs(5). It also resets what `resource.getrusage` calls ``ru_maxrss``.
    """
    try:
        fd = os.open(os.path.join(root, "proc/self/clear_refs"), os.O_WRONLY)  # noqa: PTH118  names
    except OSError:
        return False
    try:
        os.write(fd, b"5")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def trim() -> None:
    """Give freed memory back to the system, where the C library can (glibc's malloc_trim)."""
    release = _malloc_trim()
    if release is not None:
        release(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes

    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows
        return None
    return found
