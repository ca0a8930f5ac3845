"""Limits that the process itself was started with (``ulimit``)."""

from __future__ import annotations

from typing import Final, NamedTuple

from lardon.governor.probes.kernel_text import amount, field, kibibytes, shown

try:
    from resource import RLIM_INFINITY as _INFINITY
    from resource import RLIMIT_AS as _ADDRESS_SPACE
    from resource import RLIMIT_DATA as _DATA
    from resource import getrlimit
except ImportError:  # Windows has no such limits
    getrlimit = None  # type: ignore[assignment]


class ProcessLimits(NamedTuple):
    """The soft limits in bytes; None is no limit."""

    address_space: int | None = None
    data: int | None = None


class ProcessUse(NamedTuple):
    """What ``/proc/self/status`` says this process uses, in bytes; None is not said."""

    address_space: int | None = None
    data: int | None = None
    anonymous: int | None = None
    shared: int | None = None


NO_LIMITS: Final = ProcessLimits()
NO_USE: Final = ProcessUse()
# /proc/self/limits is a table with columns of a fixed width.
_LIMIT_COLUMN: Final = 26


def current_limits() -> ProcessLimits:
    """Return the limits of this very process; `NO_LIMITS` where the platform has none."""
    if getrlimit is None:
        return NO_LIMITS
    address_space = getrlimit(_ADDRESS_SPACE)[0]
    data = getrlimit(_DATA)[0]
    if address_space == _INFINITY == data:
        return NO_LIMITS
    return ProcessLimits(
        None if address_space == _INFINITY else address_space, None if data == _INFINITY else data
    )


def parse_limits(raw: bytes) -> ProcessLimits:
    """Return the soft limits of a ``/proc/PID/limits`` table."""
    return ProcessLimits(_soft(raw, b"Max address space"), _soft(raw, b"Max data size"))


def _soft(raw: bytes, name: bytes) -> int | None:
    row = field(raw, name.ljust(_LIMIT_COLUMN))
    if row is None:
        return None
    values = row.split(None, 1)
    if not values:
        message = f"no value for {shown(name)}"
        raise ValueError(message)
    return None if values[0] == b"unlimited" else amount(values[0])


_ANONYMOUS: Final = b"\nRssAnon:"
# The three lines of resident memory, in the kernel's own layout.
_RESIDENT_LENGTH: Final = 96
_RESIDENT_WORDS: Final = 9


def own_ram_bytes(raw: bytes) -> int | None:
    """
    Return RssAnon + RssShmem of ``/proc/self/status``, None when it does not tell them.

    The kernel writes RssAnon, RssFile and RssShmem one after the other, so that one look
    finds both; any other text goes to the careful parser.
    """
    start = raw.find(_ANONYMOUS) + 1
    words = raw[start : start + _RESIDENT_LENGTH].split(None, _RESIDENT_WORDS - 1)
    if len(words) == _RESIDENT_WORDS and words[0] == b"RssAnon:" and words[6] == b"RssShmem:":
        try:
            return (int(words[1]) + int(words[7])) << 10
        except ValueError:
            pass
    use = parse_status(raw)
    if use.anonymous is None or use.shared is None:
        return None
    return use.anonymous + use.shared


def peak_ram_bytes(raw: bytes) -> int | None:
    """
    Return the high-water mark of anonymous and shared memory in ``/proc/self/status``.

    VmHWM counts file pages too. Those that are resident now are taken off: a file that is
    mapped in a batch and stays mapped is not counted, one that was closed before the
    batch's end is. None where the kernel tells no mark.
    """
    mark, files = kibibytes(raw, b"VmHWM:"), kibibytes(raw, b"RssFile:")
    now = own_ram_bytes(raw)
    if mark is None or files is None or now is None:
        return None
    return max(mark - files, now)


def parse_status(raw: bytes) -> ProcessUse:
    """Return what lardon needs of ``/proc/self/status``."""
    return ProcessUse(
        kibibytes(raw, b"VmSize:"),
        kibibytes(raw, b"VmData:"),
        kibibytes(raw, b"RssAnon:"),
        kibibytes(raw, b"RssShmem:"),
    )
