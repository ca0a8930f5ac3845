"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.governor.probes.gpu_visibility import Card, Device, Instance, visible_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

FOUR = [Card(uuid=f"GPU-{letter}{letter}11-22", name="A100") for letter in "abcd"]
CUT = Card(
    uuid="GPU-cut",
    name="A100",
    in_mig_mode=True,
    instances=(
        Instance(uuid="MIG-one", gpu_instance=1, compute_instance=0),
        Instance(uuid="MIG-two", gpu_instance=2, compute_instance=0),
    ),
)


def seen(cards: Sequence[Card], listed: str | None, **more: str) -> list[tuple[int, int | None]]:
    environ = dict(more) if listed is None else {"CUDA_VISIBLE_DEVICES": listed, **more}
    return [tuple(device) for device in visible_devices(cards, environ).devices]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("listed", "places"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,2,-1,1", [0, 2]),
        ("0,4,1", [0]),
        ("0,,1", [0]),
        ("0,x,1", [0]),
        ("1gpu,2", [1, 2]),
        ("+1", [1]),
        ("1.5", [1]),
        ("0x1", [0]),
        ("99999999999", []),
        ("GPU-aa11-22", [0]),
        ("GPU-c", [2]),
        ("GPU-", []),
        ("GPU-zz", []),
        ("GPU-d,GPU-a", [3, 0]),
        ("GPU-d,1", [3, 1]),
        ("gpu-a", []),
        ("0,0", []),
        ("0,GPU-a", []),
        ("MIG-one", []),
    ],
)
def test_whole_cards(listed: str | None, places: list[int]) -> None:
    """Order, shortening, truncation and repetition."""
    assert seen(FOUR, listed) == [(place, None) for place in places]


@pytest.mark.parametrize(
    ("listed", "devices"),
    [
        (None, [(1, 0)]),
        ("1", [(1, 0)]),
        ("MIG-two", [(1, 1)]),
        ("MIG-t", [(1, 1)]),
        ("MIG-", []),
        ("MIG-GPU-cut/2/0", [(1, 1)]),
        ("MIG-GPU-cut/3/0", []),
        ("MIG-two,MIG-one", [(1, 1)]),
        ("GPU-cut", [(1, 0)]),
    ],
)
def test_instances(listed: str | None, devices: list[tuple[int, int | None]]) -> None:
    """One MIG instance can be used, and is a device of its own."""
    empty = Card(uuid="GPU-empty", name="A100", in_mig_mode=True)
    assert seen([empty, CUT], listed) == devices


@pytest.mark.parametrize(
    ("listed", "devices"),
    [(None, [(0, None)]), ("0,1", [(0, None)]), ("1,0", [(1, 0)]), ("MIG-one,0", [(1, 0)])],
)
def test_instances_beside_whole_cards(
    listed: str | None, devices: list[tuple[int, int | None]]
) -> None:
    """CUDA does not mix the two."""
    assert seen([FOUR[0], CUT], listed) == devices


def test_a_shortened_uuid_must_be_unique() -> None:
    """With two cards of the same beginning it names none."""
    twins = [Card(uuid="GPU-ab1"), Card(uuid="GPU-ab2")]

    assert seen(twins, "GPU-ab") == []
    assert seen(twins, "GPU-ab2") == [(1, None)]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, True),
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, False),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, True),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
    ],
)
def test_an_unknown_order_is_told(environ: dict[str, str], *, told: bool) -> None:
    """Only where numbers are used, and cards of several models could be in another order."""
    mixed = [Card(uuid="GPU-a", name="T400"), Card(uuid="GPU-b", name="A100")]

    assert any("bus order" in note for note in visible_devices(mixed, environ).notes) is told
    assert visible_devices(FOUR, environ).notes == ()


@pytest.mark.parametrize(("listed", "named"), [("0,GPU-zz,1", "GPU-zz"), ("7", "7"), ("0,x", "x")])
def test_what_names_nothing_is_told(listed: str, named: str) -> None:
    """A user finds out which entry hid the rest."""
    [note] = visible_devices(FOUR, {"CUDA_VISIBLE_DEVICES": listed}).notes

    assert repr(named) in note


@given(listed=st.text(alphabet="0123456789,-+ GPUMIGabcd/x", max_size=20), count=st.integers(0, 4))
def test_any_text_gives_cards_that_are_there(listed: str, count: int) -> None:
    """Each at most once, and never an exception."""
    devices = visible_devices(FOUR[:count], {"CUDA_VISIBLE_DEVICES": listed}).devices

    assert len(set(devices)) == len(devices)
    assert all(device in [Device(place) for place in range(count)] for device in devices)
