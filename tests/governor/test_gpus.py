"""GPUs: one, several, unknown, integrated, shared by slots, and chosen by UUID."""

from __future__ import annotations

from typing import Any, Final

import pytest

from lardon import (
    Contract,
    Decision,
    DecisionKind,
    Governor,
    GpuSnapshot,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.admission import evaluate
from lardon.governor.ledger import Booking, Ledger
from lardon.testing import ScriptedProbe

BARE: Final[dict[str, Any]] = {
    "ram_reserve_bytes": 0,
    "gpu_reserve_bytes": 0,
    "max_memory_pressure": None,
}


def card(
    uuid: str,
    free: int | None,
    total: int | None = 1000,
    *,
    index: int | None = None,
    integrated: bool = False,
) -> GpuSnapshot:
    return GpuSnapshot(
        index=ord(uuid[-1]) - ord("a") if index is None else index,
        uuid=uuid,
        total_bytes=total,
        free_bytes=free,
        integrated=integrated,
    )


def machine(*gpus: GpuSnapshot, ram: int = 10_000) -> ResourceSnapshot:
    return ResourceSnapshot(
        taken_at=0.0, ram_total_bytes=ram, ram_available_bytes=ram, cpus=64, gpus=gpus
    )


def holding(uuid: str, gpu_bytes: int = 0, ram_bytes: int = 0) -> Contract:
    return Contract(batch_size=1, ram_bytes=ram_bytes, gpu_bytes=gpu_bytes, gpus=(uuid,))


def ask(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    *held: Contract,
    devices: tuple[str, ...] | None = None,
    **rules: Any,
) -> Decision:
    ledger = Ledger()
    shared = {gpu.uuid for gpu in snapshot.gpus if gpu.integrated}
    for number, contract in enumerate(held, start=1):
        ledger.book(Booking(number, f"holder {number}", contract), shared)
    policy = Policy(**{**BARE, **rules})
    return evaluate(estimate, snapshot, policy, ledger, 0.0, None, devices)


def granted(decision: Decision) -> tuple[int, tuple[str, ...]]:
    assert decision.contract is not None, decision.reason.text
    return decision.contract.batch_size, decision.contract.gpus


def verdict(decision: Decision) -> tuple[DecisionKind, ReasonCode]:
    return decision.kind, decision.reason.code


TWO: Final = ResourceEstimate(gpu_bytes_per_item=10, gpus=2, max_batch=100)
ONE: Final = ResourceEstimate(gpu_bytes_per_item=10, max_batch=100)


def test_the_gpu_memory_is_asked_on_each_card() -> None:
    decision = ask(
        ResourceEstimate(gpu_bytes=5, gpu_bytes_per_item=10, gpus=2, max_batch=3),
        machine(card("a", 500), card("b", 400)),
    )

    assert granted(decision) == (3, ("a", "b"))
    assert decision.contract is not None
    assert decision.contract.gpu_bytes == 35


def test_memory_is_never_summed_across_cards() -> None:
    shot = machine(card("a", 60), card("b", 60))

    assert verdict(ask(ResourceEstimate(gpu_bytes=61), shot)) == (
        DecisionKind.WAIT,
        ReasonCode.GPU_MEMORY_SHORT,
    )
    assert granted(ask(ONE, shot)) == (6, ("a",))
    assert verdict(ask(ResourceEstimate(gpu_bytes=1001), shot)) == (
        DecisionKind.REJECT,
        ReasonCode.GPU_CAPACITY,
    )


def test_the_card_with_least_bounds_the_batch_of_several() -> None:
    decision = ask(TWO, machine(card("a", 305), card("b", 999), card("c", 409)))

    assert granted(decision) == (40, ("b", "c"))
    facts = decision.reason.facts
    assert (facts["device"], facts["asked"], facts["found"]) == ("c", 1000, 409)


def test_most_on_offer_comes_first_and_ties_go_to_the_index() -> None:
    equal = machine(card("a", 500, index=2), card("b", 500, index=0), card("c", 500, index=1))

    assert granted(ask(ONE, equal)) == (50, ("b",))
    assert granted(ask(TWO, equal)) == (50, ("b", "c"))
    assert granted(ask(ONE, machine(card("a", 500), card("b", 501)))) == (50, ("b",))


def test_on_offer_is_what_is_left_after_reserve_and_promises() -> None:
    """The card with most free is not the card with most on offer."""
    shot = machine(card("a", 900), card("b", 800))

    assert granted(ask(ONE, shot, holding("a", 200), tasks_per_gpu=2)) == (80, ("b",))
    assert granted(ask(ONE, shot, holding("a", 99), tasks_per_gpu=2)) == (80, ("a",))
    reserved: dict[str, Any] = {"gpu_reserve_bytes": None}
    assert granted(ask(ONE, machine(card("a", 950, 16_000), card("b", 50, 100)), **reserved)) == (
        4,
        ("b",),
    )


@pytest.mark.parametrize(("asked", "kind"), [
    (1000 - 62, DecisionKind.START),
    (1000 - 61, DecisionKind.REJECT),
])  # fmt: skip
def test_the_gpu_reserve_is_kept_free_by_default(asked: int, kind: DecisionKind) -> None:
    estimate = ResourceEstimate(gpu_bytes=asked)

    assert ask(estimate, machine(card("a", 1000)), gpu_reserve_bytes=None).kind is kind


def test_free_is_what_the_driver_says_and_never_above_the_total() -> None:
    assert granted(ask(ONE, machine(card("a", 305)))) == (30, ("a",))
    above = ask(ONE, machine(card("a", 5000, 505)))
    assert granted(above) == (50, ("a",))
    assert above.reason.facts["available"] == 505


def test_a_gpu_limit_is_a_budget_per_card() -> None:
    shot = machine(card("a", 1000), card("b", 1000))
    rules: dict[str, Any] = {"gpu_limit_bytes": 300, "tasks_per_gpu": 2}

    assert granted(ask(ONE, shot, **rules)) == (30, ("a",))
    assert granted(ask(ONE, shot, holding("a", 100), **rules)) == (30, ("b",))
    both = (holding("a", 100), holding("b", 90))
    assert granted(ask(ONE, shot, *both, **rules)) == (21, ("b",))
    assert verdict(ask(ResourceEstimate(gpu_bytes=301), shot, **rules)) == (
        DecisionKind.REJECT,
        ReasonCode.GPU_CAPACITY,
    )


@pytest.mark.parametrize(("slots", "tasks", "expected"), [
    (1, 0, ReasonCode.OK), (1, 1, ReasonCode.GPUS_BUSY), (2, 1, ReasonCode.OK),
    (2, 2, ReasonCode.GPUS_BUSY), (3, 2, ReasonCode.OK), (0, 0, ReasonCode.GPU_CAPACITY),
])  # fmt: skip
def test_slots_of_a_card(slots: int, tasks: int, expected: ReasonCode) -> None:
    held = [holding("a")] * tasks

    decision = ask(ResourceEstimate(gpus=1), machine(card("a", 1000)), *held, tasks_per_gpu=slots)

    assert decision.reason.code is expected
    assert decision.reason.text


def test_a_card_without_a_slot_is_no_candidate_however_free() -> None:
    shot = machine(card("a", 1000), card("b", 55))

    assert granted(ask(ONE, shot, holding("a"))) == (5, ("b",))
    busy = ask(TWO, shot, holding("a"))
    assert verdict(busy) == (DecisionKind.WAIT, ReasonCode.GPUS_BUSY)
    facts = busy.reason.facts
    assert (facts["asked"], facts["found"], facts["limit"]) == (2, 1, 2)
    assert facts["holders"] == "holder 1"


def test_the_holders_named_are_those_of_the_card() -> None:
    shot = machine(card("a", 100), card("b", 90))
    held = (holding("a", 10), holding("b", 10), Contract(batch_size=1, ram_bytes=5))

    short = ask(ResourceEstimate(gpu_bytes=500), shot, *held, tasks_per_gpu=2)
    busy = ask(ResourceEstimate(gpus=1), shot, *held)

    assert (short.reason.facts["device"], short.reason.facts["holders"]) == ("a", "holder 1")
    assert busy.reason.facts["holders"] == "holder 1, holder 2"


def test_devices_narrow_the_choice() -> None:
    shot = machine(card("a", 100), card("b", 900))

    assert granted(ask(ONE, shot, devices=("a",))) == (10, ("a",))
    assert granted(ask(ONE, shot, devices=("a", "b", "elsewhere"))) == (90, ("b",))
    for none in ((), ("elsewhere",)):
        assert verdict(ask(ONE, shot, devices=none)) == (DecisionKind.REJECT, ReasonCode.NO_GPU)
    assert verdict(ask(TWO, shot, devices=("a",))) == (
        DecisionKind.REJECT,
        ReasonCode.GPU_CAPACITY,
    )
    assert ask(ResourceEstimate(ram_bytes=1), shot, devices=()).kind is DecisionKind.START


def test_devices_may_be_any_iterable_also_one_that_is_read_once() -> None:
    governor = Governor(
        Policy(**BARE), probe=ScriptedProbe(machine(card("a", 100), card("b", 900)))
    )

    decision, reservation = governor.reserve(ONE, devices=iter(["a"]))

    assert granted(decision) == (10, ("a",))
    assert reservation is not None
    assert granted(governor.decide(ONE, devices=iter(["b"]))) == (90, ("b",))
    assert governor.explain(ONE, devices=iter(["b"])).decision == governor.decide(
        ONE, devices=["b"]
    )
    assert governor.decide(ONE, devices={"a"}).reason.code is ReasonCode.GPUS_BUSY


# Unknown figures.


def test_an_unknown_free_figure_is_passed_over() -> None:
    shot = machine(card("a", None), card("b", 55))

    assert granted(ask(ONE, shot)) == (5, ("b",))


def test_too_few_known_ones_wait() -> None:
    shot = machine(card("a", None), card("b", 900), card("c", 500, integrated=True))

    decision = ask(TWO, shot)

    assert verdict(decision) == (DecisionKind.WAIT, ReasonCode.GPU_MEMORY_UNKNOWN)
    facts = decision.reason.facts
    assert (facts["asked"], facts["found"], facts["limit"]) == (2, 1, 2)
    assert "needs 2 GPUs with a known free figure, 1 of 2 say" in decision.reason.text


def test_zero_free_is_a_figure() -> None:
    decision = ask(ONE, machine(card("a", 0)))

    assert verdict(decision) == (DecisionKind.WAIT, ReasonCode.GPU_MEMORY_SHORT)


@pytest.mark.parametrize("bad", [card("a", -1), card("a", 5, 0), card("a", 5, -1)])
def test_a_card_that_contradicts_itself_is_unknown_and_spoils_no_other(bad: GpuSnapshot) -> None:
    assert verdict(ask(ONE, machine(bad))) == (DecisionKind.WAIT, ReasonCode.GPU_MEMORY_UNKNOWN)
    assert granted(ask(ONE, machine(bad, card("b", 55)))) == (5, ("b",))


def test_a_task_without_gpu_memory_needs_no_figure() -> None:
    asked = ResourceEstimate(gpus=1, ram_bytes_per_item=10, max_batch=5000)

    assert granted(ask(asked, machine(card("a", None)))) == (1000, ("a",))
    assert granted(ask(asked, machine(card("a", None), card("b", 0)))) == (1000, ("b",))
    assert granted(ask(ResourceEstimate(gpus=2), machine(card("a", None), card("b", None)))) == (
        1,
        ("a", "b"),
    )


def test_a_card_of_unknown_size_may_be_large_enough() -> None:
    huge = ResourceEstimate(gpu_bytes=10**9)
    shot = machine(card("a", 100, None))

    assert verdict(ask(huge, shot)) == (DecisionKind.WAIT, ReasonCode.GPU_MEMORY_SHORT)
    assert "capacity" not in ask(huge, shot).reason.text
    assert granted(ask(ONE, shot)) == (10, ("a",))


def test_a_limit_rejects_on_a_card_of_unknown_size_too() -> None:
    """What the policy can never give is not waited for."""
    shot = machine(card("a", None, None))

    assert verdict(ask(ResourceEstimate(gpu_bytes=51), shot, gpu_limit_bytes=50)) == (
        DecisionKind.REJECT,
        ReasonCode.GPU_CAPACITY,
    )
    known = machine(card("a", 900, None))
    assert granted(ask(ONE, known, gpu_limit_bytes=50)) == (5, ("a",))
    held = holding("a", 20)
    assert granted(ask(ONE, known, held, gpu_limit_bytes=50, tasks_per_gpu=2)) == (3, ("a",))


def test_a_card_of_unknown_size_keeps_the_largest_default_reserve() -> None:
    mib = 2**20
    shot = machine(card("a", 513 * mib, None))

    assert granted(ask(ResourceEstimate(gpu_bytes=mib), shot, gpu_reserve_bytes=None)) == (
        1,
        ("a",),
    )
    assert verdict(ask(ResourceEstimate(gpu_bytes=mib + 1), shot, gpu_reserve_bytes=None)) == (
        DecisionKind.WAIT,
        ReasonCode.GPU_MEMORY_SHORT,
    )


# RAM and GPU memory together.


@pytest.mark.parametrize(("ram", "free", "batch", "code"), [
    (100, 900, 10, ReasonCode.RAM_SHORT),
    (900, 100, 10, ReasonCode.GPU_MEMORY_SHORT),
    (100, 100, 10, ReasonCode.RAM_SHORT),
])  # fmt: skip
def test_two_resources_bind_and_the_smaller_wins(
    ram: int, free: int, batch: int, code: ReasonCode
) -> None:
    asked = ResourceEstimate(ram_bytes_per_item=10, gpu_bytes_per_item=10, max_batch=50)

    decision = ask(asked, machine(card("a", free), ram=ram))

    assert granted(decision) == (batch, ("a",))
    assert verdict(decision) == (DecisionKind.REDUCE_BATCH, code)
    assert decision.reason.facts["resource"] == ("ram" if code is ReasonCode.RAM_SHORT else "gpu")


# Integrated GPUs.


def test_an_integrated_gpu_takes_its_memory_from_the_ram_once() -> None:
    shot = machine(card("a", None, None, integrated=True), ram=100)
    asked = ResourceEstimate(ram_bytes=20, gpu_bytes=30, ram_bytes_per_item=3, gpu_bytes_per_item=2)

    decision = ask(asked.evolve(max_batch=10), shot)

    assert verdict(decision) == (DecisionKind.START, ReasonCode.OK)
    assert ask(asked.evolve(max_batch=11), shot).kind is DecisionKind.REDUCE_BATCH
    assert decision.contract is not None
    assert (decision.contract.ram_bytes, decision.contract.gpu_bytes) == (50, 50)
    short = ask(asked.evolve(max_batch=11), shot).reason.facts
    assert (short["resource"], short["asked"], short["found"]) == ("ram", 105, 100)


def test_what_an_integrated_gpu_holds_is_ram_and_no_second_pool() -> None:
    governor = Governor(
        Policy(**BARE, tasks_per_gpu=2),
        probe=ScriptedProbe(machine(card("a", 1, 1, integrated=True), ram=100)),
    )

    _, first = governor.reserve(ResourceEstimate(ram_bytes=10, gpu_bytes=40))

    assert first is not None
    held = governor.statistics()
    assert held.reserved_ram_bytes == 50
    assert held.reserved_gpus["a"].gpu_bytes == 0
    assert held.reserved_gpus["a"].tasks == 1
    assert governor.decide(ResourceEstimate(ram_bytes=51)).reason.code is ReasonCode.RAM_SHORT
    assert governor.decide(ResourceEstimate(ram_bytes=20, gpu_bytes=30)).admitted
    assert not governor.decide(ResourceEstimate(ram_bytes=20, gpu_bytes=31)).admitted
    assert first.release()
    assert governor.statistics().reserved_ram_bytes == 0


def test_what_the_ram_can_never_hold_is_rejected_for_the_ram() -> None:
    shot = machine(card("a", None, None, integrated=True), ram=100)

    assert ask(ResourceEstimate(ram_bytes=40, gpu_bytes=60), shot).kind is DecisionKind.START
    assert verdict(ask(ResourceEstimate(ram_bytes=40, gpu_bytes=61), shot)) == (
        DecisionKind.REJECT,
        ReasonCode.RAM_CAPACITY,
    )
    with_card = machine(card("a", None, None, integrated=True), card("b", 10, 10), ram=100)
    assert verdict(ask(ResourceEstimate(ram_bytes=40, gpu_bytes=61), with_card)) == (
        DecisionKind.REJECT,
        ReasonCode.GPU_CAPACITY,
    )


def test_an_integrated_gpu_is_used_alone() -> None:
    mixed = machine(card("a", 500, integrated=True), card("b", 900), card("c", 800))

    assert granted(ask(TWO, mixed)) == (80, ("b", "c"))
    for gpus in (
        (card("a", 500, integrated=True), card("b", 900)),
        (card("a", 500, integrated=True), card("b", 500, integrated=True)),
    ):
        for asked in (TWO, ResourceEstimate(gpus=2)):
            decision = ask(asked, machine(*gpus))
            assert verdict(decision) == (DecisionKind.REJECT, ReasonCode.GPU_CAPACITY)


def test_an_integrated_gpu_is_no_candidate_for_a_slot_beside_others() -> None:
    mixed = machine(card("a", 500, integrated=True), card("b", 900), card("c", 800))

    decision = ask(TWO, mixed, holding("b"))

    assert verdict(decision) == (DecisionKind.WAIT, ReasonCode.GPUS_BUSY)
    assert (decision.reason.facts["found"], decision.reason.facts["limit"]) == (1, 2)


@pytest.mark.parametrize(("ram", "free", "expected"), [
    # The larger batch wins, wherever it is.
    (400, 350, (35, ("b",))),
    (400, 120, (20, ("a",))),
    (400, 200, (20, ("a",))),
    # Between equal batches the pool with more on offer, then the lower index.
    (2000, 1000, (50, ("a",))),
    (1000, 1000, (50, ("a",))),
    (999, 1000, (50, ("b",))),
])  # fmt: skip
def test_between_a_card_and_an_integrated_gpu(
    ram: int, free: int, expected: tuple[int, tuple[str, ...]]
) -> None:
    """Ten bytes of RAM and ten of the GPU an item: 20 of RAM on the integrated one."""
    asked = ResourceEstimate(ram_bytes_per_item=10, gpu_bytes_per_item=10, max_batch=50)

    decision = ask(asked, machine(card("a", None, None, integrated=True), card("b", free), ram=ram))

    assert granted(decision) == expected


def test_an_integrated_gpu_is_unaffected_by_the_gpu_limit() -> None:
    """The budget is that of memory on cards; here the RAM's own rules apply."""
    shot = machine(card("a", None, None, integrated=True), ram=100)

    assert ask(ResourceEstimate(gpu_bytes=60), shot, gpu_limit_bytes=10).kind is DecisionKind.START
