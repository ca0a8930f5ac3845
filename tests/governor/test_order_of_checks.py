"""
The order of the checks: first match wins.

Each ladder starts with everything wrong at once. Mending what was named must bring up the
next check of the page, and no other.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from lardon import DecisionKind, GpuSnapshot, Policy, ReasonCode, ResourceEstimate, ResourceSnapshot
from lardon.governor.admission import evaluate
from lardon.governor.decision import Contract, Decision
from lardon.governor.ledger import Booking, Ledger

NOW: Final = 100.0
FULL_CARD: Final = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=100, free_bytes=50)

WRONG: Final[dict[str, dict[str, Any]]] = {
    "estimate": {
        "ram_bytes": 200,
        "ram_bytes_per_item": 10,
        "gpu_bytes": 200,
        "gpu_bytes_per_item": 10,
        "max_batch": 4,
        "cpus": 20,
        "io_slots": 2,
    },
    "snapshot": {
        "taken_at": 0.0,
        "ram_total_bytes": 0,
        "ram_available_bytes": 0,
        "cpus": 8,
        "load1": 80.0,
        "cpu_pressure": 99.0,
        "memory_pressure": 99.0,
        "io_pressure": 99.0,
        "gpus": (),
    },
    "policy": {
        "ram_reserve_bytes": 0,
        "gpu_reserve_bytes": 0,
        "max_load_ratio": 1.0,
        "max_cpu_pressure": 50.0,
        "max_memory_pressure": 50.0,
        "max_io_pressure": 50.0,
        "io_slots": 1,
    },
}
HELD: Final = Contract(batch_size=1, ram_bytes=0, gpu_bytes=0, gpus=("GPU-a",), cpus=6, io_slots=1)


def ask(parts: dict[str, dict[str, Any]], held: tuple[Contract, ...]) -> Decision:
    ledger = Ledger()
    for number, contract in enumerate(held, start=1):
        ledger.book(Booking(number, f"holder {number}", contract))
    return evaluate(
        ResourceEstimate(**parts["estimate"]),
        ResourceSnapshot(**parts["snapshot"]),
        Policy(**parts["policy"]),
        ledger,
        NOW,
    )


# What is mended at each step, and what comes up next.
LADDER: Final[list[tuple[str, str, Any, DecisionKind, ReasonCode]]] = [
    ("", "", None, DecisionKind.WAIT, ReasonCode.INVALID_SNAPSHOT),
    ("snapshot", "ram_total_bytes", 100, DecisionKind.WAIT, ReasonCode.STALE_SNAPSHOT),
    ("snapshot", "taken_at", NOW, DecisionKind.REJECT, ReasonCode.NO_GPU),
    ("snapshot", "gpus", (FULL_CARD,), DecisionKind.REJECT, ReasonCode.RAM_CAPACITY),
    ("estimate", "ram_bytes", 0, DecisionKind.REJECT, ReasonCode.GPU_CAPACITY),
    ("estimate", "gpu_bytes", 0, DecisionKind.REJECT, ReasonCode.CPU_CAPACITY),
    ("estimate", "cpus", 4, DecisionKind.REJECT, ReasonCode.IO_CAPACITY),
    ("estimate", "io_slots", 1, DecisionKind.WAIT, ReasonCode.LOAD),
    ("snapshot", "load1", 7.9, DecisionKind.WAIT, ReasonCode.CPU_PRESSURE),
    ("snapshot", "cpu_pressure", 49.9, DecisionKind.WAIT, ReasonCode.MEMORY_PRESSURE),
    ("snapshot", "memory_pressure", 49.9, DecisionKind.WAIT, ReasonCode.IO_PRESSURE),
    ("snapshot", "io_pressure", 49.9, DecisionKind.WAIT, ReasonCode.CPUS_BUSY),
    ("estimate", "cpus", 2, DecisionKind.WAIT, ReasonCode.GPUS_BUSY),
    ("policy", "tasks_per_gpu", 2, DecisionKind.WAIT, ReasonCode.IO_SLOTS_BUSY),
    ("policy", "io_slots", 2, DecisionKind.WAIT, ReasonCode.GPU_MEMORY_UNKNOWN),
    ("snapshot", "gpus", (FULL_CARD,), DecisionKind.WAIT, ReasonCode.RAM_SHORT),
    (
        "snapshot",
        "ram_available_bytes",
        100,
        DecisionKind.REDUCE_BATCH,
        ReasonCode.GPU_MEMORY_SHORT,
    ),
    ("estimate", "gpu_bytes_per_item", 9, DecisionKind.START, ReasonCode.OK),
]
UNKNOWN: Final = attrs.evolve(FULL_CARD, free_bytes=None)
TIGHT: Final = attrs.evolve(FULL_CARD, free_bytes=39)


def test_the_ladder_from_everything_wrong_to_a_start() -> None:
    parts = {name: dict(fields) for name, fields in WRONG.items()}
    seen: list[tuple[DecisionKind, ReasonCode]] = []
    for part, field, value, _, _ in LADDER:
        if part:
            parts[part][field] = value
        if (part, field) == ("snapshot", "gpus"):
            # Its figure is unknown up to the step that mends it; then it is tight.
            known = seen[-1:] == [(DecisionKind.WAIT, ReasonCode.GPU_MEMORY_UNKNOWN)]
            parts[part][field] = (TIGHT if known else UNKNOWN,)
        decision = ask(parts, (HELD,))
        seen.append((decision.kind, decision.reason.code))
        assert (decision.contract is None) == (
            decision.kind in {DecisionKind.WAIT, DecisionKind.REJECT}
        )
        assert decision.admitted == (decision.contract is not None)

    assert seen == [(kind, code) for *_, kind, code in LADDER]


def test_invalid_comes_before_stale_and_both_hide_a_reject() -> None:
    parts = {name: dict(fields) for name, fields in WRONG.items()}
    impossible = ResourceEstimate(ram_bytes=10**12)
    shot = ResourceSnapshot(**parts["snapshot"])

    both = evaluate(impossible, shot, Policy(), Ledger(), NOW)
    stale = evaluate(impossible, attrs.evolve(shot, ram_total_bytes=9), Policy(), Ledger(), NOW)

    assert (both.kind, both.reason.code) == (DecisionKind.WAIT, ReasonCode.INVALID_SNAPSHOT)
    assert (stale.kind, stale.reason.code) == (DecisionKind.WAIT, ReasonCode.STALE_SNAPSHOT)


REJECTS: Final[list[tuple[dict[str, Any], ReasonCode]]] = [
    ({"gpus": 1}, ReasonCode.NO_GPU),
    ({"ram_bytes": 101}, ReasonCode.RAM_CAPACITY),
    ({"cpus": 9}, ReasonCode.CPU_CAPACITY),
    ({"io_slots": 2}, ReasonCode.IO_CAPACITY),
]


@pytest.mark.parametrize(("fields", "code"), REJECTS)
def test_nothing_but_a_bad_snapshot_hides_a_reject(
    fields: dict[str, Any], code: ReasonCode
) -> None:
    """Neither load, nor pressure, nor what others hold, nor a full machine."""
    busy: dict[str, Any] = {
        **WRONG["snapshot"],
        "taken_at": NOW,
        "ram_total_bytes": 100,
        "ram_available_bytes": 0,
    }
    parts = {"estimate": fields, "snapshot": busy, "policy": WRONG["policy"]}
    held = Contract(batch_size=1, ram_bytes=100, cpus=8, io_slots=1)

    decision = ask(parts, (held,))

    assert (decision.kind, decision.reason.code) == (DecisionKind.REJECT, code)


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("load1", "max_load_ratio"),
        ("cpu_pressure", "max_cpu_pressure"),
        ("memory_pressure", "max_memory_pressure"),
        ("io_pressure", "max_io_pressure"),
    ],
)
def test_a_live_rule_blocks_at_its_limit_and_an_unknown_reading_never(
    field: str, limit: str
) -> None:
    asked = ResourceEstimate(io_slots=1)
    shot = ResourceSnapshot(taken_at=NOW, ram_total_bytes=9, ram_available_bytes=9, cpus=4)
    rules = Policy(**{limit: 10.0})  # type: ignore[arg-type]
    scale = 4 if field == "load1" else 1

    def code(reading: float | None) -> ReasonCode:
        reads = attrs.evolve(shot, **{field: reading})  # type: ignore[arg-type]
        return evaluate(asked, reads, rules, Ledger(), NOW).reason.code

    name = {"load1": "LOAD"}.get(field, field.upper())
    assert code(10.0 * scale) is ReasonCode[name]
    assert code(11.0 * scale) is ReasonCode[name]
    assert code(9.999 * scale) is ReasonCode.OK
    assert code(0.0) is ReasonCode.OK
    assert code(None) is ReasonCode.OK
    off = Policy(**{limit: None})  # type: ignore[arg-type]
    hot = attrs.evolve(shot, **{field: 100.0})  # type: ignore[arg-type]
    assert evaluate(asked, hot, off, Ledger(), NOW).reason.code is ReasonCode.OK


def test_a_limit_of_zero_blocks_always() -> None:
    shot = ResourceSnapshot(
        taken_at=NOW, ram_total_bytes=9, ram_available_bytes=9, memory_pressure=0.0
    )

    decision = evaluate(ResourceEstimate(), shot, Policy(max_memory_pressure=0), Ledger(), NOW)

    assert decision.reason.code is ReasonCode.MEMORY_PRESSURE


def test_io_pressure_is_asked_only_of_tasks_with_io_slots() -> None:
    shot = ResourceSnapshot(
        taken_at=NOW, ram_total_bytes=9, ram_available_bytes=9, io_pressure=100.0
    )

    def code(io_slots: int) -> ReasonCode:
        asked = ResourceEstimate(io_slots=io_slots)
        return evaluate(asked, shot, Policy(), Ledger(), NOW).reason.code

    assert code(0) is ReasonCode.OK
    assert code(1) is ReasonCode.IO_PRESSURE


def test_the_figure_of_a_live_rule_is_never_rounded_below_its_limit() -> None:
    shot = ResourceSnapshot(
        taken_at=NOW, ram_total_bytes=9, ram_available_bytes=9, memory_pressure=10.00401
    )
    rules = Policy(max_memory_pressure=10.004)

    facts = evaluate(ResourceEstimate(), shot, rules, Ledger(), NOW).reason.facts

    assert float(facts["found"]) >= float(facts["limit"]) == 10.004


@pytest.mark.parametrize(
    ("age", "fresh"),
    [(0.0, True), (0.5, True), (1.0, True), (1.0 + 2**-40, False), (-(2**-40), False),
     (float("nan"), False), (float("inf"), False), (-float("inf"), False)],
)  # fmt: skip
def test_a_snapshot_may_be_as_old_as_the_limit_and_not_from_the_future(
    age: float, fresh: bool
) -> None:
    shot = ResourceSnapshot(taken_at=NOW - age, ram_total_bytes=9, ram_available_bytes=9)

    decision = evaluate(ResourceEstimate(), shot, Policy(), Ledger(), NOW)

    assert decision.admitted is fresh
    if not fresh:
        assert decision.reason.code is ReasonCode.STALE_SNAPSHOT
        assert not 0 <= float(decision.reason.facts["found"]) <= 1.0


def test_at_a_limit_of_zero_only_a_reading_of_this_very_moment_counts() -> None:
    shot = ResourceSnapshot(taken_at=NOW, ram_total_bytes=9, ram_available_bytes=9)
    rules = Policy(snapshot_max_age_s=0)

    assert evaluate(ResourceEstimate(), shot, rules, Ledger(), NOW).admitted
    assert not evaluate(ResourceEstimate(), shot, rules, Ledger(), NOW + 2**-40).admitted
