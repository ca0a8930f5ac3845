"""Host RAM and swap, from ``/proc/meminfo``."""

from __future__ import annotations

from typing import Final, NamedTuple

from lardon.governor.probes.kernel_text import kibibytes
from lardon.units import format_bytes

# The kernel keeps a few percent back as watermarks, so that MemAvailable may rightly be 0
# while that much is free. Beyond a sixteenth of the machine it is not believable.
IMPLAUSIBLE_FREE_DIVISOR: Final = 16


_AVAILABLE: Final = b"\nMemAvailable:"
_AVAILABLE_LENGTH: Final = len(_AVAILABLE)


class HostMemory(NamedTuple):
    """What the host has; no limit of a container is taken in yet."""

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int
    note: str = ""
    """Why the available figure is not the kernel's own; empty when it is."""


def parse_meminfo(raw: bytes) -> HostMemory:
    """
    Return the host's figures.

    Raises:
        ValueError: there is no usable ``MemTotal``. Any other line may be missing.

    """
    total = kibibytes(raw, b"MemTotal:")
    if not total:
        message = "no MemTotal"
        raise ValueError(message)
    available, note = _available(raw, total)
    swap_total = _or_zero(raw, b"SwapTotal:")
    swap_used = max(0, swap_total - _or_zero(raw, b"SwapFree:"))
    return HostMemory(total, min(available, total), swap_total, swap_used, note)


class MeminfoParser:
    """
    Does what `parse_meminfo` does, and faster when little has changed.

    On a machine at work the file is never the same twice, but its total and its swap
    lines seldom change, and every line stays at its place. Where they do, only the
    available figure is read. Safe to use from several threads.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: _Landmarks | None = None

    def __call__(self, raw: bytes) -> HostMemory:
        """Return the host's figures; raises `ValueError` as `parse_meminfo` does."""
        last = self._last
        if last is not None:
            # One unpacking is cheaper than an attribute each.
            total_line, total, place, swap_lines, swap_place, swap_total, swap_used = last
            if (
                raw.startswith(total_line)
                and raw.startswith(swap_lines, swap_place)
                and raw.startswith(_AVAILABLE, place)
            ):
                start = place + _AVAILABLE_LENGTH
                try:
                    available = int(raw[start : raw.find(b" kB", start)]) << 10
                except ValueError:
                    available = 0
                # What is odd, and 0 is, is for the careful parser.
                if 0 < available <= total:
                    # Past the generated constructor, which takes longer than all the above.
                    return tuple.__new__(HostMemory, (total, available, swap_total, swap_used, ""))
        memory = parse_meminfo(raw)
        self._last = _landmarks(raw, memory)
        return memory


class _Landmarks(NamedTuple):
    total_line: bytes
    total: int
    place: int
    swap_lines: bytes
    swap_place: int
    swap_total: int
    swap_used: int


def _landmarks(raw: bytes, memory: HostMemory) -> _Landmarks | None:
    """Return where the lines are, None for a file that does not have the usual ones."""
    place, swap = raw.find(_AVAILABLE), raw.find(b"\nSwapTotal:")
    end = raw.find(b"\n", raw.find(b"\nSwapFree:", swap) + 1)
    if min(place, swap) < 0 or end < swap or not raw.startswith(b"MemTotal:"):
        return None
    return _Landmarks(
        raw[: raw.find(b"\n") + 1],
        memory.total_bytes,
        place,
        raw[swap : end + 1],
        swap,
        memory.swap_total_bytes,
        memory.swap_used_bytes,
    )


def _available(raw: bytes, total: int) -> tuple[int, str]:
    available = _or_none(raw, b"MemAvailable:")
    if available:
        return available, ""
    free = _or_zero(raw, b"MemFree:")
    if available == 0 and free <= total // IMPLAUSIBLE_FREE_DIVISOR:
        return 0, ""
    estimate = free + _file_cache(raw)
    what = "is missing" if available is None else f"is 0 although {format_bytes(free)} are free"
    return estimate, f"MemAvailable {what}: free memory and file cache are used instead"


def _file_cache(raw: bytes) -> int:
    """Return the file pages that the kernel can drop; shared memory is not among them."""
    active = _or_none(raw, b"Active(file):")
    inactive = _or_none(raw, b"Inactive(file):")
    if active is not None and inactive is not None:
        return active + inactive
    cached = _or_zero(raw, b"Cached:") + _or_zero(raw, b"Buffers:")
    return max(0, cached - _or_zero(raw, b"Shmem:"))


def _or_none(raw: bytes, name: bytes) -> int | None:
    try:
        return kibibytes(raw, name)
    except ValueError:
        return None


def _or_zero(raw: bytes, name: bytes) -> int:
    return _or_none(raw, name) or 0
