"""Which directories count, in containers, on hybrid machines and when a process moves."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import pytest

from lardon import DecisionKind, Governor, ReasonCode, ResourceEstimate, SystemProbe
from lardon.governor.probes import linux
from lardon.governor.probes.files import Batch, ControlFile, VanishedError, Warnings
from lardon.governor.probes.kernel_text import amount
from lardon.governor.probes.layout import Layout
from lardon.governor.probes.mounts import (
    CgroupMount,
    Membership,
    hierarchy,
    parse_membership,
    parse_mounts,
)
from lardon.testing import FakeNvml, FakeRoot
from lardon.units import GiB

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probes.conftest import Machine


def total_gib(machine: Machine) -> float:
    return machine.snapshot().ram_total_bytes / GiB


def test_a_hybrid_machine_reads_each_controller_where_it_is(machine: Machine) -> None:
    """Memory in v1, CPU and pressure in v2."""
    machine.root.memory_v1("/job", limit_bytes=4 * GiB)
    machine.root.mount_v2("/sys/fs/cgroup/unified")
    machine.root.cpu_v2("/unit", quota_us=300_000)
    machine.root.pressure("memory", 7.0, cgroup="/unit")
    # A v2 limit on memory is not this controller's: v1 has it.
    machine.root.write("sys/fs/cgroup/unified/unit/memory.max", f"{GiB}\n")

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 4 * GiB
    assert snapshot.cpus == 3
    assert snapshot.memory_pressure == 7.0


def test_a_v1_line_without_its_mount_leaves_v2(machine: Machine) -> None:
    """`proc/self/cgroup` may list a v1 hierarchy that is not mounted in the container."""
    machine.root.memory_v2("/job", max_bytes=3 * GiB)
    machine.root.write("proc/self/cgroup", "4:memory:/old\n0::/job\n")

    assert total_gib(machine) == 3


@pytest.mark.parametrize("version", [1, 2])
def test_a_namespaced_path_falls_back_to_the_mount_root(machine: Machine, version: int) -> None:
    """In a container the path is one of the host, and the limit is at the mount point."""
    if version == 1:
        machine.root.memory_v1("/", limit_bytes=4 * GiB)
        machine.root.process_in("memory", "/docker/0123abc")
    else:
        machine.root.memory_v2("/", max_bytes=4 * GiB)
        machine.root.process_in("", "/docker/0123abc")

    assert total_gib(machine) == 4


def test_a_path_outside_of_the_namespace_stays_inside_the_mount(machine: Machine) -> None:
    """`/..` means that the process is above its namespace's root: no walking out."""
    machine.root.memory_v2("/", max_bytes=4 * GiB)
    machine.root.write("sys/fs/elsewhere/memory.max", f"{GiB}\n")
    machine.root.process_in("", "/../elsewhere")

    assert total_gib(machine) == 4


def test_a_bind_mount_shows_part_of_the_hierarchy(machine: Machine) -> None:
    """Docker on v1 mounts the container's own directory: the path starts inside it."""
    machine.root.mount_v1("memory", root="/docker/abc")
    machine.root.memory_v1("/inner", limit_bytes=2 * GiB)
    machine.root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{4 * GiB}\n")
    machine.root.process_in("memory", "/docker/abc/inner")
    assert total_gib(machine) == 2

    machine.root.process_in("memory", "/docker/abc")
    assert total_gib(machine) == 4


def test_of_two_mounts_the_one_with_more_ancestors_counts(tmp_path: Path) -> None:
    """A mount of a part hides the limits above that part."""
    for place in ("whole/pod/job", "part/job"):
        (tmp_path / place).mkdir(parents=True)
    part = CgroupMount(2, "/part", "/pod", frozenset())
    whole = CgroupMount(2, "/whole", "/", frozenset())

    found = hierarchy("memory", str(tmp_path), Membership("/pod/job", {}), [part, whole])

    assert found is not None
    assert found.directories == ("/whole/pod/job", "/whole/pod", "/whole")


def test_without_a_mount_table_the_usual_places_are_looked_at(machine: Machine) -> None:
    """A sandbox may hide `mountinfo`, and `proc/self/cgroup` as well."""
    machine.root.write("sys/fs/cgroup/memory.max", f"{4 * GiB}\n")
    assert total_gib(machine) == 4

    machine.root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{3 * GiB}\n")
    assert total_gib(machine) == 3


def test_memberships_are_parsed() -> None:
    """Controllers may share a hierarchy; paths may hold colons; rubbish is skipped."""
    raw = b"9:name=systemd:/\n3:cpu,cpuacct:/a:b\n0::/user.slice\nrubbish\n4:memory\n\xff:\xff:/x\n"

    found = parse_membership(raw)

    assert found.unified == "/user.slice"
    assert found.by_controller["cpu"] == found.by_controller["cpuacct"] == "/a:b"
    assert "memory" not in found.by_controller


def test_mounts_are_parsed() -> None:
    """Optional fields vary in number, and spaces in paths are written in octal."""
    raw = (
        b"22 27 0:21 / /proc rw - proc proc rw\n"
        b"31 22 0:30 /a\\040b /sys/fs/c\\134g rw shared:9 master:1 - cgroup cgroup rw,memory\n"
        b"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 none rw,nsdelegate\n"
        b"short - cgroup2 x y\n"
    )

    first, second = parse_mounts(raw)

    assert (first.version, first.root, first.point) == (1, "/a b", "/sys/fs/c\\g")
    assert "memory" in first.controllers
    assert (second.version, second.point) == (2, "/sys/fs/cgroup/unified")


def test_every_level_counts_and_the_tightest_binds(machine: Machine) -> None:
    """A sibling that fills the parent leaves less than the own limit says."""
    machine.root.memory_v2("/a", max_bytes=8 * GiB, current_bytes=7 * GiB)
    machine.root.memory_v2("/a/b", max_bytes=6 * GiB, current_bytes=GiB)
    machine.root.memory_v2("/a/b/c", high_bytes=5 * GiB)

    snapshot = machine.snapshot()
    levels = machine.probe.memory_levels()

    assert (snapshot.ram_total_bytes, snapshot.ram_available_bytes) == (6 * GiB, GiB)
    assert "total RAM is bound by" in snapshot.limits[0]
    assert "/sys/fs/cgroup/a/b/memory.max: 6 GiB" in snapshot.limits[0]
    assert "/sys/fs/cgroup/a/memory.max: 8 GiB" in snapshot.limits[1]
    assert [level.headroom_bytes // GiB for level in levels] == [5, 5, 1]


def test_a_limit_of_zero_is_exhausted_and_not_a_size(machine: Machine) -> None:
    """A container that is being squeezed out has nothing to give, and rejects nobody."""
    machine.root.memory_v2("/job", max_bytes=0, current_bytes=GiB)

    snapshot = machine.snapshot()

    assert (snapshot.ram_total_bytes, snapshot.ram_available_bytes) == (16 * GiB, 0)
    assert snapshot.contradiction is None


def test_more_use_than_the_limit_is_no_headroom(machine: Machine) -> None:
    """A limit below the present use is legal, and gives nothing negative."""
    machine.root.memory_v2("/job", max_bytes=2 * GiB, current_bytes=3 * GiB)
    assert machine.snapshot().ram_available_bytes == 0

    machine.root.memory_v2(
        "/job", max_bytes=2 * GiB, current_bytes=GiB, inactive_file_bytes=3 * GiB
    )
    assert machine.snapshot().ram_available_bytes == 2 * GiB


def test_the_breakdown_is_read_only_below_a_limit(machine: Machine) -> None:
    """`memory.stat` is costly: the kernel sums up all CPUs for it."""
    machine.root.memory_v2("/a", max_bytes=4 * GiB)
    machine.root.memory_v2("/a/b")

    read = machine.probe.files_read()

    assert sum(path.endswith("/a/memory.stat") for path in read) == 1
    assert not any(path.endswith("/b/memory.stat") for path in read)


@pytest.mark.parametrize("name", ["memory.max", "memory.high", "memory.current", "cpu.max"])
def test_an_unreadable_file_is_no_limit_and_warned_about_once(
    machine: Machine, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One odd file takes nothing else away."""
    machine.root.memory_v2("/job", max_bytes=8 * GiB, high_bytes=8 * GiB, current_bytes=0)
    machine.root.cpu_v2("/job", quota_us=100_000)
    machine.root.make_unreadable(f"sys/fs/cgroup/job/{name}")

    with caplog.at_level(logging.WARNING, logger="lardon"):
        snapshots = [machine.snapshot() for _ in range(3)]

    assert len(caplog.records) == 1
    assert name in caplog.text
    assert snapshots[2].cpus == (8 if name == "cpu.max" else 1)
    assert snapshots[2].ram_available_bytes == 8 * GiB


def test_pressure_is_that_of_the_own_group_where_there_is_one(machine: Machine) -> None:
    """Else it is the host's, and unknown where the kernel keeps none."""
    assert machine.snapshot().io_pressure is None
    for resource, own, whole in (("cpu", 1.5, 9.0), ("memory", 2.5, 8.0), ("io", 3.5, 7.0)):
        machine.root.pressure(resource, whole)  # type: ignore[arg-type]  # of the three
        machine.root.pressure(resource, own, cgroup="/job")  # type: ignore[arg-type]
    machine.root.remove("sys/fs/cgroup/job/io.pressure")

    snapshot = machine.snapshot()

    assert (snapshot.cpu_pressure, snapshot.memory_pressure) == (1.5, 2.5)
    assert snapshot.io_pressure == 7.0


@pytest.mark.parametrize("text", ["", "\n", "some avg10=oops", "full avg10=1.00\n", "nan"])
def test_unusable_pressure_is_unknown(machine: Machine, text: str) -> None:
    """Unknown is None, never 0."""
    machine.root.write("proc/pressure/memory", text)

    assert machine.snapshot().memory_pressure is None


def test_pressure_that_the_kernel_was_booted_without_is_unknown(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The files are there and say "not supported": no figure, and nothing to warn about."""
    machine.root.pressure("memory", 7.0)
    off = (machine.root.path / "proc/pressure/memory").stat().st_ino
    pread = os.pread

    def refusing(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == off:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return pread(fd, size, offset)

    monkeypatch.setattr("lardon.governor.probes.files.pread", refusing)

    snapshot = machine.snapshot()

    assert snapshot.memory_pressure is None
    assert snapshot.load1 == 0.5
    assert not caplog.records


def test_a_process_that_moves_is_found_where_it_is(tmp_path: Path) -> None:
    """A kept-open layout notices the move by `proc/self/cgroup`, before it gives a figure."""
    from lardon.testing.root import FakeRoot

    root = FakeRoot(tmp_path)
    root.memory_v2("/first", max_bytes=4 * GiB)
    root.memory_v2("/second", max_bytes=2 * GiB)
    root.process_in("", "/first")
    host = linux.LinuxHost(str(tmp_path), {}, rlimits=False, warnings=Warnings())
    host._keep_s = 1e9  # keeps files open, as it does on the real root

    def total() -> int:
        found = host.read(lambda: 0.0, (), ())
        assert found is not None
        return found.ram_total_bytes

    assert total() == 4 * GiB
    kept = host._layout
    rewrite(root.path / "sys/fs/cgroup/first/memory.max", f"{5 * GiB}\n")
    assert total() == 5 * GiB
    assert host._layout is kept

    rewrite(root.path / "proc/self/cgroup", "0::/second\n")
    assert total() == 2 * GiB
    assert host._layout is not kept


def rewrite(path: Path, text: str) -> None:
    """Change a file in place, as the kernel does: the same inode."""
    with path.open("r+") as file:
        file.truncate(0)
        file.write(text)


def test_a_file_that_vanishes_is_not_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed cgroup gives an error: the layout is looked up again, nothing is guessed."""
    path = tmp_path / "memory.max"
    path.write_text("5\n")
    file = ControlFile(str(path), amount, 0, Warnings())
    batch = Batch([file])
    assert batch.read() == [b"5\n"]

    def gone(_fd: int, _size: int, _offset: int) -> bytes:
        raise OSError(19, os.strerror(19))

    monkeypatch.setattr("lardon.governor.probes.files.pread", gone)

    with pytest.raises(VanishedError):
        file.read()
    with pytest.raises(VanishedError):
        batch.read()


def test_a_file_longer_than_a_page_is_read_whole(tmp_path: Path) -> None:
    """`memory.stat` grows with every kernel."""
    path = tmp_path / "long"
    path.write_bytes(b"x" * 10_000 + b"7")

    assert ControlFile(str(path), len, 0, Warnings()).read() == 10_001


def test_a_number_that_gets_longer_is_read_whole(tmp_path: Path) -> None:
    """A batch asks for a little more than there was: enough for any number."""
    path = tmp_path / "limit"
    path.write_text("1\n")
    batch = Batch([ControlFile(str(path), amount, 0, Warnings())])
    rewrite(path, "9223372036854771712\n")

    assert batch.read() == [b"9223372036854771712\n"]


def test_new_files_are_found_within_a_second(machine: Machine) -> None:
    """A controller that is switched on later is seen when the layout is looked up again."""
    layout = Layout(str(machine.root.path), Warnings())

    assert layout.is_current(1e9)
    assert not layout.is_current(0.0)
    assert linux.LAYOUT_S <= 1.0


def test_a_limit_that_cannot_be_opened_for_want_of_descriptors_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known then: the reading fails, and nothing starts on no data."""
    root = FakeRoot(tmp_path)
    root.memory(total_bytes=16 * GiB, available_bytes=12 * GiB)
    root.memory_v2("/job", max_bytes=2 * GiB, current_bytes=GiB // 2)
    governor = Governor(probe=SystemProbe(root, FakeNvml([]), environ={}))
    asked = ResourceEstimate(ram_bytes=8 * GiB)
    assert governor.decide(asked).kind is DecisionKind.REJECT
    really_open = os.open

    def exhausted(path: str, flags: int, *more: int) -> int:
        if "memory.max" in str(path):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return really_open(path, flags, *more)

    monkeypatch.setattr(os, "open", exhausted)
    assert governor.decide(asked).reason.code is ReasonCode.PROBE_FAILED
    monkeypatch.undo()
    assert governor.decide(asked).kind is DecisionKind.REJECT
