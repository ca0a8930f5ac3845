"""The probe on the machine that runs the tests, against psutil and against the kernel."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import psutil
import pytest

from lardon.governor.probes import SystemProbe
from lardon.governor.probes.making import make_snapshot
from lardon.governor.snapshot import ResourceSnapshot
from lardon.testing.clock import ManualClock
from lardon.testing.nvml import FakeNvml
from lardon.units import MiB

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads Linux's control files"
)

# What a machine with other work on it may gain or lose between two readings.
DRIFT = 256 * MiB


def real_probe() -> SystemProbe:
    return SystemProbe(nvml=FakeNvml(), environ={})


def descriptors() -> set[str]:
    """Return the open files of this process, by what they are."""
    return {name_of(number) for number in numbers()}


def numbers() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]


def name_of(number: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{number}").readlink())
    except FileNotFoundError:
        return ""


def kept(probe: SystemProbe) -> set[str]:
    """Return the probe's files that are open now, as the kernel names them."""
    own = f"/proc/{os.getpid()}"
    return {path.replace("/proc/self", own) for path in probe.files_read()} & descriptors()


def test_agrees_with_psutil() -> None:
    """Where no container limits, the figures are psutil's; where one does, they are less."""
    probe = real_probe()
    snapshot, memory, swap = probe.snapshot(), psutil.virtual_memory(), psutil.swap_memory()

    if probe.memory_levels() or any("RLIMIT" in text for text in snapshot.limits):
        assert snapshot.ram_total_bytes <= memory.total
        assert snapshot.ram_available_bytes <= memory.available + DRIFT
    else:
        assert snapshot.ram_total_bytes == memory.total
        assert abs(snapshot.ram_available_bytes - memory.available) < DRIFT
    assert snapshot.swap_total_bytes == swap.total
    assert abs(snapshot.swap_used_bytes - swap.used) < DRIFT
    assert 1 <= snapshot.cpus <= len(os.sched_getaffinity(os.getpid()))
    assert snapshot.load1 is not None
    assert abs(snapshot.load1 - os.getloadavg()[0]) < 5


def test_own_use_is_what_psutil_says() -> None:
    """RSS without pages of files."""
    own = real_probe().own_use()
    if own is None:
        pytest.skip("this kernel does not tell anonymous pages from those of files")
    info = psutil.Process().memory_info()

    assert abs(own.ram_bytes - (info.rss - info.shared)) < 64 * MiB
    assert own.gpu_bytes == {}


def test_own_use_grows_with_what_is_allocated() -> None:
    """Memory that this process touches is seen, and seen to go."""
    probe = real_probe()
    before = probe.own_use()
    if before is None:
        pytest.skip("this kernel does not tell anonymous pages from those of files")
    block = bytearray(64 * MiB)
    during = probe.own_use()
    del block
    after = probe.own_use()

    assert during is not None
    assert after is not None
    assert 60 * MiB < during.ram_bytes - before.ram_bytes < 80 * MiB
    assert after.ram_bytes < during.ram_bytes - 60 * MiB


def test_the_clock_is_asked_for_the_time_of_the_reading() -> None:
    """`taken_at` is the given clock's, not the wall's."""
    clock = ManualClock(start=42.0)

    assert SystemProbe(nvml=FakeNvml(), environ={}, clock=clock).snapshot().taken_at == 42.0


def test_the_files_stay_open_and_close_with_the_probe() -> None:
    """Each is opened once, and nothing is left when the probe goes; nothing warns."""
    probe = real_probe()
    probe.snapshot()
    files = kept(probe)
    assert "/proc/meminfo" in files
    gc.collect()
    count = len(numbers())
    for _ in range(100):
        probe.snapshot()
    assert len(numbers()) <= count

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.disable()
        try:
            del probe
            assert not files & descriptors()
        finally:
            gc.enable()


def test_the_files_are_not_inherited_by_a_program() -> None:
    """They are closed on exec."""
    probe = real_probe()
    probe.snapshot()
    files = kept(probe)
    flags = [os.get_inheritable(number) for number in numbers() if name_of(number) in files]

    assert flags
    assert not any(flags)


def in_child(work: Callable[[], str]) -> str:
    """Return what *work* says in a forked child."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, work().encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_itself() -> None:
    """An inherited descriptor of /proc/self would be the parent's memory."""
    probe = real_probe()
    probe.snapshot()
    parent = probe.own_use()
    if parent is None:
        pytest.skip("this kernel does not tell anonymous pages from those of files")

    def grown() -> str:
        block = bytearray(96 * MiB)
        own = probe.own_use()
        files = {name for name in descriptors() if name.startswith("/proc/")}
        assert own is not None
        mine = any(name.startswith(f"/proc/{os.getpid()}/") for name in files)
        foreign = any(name.startswith(f"/proc/{os.getppid()}/") for name in files)
        return f"{own.ram_bytes} {len(block)} {mine} {foreign}"

    used, _, mine, foreign = in_child(grown).split()

    assert int(used) > parent.ram_bytes + 60 * MiB
    assert (mine, foreign) == ("True", "False")
    # And the parent's files are still there.
    assert probe.snapshot().ram_total_bytes > 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_closed_everything_keeps_its_own_files() -> None:
    """A daemon closes all descriptors; the numbers may be somebody else's by then."""
    probe = real_probe()
    probe.snapshot()

    def daemonise() -> str:
        files = [number for number in numbers() if name_of(number) == "/proc/meminfo"]
        other = os.open("/dev/null", os.O_RDONLY)
        for number in files:
            os.dup2(other, number)
        assert probe.snapshot().ram_total_bytes > 0
        gc.collect()
        return str(bool(files) and all(name_of(number) == "/dev/null" for number in files))

    assert in_child(daemonise) == "True"


def test_descriptors_that_somebody_closed_are_opened_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Losing them must not look as if there were no limits."""
    probe = real_probe()
    before = probe.snapshot()
    files = kept(probe)
    closed = [number for number in numbers() if name_of(number) in files]
    for number in closed:
        os.close(number)

    after = probe.snapshot()

    assert len(closed) >= 2
    assert after.ram_total_bytes == before.ram_total_bytes
    assert after.load1 is not None
    assert kept(probe) == files
    assert not caplog.records


@pytest.mark.slow
def test_many_threads_read_at_once() -> None:
    """Readers share descriptors without a lock, also while the files are opened anew."""
    probe = real_probe()
    probe._host._keep_s = 0.002  # type: ignore[attr-defined]  # opened anew all the time
    problems: list[BaseException] = []
    start = threading.Barrier(4)

    def read() -> None:
        try:
            start.wait(5)
            for _ in range(200):
                snapshot = probe.snapshot()
                assert snapshot.contradiction is None
                assert snapshot.ram_total_bytes == total
        except BaseException as error:  # noqa: BLE001  shown by the assertion below
            problems.append(error)

    total = probe.snapshot().ram_total_bytes
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)

    assert not problems


def test_the_paths_are_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark compares a snapshot with bare reads of just these files."""
    probe = real_probe()
    probe.snapshot()
    paths = probe.files_read()
    assert "/proc/meminfo" in paths
    assert "/proc/self/cgroup" in paths
    assert "/proc/loadavg" in paths
    read: list[str] = []
    pread = os.pread

    def noted(fd: int, size: int, offset: int) -> bytes:
        read.append(name_of(fd))
        return pread(fd, size, offset)

    monkeypatch.setattr("lardon.governor.probes.files.pread", noted)
    probe.snapshot()

    assert read == [path.replace("/proc/self", f"/proc/{os.getpid()}") for path in paths]


def test_nothing_to_warn_about_here(caplog: pytest.LogCaptureFixture) -> None:
    """An ordinary machine has no odd file."""
    with caplog.at_level(logging.WARNING, logger="lardon"):
        real_probe().snapshot()

    assert not caplog.records


def test_the_quick_constructor_makes_the_same() -> None:
    """It sets every field that the class has, in order."""
    values = (1.0, 2, 3, 4, 5, 6, 7.0, 8.0, 9.0, 10.0, (), ("why",))
    names = [field.name for field in attrs.fields(ResourceSnapshot)]

    made = make_snapshot(*values)

    assert made == ResourceSnapshot(**dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
    assert attrs.astuple(made, recurse=False) == values
