"""Pressure zones: what moves them, and that nothing sticks."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.governor.policy import Policy
from lardon.governor.snapshot import ResourceSnapshot
from lardon.governor.zones import (
    BAD_IN_A_ROW,
    CALM,
    DOUBLINGS,
    HEALTHY_PER_STEP,
    Pressure,
    Zone,
    step,
)

# A reserve of 200 of 1000 bytes: RED begins below 100.
RULES: Final = Policy(ram_reserve_bytes=200, max_memory_pressure=10.0)
FINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1000, ram_available_bytes=900, memory_pressure=0.0
)


def reading(**changes: Any) -> ResourceSnapshot:
    return attrs.evolve(FINE, **changes)


def after(*snapshots: ResourceSnapshot, start: Pressure = CALM, policy: Policy = RULES) -> Pressure:
    for snapshot in snapshots:
        start = step(start, snapshot, policy)
    return start


LIMIT: Final = reading(memory_pressure=10.0)
HALF: Final = reading(memory_pressure=5.0)
LOW: Final = reading(ram_available_bytes=99)
RED: Final = after(LOW)


@pytest.mark.parametrize(
    ("snapshot", "zone"),
    [
        (FINE, Zone.GREEN),
        (reading(memory_pressure=4.99), Zone.GREEN),
        (HALF, Zone.YELLOW),
        (LIMIT, Zone.YELLOW),
        (reading(memory_pressure=None), Zone.GREEN),
        (reading(ram_available_bytes=100), Zone.GREEN),
        (LOW, Zone.RED),
        (reading(ram_available_bytes=0), Zone.RED),
        (reading(io_pressure=100.0), Zone.GREEN),
        (reading(cpu_pressure=100.0, load1=500.0), Zone.GREEN),
        (reading(swap_used_bytes=10**9), Zone.GREEN),
    ],
)
def test_one_reading(snapshot: ResourceSnapshot, zone: Zone) -> None:
    """What is unlimited by the policy, and swap of which nothing is known, move no zone."""
    assert after(snapshot).zone is zone


@pytest.mark.parametrize(
    ("changes", "limit", "half"),
    [
        ({"max_cpu_pressure": 20.0}, {"cpu_pressure": 20.0}, {"cpu_pressure": 10.0}),
        ({"max_load_ratio": 2.0}, {"load1": 8.0, "cpus": 4}, {"load1": 4.0, "cpus": 4}),
        ({"max_memory_pressure": 1.0}, {"memory_pressure": 1.0}, {"memory_pressure": 0.5}),
    ],
)
def test_every_rule_that_all_tasks_wait_for_moves_the_zone(
    changes: dict[str, Any], limit: dict[str, Any], half: dict[str, Any]
) -> None:
    policy = attrs.evolve(RULES, **changes)
    nearly = {name: value * 0.99 if name != "cpus" else value for name, value in half.items()}

    assert after(reading(**nearly), policy=policy).zone is Zone.GREEN
    assert after(*[reading(**half)] * 9, policy=policy).zone is Zone.YELLOW
    assert after(*[reading(**limit)] * BAD_IN_A_ROW, policy=policy).zone is Zone.RED


@pytest.mark.parametrize("other", [{"cpu_pressure": 1.0}, {"load1": 0.1}])
def test_one_calm_figure_does_not_hide_another_at_its_limit(other: dict[str, Any]) -> None:
    policy = attrs.evolve(RULES, max_cpu_pressure=20.0, max_load_ratio=2.0)

    found = after(*[reading(memory_pressure=10.0, **other)] * BAD_IN_A_ROW, policy=policy)

    assert found.zone is Zone.RED


def test_a_policy_without_rules_has_no_zone_but_for_its_reserve() -> None:
    policy = Policy.unlimited()

    assert after(*[reading(memory_pressure=99.0, ram_available_bytes=0)] * 5, policy=policy) == (
        Pressure(swap_used_bytes=0)
    )
    assert after(LOW, policy=attrs.evolve(policy, ram_reserve_bytes=200)).zone is Zone.RED


def test_one_spike_at_the_limit_is_no_red() -> None:
    assert after(LIMIT, FINE, LIMIT, HALF, LIMIT, FINE).zone is Zone.YELLOW
    assert after(LIMIT, LIMIT).zone is Zone.RED


def test_swap_that_grew_is_yellow_and_swap_that_stays_is_fine() -> None:
    first = after(reading(swap_used_bytes=50))

    assert after(reading(swap_used_bytes=51), start=first).zone is Zone.YELLOW
    assert after(reading(swap_used_bytes=50), start=first).zone is Zone.GREEN
    assert after(reading(swap_used_bytes=0), start=first).zone is Zone.GREEN
    fallen = after(reading(swap_used_bytes=0), start=first)
    assert after(reading(swap_used_bytes=1), start=fallen).zone is Zone.YELLOW
    grows = [reading(swap_used_bytes=size) for size in range(60, 90)]
    assert after(*grows, start=first).zone is Zone.YELLOW, "it alone never makes it RED"


def test_what_the_task_itself_left_is_not_missing() -> None:
    """At a break the task's own leftovers are the successor's; they turn nothing RED."""
    assert step(CALM, LOW, RULES, credit_bytes=0).zone is Zone.RED
    assert step(CALM, LOW, RULES, credit_bytes=1).zone is Zone.GREEN
    assert step(CALM, reading(ram_available_bytes=0), RULES, credit_bytes=99).zone is Zone.RED


def healthy(before: Pressure, count: int) -> Pressure:
    return after(*[FINE] * count, start=before)


def test_the_way_back_from_yellow() -> None:
    yellow = after(HALF)

    assert healthy(yellow, HEALTHY_PER_STEP - 1).zone is Zone.YELLOW
    assert healthy(yellow, HEALTHY_PER_STEP) == Pressure(swap_used_bytes=0)
    assert healthy(yellow, HEALTHY_PER_STEP).cap(1, 4) is None


def test_the_way_back_from_red() -> None:
    assert healthy(RED, 2).zone is Zone.RED
    assert healthy(RED, 3) == Pressure(Zone.YELLOW, 0, 0, 0, 0)
    assert healthy(RED, 5).zone is Zone.YELLOW
    assert healthy(RED, 6) == Pressure(Zone.GREEN, 0, 0, 0, 1)
    assert healthy(RED, 9) == Pressure(Zone.GREEN, 0, 0, 0, 2)
    # The batch follows: min_batch, then doubled per three readings.
    caps = [healthy(RED, count).cap(2, None) for count in (3, 6, 8, 9, 12)]
    assert caps == [2, 4, 4, 8, 16]


def test_a_bad_reading_on_the_way_back_starts_the_step_anew() -> None:
    assert after(HALF, start=healthy(RED, 2)) == Pressure(Zone.RED, 0, 0, 0, 0)
    assert healthy(after(HALF, start=healthy(RED, 2)), 2).zone is Zone.RED
    # From GREEN it is YELLOW again, with as many doublings as were reached.
    assert after(HALF, start=healthy(RED, 9)) == Pressure(Zone.YELLOW, 0, 0, 0, 2)
    assert after(LOW, start=healthy(RED, 9)) == RED


@given(
    least=st.integers(1, 50), factor=st.integers(1, 4000), zone=st.sampled_from(["red", "yellow"])
)
def test_from_the_last_bad_reading_to_the_full_batch(least: int, factor: int, zone: str) -> None:
    """Never later than documented, and after RED not a reading earlier."""
    most = least * factor - factor // 2
    most = max(most, least)
    start = RED if zone == "red" else after(HALF)
    documented = HEALTHY_PER_STEP
    if zone == "red":
        documented *= 1 + math.ceil(math.log2(most / least))

    def full(pressure: Pressure) -> bool:
        cap = pressure.cap(least, least)
        return pressure.zone is not Zone.RED and (cap is None or cap >= most)

    assert full(healthy(start, documented))
    if most > least:
        assert not full(healthy(start, documented - 1))


def test_in_the_end_nothing_is_held_back_whatever_the_estimate() -> None:
    held = healthy(RED, HEALTHY_PER_STEP * (DOUBLINGS + 1))

    assert held.cap(1, None) == 2**DOUBLINGS
    assert healthy(held, HEALTHY_PER_STEP) == Pressure(swap_used_bytes=0)


@pytest.mark.parametrize(
    ("pressure", "last", "cap"),
    [
        (CALM, 4, None),
        (Pressure(Zone.YELLOW), None, None),
        (Pressure(Zone.YELLOW), 12, 12),
        (Pressure(Zone.YELLOW), 3, 5),
        (Pressure(Zone.YELLOW, doublings=1), 12, 10),
        (Pressure(Zone.YELLOW, doublings=2), 12, 12),
        (Pressure(Zone.GREEN, doublings=2), 5, 20),
        (Pressure(Zone.RED, doublings=0), None, 5),
    ],
)
def test_caps_of_a_kind_whose_smallest_batch_is_five(
    pressure: Pressure, last: int | None, cap: int | None
) -> None:
    assert pressure.cap(5, last) == cap


READING: Final = st.builds(
    reading,
    memory_pressure=st.sampled_from([None, 0.0, 4.9, 5.0, 9.9, 10.0, 80.0]),
    cpu_pressure=st.sampled_from([None, 0.0, 10.0, 20.0]),
    ram_available_bytes=st.sampled_from([0, 98, 99, 100, 900]),
    swap_used_bytes=st.sampled_from([0, 0, 1, 2]),
)


class Page:
    """The zones once more, plainly, with all that was observed kept."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.zone = "GREEN"
        self.streak = 0
        self.swap: int | None = None
        self.limits = 0
        self.doubled: int | None = None

    def observe(self, seen: ResourceSnapshot, credit: int) -> None:
        shares = []
        for found, limit in (
            (seen.memory_pressure, self.policy.max_memory_pressure),
            (seen.cpu_pressure, self.policy.max_cpu_pressure),
        ):
            if found is not None and limit is not None:
                shares.append(found / limit)
        worst = max(shares, default=0.0)
        scarce = seen.ram_available_bytes + credit < 100
        swapping = self.swap is not None and seen.swap_used_bytes > self.swap
        self.swap = seen.swap_used_bytes
        self.limits = self.limits + 1 if worst >= 1 else 0
        if scarce or self.limits >= 2:
            self.zone, self.streak, self.doubled = "RED", 0, 0
        elif worst >= 0.5 or swapping:
            self.streak = 0
            if self.zone == "GREEN":
                self.zone = "YELLOW"
        else:
            self.streak += 1
            if self.streak == 3:
                self.streak = 0
                self.step_back()

    def step_back(self) -> None:
        if self.zone == "RED":
            self.zone = "YELLOW"
            return
        self.zone = "GREEN"
        if self.doubled is not None:
            self.doubled += 1

    def cap(self, least: int, last: int | None) -> int | None:
        caps = []
        if self.doubled is not None:
            caps.append(least * 2**self.doubled)
        if self.zone != "GREEN" and last is not None:
            caps.append(last)
        return max(least, min(caps)) if caps else None


@given(
    seen=st.lists(st.tuples(READING, st.sampled_from([0, 0, 0, 50])), max_size=40),
    least=st.integers(1, 5),
    last=st.one_of(st.none(), st.integers(1, 40)),
)
def test_any_observations_against_a_plain_count(
    seen: list[tuple[ResourceSnapshot, int]], least: int, last: int | None
) -> None:
    policy = attrs.evolve(RULES, max_cpu_pressure=20.0)
    page, pressure = Page(policy), CALM
    for snapshot, credit in seen:
        page.observe(snapshot, credit)
        pressure = step(pressure, snapshot, policy, credit)

        assert pressure.zone == page.zone
        cap = pressure.cap(least, last)
        assert cap == page.cap(least, last)
        assert cap is None or cap >= least
    # Whatever was seen, nothing sticks.
    calm = reading(swap_used_bytes=0)
    ended = after(*[calm] * (HEALTHY_PER_STEP * (DOUBLINGS + 2)), start=pressure)
    assert ended == Pressure(swap_used_bytes=0)


def test_a_quiet_machine_costs_no_new_value() -> None:
    first = after(FINE)

    assert step(first, FINE, RULES) is first
