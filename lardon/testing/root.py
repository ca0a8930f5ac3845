"""A filesystem root with the kernel's files in it, for a probe to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from lardon.units import GiB, KiB

Resource = Literal["cpu", "memory", "io"]

# What the kernel writes into a v1 memory limit that nobody set.
UNLIMITED_V1: Final = 9223372036854771712
_PERIOD_US: Final = 100_000


class FakeRoot:
    """
    A directory that looks like a Linux machine's ``/proc`` and ``/sys`` to a probe.

    A new one is a machine with 16 GiB of RAM, of which 12 are available, 8 CPUs, no
    limits and no cgroups. Each builder replaces what it built before; `write` puts any
    text anywhere. The builders of cgroups mount what is not mounted yet and put the
    process into the cgroup, so that ancestors are built first.

    Example:
        >>> root = FakeRoot(tmp_path)  # doctest: +SKIP
        >>> root.memory(total_bytes=128 * GiB, available_bytes=120 * GiB)  # doctest: +SKIP
        >>> root.memory_v2("/job", max_bytes=4 * GiB, current_bytes=GiB)  # doctest: +SKIP
        >>> SystemProbe(root).snapshot().ram_total_bytes == 4 * GiB  # doctest: +SKIP

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Build the machine in the directory *path*, which is made if need be."""
        self.path = Path(path)
        self._status: dict[str, str] = {}
        self._mounts: dict[str, str] = {}
        self._points: dict[str, str] = {}
        self._membership: dict[str, str] = {}
        self.memory(total_bytes=16 * GiB, available_bytes=12 * GiB)
        self.cpus(8)
        self.load(0.5)
        self.process()
        self.rlimits()

    def __fspath__(self) -> str:
        return str(self.path)

    def write(self, name: str, text: str | bytes) -> Path:
        """Write *text* to the file *name*, such as ``proc/meminfo``; return its path."""
        place = self.path / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        return place

    def remove(self, name: str) -> None:
        """Remove the file *name*; a file that is not there is fine."""
        (self.path / name.lstrip("/")).unlink(missing_ok=True)

    def make_unreadable(self, name: str) -> None:
        """Make the file *name* fail when it is read, whoever reads it."""
        # A directory in its place: permissions do not stop the superuser.
        self.remove(name)
        (self.path / name.lstrip("/")).mkdir(parents=True)

    def memory(
        self,
        *,
        total_bytes: int,
        available_bytes: int | None,
        free_bytes: int | None = None,
        swap_total_bytes: int = 0,
        swap_free_bytes: int = 0,
        file_cache_bytes: int = 0,
    ) -> None:
        """
        Write ``proc/meminfo``.

        Args:
            total_bytes: the machine's RAM.
            available_bytes: MemAvailable; None leaves the line out, as old kernels do.
            free_bytes: MemFree; None is what is available.
            swap_total_bytes: the machine's swap.
            swap_free_bytes: how much of it is free.
            file_cache_bytes: pages of files, all of them inactive.

        """
        free = (available_bytes or 0) if free_bytes is None else free_bytes
        lines = {"MemTotal": total_bytes, "MemFree": free}
        if available_bytes is not None:
            lines["MemAvailable"] = available_bytes
        lines |= {
            "Buffers": 0,
            "Cached": file_cache_bytes,
            "SwapCached": 0,
            "Active(file)": 0,
            "Inactive(file)": file_cache_bytes,
            "SwapTotal": swap_total_bytes,
            "SwapFree": swap_free_bytes,
            "Shmem": 0,
        }
        text = "".join(f"{name + ':':<16}{size // KiB:>8} kB\n" for name, size in lines.items())
        self.write("proc/meminfo", text)

    def cpus(self, count: int, *, affinity: str | None = None) -> None:
        """Give the machine *count* CPUs; *affinity* is a list such as ``0-3,8``."""
        self.write("sys/devices/system/cpu/online", f"0-{count - 1}\n" if count > 1 else "0\n")
        allowed = affinity or f"0-{count - 1}"
        self._status["Cpus_allowed_list"] = allowed
        self._write_status()

    def load(self, load1: float) -> None:
        """Set the load average over one minute."""
        self.write("proc/loadavg", f"{load1:.2f} 0.40 0.30 1/234 5678\n")

    def pressure(self, resource: Resource, some_avg10: float, *, cgroup: str | None = None) -> None:
        """Set the pressure of the host, or of a v2 *cgroup*, in percent."""
        text = (
            f"some avg10={some_avg10:.2f} avg60=0.00 avg300=0.00 total=1\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        )
        if cgroup is None:
            self.write(f"proc/pressure/{resource}", text)
        else:
            self._put_v2(cgroup, {f"{resource}.pressure": text})

    def process(
        self,
        *,
        vm_size_bytes: int = 0,
        vm_data_bytes: int = 0,
        rss_anon_bytes: int = 0,
        rss_shmem_bytes: int = 0,
    ) -> None:
        """Set what the process uses, in ``proc/self/status``."""
        sizes = {
            "VmSize": vm_size_bytes,
            "VmData": vm_data_bytes,
            "RssAnon": rss_anon_bytes,
            "RssShmem": rss_shmem_bytes,
        }
        self._status |= {name: f"{size // KiB:>8} kB" for name, size in sizes.items()}
        self._write_status()

    def rlimits(
        self, *, address_space_bytes: int | None = None, data_bytes: int | None = None
    ) -> None:
        """Set the soft limits in ``proc/self/limits``; None is unlimited."""
        rows = {"Max data size": data_bytes, "Max address space": address_space_bytes}
        text = f"{'Limit':<26}{'Soft Limit':<21}{'Hard Limit':<21}Units\n"
        for name, soft in rows.items():
            shown = "unlimited" if soft is None else str(soft)
            text += f"{name:<26}{shown:<21}{'unlimited':<21}bytes\n"
        self.write("proc/self/limits", text)

    def zfs_arc(self, *, size_bytes: int, c_min_bytes: int, c_bytes: int) -> None:
        """Give the machine a ZFS cache of *size_bytes* that can shrink to *c_min_bytes*."""
        rows = {"c": c_bytes, "c_min": c_min_bytes, "size": size_bytes}
        text = (
            "13 1 0x01 123 33456 1234567890 9876543210\nname                            type data\n"
        )
        text += "".join(f"{name:<32}4    {value}\n" for name, value in rows.items())
        self.write("proc/spl/kstat/zfs/arcstats", text)

    def memory_v2(
        self,
        path: str,
        *,
        max_bytes: int | None = None,
        high_bytes: int | None = None,
        current_bytes: int = 0,
        inactive_file_bytes: int = 0,
        shmem_bytes: int = 0,
    ) -> None:
        """Build the memory files of the v2 cgroup *path*; None is no limit."""
        files = {
            "memory.max": "max" if max_bytes is None else str(max_bytes),
            "memory.high": "max" if high_bytes is None else str(high_bytes),
            "memory.current": str(current_bytes),
            "memory.stat": (
                f"anon 0\nfile {inactive_file_bytes + shmem_bytes}\nshmem {shmem_bytes}\n"
                f"inactive_anon {shmem_bytes}\ninactive_file {inactive_file_bytes}\n"
                "active_file 0\n"
            ),
        }
        self._put_v2(path, {name: text.rstrip("\n") + "\n" for name, text in files.items()})

    def cpu_v2(self, path: str, *, quota_us: int | None, period_us: int = _PERIOD_US) -> None:
        """Build ``cpu.max`` of the v2 cgroup *path*; None is no limit."""
        quota = "max" if quota_us is None else str(quota_us)
        self._put_v2(path, {"cpu.max": f"{quota} {period_us}\n"})

    def memory_v1(
        self,
        path: str,
        *,
        limit_bytes: int = UNLIMITED_V1,
        usage_bytes: int = 0,
        inactive_file_bytes: int = 0,
        shmem_bytes: int = 0,
    ) -> None:
        """Build the files of *path* in the v1 memory hierarchy."""
        stat = (
            f"cache {inactive_file_bytes + shmem_bytes}\nshmem {shmem_bytes}\n"
            # The plain figures leave out the cgroups below; the totals do not.
            f"inactive_file 0\ntotal_cache {inactive_file_bytes + shmem_bytes}\n"
            f"total_shmem {shmem_bytes}\ntotal_inactive_file {inactive_file_bytes}\n"
        )
        files = {
            "memory.limit_in_bytes": f"{limit_bytes}\n",
            "memory.usage_in_bytes": f"{usage_bytes}\n",
            "memory.stat": stat,
        }
        self._put_v1("memory", path, files)

    def cpu_v1(self, path: str, *, quota_us: int = -1, period_us: int = _PERIOD_US) -> None:
        """Build the files of *path* in the v1 CPU hierarchy; -1 is no quota."""
        files = {"cpu.cfs_quota_us": f"{quota_us}\n", "cpu.cfs_period_us": f"{period_us}\n"}
        self._put_v1("cpu", path, files)

    def mount_v2(self, point: str = "/sys/fs/cgroup", *, root: str = "/") -> None:
        """Mount the v2 hierarchy, or the part of it below *root*, at *point*."""
        self._mount("", point, "cgroup2 cgroup2 rw", root)

    def mount_v1(self, controller: str, point: str | None = None, *, root: str = "/") -> None:
        """Mount the v1 hierarchy of *controller*, or the part of it below *root*."""
        place = point or f"/sys/fs/cgroup/{controller}"
        self._mount(controller, place, f"cgroup cgroup rw,{controller}", root)

    def process_in(self, controller: str, path: str) -> None:
        """Put the process into *path* of a v1 *controller*, or of v2 (the empty name)."""
        self._membership[controller] = path
        lines = [
            f"0::{inner}" if not name else f"{number}:{name}:{inner}"
            for number, (name, inner) in enumerate(
                sorted(self._membership.items(), reverse=True), 1
            )
        ]
        self.write("proc/self/cgroup", "\n".join(lines) + "\n")

    def cgroup_path(self, controller: str, path: str) -> str:
        """Return the directory of a cgroup, such as ``sys/fs/cgroup/memory/job``, for `write`."""
        point = self._points[controller]
        return (point + _inner(path)).lstrip("/")

    def _mount(self, controller: str, point: str, kind: str, root: str) -> None:
        self._points[controller] = point
        self._mounts[controller] = f"{root} {point} rw,nosuid - {kind}"
        lines = [
            f"{number} 23 0:{number} {mount}"
            for number, mount in enumerate(self._mounts.values(), 30)
        ]
        self.write(
            "proc/self/mountinfo",
            "22 27 0:21 / /proc rw - proc proc rw\n" + "\n".join(lines) + "\n",
        )
        (self.path / point.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _put_v2(self, path: str, files: Mapping[str, str]) -> None:
        if "" not in self._points:
            # Beside v1 hierarchies it has a directory of its own, as systemd mounts it.
            self.mount_v2("/sys/fs/cgroup/unified" if self._points else "/sys/fs/cgroup")
        self._put("", path, files)

    def _put_v1(self, controller: str, path: str, files: Mapping[str, str]) -> None:
        if controller not in self._points:
            self.mount_v1(controller)
        self._put(controller, path, files)

    def _put(self, controller: str, path: str, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            self.write(f"{self.cgroup_path(controller, path)}/{name}", text)
        self.process_in(controller, path)

    def _write_status(self) -> None:
        text = "Name:\tpython\n" + "".join(f"{name}:\t{it}\n" for name, it in self._status.items())
        self.write("proc/self/status", text)


def _inner(path: str) -> str:
    return "" if path == "/" else path
