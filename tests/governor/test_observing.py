"""What moves the zone and the growth, and what only asks."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from lardon import (
    Decision,
    DecisionKind,
    GiB,
    Governor,
    MiB,
    Policy,
    ReasonCode,
    Reservation,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.snapshot import OwnUse
from lardon.governor.zones import HEALTHY_PER_STEP, Zone
from lardon.testing import ManualClock, ScriptedProbe

# A reserve of 2 GiB: RED begins below 1 GiB.
FINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=12 * GiB, cpus=8
)
LOW: Final = attrs.evolve(FINE, ram_available_bytes=GiB - 1)
PRESSED: Final = attrs.evolve(FINE, memory_pressure=5.0)
ASKED: Final = ResourceEstimate(ram_bytes_per_item=MiB, min_batch=2, max_batch=64)


@pytest.fixture
def probe(clock: ManualClock) -> ScriptedProbe:
    return ScriptedProbe(FINE, clock=clock)


@pytest.fixture
def governor(clock: ManualClock, probe: ScriptedProbe) -> Governor:
    return Governor(probe=probe, clock=clock)


def ask(
    governor: Governor, estimate: ResourceEstimate = ASKED, replaces: Reservation | None = None
) -> Decision:
    """Return the answer to one admission, given back at once."""
    decision, reservation = governor.reserve(estimate, replaces=replaces)
    if reservation is not None:
        reservation.release()
    return decision


def batch(decision: Decision) -> int:
    return decision.contract.batch_size if decision.contract is not None else 0


def test_only_admissions_and_observations_move_the_zone(
    governor: Governor, probe: ScriptedProbe
) -> None:
    probe.set(LOW)
    for _ in range(20):
        governor.decide(ASKED)
        governor.decide(ASKED, LOW)
        governor.explain(ASKED)
        governor.snapshot()
    governor.set_policy(governor.policy)
    governor.statistics()
    assert governor.zone is Zone.GREEN

    ask(governor)
    assert governor.zone is Zone.RED


def test_each_admission_observes_once(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(LOW)
    ask(governor)
    probe.set(FINE)
    for _ in range(HEALTHY_PER_STEP - 1):
        ask(governor)
    assert governor.zone is Zone.RED
    ask(governor)
    assert governor.zone is Zone.YELLOW


def test_observe_tells_the_zone_after_it(governor: Governor, clock: ManualClock) -> None:
    clock.advance(1.0)
    now = clock.monotonic()

    assert governor.observe(attrs.evolve(LOW, taken_at=now)) is Zone.RED
    for expected in (Zone.RED, Zone.RED, Zone.YELLOW):
        assert governor.observe(attrs.evolve(FINE, taken_at=now)) is expected


@pytest.mark.parametrize(
    "changes",
    [
        {"taken_at": 98.9},
        {"taken_at": 100.1},
        {"taken_at": float("nan")},
        {"taken_at": 100.0, "ram_total_bytes": 0},
        {"taken_at": 100.0, "ram_available_bytes": -1},
    ],
)
def test_a_reading_that_nobody_would_decide_on_is_not_observed(
    governor: Governor, changes: dict[str, Any]
) -> None:
    assert governor.observe(attrs.evolve(LOW, **changes)) is Zone.GREEN


def test_a_probe_that_fails_moves_nothing(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(LOW)
    ask(governor)
    probe.set(OSError("gone"))
    for _ in range(9):
        assert ask(governor).reason.code is ReasonCode.PROBE_FAILED
    assert governor.zone is Zone.RED


def test_red_waits_and_says_how_long_still(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(LOW)
    ask(governor)
    probe.set(FINE)

    decision = governor.decide(ASKED)

    assert (decision.kind, decision.reason.code) == (DecisionKind.WAIT, ReasonCode.ZONE)
    facts = decision.reason.facts
    assert (facts["zone"], facts["found"], facts["asked"]) == ("RED", 0, 3)
    assert decision.reason.text == (
        "the zone is RED: memory was all but gone, or pressure at a limit twice in a row; 0 of 3 "
        "healthy readings since then"
    )
    assert ask(governor).reason.facts["found"] == 1
    assert ask(governor).reason.facts["found"] == 2
    assert ask(governor).admitted, "the third healthy reading ends it"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ram_bytes": 15 * GiB}, ReasonCode.RAM_CAPACITY),
        ({"gpus": 1}, ReasonCode.NO_GPU),
        ({"cpus": 9}, ReasonCode.CPU_CAPACITY),
        ({"io_slots": 2}, ReasonCode.IO_CAPACITY),
    ],
)
def test_red_hides_no_reject(
    governor: Governor, probe: ScriptedProbe, fields: dict[str, Any], code: ReasonCode
) -> None:
    probe.set(LOW)
    ask(governor)
    assert governor.zone is Zone.RED

    decision = ask(governor, ResourceEstimate(**fields))

    assert (decision.kind, decision.reason.code) == (DecisionKind.REJECT, code)


def test_the_batch_starts_small_after_red_and_doubles(
    governor: Governor, probe: ScriptedProbe
) -> None:
    probe.set(LOW)
    ask(governor)
    probe.set(FINE)

    granted = [batch(ask(governor)) for _ in range(19)]

    assert granted == [0, 0, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64]
    decision = ask(governor)
    assert (decision.kind, decision.reason.code) == (DecisionKind.START, ReasonCode.OK)


def test_the_reason_of_a_recovering_batch(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(LOW)
    ask(governor)
    probe.set(FINE)
    for _ in range(6):
        decision = ask(governor)

    assert (decision.kind, decision.reason.code) == (DecisionKind.REDUCE_BATCH, ReasonCode.ZONE)
    assert dict(decision.reason.facts) == {
        "resource": "batch",
        "asked": 64,
        "found": 4,
        "limit": 4,
        "zone": "GREEN",
        "doublings": 1,
    }
    assert decision.reason.text == (
        "the machine recovers from the zone RED: at most 4 items, more with each 3 readings"
    )


def test_yellow_grants_no_more_than_the_last_batch(
    governor: Governor, probe: ScriptedProbe
) -> None:
    probe.set(attrs.evolve(FINE, ram_available_bytes=2 * GiB + 10 * MiB))
    assert batch(ask(governor)) == 10
    probe.set(PRESSED)

    decision = ask(governor)

    assert batch(decision) == 10
    assert decision.reason.code is ReasonCode.ZONE
    assert decision.reason.text == (
        "the zone is YELLOW: no growth beyond the last batch of its kind, 10 items"
    )
    assert batch(ask(governor, ASKED.evolve(min_batch=12))) == 12, "never below the smallest"
    assert batch(ask(governor, ASKED.evolve(kind="other"))) == 64, "it had none to grow from"


def test_yellow_on_the_way_back_names_what_binds(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(LOW)
    ask(governor)
    probe.set(attrs.evolve(FINE, ram_available_bytes=2 * GiB + 5 * MiB))
    assert [batch(ask(governor)) for _ in range(9)][-1] == 5
    probe.set(PRESSED)

    last, doubled = ask(governor), ask(governor, ASKED.evolve(kind="other"))

    assert (batch(last), "doublings" in last.reason.facts) == (5, False)
    assert (batch(doubled), doubled.reason.facts["doublings"]) == (8, 2)


def test_yellow_lets_a_batch_shrink_for_want_of_memory(
    governor: Governor, probe: ScriptedProbe
) -> None:
    ask(governor)
    probe.set(attrs.evolve(PRESSED, ram_available_bytes=2 * GiB + 5 * MiB))

    decision = ask(governor)

    assert (batch(decision), decision.reason.code) == (5, ReasonCode.RAM_SHORT)


def test_the_kinds_whose_last_batch_is_kept_are_bounded(
    governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lardon.governor.experience.MAX_KINDS", 3)
    for kind in ("a", "b", "c", "a", "d"):
        ask(governor, ASKED.evolve(kind=kind))

    assert list(governor._experience._granted) == ["b", "c", "d"]


def test_leftovers_at_a_break_do_not_turn_it_red(clock: ManualClock) -> None:
    """The memory that the predecessor still holds will be used again: it is not gone."""
    own = OwnUse(ram_bytes=GiB)
    probe = ScriptedProbe(FINE, clock=clock, own_use=lambda: own)
    governor = Governor(probe=probe, clock=clock)
    first = governor.reserve(ResourceEstimate(ram_bytes=10 * GiB))[1]
    assert first is not None
    own = OwnUse(ram_bytes=11 * GiB)
    probe.set(attrs.evolve(FINE, ram_available_bytes=GiB // 2))
    first.release()

    assert ask(governor, ASKED, replaces=first).kind is DecisionKind.START
    assert governor.zone is Zone.GREEN
    ask(governor, ASKED)
    assert governor.zone is Zone.RED, "whoever else asks cannot use it"


def test_growth_is_of_others_alone(clock: ManualClock) -> None:
    own = OwnUse(ram_bytes=GiB)
    probe = ScriptedProbe(FINE, clock=clock, own_use=lambda: own)
    governor = Governor(probe=probe, clock=clock)
    ask(governor)
    clock.advance(0.5)
    own = OwnUse(ram_bytes=3 * GiB)
    probe.set(attrs.evolve(FINE, ram_available_bytes=10 * GiB))
    ask(governor)
    assert governor._experience.growth.rate(clock.monotonic()) == 0

    clock.advance(0.5)
    probe.set(attrs.evolve(FINE, ram_available_bytes=9 * GiB))
    ask(governor)
    assert governor._experience.growth.rate(clock.monotonic()) == 2 * (GiB - 8 * MiB)


def test_without_a_measurement_of_our_own_growth_is_unknown(
    governor: Governor, probe: ScriptedProbe, clock: ManualClock
) -> None:
    ask(governor)
    clock.advance(0.5)
    probe.set(attrs.evolve(FINE, ram_available_bytes=4 * GiB))
    ask(governor)

    assert governor._experience.growth.rate(clock.monotonic()) == 0


def test_what_was_seen_survives_a_new_policy(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(LOW)
    ask(governor)

    governor.set_policy(Policy(trust="measured"))

    assert governor.zone is Zone.RED
