"""`explain`: the decision, the arithmetic behind it, and what would have to change."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from lardon import (
    DecisionKind,
    Governor,
    GpuSnapshot,
    MiB,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.explanation import Explanation, ResourceLine
from lardon.testing import ManualClock, ScriptedProbe

CARD: Final = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=100 * MiB, free_bytes=90 * MiB)
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1000 * MiB, ram_available_bytes=600 * MiB, cpus=8, gpus=(CARD,)
)
RULES: Final = Policy(
    ram_reserve_bytes=100 * MiB, gpu_reserve_bytes=10 * MiB, cpu_reserve=2, io_slots=2
)


@pytest.fixture
def probe(clock: ManualClock) -> ScriptedProbe:
    return ScriptedProbe(MACHINE, clock=clock)


@pytest.fixture
def governor(clock: ManualClock, probe: ScriptedProbe) -> Governor:
    return Governor(RULES, probe=probe, clock=clock)


def lines(explanation: Explanation) -> dict[str, ResourceLine]:
    return {line.resource: line for line in explanation.lines}


def test_every_resource_has_its_line(governor: Governor) -> None:
    governor.reserve(ResourceEstimate(ram_bytes=200 * MiB, cpus=1, io_slots=1), holder="other")
    asked = ResourceEstimate(
        ram_bytes=50 * MiB,
        ram_bytes_per_item=10 * MiB,
        gpu_bytes_per_item=MiB,
        min_batch=2,
        max_batch=20,
        cpus=4,
        min_cpus=3,
        io_slots=1,
    )

    explanation = governor.explain(asked)

    assert explanation.decision == governor.decide(asked)
    assert explanation.decision.kind is DecisionKind.START
    assert explanation.to_start == ()
    assert explanation.snapshot is not None
    assert list(explanation.lines) == [
        ResourceLine(
            resource="ram",
            asked_least=70 * MiB,
            asked_most=250 * MiB,
            capacity=900 * MiB,
            reserve=100 * MiB,
            promised=200 * MiB,
            available=600 * MiB,
            found=300 * MiB,
        ),
        ResourceLine(
            resource="cpus",
            asked_least=3,
            asked_most=4,
            capacity=6,
            reserve=None,
            promised=1,
            available=None,
            found=5,
        ),
        ResourceLine(
            resource="io_slots",
            asked_least=1,
            asked_most=1,
            capacity=2,
            reserve=None,
            promised=1,
            available=None,
            found=1,
        ),
        ResourceLine(
            resource="GPU-a",
            asked_least=2 * MiB,
            asked_most=20 * MiB,
            capacity=90 * MiB,
            reserve=10 * MiB,
            promised=0,
            available=90 * MiB,
            found=80 * MiB,
        ),
    ]
    assert [line.verdict for line in explanation.lines] == ["enough"] * 4


def test_cards_have_a_line_only_for_who_asks_for_one(governor: Governor) -> None:
    assert "GPU-a" not in lines(governor.explain(ResourceEstimate()))
    assert "GPU-a" in lines(governor.explain(ResourceEstimate(gpus=1)))
    assert "GPU-a" not in lines(governor.explain(ResourceEstimate(gpus=1), devices=[]))


@pytest.mark.parametrize(
    ("least", "most", "capacity", "found", "verdict"),
    [
        (1, 2, 10, 10, "enough"),
        (1, 10, 10, 10, "enough"),
        (10, 11, 10, 10, "reduced"),
        (5, 10, 10, 5, "reduced"),
        (5, 10, 10, 4, "short"),
        (10, 10, 10, 9, "short"),
        (11, 11, 10, 10, "never"),
        (11, 11, 10, None, "never"),
        (1, 1, 10, None, "unknown"),
        (1, 1, None, None, "unknown"),
        (0, 0, 10, None, "enough"),
        (9, 9, None, 9, "enough"),
        (0, 0, 0, 0, "enough"),
    ],
)
def test_verdicts(
    least: int, most: int, capacity: int | None, found: int | None, verdict: str
) -> None:
    line = ResourceLine(
        resource="ram",
        asked_least=least,
        asked_most=most,
        capacity=capacity,
        reserve=0,
        promised=0,
        available=found,
        found=found,
    )

    assert line.verdict == verdict


def test_what_a_reduction_lacks(governor: Governor) -> None:
    asked = ResourceEstimate(ram_bytes_per_item=100 * MiB, max_batch=7)

    explanation = governor.explain(asked)

    assert explanation.decision.kind is DecisionKind.REDUCE_BATCH
    assert explanation.to_start == ("200 MiB more must be on offer of ram",)


def test_what_a_wait_for_slots_lacks(governor: Governor) -> None:
    governor.reserve(ResourceEstimate(cpus=4, io_slots=1))

    cpus = governor.explain(ResourceEstimate(cpus=6, min_cpus=3))
    slots = governor.explain(ResourceEstimate(io_slots=2))
    both = governor.explain(ResourceEstimate(cpus=6, io_slots=2))

    assert cpus.to_start == ("1 more cpus must be released",)
    assert slots.to_start == ("1 more io_slots must be released",)
    assert both.to_start == ("4 more cpus must be released", "1 more io_slots must be released")


def test_fewer_cpus_than_wanted_are_in_nobodys_way(governor: Governor) -> None:
    """The full batch starts on fewer CPUs, so they do not have to be released."""
    asked = ResourceEstimate(ram_bytes_per_item=100 * MiB, max_batch=7, cpus=90, min_cpus=1)

    explanation = governor.explain(asked)

    assert lines(explanation)["cpus"].verdict == "reduced"
    assert explanation.to_start == ("200 MiB more must be on offer of ram",)


def test_a_wait_that_no_line_tells_of_is_said_beside_what_is_short(
    governor: Governor, probe: ScriptedProbe
) -> None:
    probe.set(attrs.evolve(MACHINE, memory_pressure=50.0))
    asked = ResourceEstimate(ram_bytes=600 * MiB)

    explanation = governor.explain(asked)

    assert explanation.decision.reason.code is ReasonCode.MEMORY_PRESSURE
    assert explanation.to_start == (
        f"until this no longer holds: {explanation.decision.reason.text}",
        "100 MiB more must be on offer of ram",
    )
    small = governor.explain(ResourceEstimate())
    assert small.to_start == (f"until this no longer holds: {small.decision.reason.text}",)


def test_a_card_without_a_slot_is_told_by_the_reason(governor: Governor) -> None:
    governor.reserve(ResourceEstimate(gpus=1), holder="trainer")

    explanation = governor.explain(ResourceEstimate(gpu_bytes=MiB))

    assert explanation.decision.reason.code is ReasonCode.GPUS_BUSY
    assert explanation.to_start == (
        "until this no longer holds: needs 1 GPUs with a free slot, 0 of 1 free; held by trainer",
    )


def test_a_reject_says_never(governor: Governor) -> None:
    explanation = governor.explain(ResourceEstimate(ram_bytes=901 * MiB))

    assert explanation.decision.kind is DecisionKind.REJECT
    assert lines(explanation)["ram"].verdict == "never"
    assert explanation.to_start == (
        f"never on this machine and policy: {explanation.decision.reason.text}",
    )


def test_of_several_cards_only_as_many_as_are_asked_for_must_do(
    governor: Governor, probe: ScriptedProbe
) -> None:
    full = attrs.evolve(CARD, index=1, uuid="GPU-b", free_bytes=0)
    probe.set(attrs.evolve(MACHINE, gpus=(CARD, full)))
    one = ResourceEstimate(gpu_bytes=50 * MiB, ram_bytes_per_item=100 * MiB, max_batch=7)

    explanation = governor.explain(one)

    assert lines(explanation)["GPU-b"].verdict == "short"
    assert explanation.to_start == ("200 MiB more must be on offer of ram",)
    two = governor.explain(ResourceEstimate(gpu_bytes=50 * MiB, gpus=2))
    assert two.decision.reason.code is ReasonCode.GPU_MEMORY_SHORT
    assert two.to_start == ("50 MiB more must be on offer of GPU-b",)


def test_an_integrated_gpu_needs_the_ram_as_well(governor: Governor, probe: ScriptedProbe) -> None:
    """Its memory is the RAM's: a line that left that out would contradict the decision."""
    probe.set(attrs.evolve(MACHINE, gpus=(attrs.evolve(CARD, integrated=True),)))
    asked = ResourceEstimate(ram_bytes=300 * MiB, gpu_bytes=300 * MiB)

    explanation = governor.explain(asked)

    assert explanation.decision.reason.code is ReasonCode.RAM_SHORT
    assert lines(explanation)["GPU-a"].asked_least == 600 * MiB
    assert lines(explanation)["GPU-a"].found == 500 * MiB
    assert explanation.to_start == ("100 MiB more must be on offer of GPU-a",)


def test_an_unknown_card_is_told_as_unknown(governor: Governor, probe: ScriptedProbe) -> None:
    probe.set(attrs.evolve(MACHINE, gpus=(attrs.evolve(CARD, free_bytes=None),)))

    explanation = governor.explain(ResourceEstimate(gpu_bytes=MiB))

    line = lines(explanation)["GPU-a"]
    assert (line.verdict, line.available, line.found) == ("unknown", None, None)
    assert explanation.to_start == (
        f"until this no longer holds: {explanation.decision.reason.text}",
    )


@pytest.mark.parametrize(
    ("reading", "has_snapshot", "has_lines"),
    [
        (OSError("no /proc"), False, False),
        (attrs.evolve(MACHINE, ram_total_bytes=0), True, False),
    ],
    ids=["unreadable", "invalid"],
)
def test_without_a_reading_there_is_no_arithmetic(
    governor: Governor,
    probe: ScriptedProbe,
    reading: ResourceSnapshot | OSError,
    has_snapshot: bool,
    has_lines: bool,
) -> None:
    probe.set(reading)

    explanation = governor.explain(ResourceEstimate())

    assert explanation.decision.kind is DecisionKind.WAIT
    assert (explanation.snapshot is not None) is has_snapshot
    assert bool(explanation.lines) is has_lines
    assert len(explanation.to_start) == 1
    assert explanation.decision.reason.text in explanation.to_start[0]


def test_a_stale_reading_is_explained_with_its_figures(clock: ManualClock) -> None:
    probe = ScriptedProbe(MACHINE, clock=clock, stamp=False)
    governor = Governor(RULES, probe=probe, clock=clock)

    explanation = governor.explain(ResourceEstimate())

    assert explanation.decision.reason.code is ReasonCode.STALE_SNAPSHOT
    assert explanation.lines
    assert "100.0 s old" in explanation.to_start[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"cpus": 10**5000, "min_cpus": 1},
        {"ram_bytes_per_item": 1, "max_batch": 10**5000},
        {"gpu_bytes_per_item": 1, "max_batch": 10**5000},
    ],
    ids=["cpus", "ram", "gpu"],
)
def test_huge_wishes_are_explained_too(governor: Governor, fields: dict[str, Any]) -> None:
    explanation = governor.explain(ResourceEstimate(**fields))

    assert explanation.decision.admitted
    assert all(len(text) < 400 for text in explanation.to_start)


def test_a_full_batch_that_never_fits_is_told_as_such(governor: Governor) -> None:
    """Waiting for more would not help: the smallest batch is what can be had."""
    asked = ResourceEstimate(ram_bytes_per_item=100 * MiB, min_batch=6, max_batch=20)

    explanation = governor.explain(asked)

    assert explanation.decision.kind is DecisionKind.WAIT
    (text,) = explanation.to_start
    assert text.startswith("1.465 GiB more must be on offer of ram")
    assert "100 MiB for the smallest batch" in text
    assert "capacity of 900 MiB never holds the full batch" in text
