"""
Thousands of whole runs on a machine that exists only in arithmetic.

What is promised: nothing passes the limit where the envelope is right, no run gets stuck,
and a machine that is healthy again is used in full after a known number of observations.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lardon import Contract, DecisionKind, Governor, MiB, Policy, ReasonCode, ResourceEstimate
from lardon.governor.experience import OFFERS_KEPT
from lardon.governor.zones import HEALTHY_PER_STEP, Zone
from lardon.testing import MachineModel, ManualClock, Stuck, play_batches, steps

TOTAL: Final = 600 * MiB
BASE: Final = 45 * MiB
ITEM: Final = 40 * MiB
KIND: Final = ResourceEstimate(ram_bytes_per_item=ITEM, max_batch=64, kind="k")


def machine(clock: ManualClock, **changes: Any) -> MachineModel:
    return MachineModel(clock, TOTAL, **{"base_bytes": BASE, **changes})


def governed(model: MachineModel, clock: ManualClock, **policy: Any) -> Governor:
    return Governor(Policy(**{"trust": "measured", **policy}), probe=model, clock=clock)


def ramp(start_s: float, total: int, rate: int, hold_s: float) -> Any:
    """Return a neighbour that grows by *rate* a second in steps of a tenth, holds, and goes."""
    count = max(1, math.ceil(total / rate * 10))
    points = [(start_s + place / 10, total * (place + 1) // count) for place in range(count)]
    return steps(*points, (start_s + count / 10 + hold_s, 0))


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=400)
@given(
    item=st.integers(1, 120),
    declared=st.floats(0.25, 4.0),
    trust=st.sampled_from(["declared", "measured"]),
    fixed=st.integers(0, 100),
    count=st.integers(1, 120),
    min_batch=st.integers(1, 2),
    max_batch=st.integers(2, 300),
)
def test_constant_costs_never_pass_the_limit_whatever_was_declared(
    item: int, declared: float, trust: Any, fixed: int, count: int, min_batch: int, max_batch: int
) -> None:
    """A declaration that is too low is only survived where it is not trusted."""
    clock = ManualClock()
    model = machine(clock)
    cost = item * MiB
    if trust == "declared":
        declared = max(1.0, declared)
    estimate = KIND.evolve(
        ram_bytes=fixed * MiB,
        ram_bytes_per_item=int(cost * declared),
        min_batch=min_batch,
        max_batch=max_batch,
    )
    governor = governed(model, clock, trust=trust)
    if governor.decide(estimate).kind is DecisionKind.REJECT:
        return
    least = max(item * min_batch * MiB, estimate.ram_bytes_per_item * min_batch)
    if fixed * MiB + least > TOTAL - BASE - TOTAL // 8:
        return  # the smallest batch is more than the machine has, or is said to be

    sizes = play_batches(governor, model, estimate, [cost] * count, fixed_bytes=fixed * MiB)

    assert sum(sizes) == count
    assert model.kills == []
    assert max(sizes) <= max_batch


class Noting(MachineModel):
    """Notes the most that a batch took beyond what was reserved for it."""

    beyond = 0

    def run(
        self, contract: Contract, costs: Sequence[int], seconds: float, *, fixed_bytes: int = 0
    ) -> None:
        self.beyond = max(self.beyond, sum(costs) + fixed_bytes - contract.ram_bytes)
        super().run(contract, costs, seconds, fixed_bytes=fixed_bytes)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_only_a_tail_above_the_envelope_and_the_reserve_passes_the_limit() -> None:
    """The promise, on costs that are wild enough to break its condition now and then."""
    broken = 0
    for seed in range(300):
        draw = random.Random(seed)
        clock = ManualClock()
        model = Noting(clock, TOTAL, base_bytes=BASE)
        costs = [int(ITEM * min(4.0, draw.lognormvariate(-0.125, 0.5))) for _ in range(200)]

        sizes = play_batches(governed(model, clock), model, KIND, costs)

        assert sum(sizes) == 200
        if model.kills:
            broken += 1
            assert model.beyond > TOTAL // 8, seed
    assert 0 < broken < 30  # about one run in fifteen


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_costs_that_differ_by_a_third_pass_no_limit() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        clock = ManualClock()
        model = machine(clock)
        costs = [int(ITEM * draw.uniform(2 / 3, 4 / 3)) for _ in range(200)]

        sizes = play_batches(governed(model, clock), model, KIND, costs)

        assert sum(sizes) == 200
        assert model.kills == [], seed
        assert len(sizes) <= 30, seed  # of about nine items each, and the first ones


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("rate", [100, 250, 350])
def test_a_neighbour_that_grows_kills_nothing_and_its_memory_is_used_again(rate: int) -> None:
    for seed in range(100):
        draw = random.Random(seed)
        clock = ManualClock()
        total = draw.randint(100, 350) * MiB
        neighbour = ramp(draw.uniform(0.0, 3.0), total, rate * MiB, draw.uniform(0.5, 3.0))
        model = machine(clock, neighbour=neighbour)

        sizes = play_batches(governed(model, clock), model, KIND, [ITEM] * 400)

        assert sum(sizes) == 400
        assert model.kills == [], (rate, seed, total / MiB)
        # 600 MiB less 45 of the process and 75 of reserve, over 40 MiB and a tenth.
        assert max(sizes[-10:]) == 10, sizes


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=200)
@given(
    points=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 560)), max_size=12),
    lag=st.sampled_from([0.0, 0.05, 0.3]),
    trust=st.sampled_from(["declared", "measured"]),
)
def test_no_run_gets_stuck_once_the_machine_is_free(
    points: list[tuple[int, int]], lag: float, trust: Any
) -> None:
    times = sorted({at for at, _ in points})
    sizes_by_time = dict(points)
    neighbour = steps(*[(at / 4, sizes_by_time[at] * MiB) for at in times], (11.0, 0))
    clock = ManualClock()
    model = machine(clock, neighbour=neighbour, lag_s=lag)

    sizes = play_batches(governed(model, clock, trust=trust), model, KIND, [ITEM] * 100)

    assert sum(sizes) == 100


def test_a_run_that_can_never_go_on_says_why() -> None:
    clock = ManualClock()
    model = machine(clock, neighbour=lambda _: 560 * MiB)

    with pytest.raises(Stuck) as stuck:
        play_batches(governed(model, clock), model, KIND, [ITEM], patience_s=5.0)

    assert stuck.value.reason.code in {ReasonCode.ZONE, ReasonCode.RAM_SHORT}
    assert "does not go on" in str(stuck.value)


def test_what_is_rejected_is_stuck_at_once() -> None:
    clock = ManualClock()
    model = machine(clock)

    with pytest.raises(Stuck, match="more than the"):
        play_batches(governed(model, clock), model, KIND.evolve(ram_bytes=TOTAL), [ITEM])

    assert clock.monotonic() == 0.0


@pytest.mark.parametrize("largest", [1, 2, 8, 60, 64])
def test_after_red_the_full_batch_comes_back_within_the_documented_number(largest: int) -> None:
    clock = ManualClock()
    taken = [0]
    model = machine(clock, neighbour=lambda _: taken[0])
    governor = governed(model, clock, trust="declared")
    small = KIND.evolve(ram_bytes_per_item=MiB, max_batch=largest)
    taken[0] = TOTAL - BASE - 10 * MiB  # less than half the reserve is left
    assert governor.reserve(small)[0].reason.code in {ReasonCode.ZONE, ReasonCode.RAM_SHORT}
    assert governor.zone is Zone.RED
    taken[0] = 0

    batches: list[int] = []
    while not batches or batches[-1] < largest:
        clock.advance(0.5)
        decision, reservation = governor.reserve(small)
        if reservation is not None:
            reservation.release()
        batches.append(0 if decision.contract is None else decision.contract.batch_size)

    assert len(batches) <= HEALTHY_PER_STEP * (1 + math.ceil(math.log2(largest)))
    assert batches == sorted(batches)
    assert batches[: HEALTHY_PER_STEP - 1] == [0, 0]


def test_the_model_notes_a_kill_and_goes_on() -> None:
    clock = ManualClock()
    model = machine(clock, neighbour=steps((0.1, 300 * MiB)))
    governor = governed(model, clock, trust="declared")
    _, reservation = governor.reserve(KIND.evolve(max_batch=8))
    assert reservation is not None

    model.run(reservation.contract, [ITEM] * 8, 0.2)

    (kill,) = model.kills
    assert kill.used_bytes == BASE + 8 * ITEM + 300 * MiB
    assert kill.batch == 8
    assert 0.1 <= kill.at <= 0.2
    with pytest.raises(ValueError, match="9 items, and the contract grants 8"):
        model.run(reservation.contract, [ITEM] * 9, 0.2)


def test_the_model_shows_freed_memory_after_its_lag() -> None:
    clock = ManualClock()
    model = machine(clock, lag_s=1.0)
    _, reservation = governed(model, clock, trust="declared").reserve(KIND.evolve(max_batch=2))
    assert reservation is not None
    watch = model.watch_peak()

    model.run(reservation.contract, [ITEM, ITEM], 0.2)

    assert watch.stop().ram_bytes == BASE + 2 * ITEM
    assert model.own_use().ram_bytes == BASE
    assert model.snapshot().ram_available_bytes == TOTAL - BASE - 2 * ITEM
    model.idle(1.0)
    assert model.snapshot().ram_available_bytes == TOTAL - BASE


def test_a_minute_in_which_no_more_was_on_offer_lets_the_smallest_batch_try() -> None:
    """Experience that no reading can satisfy must not keep a kind out for ever."""
    clock = ManualClock()
    model = machine(clock)
    governor = governed(model, clock)
    for _ in range(4):
        governor.record_batch("k", 2, 1.0, 1200 * MiB)
    assert governor.reserve(KIND)[1] is None

    sizes = play_batches(governor, model, KIND, [ITEM], patience_s=OFFERS_KEPT / 2)

    assert sizes == [1]
    assert clock.monotonic() > OFFERS_KEPT / 2 - 2
