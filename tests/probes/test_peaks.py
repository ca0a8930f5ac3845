"""The most memory of a batch: the kernel's mark, samples, children, forks and overlaps."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import mmap
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from lardon.forks import _count
from lardon.governor.probes import SystemProbe, children, peaks
from lardon.governor.probes.children import Children, has_children
from lardon.governor.probes.peaks import THREAD_NAME, MarkedPeak, SampledPeak, reset_mark
from lardon.governor.probes.portable import PortableHost
from lardon.governor.probes.process_limits import own_ram_bytes, peak_ram_bytes
from lardon.governor.snapshot import OwnUse
from lardon.testing.nvml import FakeGpu, FakeNvml, FakeProcess
from lardon.testing.root import FakeRoot
from lardon.units import KiB, MiB

LINUX: Final = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the mark is Linux's"
)
PATIENCE_S: Final = 10.0


@pytest.fixture(autouse=True)
def _no_child_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an earlier test's child, if there is one, not count for these."""
    if has_children():
        monkeypatch.setattr(children, "has_children", lambda: False)


def no_gpu() -> dict[str, int]:
    return {}


def marked(read: Callable[[], int | None] = lambda: 500) -> MarkedPeak:
    return MarkedPeak(read, no_gpu)


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


@pytest.fixture
def real() -> SystemProbe:
    """Return a probe of this machine, or skip where the kernel tells no mark."""
    probe = SystemProbe(nvml=FakeNvml(), environ={})
    if not reset_mark("/") or peak_ram_bytes(Path("/proc/self/status").read_bytes()) is None:
        pytest.skip("this kernel tells no high-water mark")
    return probe


@LINUX
def test_what_came_and_went_within_a_batch_is_seen(real: SystemProbe) -> None:
    before = real.own_use()
    watch = real.watch_peak()
    block = bytearray(64 * MiB)
    del block
    assert watch is not None
    peak = watch.stop()

    assert isinstance(watch, MarkedPeak)
    assert before is not None
    assert peak is not None
    assert 60 * MiB < peak.ram_bytes - before.ram_bytes < 76 * MiB
    # The next batch begins anew.
    watch = real.watch_peak()
    assert watch is not None
    quiet = watch.stop()
    assert quiet is not None
    assert quiet.ram_bytes < peak.ram_bytes - 48 * MiB


@LINUX
def test_a_mapped_file_that_stays_mapped_is_not_counted(real: SystemProbe, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(bytes(64 * MiB))
    before, watch = real.own_use(), real.watch_peak()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        assert sum(pages[place] for place in range(0, len(pages), mmap.PAGESIZE)) == 0
        assert watch is not None
        peak = watch.stop()

    assert before is not None
    assert peak is not None
    assert peak.ram_bytes - before.ram_bytes < 24 * MiB


@LINUX
def test_a_batch_with_a_child_that_came_and_went_teaches_nothing(real: SystemProbe) -> None:
    watch = real.watch_peak()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert watch is not None

    assert watch.stop() is None


@LINUX
def test_a_batch_with_a_child_that_lives_teaches_nothing() -> None:
    begun_before = marked()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert begun_before.stop() is None
        assert marked().stop() is None
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(PATIENCE_S) == 0
    assert marked().stop() == OwnUse(ram_bytes=500)


@pytest.mark.parametrize(("first", "last"), [(True, False), (False, True)])
def test_a_child_at_either_end_is_enough(
    monkeypatch: pytest.MonkeyPatch, first: bool, last: bool
) -> None:
    """Also where nobody waited for it: the account says nothing then."""
    monkeypatch.setattr(children, "_account", lambda: None)
    monkeypatch.setattr(children, "has_children", lambda: first)
    watched = Children()
    monkeypatch.setattr(children, "has_children", lambda: last)

    assert watched.seen()


def test_without_an_account_of_children_the_living_ones_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "getrusage", None)

    assert not Children().seen()


def test_a_platform_without_an_account_of_children_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert children.__file__ is not None
    spec = importlib.util.spec_from_file_location("children_afresh", children.__file__)
    assert spec is not None
    assert spec.loader is not None
    afresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(afresh)

    assert afresh._account() is None


@pytest.mark.parametrize("found", [[], [types.SimpleNamespace(pid=-1)]])
def test_without_waitid_psutil_is_asked(
    monkeypatch: pytest.MonkeyPatch, found: list[types.SimpleNamespace]
) -> None:
    class Process:
        def children(self) -> list[types.SimpleNamespace]:
            return found

    monkeypatch.setattr(children, "_waitid", None)
    monkeypatch.setattr(psutil, "Process", Process)

    assert has_children() is bool(found)


def test_two_watches_at_a_time_know_nothing_and_the_next_one_does() -> None:
    first, second = marked(), marked()

    assert first.stop() is None
    assert second.stop() is None
    assert marked().stop() == OwnUse(ram_bytes=500)


def test_a_watch_within_another_spoils_both() -> None:
    outer = marked()
    inner = marked()
    assert inner.stop() is None
    assert outer.stop() is None


def test_a_watch_that_was_dropped_disturbs_nobody() -> None:
    dropped = marked()
    del dropped
    gc.collect()

    assert marked().stop() == OwnUse(ram_bytes=500)


@pytest.mark.parametrize("kind", [MarkedPeak, SampledPeak])
def test_a_watch_that_could_not_be_read_disturbs_nobody(kind: type[Any]) -> None:
    answers: list[int | None] = [500]
    unread = kind(lambda: answers[0], no_gpu)
    answers[0] = None

    assert unread.stop() is None
    assert marked().stop() == OwnUse(ram_bytes=500)


@pytest.mark.parametrize("kind", [MarkedPeak, SampledPeak])
def test_a_watch_that_failed_disturbs_nobody_and_leaves_no_thread(kind: type[Any]) -> None:
    broken = threading.Event()

    def read() -> int:
        if broken.is_set():
            raise OSError
        return 500

    failed = kind(read, no_gpu)
    broken.set()
    # A sample may have met the error first; then nothing is known, and nothing raised.
    with contextlib.suppress(OSError):
        assert failed.stop() is None
    assert samplers() == []
    assert marked().stop() == OwnUse(ram_bytes=500)


def test_a_fork_meanwhile_makes_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lardon.forks._forks", 0)
    parents = marked()
    _count()
    childs = marked()

    assert childs.stop() == OwnUse(ram_bytes=500), "the parent's watch is none of the child's"
    assert parents.stop() is None


def test_gpu_memory_is_read_at_the_end(tmp_path: Path) -> None:
    card = FakeGpu(uuid="GPU-1", processes=[FakeProcess(pid=os.getpid(), used_bytes=10)])
    probe = SystemProbe(tmp_machine(tmp_path), nvml=FakeNvml([card]), environ={})
    probe.snapshot()
    watch = probe.watch_peak()
    assert watch is not None
    card.processes[0].used_bytes = 70
    peak = watch.stop()

    assert peak is not None
    assert peak.gpu_bytes == {"GPU-1": 70}


def tmp_machine(path: Path, *, mark: bool = True) -> FakeRoot:
    root = FakeRoot(path)
    status(root)
    if mark:
        root.write("proc/self/clear_refs", "")
    return root


def status(root: FakeRoot, **changes: int | None) -> None:
    """Write the lines of memory as the kernel does, in KiB; None leaves a line out."""
    sizes: dict[str, int | None] = {"VmHWM": 1000, "RssAnon": 300, "RssFile": 200, "RssShmem": 50}
    lines = [
        f"{name}:\t{size:>8} kB\n"
        for name, size in {**sizes, **changes}.items()
        if size is not None
    ]
    root.write("proc/self/status", "Name:\tpython\n" + "".join(lines))


def peak_on(root: FakeRoot) -> OwnUse | None:
    watch = SystemProbe(root, nvml=FakeNvml(), environ={}).watch_peak()
    assert watch is not None
    return watch.stop()


@pytest.mark.parametrize(
    ("changes", "kib"),
    [
        ({}, 800),
        ({"RssFile": 0}, 1000),
        ({"VmHWM": 400}, 350),  # never less than what is used now
        ({"VmHWM": None}, None),
        ({"RssFile": None}, None),
        ({"RssAnon": None}, None),
    ],
)
def test_the_mark_less_the_pages_of_files(
    tmp_path: Path, changes: dict[str, int | None], kib: int | None
) -> None:
    root = tmp_machine(tmp_path)
    status(root, **changes)

    found = peak_on(root)

    assert found == (None if kib is None else OwnUse(ram_bytes=kib * KiB))
    assert (tmp_path / "proc/self/clear_refs").read_bytes() == b"5"


@pytest.mark.parametrize("trouble", ["absent", "a directory", "full"])
def test_without_a_mark_to_reset_it_is_sampled(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_machine(tmp_path, mark=trouble == "full")
    if trouble == "a directory":
        root.make_unreadable("proc/self/clear_refs")
    if trouble == "full":
        (tmp_path / "proc/self/clear_refs").unlink()
        (tmp_path / "proc/self/clear_refs").symlink_to("/dev/full")
    before = len(os.listdir("/proc/self/fd")) if trouble == "full" else 0  # noqa: PTH208

    assert not reset_mark(os.fspath(root))
    if trouble == "full":
        assert len(os.listdir("/proc/self/fd")) == before, "the file is closed"  # noqa: PTH208
    assert peak_on(root) == OwnUse(ram_bytes=350 * KiB)
    assert samplers() == []


def highest_of(samples: list[int | None], last: int | None = 10) -> OwnUse | None:
    """Return the peak where the first sample is 10, then those, then the last."""
    script: Iterator[int | None] = iter([10, *samples])
    seen = threading.Event()

    def read() -> int | None:
        try:
            return next(script)
        except StopIteration:
            seen.set()
            return last

    watch = SampledPeak(read, no_gpu)
    assert seen.wait(PATIENCE_S) or None in samples
    return watch.stop()


def test_the_highest_sample_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "SAMPLE_S", 0.0001)

    assert highest_of([20, 90, 30]) == OwnUse(ram_bytes=90)
    assert highest_of([20], last=95) == OwnUse(ram_bytes=95)
    assert highest_of([]) == OwnUse(ram_bytes=10)
    assert samplers() == []


def test_a_sample_that_fails_makes_the_peak_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "SAMPLE_S", 0.0001)
    for failure in (None, OSError("gone")):
        met = threading.Event()
        answers: list[int | OSError | None] = [10]

        def read(
            met: threading.Event = met, answers: list[int | OSError | None] = answers
        ) -> int | None:
            answer = answers[0]
            if threading.current_thread().name == THREAD_NAME and answer != 10:
                met.set()
            if isinstance(answer, OSError):
                raise answer
            return answer

        watch = SampledPeak(read, no_gpu)
        answers[0] = failure
        assert met.wait(PATIENCE_S)
        answers[0] = 10

        assert watch.stop() is None
        assert samplers() == []


def test_without_a_first_sample_no_thread_is_started() -> None:
    watch = SampledPeak(lambda: None, no_gpu)

    assert samplers() == []
    assert watch.start is None
    assert watch.stop() is None


def test_a_sampling_watch_that_is_dropped_takes_its_thread_along() -> None:
    watch = SampledPeak(lambda: 10, no_gpu)
    (thread,) = samplers()
    del watch
    gc.collect()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()


def test_elsewhere_resident_memory_is_sampled() -> None:
    """Its growth is what counts, pages of files included."""
    watch = PortableHost().watch_ram(lambda: {"GPU-1": 7})
    block = bytearray(32 * MiB)
    peak = watch.stop()
    del block

    assert isinstance(watch, SampledPeak)
    assert watch.start is not None
    assert peak is not None
    assert watch.start.gpu_bytes == peak.gpu_bytes == {"GPU-1": 7}
    assert peak.ram_bytes - watch.start.ram_bytes > 24 * MiB


@pytest.mark.parametrize(
    ("raw", "own"),
    [
        (b"X:\nRssAnon:\t  3 kB\nRssFile:\t  9 kB\nRssShmem:\t  2 kB\n", 5 * KiB),
        (b"X:\nRssShmem:\t  2 kB\nRssAnon:\t  3 kB\n", 5 * KiB),
        (b"X:\nRssAnon:\t  3 kB\n", None),
        (b"", None),
    ],
)
def test_own_memory_in_any_layout(raw: bytes, own: int | None) -> None:
    assert own_ram_bytes(raw) == own


def test_the_resource_tracker_of_multiprocessing_is_no_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracker = types.ModuleType("multiprocessing.resource_tracker")
    tracker._resource_tracker = types.SimpleNamespace(_pid=7)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, tracker.__name__, tracker)
    monkeypatch.setattr(children, "_waitid", lambda *_: None)
    found = [types.SimpleNamespace(pid=7)]
    monkeypatch.setattr(psutil.Process, "children", lambda _self: found)
    assert not has_children()

    found.append(types.SimpleNamespace(pid=8))

    assert has_children()


def test_freed_memory_goes_back_to_the_system(real: SystemProbe) -> None:
    kept = [bytes(100_000) for _ in range(600)]
    last = bytes(100_000)
    before = real.own_use()
    kept.clear()
    real.tidy()
    after = real.own_use()

    assert before is not None
    assert after is not None
    assert before.ram_bytes - after.ram_bytes > 40 * MiB
    assert len(last) == 100_000


def test_a_c_library_without_trimming_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks._malloc_trim.cache_clear()
    monkeypatch.setattr("ctypes.CDLL", lambda _name: object())
    peaks.trim()
    peaks._malloc_trim.cache_clear()
