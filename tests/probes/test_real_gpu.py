"""The probe on a real card, against the driver's own answers."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lardon.governor.probes import SystemProbe
from lardon.testing.nvml import FakeNvml
from lardon.units import MiB

pytestmark = pytest.mark.gpu

# What other work on the card may gain or lose between two readings.
DRIFT = 512 * MiB


@pytest.fixture
def probe() -> SystemProbe:
    """Return a probe that sees every card; skip where the driver offers none."""
    found = SystemProbe(environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    if not found.snapshot().gpus:
        pytest.skip(f"no GPU here: {found.gpu_error or 'the driver lists no card'}")
    return found


@pytest.fixture
def nvml() -> Any:
    """Return the real binding, for the reference."""
    return importlib.import_module("pynvml")


def test_the_figures_are_the_driver_s(probe: SystemProbe, nvml: Any) -> None:
    """Total and free as NVML gives them, under both records."""
    for card in probe.snapshot().gpus:
        if not card.known or card.uuid.startswith("MIG-"):
            continue
        handle = nvml.nvmlDeviceGetHandleByUUID(card.uuid.encode())
        old = nvml.nvmlDeviceGetMemoryInfo(handle)
        new = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        assert card.total_bytes == old.total == new.total
        assert card.free_bytes is not None
        assert abs(card.free_bytes - old.free) < DRIFT
        assert abs(old.free - new.free) < DRIFT
        assert card.name == nvml.nvmlDeviceGetName(handle)


def test_a_card_can_be_named_by_its_uuid(probe: SystemProbe) -> None:
    """As the only visible one it is device 0."""
    last = probe.snapshot().gpus[-1]

    [card] = SystemProbe(environ={"CUDA_VISIBLE_DEVICES": last.uuid}).snapshot().gpus

    assert (card.index, card.uuid) == (0, last.uuid)


def test_a_reading_costs_at_most_a_millisecond_more(probe: SystemProbe) -> None:
    """For one card, beside a probe that has none."""
    without = SystemProbe(nvml=FakeNvml(), environ={"CUDA_VISIBLE_DEVICES": ""})
    first = probe.snapshot().gpus[0].uuid
    with_one = SystemProbe(environ={"CUDA_VISIBLE_DEVICES": first})
    times: dict[SystemProbe, list[float]] = {with_one: [], without: []}
    for one in times:
        one.snapshot()
    for _ in range(200):
        for one, taken in times.items():
            begun = time.perf_counter()
            one.snapshot()
            taken.append(time.perf_counter() - begun)

    assert median(times[with_one]) - median(times[without]) < 0.001


def test_nothing_piles_up(probe: SystemProbe) -> None:
    """A thousand readings leave the number of open descriptors as it was."""
    place = Path("/proc/self/fd")
    if not place.is_dir():
        pytest.skip("this platform does not list a process's descriptors")
    probe.snapshot()
    before = sum(1 for _ in place.iterdir())
    for _ in range(1000):
        probe.snapshot()

    assert sum(1 for _ in place.iterdir()) <= before


def test_a_process_without_a_context_uses_nothing(probe: SystemProbe) -> None:
    """NVML itself takes no memory on a card: this process is not listed."""
    own = probe.own_use()

    assert own is None or sum(own.gpu_bytes.values()) < DRIFT
