"""`set_policy`: what is put in force, and what changes nothing."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from lardon import (
    DecisionKind,
    Governor,
    GpuSnapshot,
    InvalidPolicy,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.reservation import Reservation
from lardon.testing import ManualClock, ScriptedProbe

CARD: Final = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=1000, free_bytes=1000)
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1000, ram_available_bytes=1000, cpus=8, gpus=(CARD,)
)
OPEN: Final = Policy.unlimited(io_slots=4, tasks_per_gpu=4)
HELD: Final = ResourceEstimate(ram_bytes=600, gpu_bytes=300, cpus=5, io_slots=2)


@pytest.fixture
def probe(clock: ManualClock) -> ScriptedProbe:
    return ScriptedProbe(MACHINE, clock=clock)


@pytest.fixture
def governor(clock: ManualClock, probe: ScriptedProbe) -> Governor:
    return Governor(OPEN, probe=probe, clock=clock)


def hold(governor: Governor, estimate: ResourceEstimate = HELD) -> Reservation:
    reservation = governor.reserve(estimate)[1]
    assert reservation is not None
    return reservation


CASES: Final[list[tuple[dict[str, Any], str, int, int]]] = [
    ({"ram_limit_bytes": 599}, "ram", 600, 599),
    ({"ram_reserve_bytes": 401}, "ram", 600, 599),
    ({"gpu_limit_bytes": 299}, "GPU-a", 300, 299),
    ({"gpu_reserve_bytes": 701}, "GPU-a", 300, 299),
    ({"cpu_reserve": 4}, "cpus", 5, 4),
    ({"io_slots": 1}, "io_slots", 2, 1),
    ({"tasks_per_gpu": 0}, "tasks on GPU-a", 1, 0),
]


@pytest.mark.parametrize(("changes", "resource", "reserved", "capacity"), CASES)
def test_a_policy_that_the_reservations_exceed_changes_nothing(
    governor: Governor, changes: dict[str, Any], resource: str, reserved: int, capacity: int
) -> None:
    hold(governor)
    before = governor.statistics()
    told: list[int] = []
    governor.subscribe(lambda: told.append(1))

    with pytest.raises(InvalidPolicy) as caught:
        governor.set_policy(attrs.evolve(OPEN, **changes))

    error = caught.value
    assert (error.resource, error.reserved, error.capacity) == (resource, reserved, capacity)
    assert str(reserved) in str(error)
    assert str(capacity) in str(error)
    assert governor.policy is OPEN
    assert governor.statistics() == before
    assert told == []


@pytest.mark.parametrize(("changes", "resource", "reserved", "capacity"), CASES)
def test_exactly_what_is_reserved_is_enough(
    governor: Governor, changes: dict[str, Any], resource: str, reserved: int, capacity: int
) -> None:
    hold(governor)
    ((name, value),) = changes.items()
    enough = value - 1 if "reserve" in name else value + 1

    governor.set_policy(attrs.evolve(OPEN, **{name: enough}))

    assert getattr(governor.policy, name) == enough


def test_anything_but_a_policy_is_refused(governor: Governor) -> None:
    given: tuple[Any, ...] = (None, {}, "Policy()", Policy)
    for wrong in given:
        with pytest.raises(InvalidPolicy) as caught:
            governor.set_policy(wrong)
        error = caught.value
        assert (error.field, error.resource, error.reserved, error.capacity) == (
            "policy",
            None,
            None,
            None,
        )
    assert governor.policy is OPEN


def test_the_policy_decides_from_then_on(governor: Governor) -> None:
    asked = ResourceEstimate(ram_bytes=600)
    assert governor.decide(asked).kind is DecisionKind.START

    governor.set_policy(attrs.evolve(OPEN, ram_limit_bytes=599))
    assert governor.decide(asked).kind is DecisionKind.REJECT

    governor.set_policy(OPEN)
    assert governor.decide(asked).kind is DecisionKind.START


def test_after_the_release_the_same_policy_is_accepted(governor: Governor) -> None:
    reservation = hold(governor)
    tight = Policy.unlimited(ram_limit_bytes=1)
    with pytest.raises(InvalidPolicy):
        governor.set_policy(tight)

    reservation.release()
    governor.set_policy(tight)

    assert governor.policy is tight


@pytest.mark.parametrize(
    "reading",
    [OSError("gone"), attrs.evolve(MACHINE, ram_total_bytes=0)],
    ids=["unreadable", "invalid"],
)
def test_without_a_usable_reading_the_limits_alone_are_checked(
    governor: Governor, probe: ScriptedProbe, reading: ResourceSnapshot | OSError
) -> None:
    hold(governor)
    probe.set(reading)

    for name, value, resource in (
        ("ram_limit_bytes", 599, "ram"),
        ("gpu_limit_bytes", 299, "GPU-a"),
        ("io_slots", 1, "io_slots"),
        ("tasks_per_gpu", 0, "tasks on GPU-a"),
    ):
        changes: dict[str, Any] = {name: value}
        with pytest.raises(InvalidPolicy) as caught:
            governor.set_policy(attrs.evolve(OPEN, **changes))
        assert caught.value.resource == resource
    governor.set_policy(attrs.evolve(OPEN, ram_reserve_bytes=900, cpu_reserve=7))
    assert governor.policy.ram_reserve_bytes == 900


@pytest.mark.parametrize("total", [None, 0, -1])
def test_a_card_of_unknown_size_refuses_by_its_limit_alone(
    governor: Governor, probe: ScriptedProbe, total: int | None
) -> None:
    """A contradictory reading of a card is no reason to refuse a policy."""
    hold(governor)
    probe.set(attrs.evolve(MACHINE, gpus=(attrs.evolve(CARD, total_bytes=total),)))

    governor.set_policy(attrs.evolve(OPEN, gpu_limit_bytes=300))
    with pytest.raises(InvalidPolicy):
        governor.set_policy(attrs.evolve(OPEN, gpu_limit_bytes=299))


def test_a_card_that_is_gone_from_the_reading_refuses_by_its_limit_alone(
    governor: Governor, probe: ScriptedProbe
) -> None:
    hold(governor)
    probe.set(attrs.evolve(MACHINE, gpus=()))

    governor.set_policy(attrs.evolve(OPEN, gpu_reserve_bytes=999))
    with pytest.raises(InvalidPolicy):
        governor.set_policy(attrs.evolve(OPEN, gpu_limit_bytes=299))


def test_what_an_integrated_gpu_holds_counts_as_ram(clock: ManualClock) -> None:
    shared = attrs.evolve(CARD, integrated=True)
    probe = ScriptedProbe(attrs.evolve(MACHINE, gpus=(shared,)), clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)
    hold(governor, ResourceEstimate(ram_bytes=100, gpu_bytes=300))

    governor.set_policy(attrs.evolve(OPEN, gpu_limit_bytes=0, ram_limit_bytes=400))
    with pytest.raises(InvalidPolicy) as caught:
        governor.set_policy(attrs.evolve(OPEN, ram_limit_bytes=399))
    assert (caught.value.resource, caught.value.reserved) == ("ram", 400)
