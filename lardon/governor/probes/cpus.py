"""How many CPUs this process may use at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from lardon.governor.probes.files import AbsentFile, ControlFile, Source, Warnings, open_file
from lardon.governor.probes.kernel_text import amount, whole_number
from lardon.governor.probes.mounts import V1, Hierarchy, below

_sched_getaffinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)

# The kernel's default period, for a v1 level whose period cannot be read.
_DEFAULT_PERIOD_US: Final = 100_000


def rounded_up(quota_us: int, period_us: int) -> int:
    """Return a quota as whole CPUs, at least 1: half a CPU is one, one and a half are two."""
    return max(1, -(-quota_us // period_us))


def parse_cpu_max(raw: bytes) -> int | None:
    """
    Return the whole CPUs of a v2 ``cpu.max``: None for ``max`` and for an empty file.

    Raises:
        ValueError: the file holds something else.

    """
    quota, _, period = raw.strip().partition(b" ")
    if quota == b"max" or not quota:
        return None
    period_us = amount(period) if period.strip() else _DEFAULT_PERIOD_US
    quota_us = amount(quota)
    if period_us == 0 or quota_us == 0:
        message = f"a quota of {quota_us} us in {period_us} us"
        raise ValueError(message)
    return rounded_up(quota_us, period_us)


def parse_quota_v1(raw: bytes) -> int | None:
    """Return a v1 quota in microseconds: None for -1 and for an empty file."""
    if not raw.strip():
        return None
    number = whole_number(raw)
    return number if number > 0 else None


_V1_QUOTA: Final = ("cpu.cfs_quota_us", parse_quota_v1)
_V2_QUOTA: Final = ("cpu.max", parse_cpu_max)


class CpuLevel(NamedTuple):
    """The open files of one level of the CPU controller."""

    version: int
    quota: ControlFile[int | None]
    """Whole CPUs (v2), or microseconds per period (v1)."""
    period: Source[int]
    """v1 only, and only read where there is a quota."""

    def whole_cpus(self, quota: int) -> int:
        """
        Return the CPUs that a *quota*, as read from the file, stands for.

        Raises:
            VanishedError: the cgroup is gone.

        """
        if self.version != V1:
            return quota
        return rounded_up(quota, self.period.read() or _DEFAULT_PERIOD_US)


def open_levels(chain: Hierarchy | None, root: str, warnings: Warnings) -> list[CpuLevel]:
    """Return the levels that can have a quota, the process's own first."""
    if chain is None:
        return []
    levels = (
        _open_level(below(root, directory), chain.version, warnings)
        for directory in chain.directories
    )
    return [level for level in levels if level is not None]


def _open_level(place: str, version: int, warnings: Warnings) -> CpuLevel | None:
    name, parse = _V1_QUOTA if version == V1 else _V2_QUOTA
    quota = open_file(f"{place}/{name}", parse, None, warnings)
    if not isinstance(quota, ControlFile):
        return None
    period: Source[int] = AbsentFile(0)
    if version == V1:
        period = open_file(f"{place}/cpu.cfs_period_us", amount, 0, warnings)
    return CpuLevel(version=version, quota=quota, period=period)


def affinity(pid: int) -> int | None:
    """Return how many CPUs the process *pid* may run on, or None where nobody says."""
    if _sched_getaffinity is None:
        return None
    try:
        return len(_sched_getaffinity(pid)) or None
    except OSError:
        return None
