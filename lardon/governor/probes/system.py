"""The probe of the machine that lardon runs on."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lardon.clock import MachineClock
from lardon.governor.probes.making import make_own_use
from lardon.governor.snapshot import GpuSnapshot, OwnUse, PeakWatch, ResourceSnapshot

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.probes.cgroup_memory import LevelReading
    from lardon.governor.probes.files import Warnings
    from lardon.governor.probes.host import HostReader
    from lardon.governor.probes.nvml import NvmlReader
    from lardon.governor.probes.portable import PortableHost

# The kernel module of the driver lists its cards here, before NVML has started.
_DRIVER_CARDS = "proc/driver/nvidia/gpus"


class SystemProbe:
    """
    Reads the machine afresh at every call, as this process may use it.

    Limits of containers, quotas, ``ulimit`` and Slurm are taken in; `limits` of the
    snapshot names those that bound. Only files and driver handles are kept open. Any
    thread may call any method; a forked child opens everything anew by itself.

    Args:
        root: the filesystem root below which ``proc/`` and ``sys/`` are read.
        nvml: a module with pynvml's names; None finds the real one when it is needed.
        environ: where the variables of CUDA and Slurm are looked up; None is `os.environ`,
            as it is outside of every `TaskContext.applied`.
        rlimits: whether the process's own ``ulimit`` figures count.
        clock: where `taken_at` comes from; None is the machine's.
        integrated_names: words in the name of a GPU that has no memory of its own; None
            is `lardon.governor.probes.nvml_cards.INTEGRATED_NAMES`.

    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "/",
        nvml: Any = None,
        environ: Mapping[str, str] | None = None,
        rlimits: bool = True,  # noqa: FBT001, FBT002  the signature is part of the design
        clock: Clock | None = None,
        *,
        integrated_names: tuple[str, ...] | None = None,
    ) -> None:
        # Readers are imported when a probe is made: whoever imports lardon to submit tasks
        # to a governor that is there already does not pay for them.
        from lardon.environment import outer_environ
        from lardon.governor.probes.files import Warnings

        self._root = os.fspath(root)
        self._now = (MachineClock() if clock is None else clock).monotonic
        environ = outer_environ if environ is None else environ
        warnings = Warnings()
        self._host = self._host_reader(environ, warnings, rlimits=rlimits)
        self._portable: PortableHost | None = None
        self._gpus = self._gpu_reader(nvml, environ, warnings, integrated_names)

    def snapshot(self) -> ResourceSnapshot:
        """
        Return a fresh reading.

        Takes some 30 microseconds, with GPUs up to a millisecond, and half a second at
        most when a driver hangs. GPUs are read first: RAM is what changes fastest.
        """
        gpus, notes = self._gpus.read()
        found = self._host.read(self._now, gpus, notes)
        return self._without_files(gpus, notes) if found is None else found

    def own_use(self) -> OwnUse | None:
        """Return what this process itself uses now, or None where RAM does not tell."""
        ram = self._host.own_ram_bytes()
        if ram is None:
            return None
        return make_own_use(ram, self._gpus.own_bytes())

    def watch_peak(self) -> PeakWatch | None:
        """
        Begin to watch the most that this process uses; `PeakWatch.stop` tells it.

        RAM is the kernel's own high-water mark on Linux, and sampled 50 times a second
        elsewhere. GPU memory is what the process holds at the end, which allocators that
        keep their pools (torch, CuPy, JAX, RMM) make the most they ever took. A process
        that has children, or watches twice at a time, gets None in the end.
        """
        return self._host.watch_ram(self._gpus.own_bytes)

    def tidy(self) -> None:
        """Give what this process has freed back to the system, where the C library can."""
        from lardon.governor.probes.peaks import trim

        trim()

    @property
    def gpu_error(self) -> str:
        """Why there is no GPU, in NVML's words; empty when there may be one."""
        return self._gpus.error

    def memory_levels(self) -> tuple[LevelReading, ...]:
        """Return the cgroups that limit RAM now, the process's own first."""
        return self._host.memory_levels()

    def files_read(self) -> tuple[str, ...]:
        """Return the control files that one snapshot reads now, in order."""
        return self._host.paths()

    def _host_reader(
        self, environ: Mapping[str, str], warnings: Warnings, *, rlimits: bool
    ) -> HostReader:
        if self._root == "/" and not sys.platform.startswith("linux"):
            return _portable_host()
        from lardon.governor.probes.linux import LinuxHost

        return LinuxHost(self._root, environ, rlimits=rlimits, warnings=warnings)

    def _gpu_reader(
        self,
        nvml: Any,
        environ: Mapping[str, str],
        warnings: Warnings,
        integrated_names: tuple[str, ...] | None,
    ) -> NvmlReader:
        from lardon.governor.probes.nvml import NvmlReader
        from lardon.governor.probes.nvml_cards import INTEGRATED_NAMES

        return NvmlReader(
            nvml,
            environ,
            self._now,
            warnings=warnings,
            integrated_names=INTEGRATED_NAMES if integrated_names is None else integrated_names,
            expected_cards=functools.partial(_driver_cards, self._root),
        )

    def _without_files(
        self, gpus: tuple[GpuSnapshot, ...], notes: tuple[str, ...]
    ) -> ResourceSnapshot:
        """Return what is left to say when ``/proc/meminfo`` cannot be used."""
        told = ("RAM cannot be read from /proc/meminfo", *notes)
        if self._root == "/":
            # psutil may know another way; on Linux it has none, and raises what it likes.
            with contextlib.suppress(Exception):
                if self._portable is None:
                    self._portable = _portable_host()
                return self._portable.read(self._now, gpus, told)
        # A reading that says nothing is one that nobody decides on.
        return ResourceSnapshot(
            taken_at=self._now(), ram_total_bytes=0, ram_available_bytes=0, gpus=gpus, limits=told
        )


def _driver_cards(root: str) -> int:
    """Return how many cards the kernel's driver lists: at least one, if it is asked for."""
    try:
        return max(1, len(os.listdir(os.path.join(root, _DRIVER_CARDS))))  # noqa: PTH118, PTH208
    except OSError:
        return 1


def _portable_host() -> PortableHost:
    # psutil takes longer to import than all of lardon, and Linux does not need it.
    from lardon.governor.probes.portable import PortableHost

    return PortableHost()
