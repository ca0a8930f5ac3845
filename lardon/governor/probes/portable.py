"""The host's figures where there are no control files: macOS, Windows and others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Final

import psutil

from lardon.governor.probes import cpus
from lardon.governor.probes.cgroup_memory import LevelReading
from lardon.governor.snapshot import GpuSnapshot, PeakWatch, ResourceSnapshot

# Nobody decides on swap, and asking for it is slow.
SWAP_KEEP_S: Final = 1.0


class PortableHost:
    """Reads RAM, swap, CPUs and load through psutil; pressure is unknown."""

    def __init__(self) -> None:
        # Guards the two swap figures and when they were read.
        self._lock = threading.Lock()
        self._swap = (0, 0)
        self._swap_read_at: float | None = None

    def read(
        self, now: Callable[[], float], gpus: tuple[GpuSnapshot, ...], told: tuple[str, ...]
    ) -> ResourceSnapshot:
        """Return the figures at *now*; what psutil raises on RAM is passed on."""
        swap_total, swap_used = self._swap_at(now())
        load = _load()
        count = _cpus()
        taken_at = now()
        memory = psutil.virtual_memory()
        return ResourceSnapshot(
            taken_at=taken_at,
            ram_total_bytes=memory.total,
            ram_available_bytes=memory.available,
            swap_total_bytes=swap_total,
            swap_used_bytes=swap_used,
            cpus=count,
            load1=load,
            gpus=gpus,
            limits=told,
        )

    def own_ram_bytes(self) -> int | None:
        """Return None: anonymous and file pages cannot be told apart everywhere."""
        return None

    def watch_ram(self, gpu_bytes: Callable[[], Mapping[str, int]]) -> PeakWatch:
        """Begin to watch the resident memory of this process, file pages included."""
        from lardon.governor.probes.peaks import SampledPeak

        return SampledPeak(_resident, gpu_bytes)

    def memory_levels(self) -> tuple[LevelReading, ...]:
        """Return nothing: there are no cgroups."""
        return ()

    def paths(self) -> tuple[str, ...]:
        """Return nothing: no control file is read."""
        return ()

    def _swap_at(self, at: float) -> tuple[int, int]:
        with self._lock:
            read_at = self._swap_read_at
            if read_at is not None and 0 <= at - read_at < SWAP_KEEP_S:
                return self._swap
        swap = _swap()
        with self._lock:
            self._swap, self._swap_read_at = swap, at
        return swap


def _resident() -> int | None:
    return int(psutil.Process().memory_info().rss)


def _swap() -> tuple[int, int]:
    try:
        found = psutil.swap_memory()
    except Exception:  # noqa: BLE001  it is for people to read: no reason to fail
        return (0, 0)
    return found.total, found.used


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _cpus() -> int:
    counts = [os.cpu_count(), cpus.affinity(0)]
    return min((count for count in counts if count), default=1)
