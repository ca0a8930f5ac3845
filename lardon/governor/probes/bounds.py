"""The smallest of several limits, and which one it was."""

from __future__ import annotations

from collections.abc import Iterable

from lardon.governor.probes.cgroup_memory import LimitedLevel
from lardon.governor.probes.files import Source
from lardon.governor.probes.host import bound_text
from lardon.governor.probes.meminfo import HostMemory
from lardon.governor.probes.process_limits import NO_LIMITS, ProcessLimits, ProcessUse
from lardon.governor.probes.slurm_job import JobLimits


class RamBounds:
    """
    RAM total and availability while limits are taken in, one after the other.

    Limits only ever lower a figure. The last one that lowered it is named in `texts`.
    """

    __slots__ = ("available", "available_by", "total", "total_by")

    def __init__(self, host: HostMemory) -> None:
        self.total = host.total_bytes
        self.available = host.available_bytes
        self.total_by: tuple[str, int] | None = None
        self.available_by: tuple[str, int] | None = None

    def cap_total(self, limit: int, source: str) -> None:
        """Take in what there can be at most; a limit of 0 leaves the machine its size."""
        if 0 < limit < self.total:
            self.total = limit
            self.total_by = (source, limit)

    def cap_available(self, headroom: int, source: str, limit: int) -> None:
        """Take in what *source*, a limit of *limit* bytes, leaves free now."""
        headroom = max(0, headroom)
        if headroom < self.available:
            self.available = headroom
            self.available_by = (source, limit)

    def take_levels(self, levels: Iterable[LimitedLevel]) -> None:
        """Take in the cgroups: the whole chain counts, and the tightest one binds."""
        for level in levels:
            if level.hard is not None:
                self.cap_total(level.hard, level.hard_source)
            headroom = level.headroom()
            if headroom < self.available:
                self.available = headroom
                self.available_by = (level.source, level.ceiling)

    def take_process_limits(self, limits: ProcessLimits, status: Source[ProcessUse]) -> None:
        """Take in ``ulimit`` figures; a use that is not known counts as 0."""
        if limits is NO_LIMITS:
            return
        use = status.read()
        pairs = (
            ("RLIMIT_AS", limits.address_space, use.address_space),
            ("RLIMIT_DATA", limits.data, use.data),
        )
        for source, limit, used in pairs:
            if limit is not None:
                self.cap_total(limit, source)
                self.cap_available(limit - (used or 0), source, limit)

    def take_job(self, job: JobLimits, cpus: int) -> None:
        """Take in what a Slurm job was given; what it uses of that is not known."""
        limit = job.ram_bytes
        if limit is None and job.ram_per_cpu_bytes is not None:
            limit = job.ram_per_cpu_bytes * cpus
        if limit is not None:
            self.cap_total(limit, job.ram_source)
            self.cap_available(limit, job.ram_source, limit)

    def texts(self) -> tuple[str, ...]:
        """Return the sentences that name what bound, none when nothing did."""
        found = []
        if self.total_by is not None:
            found.append(bound_text("total RAM", *self.total_by))
        if self.available_by is not None:
            found.append(bound_text("available RAM", *self.available_by))
        return tuple(found)
