"""Public reports H13, H14, H16, H18 and H40 to H45, as far as the governor answers them."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from lardon import (
    DecisionKind,
    GiB,
    Governor,
    GpuSnapshot,
    MiB,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.snapshot import OwnUse
from lardon.testing import ScriptedProbe

MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=16 * GiB, cpus=8
)


def governor_of(snapshot: ResourceSnapshot, **rules: Any) -> Governor:
    return Governor(Policy.unlimited(**rules), probe=ScriptedProbe(snapshot))


def with_card(total: float, free: float) -> ResourceSnapshot:
    card = GpuSnapshot(
        index=0, uuid="GPU-a", total_bytes=int(total * GiB), free_bytes=int(free * GiB)
    )
    return attrs.evolve(MACHINE, gpus=(card,))


def test_h13_swap_neither_adds_to_the_budget_nor_blocks_by_being_full() -> None:
    low = attrs.evolve(MACHINE, ram_available_bytes=2 * GiB, swap_total_bytes=32 * GiB)
    full = attrs.evolve(
        MACHINE,
        ram_available_bytes=12 * GiB,
        swap_total_bytes=8 * GiB,
        swap_used_bytes=8 * GiB,
    )
    asked = ResourceEstimate(ram_bytes=10 * GiB)

    assert governor_of(low).decide(asked).reason.code is ReasonCode.RAM_SHORT
    assert governor_of(full).decide(asked).kind is DecisionKind.START
    assert governor_of(full).snapshot().swap_used_bytes == 8 * GiB


def test_h14_a_probe_that_raises_starts_nothing_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    governor = Governor(Policy.unlimited(), probe=ScriptedProbe(KeyError("MemFree"), MACHINE))
    asked = ResourceEstimate(ram_bytes=GiB)

    assert governor.reserve(asked)[0].reason.code is ReasonCode.PROBE_FAILED
    assert governor.reserve(asked)[0].kind is DecisionKind.START
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]


def test_h16_the_budget_is_the_systems_and_not_the_total_less_our_own() -> None:
    crowded = attrs.evolve(MACHINE, ram_total_bytes=64 * GiB, ram_available_bytes=12 * GiB)
    probe = ScriptedProbe(crowded, own_use=OwnUse(ram_bytes=GiB))
    governor = Governor(Policy.unlimited(), probe=probe)

    decision, reservation = governor.reserve(ResourceEstimate(ram_bytes=20 * GiB))

    assert (decision.kind, reservation) == (DecisionKind.WAIT, None)
    assert decision.reason.facts["found"] == 12 * GiB


def test_h18_a_momentary_high_reading_grants_no_more_than_was_asked() -> None:
    asked = ResourceEstimate(ram_bytes_per_item=2 * GiB, max_batch=16)
    probe = ScriptedProbe(attrs.evolve(MACHINE, ram_available_bytes=4 * GiB))
    governor = Governor(Policy.unlimited(), probe=probe)
    first = governor.reserve(asked)[1]
    assert first is not None
    assert first.contract.batch_size == 2
    first.release()

    probe.set(attrs.evolve(MACHINE, ram_total_bytes=2**50, ram_available_bytes=2**50))
    second = governor.reserve(asked, replaces=first)[1]

    assert second is not None
    assert second.contract.batch_size == 16


def test_h40_what_others_use_of_a_card_is_not_free() -> None:
    governor = governor_of(with_card(80, 0.3))

    decision = governor.decide(ResourceEstimate(gpu_bytes=20 * GiB))

    assert (decision.kind, decision.reason.code) == (
        DecisionKind.WAIT,
        ReasonCode.GPU_MEMORY_SHORT,
    )
    assert "needs 20 GiB" in decision.reason.text
    assert "307.2 MiB free" in decision.reason.text
    assert "in use by others 79.7 GiB" in decision.reason.text


def test_h41_two_requests_on_the_same_reading_do_not_both_pass() -> None:
    """The reading stays at 24 free: nobody has allocated yet, and it is promised all the same."""
    governor = governor_of(with_card(24, 24), tasks_per_gpu=2)
    asked = ResourceEstimate(gpu_bytes=20 * GiB)

    first = governor.reserve(asked)[1]
    second = governor.reserve(asked)[0]

    assert first is not None
    assert (second.kind, second.reason.code) == (DecisionKind.WAIT, ReasonCode.GPU_MEMORY_SHORT)
    assert second.reason.facts["promised"] == 20 * GiB
    first.release()
    assert governor.reserve(asked)[0].kind is DecisionKind.START


@pytest.mark.parametrize(("used", "kind"), [(0, DecisionKind.WAIT), (6, DecisionKind.START)])
def test_h42_the_formula_at_both_ends_and_its_three_terms(used: int, kind: DecisionKind) -> None:
    """Available shows 10: either others use the 6, or the holder does and it is known."""
    probe = ScriptedProbe(MACHINE, own_use=OwnUse(ram_bytes=0))
    governor = Governor(Policy.unlimited(), probe=probe)
    assert governor.reserve(ResourceEstimate(ram_bytes=6 * GiB))[1] is not None
    probe.set(attrs.evolve(MACHINE, ram_available_bytes=10 * GiB))
    probe.use = OwnUse(ram_bytes=used * GiB)

    decision = governor.decide(ResourceEstimate(ram_bytes=8 * GiB))

    assert decision.kind is kind
    if kind is DecisionKind.WAIT:
        facts = decision.reason.facts
        assert (facts["available"], facts["reserve"], facts["promised"]) == (10 * GiB, 0, 6 * GiB)
        assert "10 GiB available - 0 B reserve - 6 GiB promised" in decision.reason.text


def test_h43_memory_that_is_not_back_yet_is_waited_for() -> None:
    probe = ScriptedProbe(with_card(24, 24))
    governor = Governor(Policy.unlimited(), probe=probe)
    asked = ResourceEstimate(gpu_bytes=20 * GiB)
    first = governor.reserve(asked)[1]
    assert first is not None
    probe.set(with_card(24, 4))
    first.release()

    late = governor.reserve(asked)[0]
    assert (late.kind, late.reason.code) == (DecisionKind.WAIT, ReasonCode.GPU_MEMORY_SHORT)
    assert not late.reason.code.slots_only, "it is looked at again without news"
    probe.set(with_card(24, 24))
    assert governor.reserve(asked)[0].kind is DecisionKind.START


@pytest.mark.parametrize("jitter", [-MiB, 0, MiB])
def test_h44_jitter_of_the_driver_shows_no_negative_figure(jitter: int) -> None:
    card = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=24 * GiB, free_bytes=24 * GiB + jitter)
    governor = governor_of(attrs.evolve(MACHINE, gpus=(card,)), tasks_per_gpu=2)
    assert governor.reserve(ResourceEstimate(gpu_bytes=23 * GiB))[1] is not None

    decision = governor.decide(ResourceEstimate(gpu_bytes=2 * GiB))

    assert decision.kind is DecisionKind.WAIT
    figures = [value for value in decision.reason.facts.values() if isinstance(value, int)]
    assert min(figures) >= 0


def test_h45_what_the_driver_keeps_is_not_granted() -> None:
    governor = Governor(Policy(), probe=ScriptedProbe(with_card(80, 79.2)))

    decision = governor.decide(ResourceEstimate(gpu_bytes=int(79.5 * GiB)))

    assert (decision.kind, decision.reason.code) == (
        DecisionKind.WAIT,
        ReasonCode.GPU_MEMORY_SHORT,
    )
    assert "79.2 GiB free - 512 MiB reserve" in decision.reason.text
