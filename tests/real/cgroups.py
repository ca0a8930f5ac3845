"""Real cgroups for tests: made below this process's own, limited, read and taken away."""

from __future__ import annotations

import errno
import itertools
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

import psutil

V1: Final = 1
V2: Final = 2

# The kernel takes a moment to let go of a group whose last process was just reaped.
_REMOVAL_S: Final = 5.0

_LIMIT: Final = {V1: "memory.limit_in_bytes", V2: "memory.max"}
_NO_LIMIT: Final = {V1: "-1", V2: "max"}
_USAGE: Final = {V1: "memory.usage_in_bytes", V2: "memory.current"}
_INACTIVE_FILE: Final = {V1: "total_inactive_file", V2: "inactive_file"}
_EVENTS: Final = {V1: "memory.oom_control", V2: "memory.events"}
_QUOTA: Final = {V1: "cpu.cfs_quota_us", V2: "cpu.max"}
# A group that swaps is slow where these tests want it killed.
_NO_SWAP: Final = {V1: "memory.swappiness", V2: "memory.swap.max"}
_PERIOD_US: Final = 100_000

_numbers = itertools.count()


class NoGroupError(Exception):
    """No group can be made here; the text says why, and is the reason of a skip."""


class Place(NamedTuple):
    """Where groups of one controller are made."""

    controller: str
    version: int
    directory: Path
    top: Path
    """The mount point: what is above it does not show."""


def find_place(controller: str) -> Place:
    """
    Return this process's own cgroup under *controller*.

    A v2 group with processes in it hands no controller down. Its parent may: the groups
    are then made beside this process's own.

    Raises:
        NoGroupError: there is none.

    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        member = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        raise NoGroupError(f"no cgroups on this system: {error}") from error
    # The names are such as "cpu,cpuacct"; there is none for v2.
    own = {names: path for _, names, path in (line.split(":", 2) for line in member)}
    refusals = [f"no hierarchy with the {controller} controller is mounted"]
    for line in mounts:
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, *_, options = right.split()
        if kind == "cgroup" and controller in options.split(","):
            for names, path in own.items():
                if controller in names.split(","):
                    return Place(controller, V1, _directory(point, root, path), Path(point))
        if kind == "cgroup2" and "" in own:
            directory = _directory(point, root, own[""])
            places = [directory] if directory == Path(point) else [directory, directory.parent]
            for place in places:
                file = place / "cgroup.subtree_control"
                if file.exists() and controller in file.read_text().split():
                    return Place(controller, V2, place, Path(point))
                refusals.append(f"{file} does not name {controller}")
    raise NoGroupError("; ".join(refusals))


def _directory(point: str, root: str, path: str) -> Path:
    inner = os.path.relpath(path, root)
    # In a namespaced container the path may be one of the host.
    found = Path(point, inner)
    return found if not inner.startswith("..") and found.is_dir() else Path(point)


def room_bytes(place: Place) -> int:
    """Return what may be used in *place*, by the host and by every limit; cache is used."""
    room = psutil.virtual_memory().available
    for directory in (place.directory, *place.directory.parents):
        limit, usage = directory / _LIMIT[place.version], directory / _USAGE[place.version]
        # The root of v2 has neither.
        if limit.exists() and (text := limit.read_text().strip()) != _NO_LIMIT[place.version]:
            room = min(room, int(text) - int(usage.read_text()))
        if directory == place.top:
            break
    return room


class Group:
    """
    One cgroup, named ``lardon-test-<pid>-<n>``.

    Raises:
        NoGroupError: it cannot be made.

    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.path = place.directory / f"lardon-test-{os.getpid()}-{next(_numbers)}"
        try:
            self.path.mkdir()
        except OSError as error:
            raise NoGroupError(f"{error.strerror}: a cgroup in {place.directory}") from error

    def hand_down(self) -> Place:
        """Return the place of groups inside this one, which then can have no processes."""
        if self.place.version == V2:
            self._write("cgroup.subtree_control", f"+{self.place.controller}")
        return self.place._replace(directory=self.path)

    def forbid_swap(self) -> None:
        """Keep anonymous memory in RAM, where the machine has swap at all."""
        if (self.path / (name := _NO_SWAP[self.place.version])).exists():
            self._write(name, "0")

    @property
    def limit_file(self) -> Path:
        """The file of the memory limit."""
        return self.path / _LIMIT[self.place.version]

    def limit(self, ram_bytes: int | None) -> None:
        """Set the memory limit; None takes it away."""
        none = _NO_LIMIT[self.place.version]
        self._write(self.limit_file.name, none if ram_bytes is None else str(ram_bytes))

    @property
    def usage_bytes(self) -> int:
        """What the group and those inside it are charged for, page cache and all."""
        return int((self.path / _USAGE[self.place.version]).read_text())

    @property
    def inactive_file_bytes(self) -> int:
        """The page cache that the kernel drops first."""
        return self._field("memory.stat", _INACTIVE_FILE[self.place.version])

    @property
    def oom_kills(self) -> int:
        """How many processes the kernel has killed here for want of memory."""
        return self._field(_EVENTS[self.place.version], "oom_kill")

    @property
    def quota_file(self) -> Path:
        """The file of the CPU quota."""
        return self.path / _QUOTA[self.place.version]

    def quota(self, cpus: float | None) -> None:
        """Allow so many CPUs' worth of time; None takes the quota away."""
        quota = _NO_LIMIT[self.place.version] if cpus is None else str(int(cpus * _PERIOD_US))
        if self.place.version == V2:
            quota = f"{quota} {_PERIOD_US}"
        self._write(self.quota_file.name, quota)

    def enter(self, pid: int) -> None:
        """Move a process here."""
        self._write("cgroup.procs", str(pid))

    @property
    def pids(self) -> list[int]:
        """The processes in it."""
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def remove(self) -> None:
        """Take the group away; its processes are reaped, and the groups inside it gone."""
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                return self.path.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                os.sched_yield()

    def _field(self, file: str, name: str) -> int:
        for line in (self.path / file).read_text().splitlines():
            found, _, figure = line.partition(" ")
            if found == name:
                return int(figure)
        raise LookupError(f"no {name} in {self.path / file}")

    def _write(self, name: str, text: str) -> None:
        try:
            (self.path / name).write_text(text)
        except OSError as error:
            raise NoGroupError(f"{error.strerror}: {text!r} to {self.path / name}") from error
