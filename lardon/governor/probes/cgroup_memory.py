"""What the memory controllers above this process leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lardon.governor.probes.files import AbsentFile, ControlFile, Source, Warnings, open_file
from lardon.governor.probes.kernel_text import amount, field, limit_or_none, whole_number
from lardon.governor.probes.mounts import V1, Hierarchy, below

# v1 writes the largest number of pages that fits into 63 bits of bytes; the size of a page
# differs, and no machine has half as much.
_UNLIMITED_V1: Final = 1 << 62


class LevelReading(NamedTuple):
    """One cgroup that limits this process's memory."""

    limit_bytes: int | None
    """The hard limit: it caps the total. None when only a soft ceiling binds here."""
    limit_source: str
    """The file of the hard limit."""
    ceiling_bytes: int
    """The lower of the hard limit and ``memory.high``: it caps what is available."""
    ceiling_source: str
    """The file of the ceiling."""
    usage_bytes: int
    reclaimable_bytes: int
    """Inactive file pages: the kernel drops them when the limit is hit."""

    @property
    def headroom_bytes(self) -> int:
        """What can still be allocated below this level's ceiling."""
        return max(0, self.ceiling_bytes - max(0, self.usage_bytes - self.reclaimable_bytes))


def parse_limit_v1(raw: bytes) -> int | None:
    """Return a v1 limit, None for an empty file and for an unlimited level."""
    if not raw.strip():
        return None
    number = whole_number(raw)
    return number if 0 <= number < _UNLIMITED_V1 else None


def parse_reclaimable_v1(raw: bytes) -> int:
    """Return the inactive file pages of this level and below, 0 when they are not listed."""
    return _field_or_zero(raw, b"total_inactive_file ")


def parse_reclaimable_v2(raw: bytes) -> int:
    """Return the inactive file pages of this level and below, 0 when they are not listed."""
    return _field_or_zero(raw, b"inactive_file ")


def _field_or_zero(raw: bytes, name: bytes) -> int:
    text = field(raw, name)
    return 0 if text is None else amount(text)


class MemoryLevel(NamedTuple):
    """The open files of one level that has at least one limit file."""

    hard: Source[int | None]
    soft: Source[int | None]
    usage: Source[int]
    breakdown: Source[int]

    def parsed_limits(self, raws: Iterator[bytes]) -> tuple[int | None, int | None]:
        """Return the hard limit and the soft ceiling; takes one of *raws* per limit file."""
        hard, soft = (
            file.parsed(next(raws)) if isinstance(file, ControlFile) else None
            for file in (self.hard, self.soft)
        )
        return hard, soft

    def limited(self, hard: int | None, soft: int | None, host_total: int) -> LimitedLevel | None:
        """
        Return this level under the limits just read, None when nothing limits here.

        A limit at or above *host_total* is none.
        """
        if hard is not None and hard >= host_total:
            hard = None
        if soft is not None and soft >= host_total:
            soft = None
        if soft is not None and (hard is None or soft < hard):
            return LimitedLevel(self, hard, soft, self.soft.path)
        return None if hard is None else LimitedLevel(self, hard, hard, self.hard.path)

    @property
    def limit_files(self) -> list[ControlFile[int | None]]:
        """The files that say whether there is a limit."""
        return [file for file in (self.hard, self.soft) if isinstance(file, ControlFile)]


class LimitedLevel:
    """A level whose use has to be read: it has a limit, which seldom changes."""

    __slots__ = ("breakdown", "ceiling", "hard", "hard_source", "source", "usage")

    def __init__(self, level: MemoryLevel, hard: int | None, ceiling: int, source: str) -> None:
        self.hard = hard
        self.hard_source = level.hard.path
        self.ceiling = ceiling
        self.source = source
        self.usage = level.usage
        self.breakdown = level.breakdown

    def headroom(self) -> int:
        """
        Return what can still be allocated below the ceiling.

        Raises:
            VanishedError: the cgroup is gone.

        """
        used = self.usage.read() - self.breakdown.read()
        return max(0, self.ceiling - used) if used > 0 else self.ceiling

    def reading(self) -> LevelReading:
        """Return the same with every figure, for people to read; raises as `headroom`."""
        return LevelReading(
            self.hard,
            self.hard_source,
            self.ceiling,
            self.source,
            self.usage.read(),
            self.breakdown.read(),
        )


def open_levels(chain: Hierarchy | None, root: str, warnings: Warnings) -> list[MemoryLevel]:
    """Return the levels that have a limit file, the process's own first."""
    if chain is None:
        return []
    levels = (
        _open_level(below(root, directory), chain.version, warnings)
        for directory in chain.directories
    )
    return [level for level in levels if level.hard.path or level.soft.path]


def _open_level(place: str, version: int, warnings: Warnings) -> MemoryLevel:
    def limit(name: str, parse: Callable[[bytes], int | None]) -> Source[int | None]:
        return open_file(f"{place}/{name}", parse, None, warnings)

    def figure(name: str, parse: Callable[[bytes], int]) -> Source[int]:
        return open_file(f"{place}/{name}", parse, 0, warnings)

    if version == V1:
        return MemoryLevel(
            hard=limit("memory.limit_in_bytes", parse_limit_v1),
            soft=AbsentFile(None),
            usage=figure("memory.usage_in_bytes", amount),
            breakdown=figure("memory.stat", parse_reclaimable_v1),
        )
    return MemoryLevel(
        hard=limit("memory.max", limit_or_none),
        soft=limit("memory.high", limit_or_none),
        usage=figure("memory.current", amount),
        breakdown=figure("memory.stat", parse_reclaimable_v2),
    )
