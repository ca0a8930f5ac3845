"""Machines, files and drivers that answer oddly: each costs its own figure and no more."""

from __future__ import annotations

import builtins
import ctypes
import errno
import importlib.util
import logging
import os
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

import lardon.forks
from lardon.governor.probes import SystemProbe, cpus, files, process_limits
from lardon.governor.probes.bounded import THREAD_NAME
from lardon.governor.probes.files import ControlFile, Descriptor, Warnings, read_whole
from lardon.governor.probes.kernel_text import amount
from lardon.governor.probes.meminfo import MeminfoParser, parse_meminfo
from lardon.governor.probes.mounts import V2, parse_mounts
from lardon.governor.probes.nvml import NvmlReader
from lardon.governor.probes.nvml_cards import described, identify
from lardon.governor.probes.nvml_library import find_nvml
from lardon.governor.probes.process_limits import own_ram_bytes
from lardon.testing.nvml import (
    NVML_ERROR_NOT_SUPPORTED,
    NVML_ERROR_UNKNOWN,
    FakeGpu,
    FakeInstance,
    FakeNvml,
    FakeProcess,
)
from lardon.units import GiB, KiB

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probes.conftest import Machine

# What a driver that hangs costs each reading here; one that answers is not waited for.
SHORT_S: Final = 0.05
MEMINFO: Final = (
    b"MemTotal:       16777216 kB\n"
    b"MemFree:         1048576 kB\n"
    b"MemAvailable:   12582912 kB\n"
    b"Buffers:            2048 kB\n"
    b"Cached:            10240 kB\n"
    b"SwapTotal:             0 kB\n"
    b"SwapFree:              0 kB\n"
    b"Shmem:              4096 kB\n"
)
LINUX_ONLY: Final = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads Linux's control files"
)


def afresh(module: ModuleType) -> Any:
    """Return *module* run once more, under another name: what it found at import is found anew."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_afresh", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def reader(machine: Machine) -> NvmlReader:
    """Return a reader with a short bound."""
    return NvmlReader(
        machine.nvml,
        machine.environ,
        machine.clock.monotonic,
        warnings=Warnings(),
        bound_s=SHORT_S,
    )


def shown(gpus: NvmlReader) -> list[tuple[str, int | None]]:
    return [(card.uuid, card.free_bytes) for card in gpus.read().gpus]


def settle() -> None:
    """Wait until every helper thread has ended."""
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(5)
            assert not thread.is_alive()


# The process moves, or its files go away


def vanishing(machine: Machine, monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """Let the membership be read once after each opening, and be gone then, so many times."""
    place = machine.root.path / "proc/self/cgroup"
    inode, really = place.stat().st_ino, files.pread
    reads = iter(range(2 * times))

    def pread(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == inode and next(reads, 0) % 2:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        return really(fd, size, offset)

    monkeypatch.setattr(files, "pread", pread)


@pytest.mark.parametrize("times", [1, 2])
def test_a_process_that_moves_while_it_is_read_is_read_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    machine.root.memory_v2("/job", max_bytes=4 * GiB)
    machine.root.process(rss_anon_bytes=GiB)

    vanishing(machine, monkeypatch, times=times)
    assert machine.snapshot().ram_total_bytes == 4 * GiB
    vanishing(machine, monkeypatch, times=times)
    use = machine.probe.own_use()
    assert use is not None
    assert use.ram_bytes == GiB
    vanishing(machine, monkeypatch, times=times)
    assert [level.limit_bytes for level in machine.probe.memory_levels()] == [4 * GiB]


def test_a_process_that_never_stays_has_no_figures(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three tries the reading says nothing, and nobody decides on it."""
    machine.root.memory_v2("/job", max_bytes=4 * GiB)
    vanishing(machine, monkeypatch, times=100)

    snapshot = machine.snapshot()

    assert (snapshot.ram_total_bytes, snapshot.ram_available_bytes) == (0, 0)
    assert machine.probe.own_use() is None
    assert machine.probe.memory_levels() == ()
    assert machine.probe.files_read() == ()


def test_a_process_without_a_status_tells_no_use(machine: Machine) -> None:
    machine.root.remove("proc/self/status")

    assert machine.probe.own_use() is None
    assert machine.snapshot().ram_total_bytes == 16 * GiB


# Files


def test_a_descriptor_s_number_that_is_another_file_s_now_stays_open(tmp_path: Path) -> None:
    """A child that closed everything may have got the number again."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text("ours")
    theirs.write_text("theirs")
    descriptor = Descriptor(str(ours))
    number = descriptor.fd
    other = os.open(theirs, os.O_RDONLY)
    try:
        os.dup2(other, number)
        del descriptor

        assert os.read(number, 100) == b"theirs"
    finally:
        os.close(number)
        os.close(other)


def test_a_descriptor_that_somebody_closed_goes_quietly(tmp_path: Path) -> None:
    """A daemon closes every descriptor; an error in `__del__` would be a warning."""
    path = tmp_path / "file"
    path.write_text("1\n")
    descriptor = Descriptor(str(path))
    number = descriptor.fd
    os.close(number)

    del descriptor

    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(number)


def test_a_file_that_may_not_be_opened_is_no_limit_and_warned_about_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine.root.memory_v2("/job", max_bytes=4 * GiB)
    really_open = os.open

    def refusing(path: str, flags: int, *more: int) -> int:
        if path.endswith("memory.max"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really_open(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)
    with caplog.at_level(logging.WARNING, logger="lardon"):
        totals = {machine.snapshot().ram_total_bytes for _ in range(2)}

    assert totals == {16 * GiB}
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) > 0
    assert "memory.max: ignored, because it cannot be opened" in caplog.text


def test_a_mount_table_that_cannot_be_opened_for_want_of_descriptors_fails_the_reading(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of the limits then, least of all that there is none."""
    machine.root.memory_v2("/job", max_bytes=4 * GiB)

    really_open = builtins.open

    def exhausted(path: Any, *more: Any, **named: Any) -> Any:
        if str(path).endswith("mountinfo"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return really_open(path, *more, **named)

    monkeypatch.setattr(files, "open", exhausted, raising=False)
    with pytest.raises(OSError, match="Too many open files"):
        machine.snapshot()
    monkeypatch.undo()
    assert machine.snapshot().ram_total_bytes == 4 * GiB


def test_a_path_that_no_file_can_have_is_no_file() -> None:
    assert read_whole("/proc/\0/mountinfo") is None


def test_a_platform_without_positioned_reads_reads_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading begins at the first byte, wherever the last one ended."""
    path = tmp_path / "limit"
    path.write_text("41\n")
    monkeypatch.delattr(os, "pread", raising=False)

    module = afresh(files)
    monkeypatch.setattr(files, "pread", module.pread)
    file = ControlFile(str(path), amount, 0, Warnings())

    assert (file.read(), file.read()) == (41, 41)
    assert module.pread(file.descriptor.fd, 1, 1) == b"1"


# What the kernel writes


def test_an_available_figure_that_is_no_number_is_estimated() -> None:
    """The quick parser hands it to the careful one, which says so."""
    parse = MeminfoParser()
    assert parse(MEMINFO).available_bytes == 12 * GiB
    odd = MEMINFO.replace(b"12582912", b"plenty  ")

    memory = parse(odd)

    assert memory == parse_meminfo(odd)
    assert memory.available_bytes == GiB + (10240 + 2048 - 4096) * KiB
    assert "MemAvailable is missing" in memory.note


@pytest.mark.parametrize("figure", ["-1.00", "inf", "nan"])
def test_a_share_of_time_that_cannot_be_is_unknown(
    machine: Machine, figure: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads as a number, and is none that a limit could be held against."""
    machine.root.write("proc/pressure/io", f"some avg10={figure} avg60=0.00 total=1\n")

    with caplog.at_level(logging.WARNING, logger="lardon"):
        snapshot = machine.snapshot()

    assert snapshot.io_pressure is None
    assert "not a finite number of at least 0" in caplog.text


def test_empty_files_of_the_first_version_are_no_limit(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing to warn about either."""
    machine.root.memory_v1("/job", limit_bytes=4 * GiB)
    machine.root.cpu_v1("/job", quota_us=100_000)
    assert (machine.snapshot().ram_total_bytes, machine.snapshot().cpus) == (4 * GiB, 1)
    for name in ("memory.limit_in_bytes", "cpu.cfs_quota_us"):
        [place] = machine.root.path.glob(f"sys/fs/cgroup/**/job/{name}")
        place.write_text("\n")

    with caplog.at_level(logging.WARNING, logger="lardon"):
        snapshot = machine.snapshot()

    assert (snapshot.ram_total_bytes, snapshot.cpus) == (16 * GiB, 8)
    assert not caplog.records


def test_a_limit_that_the_table_does_not_list_is_none(machine: Machine) -> None:
    """The other one still counts."""
    machine.root.write("proc/self/limits", f"{'Max data size':<26}{4 * GiB}\n")

    assert machine.snapshot().ram_total_bytes == 4 * GiB


def test_a_limit_without_a_value_is_none_and_warned_about(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.root.write("proc/self/limits", f"{'Max address space':<26}\n")

    with caplog.at_level(logging.WARNING, logger="lardon"):
        snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 16 * GiB
    assert snapshot.limits == ()
    assert "no value for b'Max address space'" in caplog.text


def test_resident_memory_that_is_written_without_a_space_is_read() -> None:
    status = b"Name:\tpython\nRssAnon:\t8 kB\nRssFile:\t1 kB\nRssShmem:\t4kB\nVmData:\t3 kB\n"

    assert own_ram_bytes(status) == 12 * KiB


def test_a_soft_ceiling_above_the_host_is_none(machine: Machine) -> None:
    machine.root.memory_v2("/job", high_bytes=64 * GiB)

    assert machine.snapshot().ram_available_bytes == 12 * GiB
    assert machine.probe.memory_levels() == ()


def test_a_cpu_list_that_is_none_leaves_the_affinity(machine: Machine) -> None:
    machine.root.cpus(8, affinity="0-2")
    machine.root.write("sys/devices/system/cpu/online", "several\n")

    assert machine.snapshot().cpus == 3


def test_a_process_whose_affinity_is_not_told_may_use_every_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(_pid: int) -> set[int]:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    monkeypatch.setattr(cpus, "_sched_getaffinity", nobody)

    assert cpus.affinity(1) is None


def test_a_file_system_that_is_only_named_like_a_cgroup_is_none() -> None:
    odd = b"30 23 0:26 / /odd rw - cgroupfuse none rw\n"
    usual = b"31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

    assert [(mount.version, mount.point) for mount in parse_mounts(odd + usual)] == [
        (V2, "/sys/fs/cgroup")
    ]


def test_limits_that_do_not_count_are_not_read(machine: Machine) -> None:
    """Of a probe that is told to leave `ulimit` out."""
    machine.root.rlimits(address_space_bytes=GiB)
    told = SystemProbe(
        machine.root, machine.nvml, machine.environ, rlimits=False, clock=machine.clock
    )

    assert told.snapshot().ram_total_bytes == 16 * GiB
    assert not any(path.endswith("self/limits") for path in told.files_read())
    assert any(path.endswith("self/limits") for path in machine.probe.files_read())


# Other platforms


def test_a_platform_without_ulimit_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)

    module = afresh(process_limits)

    assert module.current_limits() is module.NO_LIMITS


def test_a_platform_without_a_load_average_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unobtainable() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unobtainable, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")

    snapshot = SystemProbe(nvml=FakeNvml(), environ={}).snapshot()

    assert snapshot.load1 is None
    assert snapshot.ram_total_bytes == psutil.virtual_memory().total


@LINUX_ONLY
def test_a_linux_that_hides_meminfo_has_what_psutil_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each reading, and nothing at all when that fails too."""

    def hidden(_raw: bytes) -> None:
        raise ValueError

    monkeypatch.setattr("lardon.governor.probes.meminfo.parse_meminfo", hidden)
    probe = SystemProbe(nvml=FakeNvml(), environ={})
    total = psutil.virtual_memory().total

    assert [probe.snapshot().ram_total_bytes for _ in range(2)] == [total, total]

    def failing() -> None:
        raise KeyError

    monkeypatch.setattr(psutil, "virtual_memory", failing)
    snapshot = probe.snapshot()
    assert (snapshot.ram_total_bytes, snapshot.ram_available_bytes) == (0, 0)
    assert snapshot.limits == ("RAM cannot be read from /proc/meminfo",)


def test_windows_is_asked_for_the_driver_without_a_look_at_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name is another there; pynvml knows where it is."""

    def missing(name: str) -> None:
        raise OSError(name)

    binding = ModuleType("pynvml")
    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setitem(sys.modules, "pynvml", binding)
    monkeypatch.setattr(sys, "platform", "win32")

    assert find_nvml() is binding


# Drivers


def test_a_machine_out_of_threads_says_nothing_of_its_cards(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is not "no GPU", and the next reading tries again."""
    machine.nvml.devices = [FakeGpu(uuid="GPU-a", free_bytes=GiB)]
    gpus = reader(machine)

    def exhausted(_thread: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", exhausted)
        assert shown(gpus) == [("unavailable-0", None)]

    assert shown(gpus) == [("GPU-a", GiB)]


def test_a_forked_child_starts_the_driver_itself(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the parent started is the parent's; before it does so, it knows of no use."""
    mine = FakeProcess(pid=os.getpid(), used_bytes=GiB)
    machine.nvml.devices = [FakeGpu(uuid="GPU-a", free_bytes=GiB, processes=[mine])]
    gpus = reader(machine)
    shown(gpus)
    shown(gpus)
    assert machine.nvml.calls["nvmlInit"] == 1
    assert gpus.own_bytes() == {"GPU-a": GiB}

    monkeypatch.setattr(lardon.forks, "_forks", lardon.forks.forks() + 1)

    assert gpus.own_bytes() == {}
    assert shown(gpus) == [("GPU-a", GiB)]
    assert machine.nvml.calls["nvmlInit"] == 2
    assert gpus.own_bytes() == {"GPU-a": GiB}


def test_a_card_that_hangs_at_its_name_is_not_learnt_from_late(machine: Machine) -> None:
    """The helper that was given up finds the answer of no use, and the card is left alone."""
    machine.nvml.devices = [FakeGpu(uuid="GPU-a", free_bytes=GiB)]
    gpus = reader(machine)
    machine.nvml.hang("nvmlDeviceGetUUID", index=0)
    assert shown(gpus) == [("unavailable-0", None)]

    machine.nvml.recover()
    settle()

    assert shown(gpus) == [("unavailable-0", None)]
    machine.clock.advance(30)
    assert shown(gpus) == [("GPU-a", GiB)]


def test_a_card_that_hangs_at_its_processes_is_left_alone(machine: Machine) -> None:
    """Its use is not known for a while, and asking costs the bound once."""
    mine = FakeProcess(pid=os.getpid(), used_bytes=GiB)
    machine.nvml.devices = [FakeGpu(uuid="GPU-a", free_bytes=GiB, processes=[mine])]
    gpus = reader(machine)
    shown(gpus)
    machine.nvml.hang("nvmlDeviceGetComputeRunningProcesses")
    assert gpus.own_bytes() == {}

    machine.nvml.recover()
    settle()

    assert gpus.own_bytes() == {}
    assert machine.nvml.calls["nvmlDeviceGetComputeRunningProcesses"] == 1
    machine.clock.advance(30)
    assert gpus.own_bytes() == {"GPU-a": GiB}


def test_a_driver_that_does_not_list_processes_tells_no_use(machine: Machine) -> None:
    machine.nvml.devices = [FakeGpu(uuid="GPU-a", free_bytes=GiB)]
    machine.nvml.fail("nvmlDeviceGetComputeRunningProcesses", NVML_ERROR_UNKNOWN)
    gpus = reader(machine)

    assert shown(gpus) == [("GPU-a", GiB)]
    assert gpus.own_bytes() == {}


@pytest.mark.parametrize(("listed", "expected"), [(0, 1), (1, 1), (3, 3)])
def test_a_driver_at_its_start_has_the_cards_that_the_kernel_lists(
    machine: Machine, listed: int, expected: int
) -> None:
    """At least one: where nothing is listed, nothing is known."""
    for place in range(listed):
        machine.root.write(f"proc/driver/nvidia/gpus/{place}/information", "")
    machine.nvml.hang("nvmlInit")
    machine.probe._gpus._bound_s = SHORT_S

    cards = machine.snapshot().gpus

    assert [card.uuid for card in cards] == [f"unavailable-{place}" for place in range(expected)]
    assert not any(card.known for card in cards)


def test_an_error_that_cannot_be_put_into_words_has_its_kind() -> None:
    """The binding asks the driver for the text, which may be gone."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise OSError

    assert described(MuteError()) == "MuteError"


def mig_card(*uuids: str | bytes) -> FakeGpu:
    return FakeGpu(
        uuid="GPU-a",
        mig_mode=True,
        instances=[
            FakeInstance(uuid=uuid, total_bytes=8 * GiB, free_bytes=7 * GiB)  # type: ignore[arg-type]  # bytes with some bindings
            for uuid in uuids
        ],
    )


def test_a_card_that_knows_no_mig_mode_is_used_whole(machine: Machine) -> None:
    """Nearly every card says that this is not supported."""
    machine.nvml.devices = [FakeGpu(uuid="GPU-a", free_bytes=GiB)]
    machine.nvml.fail("nvmlDeviceGetMigMode", NVML_ERROR_NOT_SUPPORTED)

    assert shown(reader(machine)) == [("GPU-a", GiB)]


def test_a_card_that_does_not_count_its_instances_has_none(machine: Machine) -> None:
    machine.nvml.devices = [mig_card("MIG-a")]
    machine.nvml.fail("nvmlDeviceGetMaxMigDeviceCount", NVML_ERROR_UNKNOWN)

    assert shown(reader(machine)) == [("GPU-a", None)]


def test_an_instance_whose_uuid_is_no_text_cannot_be_used(machine: Machine) -> None:
    """Nothing could be booked on it; CUDA counts the one beside it."""
    machine.nvml.devices = [mig_card(b"\xff", "MIG-b")]

    assert shown(reader(machine)) == [("MIG-b", 7 * GiB)]


def test_an_instance_without_its_numbers_is_known_by_its_uuid() -> None:
    nvml = FakeNvml([mig_card("MIG-a")])
    nvml.nvmlInit()
    nvml.fail("nvmlDeviceGetGpuInstanceId", NVML_ERROR_UNKNOWN)

    [instance] = identify(nvml, 0, None).card.instances

    assert (instance.uuid, instance.gpu_instance, instance.compute_instance) == ("MIG-a", None, 0)
