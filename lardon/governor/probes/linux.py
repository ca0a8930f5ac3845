"""The host's figures on Linux, from files that stay open between two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from lardon.governor.probes.bounds import RamBounds
from lardon.governor.probes.cgroup_memory import LevelReading
from lardon.governor.probes.cpus import CpuLevel
from lardon.governor.probes.files import VanishedError, Warnings
from lardon.governor.probes.host import cpu_bound_text
from lardon.governor.probes.layout import Layout
from lardon.governor.probes.making import make_snapshot
from lardon.governor.probes.peaks import MarkedPeak, SampledPeak, reset_mark
from lardon.governor.probes.process_limits import NO_LIMITS, own_ram_bytes, peak_ram_bytes
from lardon.governor.probes.slurm_job import JobLimits, job_limits
from lardon.governor.snapshot import GpuSnapshot, PeakWatch, ResourceSnapshot

T = TypeVar("T")

# How long the set of open files stands. What they say is read at every snapshot; this is
# for files that come into being, such as those of a controller that is switched on.
LAYOUT_S: Final = 1.0
# A process that is moved while it is being read is read again. The files were opened a
# moment ago then: nobody moves a process that often.
_TRIES: Final = 3


class LinuxHost:
    """
    Reads RAM, CPUs, load and pressure below a filesystem root.

    Needs no lock: a layout is never changed, only replaced, and its files close when the
    last reader has let go of them. Below a foreign root files may be replaced at any
    time, so that they are opened afresh for each reading.
    """

    def __init__(
        self, root: str, environ: Mapping[str, str], *, rlimits: bool, warnings: Warnings
    ) -> None:
        self._root = root
        self._keep_s = LAYOUT_S if root == "/" else 0.0
        self._rlimits = rlimits
        self._warnings = warnings
        self._job = job_limits(environ, warnings)
        self._layout: Layout | None = None

    def read(
        self, now: Callable[[], float], gpus: tuple[GpuSnapshot, ...], told: tuple[str, ...]
    ) -> ResourceSnapshot | None:
        """Return the figures at *now*, None where the host does not tell its RAM."""
        for _ in range(_TRIES):
            try:
                return self._reading(self._current(), now, gpus, told)
            except VanishedError:
                self._layout = None
        return None

    def own_ram_bytes(self) -> int | None:
        """Return this process's anonymous and shared memory, None when it is not told."""
        for _ in range(_TRIES):
            try:
                return own_ram_bytes(self._current().status.raw())
            except VanishedError:
                self._layout = None
        return None

    def watch_ram(self, gpu_bytes: Callable[[], Mapping[str, int]]) -> PeakWatch:
        """Begin to watch the most RAM that this process uses, by the kernel's mark or samples."""
        if reset_mark(self._root):
            return MarkedPeak(self._peak_ram_bytes, gpu_bytes)
        return SampledPeak(self.own_ram_bytes, gpu_bytes)

    def _peak_ram_bytes(self) -> int | None:
        return self._retried(lambda layout: peak_ram_bytes(layout.status.raw()))

    def memory_levels(self) -> tuple[LevelReading, ...]:
        """Return the cgroups that limit this process's RAM, its own first."""
        return self._retried(_limiting_levels) or ()

    def paths(self) -> tuple[str, ...]:
        """Return the files that a reading reads now, in order."""
        return self._retried(lambda layout: layout.paths(rlimits=self._rlimits)) or ()

    def _retried(self, use: Callable[[Layout], T]) -> T | None:
        for _ in range(_TRIES):
            try:
                return use(self._current())
            except VanishedError:
                self._layout = None
        return None

    def _current(self) -> Layout:
        layout = self._layout
        if layout is None or not layout.is_current(self._keep_s):
            layout = self._layout = Layout(self._root, self._warnings)
        return layout

    def _reading(
        self,
        layout: Layout,
        now: Callable[[], float],
        gpus: tuple[GpuSnapshot, ...],
        told: tuple[str, ...],
    ) -> ResourceSnapshot | None:
        taken_at = now()
        limiting, load, cpu_pressure, memory_pressure, io_pressure, memory = layout.figures()
        if memory is None:
            return None
        cpus, limits = _cpus(layout, limiting.cpus, self._job)
        total, available, swap_total, swap_used, note = memory
        rlimits = layout.process_limits() if self._rlimits else NO_LIMITS
        if limiting.memory or rlimits is not NO_LIMITS or self._job.ram_source:
            bounds = RamBounds(memory)
            bounds.take_levels(limiting.memory)
            bounds.take_process_limits(rlimits, layout.status)
            bounds.take_job(self._job, cpus)
            total, available = bounds.total, bounds.available
            limits = bounds.texts() + limits
        if note:
            limits += (note,)
        if layout.arc is not None:
            limits += layout.arc.read()
        if told:
            limits += told
        return make_snapshot(
            taken_at,
            total,
            available,
            swap_total,
            swap_used,
            cpus,
            load,
            cpu_pressure,
            memory_pressure,
            io_pressure,
            gpus,
            limits,
        )


def _cpus(
    layout: Layout, quotas: tuple[tuple[CpuLevel, int], ...], job: JobLimits
) -> tuple[int, tuple[str, ...]]:
    """Return the effective CPUs and what bound them, if anything did."""
    found, source = layout.cpu_count, ""
    allowed = layout.affinity()
    if allowed is not None and (found is None or allowed < found):
        found, source = allowed, "this process's affinity" if found is not None else ""
    for level, quota in quotas:
        granted = level.whole_cpus(quota)
        if found is None or granted < found:
            found, source = granted, level.quota.path
    if job.cpus is not None and (found is None or job.cpus < found):
        found, source = job.cpus, job.cpus_source
    if found is None:
        return 1, ()
    return found, (cpu_bound_text(source, found),) if source else ()


def _limiting_levels(layout: Layout) -> tuple[LevelReading, ...]:
    return tuple(level.reading() for level in layout.figures()[0].memory)
