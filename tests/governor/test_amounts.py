"""Amounts at their exact edges: capacity, reserve, limit, promises, slots, batches."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon import (
    Contract,
    Decision,
    DecisionKind,
    GiB,
    Governor,
    GpuSnapshot,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.admission import evaluate
from lardon.governor.estimate import largest_batch
from lardon.governor.ledger import Booking, Ledger
from lardon.testing import ScriptedProbe

BARE: Final[dict[str, Any]] = {
    "ram_reserve_bytes": 0,
    "max_memory_pressure": None,
    "max_io_pressure": None,
}


def machine(total: int = 1000, available: int | None = None, **fields: Any) -> ResourceSnapshot:
    fields = {"cpus": 8, **fields}
    return ResourceSnapshot(
        taken_at=0.0,
        ram_total_bytes=total,
        ram_available_bytes=total if available is None else available,
        **fields,
    )


def ask(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    *held: Contract,
    **rules: Any,
) -> Decision:
    ledger = Ledger()
    for number, contract in enumerate(held, start=1):
        ledger.book(Booking(number, f"holder {number}", contract))
    return evaluate(estimate, snapshot, Policy(**{**BARE, **rules}), ledger, 0.0)


def holding(ram_bytes: int = 0, cpus: int = 1, io_slots: int = 0) -> Contract:
    return Contract(batch_size=1, ram_bytes=ram_bytes, cpus=cpus, io_slots=io_slots)


def verdict(decision: Decision) -> tuple[DecisionKind, ReasonCode]:
    return decision.kind, decision.reason.code


START: Final = (DecisionKind.START, ReasonCode.OK)
SHORT: Final = (DecisionKind.WAIT, ReasonCode.RAM_SHORT)
NEVER: Final = (DecisionKind.REJECT, ReasonCode.RAM_CAPACITY)


@pytest.mark.parametrize("rules", [{}, {"ram_reserve_bytes": 100}, {"ram_limit_bytes": 900}])
def test_exactly_the_capacity_is_feasible_and_one_byte_more_is_not(rules: dict[str, int]) -> None:
    capacity = 900 if rules else 1000

    assert verdict(ask(ResourceEstimate(ram_bytes=capacity), machine(), **rules)) == START
    assert verdict(ask(ResourceEstimate(ram_bytes=capacity + 1), machine(), **rules)) == NEVER


def test_the_default_reserve_is_kept_free() -> None:
    default = {"ram_reserve_bytes": None}
    shot = machine(32 * GiB)

    assert verdict(ask(ResourceEstimate(ram_bytes=30 * GiB), shot, **default)) == START
    assert verdict(ask(ResourceEstimate(ram_bytes=30 * GiB + 1), shot, **default)) == NEVER


def test_what_is_on_offer_is_available_minus_reserve() -> None:
    shot = machine(1000, 500)

    assert verdict(ask(ResourceEstimate(ram_bytes=400), shot, ram_reserve_bytes=100)) == START
    assert verdict(ask(ResourceEstimate(ram_bytes=401), shot, ram_reserve_bytes=100)) == SHORT


def test_available_above_total_is_clamped() -> None:
    assert verdict(ask(ResourceEstimate(ram_bytes=1000), machine(1000, 5000))) == START
    shot = machine(1000, 5000)
    short = ask(ResourceEstimate(ram_bytes=901), shot, holding(100))
    assert verdict(short) == SHORT
    assert short.reason.facts["available"] == 1000
    assert verdict(ask(ResourceEstimate(ram_bytes=900), shot, holding(100))) == START


def test_what_is_promised_is_not_offered_again() -> None:
    shot = machine(1000, 600)

    assert verdict(ask(ResourceEstimate(ram_bytes=300), shot, holding(200), holding(100))) == START
    assert verdict(ask(ResourceEstimate(ram_bytes=301), shot, holding(200), holding(100))) == SHORT


def test_a_limit_is_a_budget_for_all_reservations_together() -> None:
    """On top of every other rule: there is plenty of memory, and the budget is spent."""
    shot = machine(10_000)
    rules = {"ram_limit_bytes": 500}

    assert verdict(ask(ResourceEstimate(ram_bytes=200), shot, holding(300), **rules)) == START
    decision = ask(ResourceEstimate(ram_bytes=201), shot, holding(300), **rules)
    assert verdict(decision) == SHORT
    assert decision.reason.facts["found"] == 200
    assert decision.reason.facts["limit"] == 500


def test_a_reserve_above_the_machine_leaves_nothing_and_nothing_negative() -> None:
    decision = ask(ResourceEstimate(ram_bytes=1), machine(), ram_reserve_bytes=2000)

    assert verdict(decision) == NEVER
    assert decision.reason.facts["limit"] == 0
    assert verdict(ask(ResourceEstimate(), machine(), ram_reserve_bytes=2000)) == START


def test_promises_above_what_is_available_leave_nothing_and_nothing_negative() -> None:
    decision = ask(ResourceEstimate(ram_bytes=1), machine(1000, 100), holding(400))

    assert verdict(decision) == SHORT
    assert decision.reason.facts["found"] == 0
    assert verdict(ask(ResourceEstimate(), machine(1000, 100), holding(400))) == START


def test_swap_never_adds_to_anything() -> None:
    shot = machine(1000, 100, swap_total_bytes=10**6, swap_used_bytes=0)

    assert verdict(ask(ResourceEstimate(ram_bytes=101), shot)) == SHORT
    assert verdict(ask(ResourceEstimate(ram_bytes=1001), shot)) == NEVER


@pytest.mark.parametrize(
    ("least", "reserve", "held", "expected"),
    [
        (8, 0, 0, START),
        (9, 0, 0, (DecisionKind.REJECT, ReasonCode.CPU_CAPACITY)),
        (6, 2, 0, START),
        (7, 2, 0, (DecisionKind.REJECT, ReasonCode.CPU_CAPACITY)),
        (1, 99, 0, START),
        (2, 99, 0, (DecisionKind.REJECT, ReasonCode.CPU_CAPACITY)),
        (5, 0, 3, START),
        (6, 0, 3, (DecisionKind.WAIT, ReasonCode.CPUS_BUSY)),
        (1, 99, 1, (DecisionKind.WAIT, ReasonCode.CPUS_BUSY)),
        (3, 2, 3, START),
        (4, 2, 3, (DecisionKind.WAIT, ReasonCode.CPUS_BUSY)),
    ],
)
def test_cpus_at_the_edges(
    least: int, reserve: int, held: int, expected: tuple[DecisionKind, ReasonCode]
) -> None:
    others = (holding(cpus=held),) if held else ()

    assert verdict(ask(ResourceEstimate(cpus=least), machine(), *others, cpu_reserve=reserve)) == (
        expected
    )


@pytest.mark.parametrize(("cpus", "least", "held", "granted"), [
    (4, 1, 0, 4), (4, 1, 4, 4), (4, 1, 5, 3), (4, 1, 7, 1), (100, 1, 0, 8), (4, 3, 5, 3),
])  # fmt: skip
def test_the_cpus_granted_are_what_is_wanted_or_what_is_left(
    cpus: int, least: int, held: int, granted: int
) -> None:
    """Fewer CPUs than wanted are no smaller batch: the answer is still START."""
    others = (holding(cpus=held),) if held else ()

    decision = ask(ResourceEstimate(cpus=cpus, min_cpus=least), machine(), *others)

    assert decision.kind is DecisionKind.START
    assert decision.contract is not None
    assert decision.contract.cpus == granted


@pytest.mark.parametrize(
    ("asked", "slots", "held", "expected"),
    [
        (0, 0, 0, START),
        (1, 1, 0, START),
        (1, 0, 0, (DecisionKind.REJECT, ReasonCode.IO_CAPACITY)),
        (2, 1, 0, (DecisionKind.REJECT, ReasonCode.IO_CAPACITY)),
        (1, 1, 1, (DecisionKind.WAIT, ReasonCode.IO_SLOTS_BUSY)),
        (0, 1, 1, START),
        (2, 3, 1, START),
        (2, 3, 2, (DecisionKind.WAIT, ReasonCode.IO_SLOTS_BUSY)),
    ],
)
def test_io_slots_at_the_edges(
    asked: int, slots: int, held: int, expected: tuple[DecisionKind, ReasonCode]
) -> None:
    others = (holding(io_slots=held),) if held else ()

    decision = ask(ResourceEstimate(io_slots=asked), machine(), *others, io_slots=slots)

    assert verdict(decision) == expected
    if decision.contract is not None:
        assert decision.contract.io_slots == asked


@pytest.mark.parametrize(
    ("available", "batch"),
    [(99, 0), (109, 0), (110, 1), (119, 1), (120, 2), (189, 8), (259, 15), (260, 16), (1000, 16)],
)
def test_the_largest_batch_that_fits_is_granted(available: int, batch: int) -> None:
    """No halving: 15 items are granted where 15 fit."""
    asked = ResourceEstimate(ram_bytes=100, ram_bytes_per_item=10, max_batch=16)

    decision = ask(asked, machine(1000, available))

    if batch == 0:
        assert verdict(decision) == SHORT
        assert decision.contract is None
        return
    assert decision.contract is not None
    assert decision.contract.batch_size == batch
    assert decision.contract.ram_bytes == 100 + 10 * batch
    kind = DecisionKind.START if batch == 16 else DecisionKind.REDUCE_BATCH
    assert decision.kind is kind
    assert decision.reason.code is (ReasonCode.OK if batch == 16 else ReasonCode.RAM_SHORT)


def test_a_batch_is_never_smaller_than_the_smallest() -> None:
    asked = ResourceEstimate(ram_bytes_per_item=10, min_batch=5, max_batch=9)

    assert verdict(ask(asked, machine(1000, 49))) == SHORT
    decision = ask(asked, machine(1000, 50))
    assert decision.contract is not None
    assert decision.contract.batch_size == 5
    assert verdict(ask(asked, machine(49, 49))) == NEVER


def test_a_reduction_says_what_the_full_batch_lacks() -> None:
    asked = ResourceEstimate(ram_bytes=100, ram_bytes_per_item=10, max_batch=16)
    shot = machine(1000, 300, limits=("memory.max of /a",))

    decision = ask(asked, shot, holding(100), ram_reserve_bytes=50)

    facts = decision.reason.facts
    assert decision.kind is DecisionKind.REDUCE_BATCH
    assert {name: facts[name] for name in ("resource", "batch", "asked", "found", "limit")} == {
        "resource": "ram",
        "batch": 16,
        "asked": 260,
        "found": 150,
        "limit": 950,
    }
    assert (facts["available"], facts["reserve"], facts["promised"]) == (300, 50, 100)
    assert facts["holders"] == "holder 1"
    assert facts["limits"] == "memory.max of /a"
    for words in ("16 items", "260 B", "150 B", "300 B", "50 B", "100 B", "holder 1", "memory.max"):
        assert words in decision.reason.text


def test_holders_are_those_of_the_resource() -> None:
    """Who holds CPUs alone is not named for a lack of memory, nor the other way round."""
    shot = machine(1000, io_pressure=None)
    ledger = Ledger()
    ledger.book(Booking(1, "memory", holding(900)))
    ledger.book(Booking(2, "", holding(0, cpus=6, io_slots=1)))
    rules = Policy(**{**BARE, "io_slots": 1})

    def holders(estimate: ResourceEstimate) -> object:
        return evaluate(estimate, shot, rules, ledger, 0.0).reason.facts["holders"]

    assert holders(ResourceEstimate(ram_bytes=500)) == "memory"
    assert holders(ResourceEstimate(cpus=8)) == "memory, reservation 2"
    assert holders(ResourceEstimate(io_slots=1)) == "reservation 2"


def test_a_reason_names_three_holders_and_counts_the_rest() -> None:
    decision = ask(ResourceEstimate(ram_bytes=1000), machine(), *[holding(1)] * 5)

    assert decision.reason.facts["holders"] == "holder 1, holder 2, holder 3 and 2 more"
    three = ask(ResourceEstimate(ram_bytes=1000), machine(), *[holding(1)] * 3)
    assert three.reason.facts["holders"] == "holder 1, holder 2, holder 3"


SIZES: Final = st.one_of(st.integers(0, 40), st.integers(0, 2**70))


@given(SIZES, SIZES, SIZES, st.integers(1, 30), st.integers(0, 30))
def test_the_batch_search_against_trying_every_batch(
    fixed: int, per_item: int, offer: int, least: int, more: int
) -> None:
    fitting = [b for b in range(least, least + more + 1) if fixed + per_item * b <= offer]

    found = largest_batch(fixed, per_item, offer, least, least + more)

    assert found == max(fitting, default=0)


@pytest.mark.parametrize(
    "field", ["ram_bytes", "ram_bytes_per_item", "gpu_bytes", "cpus", "io_slots"]
)
@pytest.mark.parametrize(
    "size", [2**63, 10**30, 10**400, 10**5000], ids=["2^63", "30", "400", "5000"]
)
def test_a_huge_demand_is_rejected_with_a_text(field: str, size: int) -> None:
    gpu = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=10**9, free_bytes=10**9)
    probe = ScriptedProbe(machine(10**9, gpus=(gpu,)), stamp=True)
    governor = Governor(probe=probe)
    fields: dict[str, Any] = {field: size}
    asked = ResourceEstimate(**fields)

    decision, reservation = governor.reserve(asked)

    assert decision.kind is DecisionKind.REJECT
    assert reservation is None
    assert len(decision.reason.text) < 400
    explanation = governor.explain(asked)
    assert explanation.to_start


@pytest.mark.parametrize("size", [2**63, 10**400, 10**5000], ids=["2^63", "400", "5000"])
@pytest.mark.parametrize("per_item", [0, 1])
def test_a_huge_batch_is_granted_as_far_as_it_fits(size: int, per_item: int) -> None:
    asked = ResourceEstimate(ram_bytes_per_item=per_item, max_batch=size)

    decision = ask(asked, machine(1000))

    assert decision.contract is not None
    assert decision.contract.batch_size == (1000 if per_item else size)
    assert decision.reason.text
    assert json.dumps(decision.reason.facts)


def test_what_is_remembered_of_a_start_is_not_told_of_another_machine() -> None:
    """The same estimate on another machine: the figures of the answer are that machine's."""
    asked = ResourceEstimate(ram_bytes=100)

    told = []
    for total, available in ((1000, 500), (2000, 500), (1000, 600), (1000, 500)):
        facts = ask(asked, machine(total, available)).reason.facts
        told.append((facts["found"], facts["limit"]))

    assert told == [(500, 1000), (500, 2000), (600, 1000), (500, 1000)]
