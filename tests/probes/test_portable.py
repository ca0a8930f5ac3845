"""The host through psutil: macOS, Windows, and a Linux without a usable ``/proc``."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from lardon.governor.probes import SystemProbe
from lardon.governor.probes.portable import SWAP_KEEP_S, PortableHost
from lardon.testing.clock import ManualClock
from lardon.testing.nvml import FakeNvml
from lardon.units import GiB, MiB

if TYPE_CHECKING:
    from collections.abc import Callable

DRIFT = 256 * MiB


def portable_probe(monkeypatch: pytest.MonkeyPatch, platform: str = "darwin") -> SystemProbe:
    """Return a probe that believes to be on another platform."""
    monkeypatch.setattr(sys, "platform", platform)
    return SystemProbe(nvml=FakeNvml(), environ={}, clock=ManualClock(start=7.0))


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_other_platforms_get_psutil_s_figures(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    """No cgroup, no pressure, and nothing raises."""
    probe = portable_probe(monkeypatch, platform)

    snapshot, memory = probe.snapshot(), psutil.virtual_memory()

    assert snapshot.taken_at == 7.0
    assert snapshot.ram_total_bytes == memory.total
    assert abs(snapshot.ram_available_bytes - memory.available) < DRIFT
    assert snapshot.memory_pressure is None
    assert snapshot.cpus >= 1
    assert snapshot.limits == ()
    assert probe.own_use() is None
    assert probe.memory_levels() == ()
    assert probe.files_read() == ()


def test_swap_is_asked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow to read, and nobody decides on it."""
    asked = []

    def swap() -> SimpleNamespace:
        asked.append(1)
        return SimpleNamespace(total=2 * GiB, used=len(asked) * MiB)

    monkeypatch.setattr(psutil, "swap_memory", swap)
    clock = ManualClock()
    host = PortableHost()

    def used() -> int:
        found = host.read(clock.monotonic, (), ())
        assert found is not None
        return found.swap_used_bytes

    assert [used(), used()] == [MiB, MiB]
    clock.advance(SWAP_KEEP_S)
    assert used() == 2 * MiB


def raising(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_swap_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for people to read."""
    monkeypatch.setattr(psutil, "swap_memory", raising(RuntimeError("no vmstat")))

    found = PortableHost().read(lambda: 0.0, (), ())

    assert found is not None
    assert (found.swap_total_bytes, found.swap_used_bytes) == (0, 0)


def test_ram_that_cannot_be_read_is_the_governor_s_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reading without RAM is none: the governor turns the error into a reason to wait."""
    monkeypatch.setattr(psutil, "virtual_memory", raising(KeyError("MemAvailable")))

    with pytest.raises(KeyError):
        portable_probe(monkeypatch).snapshot()


@pytest.mark.parametrize("count", [None, 0])
def test_an_unknown_number_of_cpus_is_one(
    monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    """Never None and never 0."""
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr("lardon.governor.probes.cpus._sched_getaffinity", None)

    assert portable_probe(monkeypatch).snapshot().cpus == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's control files")
def test_a_linux_that_hides_meminfo_falls_back_to_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some sandboxes do."""
    monkeypatch.setattr("lardon.governor.probes.meminfo.parse_meminfo", raising_value_error)

    snapshot = SystemProbe(nvml=FakeNvml(), environ={}).snapshot()

    assert snapshot.ram_total_bytes == psutil.virtual_memory().total
    assert "/proc/meminfo" in snapshot.limits[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's control files")
def test_when_nobody_knows_the_ram_the_reading_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe does not raise: nothing starts, nothing is rejected."""
    monkeypatch.setattr("lardon.governor.probes.meminfo.parse_meminfo", raising_value_error)
    monkeypatch.setattr(psutil, "virtual_memory", raising(FileNotFoundError("/proc/meminfo")))

    snapshot = SystemProbe(nvml=FakeNvml(), environ={}).snapshot()

    assert snapshot.contradiction is not None


def raising_value_error(_raw: bytes) -> None:
    message = "no MemTotal"
    raise ValueError(message)
