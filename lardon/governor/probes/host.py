"""What a reader of the host offers, whatever the platform."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Protocol

from lardon.governor.probes.cgroup_memory import LevelReading
from lardon.governor.snapshot import GpuSnapshot, PeakWatch, ResourceSnapshot
from lardon.units import format_bytes


class HostReader(Protocol):
    """Reads the host afresh at every call, from any thread."""

    def read(
        self, now: Callable[[], float], gpus: tuple[GpuSnapshot, ...], told: tuple[str, ...]
    ) -> ResourceSnapshot | None:
        """
        Return the figures, taken at *now*, with the GPUs that were read before.

        Args:
            now: the clock's seconds; asked when the RAM figures are read.
            gpus: what goes into the snapshot beside the host's own figures.
            told: sentences on the GPUs, to come last among the limits.

        Returns:
            None where the host does not tell its RAM.

        """
        ...

    def own_ram_bytes(self) -> int | None:
        """Return this process's anonymous and shared memory, None when it cannot be told."""
        ...

    def watch_ram(self, gpu_bytes: Callable[[], Mapping[str, int]]) -> PeakWatch:
        """Begin to watch the most RAM that this process uses; its GPU memory is asked too."""
        ...

    def memory_levels(self) -> tuple[LevelReading, ...]:
        """Return the cgroups that limit RAM, the process's own first."""
        ...

    def paths(self) -> tuple[str, ...]:
        """Return the files that one reading reads, in order."""
        ...


# Limits seldom change, so that their sentences need not be written at each snapshot.
@functools.lru_cache(maxsize=64)
def bound_text(what: str, source: str, size_bytes: int) -> str:
    """Return the sentence that says which limit bound a figure."""
    return f"{what} is bound by {source}: {format_bytes(size_bytes)}"


@functools.lru_cache(maxsize=64)
def cpu_bound_text(source: str, cpus: int) -> str:
    """Return the sentence that says which limit bound the number of CPUs."""
    return f"the number of CPUs is bound by {source}: {cpus}"
