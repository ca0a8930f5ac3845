"""Snapshots: what is required, what is unknown, and what contradicts itself."""

from __future__ import annotations

import attrs
import pytest

from lardon import GpuSnapshot, ResourceSnapshot
from lardon.governor.snapshot import OwnUse


def test_three_figures_are_required_and_the_rest_is_unknown() -> None:
    shot = ResourceSnapshot(taken_at=1.0, ram_total_bytes=2, ram_available_bytes=3)

    assert attrs.asdict(shot) == {
        "taken_at": 1.0,
        "ram_total_bytes": 2,
        "ram_available_bytes": 3,
        "swap_total_bytes": 0,
        "swap_used_bytes": 0,
        "cpus": 1,
        "load1": None,
        "cpu_pressure": None,
        "memory_pressure": None,
        "io_pressure": None,
        "gpus": (),
        "limits": (),
    }
    with pytest.raises(TypeError):
        ResourceSnapshot(taken_at=1.0, ram_total_bytes=2)  # type: ignore[call-arg]


def test_a_gpu_is_unknown_until_it_says_otherwise() -> None:
    gpu = GpuSnapshot(index=0, uuid="GPU-a")

    assert (gpu.total_bytes, gpu.free_bytes, gpu.integrated, gpu.name) == (None, None, False, "")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, None),
        ({"ram_total_bytes": 1, "ram_available_bytes": 0}, None),
        ({"ram_available_bytes": 11}, None),
        ({"ram_total_bytes": 0}, "ram_total_bytes is 0"),
        ({"ram_total_bytes": -1}, "ram_total_bytes is -1"),
        ({"ram_available_bytes": -1}, "ram_available_bytes is -1"),
        ({"cpus": 0}, "cpus is 0"),
    ],
)
def test_what_contradicts_itself(fields: dict[str, int], problem: str | None) -> None:
    shot = ResourceSnapshot(taken_at=0.0, ram_total_bytes=10, ram_available_bytes=5, cpus=2)

    assert attrs.evolve(shot, **fields).contradiction == problem  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("total", "free", "size", "known"),
    [
        (10, 5, 10, True),
        (10, 0, 10, True),
        (10, 11, 10, True),
        (None, 5, None, True),
        (None, 0, None, True),
        (10, None, 10, False),
        (10, -1, 10, False),
        (0, 5, None, False),
        (-1, 5, None, False),
        (None, None, None, False),
    ],
)
def test_unknown_is_not_zero(
    total: int | None, free: int | None, size: int | None, known: bool
) -> None:
    gpu = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=total, free_bytes=free)

    assert (gpu.size_bytes, gpu.known) == (size, known)


def test_snapshots_never_change() -> None:
    shot = ResourceSnapshot(taken_at=0.0, ram_total_bytes=10, ram_available_bytes=5)
    for value, name in (
        (shot, "cpus"),
        (GpuSnapshot(index=0, uuid="a"), "free_bytes"),
        (OwnUse(ram_bytes=1), "ram_bytes"),
    ):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, name, 1)
