"""Which control files count for this process, all of them open."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple, TypeAlias, TypeVar

from lardon.forks import forks
from lardon.governor.probes import cgroup_memory, cpus, zfs
from lardon.governor.probes.cgroup_memory import LimitedLevel
from lardon.governor.probes.cpus import CpuLevel
from lardon.governor.probes.files import (
    Batch,
    ControlFile,
    Source,
    VanishedError,
    Warnings,
    open_file,
    read_whole,
)
from lardon.governor.probes.kernel_text import count_of_list, field
from lardon.governor.probes.meminfo import HostMemory, MeminfoParser
from lardon.governor.probes.mounts import below, hierarchy, parse_membership, parse_mounts
from lardon.governor.probes.pressure import RESOURCES, load_parser, pressure_parser
from lardon.governor.probes.process_limits import (
    NO_LIMITS,
    NO_USE,
    ProcessLimits,
    current_limits,
    parse_limits,
    parse_status,
)

T = TypeVar("T")


class Limiting(NamedTuple):
    """The levels that have a limit now; the others need no further reading."""

    memory: tuple[LimitedLevel, ...]
    """The process's own first."""
    cpus: tuple[tuple[CpuLevel, int], ...]
    """Each with its quota as read."""


Figures: TypeAlias = tuple[
    Limiting, float | None, float | None, float | None, float | None, HostMemory | None
]
"""Levels with limits; the load; the pressure of cpu, memory and io; RAM."""


class Layout:
    """
    The files to read at a snapshot, opened for the process that built this.

    ``/proc/self`` of a kept-open file is the process that opened it, so that a forked
    child needs a layout of its own.
    """

    def __init__(self, root: str, warnings: Warnings) -> None:
        self._pid = os.getpid()
        self._forks = forks()
        self._built_at = monotonic()
        self._root = root
        self._warnings = warnings
        self._membership = self._open("/proc/self/cgroup", bytes, b"")
        self._member_of = self._membership.read()
        self.load = self._open("/proc/loadavg", load_parser(), None)
        self.meminfo: Source[HostMemory | None] = self._open("/proc/meminfo", MeminfoParser(), None)
        self.status = self._open("/proc/self/status", parse_status, NO_USE)
        arc: Source[tuple[str, ...]] = self._open(zfs.PATH, zfs.parse_arc, ())
        self.arc = arc if isinstance(arc, ControlFile) else None
        self._open_cgroups()
        self._find_process_bounds()
        self._plan_reading()

    def _open(self, path: str, parse: Callable[[bytes], T], default: T) -> Source[T]:
        return open_file(below(self._root, path), parse, default, self._warnings)

    def _open_cgroups(self) -> None:
        root, warnings = self._root, self._warnings
        member = parse_membership(self._member_of)
        mounts = parse_mounts(read_whole(below(root, "/proc/self/mountinfo")) or b"")
        memory = hierarchy("memory", root, member, mounts)
        self._memory_levels = cgroup_memory.open_levels(memory, root, warnings)
        cpu = hierarchy("cpu", root, member, mounts)
        self._cpu_levels = cpus.open_levels(cpu, root, warnings)
        unified = hierarchy("", root, member, mounts)
        own = unified.directories[0] if unified is not None else None
        self._pressures = [self._open_pressure(name, own) for name in RESOURCES]

    def _open_pressure(self, name: str, own: str | None) -> Source[float | None]:
        """Open the pressure of the process's own cgroup, else of the whole host."""
        if own is not None:
            found = self._open(f"{own}/{name}.pressure", pressure_parser(), None)
            if isinstance(found, ControlFile):
                return found
        return self._open(f"/proc/pressure/{name}", pressure_parser(), None)

    def _find_process_bounds(self) -> None:
        self._limits: Source[ProcessLimits] | None = None
        self._affinity: int | None = None
        if self._root == "/":
            # 0 and None both mean that nothing is known (a container without /sys).
            self.cpu_count = os.cpu_count() or None
            return
        online = read_whole(below(self._root, "/sys/devices/system/cpu/online"))
        self.cpu_count = _count(online)
        status = read_whole(below(self._root, "/proc/self/status")) or b""
        self._affinity = _count(field(status, b"Cpus_allowed_list:"))
        limits = self._open("/proc/self/limits", parse_limits, NO_LIMITS)
        self._limits = limits if isinstance(limits, ControlFile) else None

    def _plan_reading(self) -> None:
        limits: list[ControlFile[Any]] = [level.quota for level in self._cpu_levels]
        limits += chain.from_iterable(level.limit_files for level in self._memory_levels)
        # In this order, and RAM last: of all figures it gets old the fastest.
        figures: list[Source[Any]] = [self.load, *self._pressures, self.meminfo]
        files = [self._membership, *limits, *figures]
        present = [file for file in files if isinstance(file, ControlFile)]
        self._batch = Batch(present)
        places = {id(file): place for place, file in enumerate(present)}
        self._member_place = places.get(id(self._membership), -1)
        first = self._member_place + 1
        self._limit_places = slice(first, first + len(limits))
        self._quick = [(file.parse, places.get(id(file), -1)) for file in figures]
        self._careful = [(file.parsed, places.get(id(file), -1)) for file in figures]
        # Each is one tuple, replaced whole: several threads may read at once.
        self._last_limiting: tuple[list[bytes] | None, int, Limiting]
        self._last_limiting = (None, 0, Limiting((), ()))
        self._last: tuple[list[bytes], Figures] | None = None

    def is_current(self, keep_s: float) -> bool:
        """Return whether these are this process's files, opened within *keep_s*."""
        return monotonic() - self._built_at < keep_s and self._forks == forks()

    def figures(self) -> Figures:
        """
        Read the files once.

        Raises:
            VanishedError: the process is in another cgroup now, or a file is gone.

        """
        raws = self._batch.read()
        last = self._last
        if last is not None and raws == last[0]:
            return last[1]
        figures = self._parsed(raws)
        self._last = (raws, figures)
        return figures

    def _parsed(self, raws: list[bytes]) -> Figures:
        # Absent files are parsed from the empty end.
        ended = [*raws, b""]
        if ended[self._member_place] != self._member_of:
            raise VanishedError(self._membership.path)
        try:
            # Their own parsers remember what they saw last; `parsed` would once more.
            load, cpu, memory, io, host = [parse(ended[place]) for parse, place in self._quick]
        except ValueError:
            load, cpu, memory, io, host = [parse(ended[place]) for parse, place in self._careful]
        limits = raws[self._limit_places]
        total = 0 if host is None else host.total_bytes
        found, found_total, limiting = self._last_limiting
        if limits != found or total != found_total:
            limiting = self._limiting(limits, total)
            self._last_limiting = (limits, total, limiting)
        return limiting, load, cpu, memory, io, host

    def _limiting(self, raws: list[bytes], host_total: int) -> Limiting:
        count = len(self._cpu_levels)
        quotas = [
            (level, quota)
            for level, raw in zip(self._cpu_levels, raws[:count], strict=True)
            if (quota := level.quota.parsed(raw)) is not None
        ]
        left = iter(raws[count:])
        levels = [
            level.limited(*level.parsed_limits(left), host_total) for level in self._memory_levels
        ]
        return Limiting(tuple(level for level in levels if level is not None), tuple(quotas))

    def affinity(self) -> int | None:
        """Return how many CPUs the process may run on, None where nobody says."""
        return cpus.affinity(self._pid) if self._root == "/" else self._affinity

    def process_limits(self) -> ProcessLimits:
        """Return the ``ulimit`` figures: of the foreign root where it has them, else ours."""
        return current_limits() if self._limits is None else self._limits.read()

    def paths(self, *, rlimits: bool) -> tuple[str, ...]:
        """Return the files that one reading reads now, in order."""
        files: list[Source[Any]] = list(self._batch.files)
        limiting = self.figures()[0]
        files += [level.period for level, _ in limiting.cpus]
        for memory in limiting.memory:
            files += [memory.usage, memory.breakdown]
        if rlimits:
            files += [] if self._limits is None else [self._limits]
            files += [] if self.process_limits() is NO_LIMITS else [self.status]
        files += [] if self.arc is None else [self.arc]
        return tuple(file.path for file in files if file.path)


def _count(listed: bytes | None) -> int | None:
    try:
        return count_of_list(listed) or None if listed is not None else None
    except ValueError:
        return None
