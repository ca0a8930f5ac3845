"""What is answered under experience, by hand: batches, amounts and sentences."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest

from lardon import (
    Decision,
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
from lardon.testing import ManualClock, ScriptedProbe

FINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1000 * MiB, ram_available_bytes=1000 * MiB, cpus=8
)
TEN: Final = ResourceEstimate(ram_bytes_per_item=10 * MiB, max_batch=64, kind="decode")
OPEN: Final = Policy.unlimited()
MEASURED: Final = Policy.unlimited(trust="measured")


class Host:
    """A governor on a machine of which a test sets what is free, and how much it grows."""

    def __init__(self, clock: ManualClock, policy: Policy = OPEN) -> None:
        self.clock = clock
        self.probe = ScriptedProbe(FINE, clock=clock, own_use=OwnUse(ram_bytes=0))
        self.governor = Governor(policy, probe=self.probe, clock=clock)

    def learn(self, items: int, mib: int | None, gpu_mib: int | None = None, **more: Any) -> None:
        ram = None if mib is None else mib * MiB
        gpu = None if gpu_mib is None else gpu_mib * MiB
        self.governor.record_batch("decode", items, more.pop("seconds", 1.0), ram, gpu, **more)

    def free(self, mib: int, **more: Any) -> None:
        self.probe.set(attrs.evolve(FINE, ram_available_bytes=mib * MiB, **more))

    def grow(self, mib_per_s: int, then_free: int) -> None:
        """Let others take so much a second for half a second, up to now."""
        self.clock.advance(2.0)
        self.free(then_free + mib_per_s // 2 + 8)
        self.governor.reserve(ResourceEstimate(ram_bytes=1))
        self.clock.advance(0.5)
        self.free(then_free)
        for reservation in self.governor.reservations():
            reservation.release()

    def ask(self, estimate: ResourceEstimate = TEN) -> Decision:
        decision, reservation = self.governor.reserve(estimate)
        if reservation is not None:
            assert self.governor.statistics().reserved_ram_bytes >= reservation.contract.ram_bytes
            reservation.release()
        return decision


@pytest.fixture
def host(clock: ManualClock) -> Host:
    return Host(clock)


def batch(decision: Decision) -> int:
    return decision.contract.batch_size if decision.contract is not None else 0


def test_a_kind_that_took_more_than_declared_gets_smaller_batches(host: Host) -> None:
    host.free(420)
    assert batch(host.ask()) == 42
    host.learn(20, 400)

    decision = host.ask()

    assert (decision.kind, decision.reason.code) == (DecisionKind.REDUCE_BATCH, ReasonCode.LEARNED)
    assert decision.contract is not None
    assert (batch(decision), decision.contract.ram_bytes) == (19, 418 * MiB)
    assert decision.reason.text == (
        "a batch of 64 items needs 1.375 GiB of RAM, 420 MiB on offer: 420 MiB available - 0 B "
        "reserve - 0 B promised, capacity 1000 MiB; by 1 batch of kind 'decode', 64 items need "
        "1.375 GiB of RAM, declared 640 MiB"
    )
    assert batch(host.ask(TEN.evolve(kind="other"))) == 42, "history is per kind"


def test_a_wait_and_a_start_say_so_too(host: Host) -> None:
    host.learn(2, 400)
    host.free(100)

    wait = host.ask()
    host.free(1000)
    start = host.ask(TEN.evolve(max_batch=2))

    assert (wait.kind, wait.reason.code) == (DecisionKind.WAIT, ReasonCode.LEARNED)
    assert "1 item needs 220 MiB of RAM, declared 10 MiB" in wait.reason.text
    assert (start.kind, start.reason.code) == (DecisionKind.START, ReasonCode.OK)
    assert start.reason.text == (
        "2 items granted: 440 MiB of RAM asked, 1000 MiB on offer, capacity 1000 MiB; by 1 batch "
        "of kind 'decode', 2 items need 440 MiB of RAM, declared 20 MiB"
    )


def test_a_wait_that_the_declaration_would_have_had_too_shows_what_was_asked(host: Host) -> None:
    host.learn(2, 400)
    host.free(5)

    decision = host.ask()

    assert decision.reason.code is ReasonCode.RAM_SHORT
    assert decision.reason.facts["asked"] == decision.reason.facts["learned"] == 220 * MiB


def test_what_is_declared_generously_stays_as_it_is(host: Host) -> None:
    host.learn(32, 100)
    plain = Host(host.clock).ask()

    assert host.ask() == plain


def test_a_declaration_that_is_short_for_the_smallest_batch_alone(host: Host) -> None:
    host.learn(1, 100, 100)
    host.learn(64, 160, 160)
    host.free(50, gpus=cards(1000))
    assert host.ask().reason.code is ReasonCode.LEARNED
    host.free(1000, gpus=(attrs.evolve(cards(1000)[0], free_bytes=50 * MiB),))
    generous = ON_GPU.evolve(ram_bytes=200 * MiB, max_batch=32)
    assert host.ask(generous).reason.code is ReasonCode.LEARNED


def test_a_declaration_that_is_short_for_the_largest_batch_alone(host: Host) -> None:
    host.learn(64, 640, 640)
    flat = TEN.evolve(ram_bytes=100 * MiB, ram_bytes_per_item=MiB)
    host.free(300)
    assert host.ask(flat).reason.code is ReasonCode.LEARNED
    host.free(1000, gpus=cards(300))
    on_gpu = TEN.evolve(gpus=1, ram_bytes=100 * MiB, gpu_bytes=100 * MiB, gpu_bytes_per_item=MiB)
    assert host.ask(on_gpu).reason.code is ReasonCode.LEARNED


def test_a_failure_caps_the_batch_until_enough_went_well(host: Host) -> None:
    host.learn(32, None, failed=True)

    decision = host.ask()

    assert (batch(decision), decision.reason.code) == (16, ReasonCode.LEARNED)
    assert decision.reason.text == (
        "a batch of kind 'decode' ran out of memory: at most 16 items, until 16 batches went well"
    )
    for _ in range(16):
        assert batch(host.ask()) == 16
        host.learn(16, 100)
    for _ in range(16):
        assert batch(host.ask()) == 32, "twice as many, not all at once"
        host.learn(32, 200)
    assert host.ask().kind is DecisionKind.START


def test_no_failure_brings_a_batch_below_the_smallest(host: Host) -> None:
    host.learn(8, None, failed=True)

    assert batch(host.ask(TEN.evolve(min_batch=8))) == 8


def test_history_says_at_most_that_the_smallest_batch_takes_the_whole_machine(host: Host) -> None:
    host.learn(1, 5000)

    decision = host.ask()

    assert decision.contract is not None
    assert (batch(decision), decision.contract.ram_bytes) == (1, 1000 * MiB)
    host.free(999)
    assert host.ask().kind is DecisionKind.WAIT


# Trust.


@pytest.fixture
def measured(clock: ManualClock) -> Host:
    return Host(clock, MEASURED)


def test_a_kind_without_history_starts_small_and_doubles_per_measured_batch(
    measured: Host,
) -> None:
    first = measured.ask(TEN.evolve(min_batch=3))
    assert first.reason.text == (
        "no batch of kind 'decode' was measured yet: it starts with 3 items"
    )
    granted = []
    for _ in range(6):
        size = batch(measured.ask(TEN.evolve(min_batch=3)))
        granted.append(size)
        measured.learn(size, size)
    assert granted == [3, 6, 12, 24, 48, 64]
    assert measured.ask().kind is DecisionKind.START


def test_where_measurements_are_trusted_every_holder_is_measured(measured: Host) -> None:
    """Also one that declares nothing: its batches are to be learned from."""
    reservation = measured.governor.reserve(ResourceEstimate(max_batch=4))[1]

    assert reservation is not None
    assert reservation._baseline == OwnUse(ram_bytes=0)


def test_the_next_batch_has_at_most_twice_the_largest(measured: Host) -> None:
    measured.learn(8, 8)
    measured.learn(4, 4)

    decision = measured.ask()

    assert batch(decision) == 16
    assert decision.reason.text == (
        "the largest batch of kind 'decode' measured so far had 8: the next has at most 16 "
        "items; by 2 batches of kind 'decode', 16 items need 17.6 MiB of RAM, declared 160 MiB"
    )


def test_a_batch_that_was_not_measured_lets_nothing_grow(measured: Host) -> None:
    measured.learn(8, None)

    assert batch(measured.ask()) == 1
    measured.learn(2, 1, failed=True)
    assert batch(measured.ask()) == 1


def test_it_grows_beyond_a_pessimistic_declaration(measured: Host) -> None:
    measured.free(100)
    measured.learn(40, 20)
    declared = Host(measured.clock)
    declared.free(100)

    assert batch(declared.ask()) == 10
    decision = measured.ask()
    assert decision.contract is not None
    assert (decision.kind, batch(decision)) == (DecisionKind.START, 64)
    assert decision.contract.ram_bytes < 64 * MiB
    assert "declared 640 MiB" in decision.reason.text


def test_never_above_the_largest_batch_that_was_asked_for(measured: Host) -> None:
    measured.learn(1000, 1)

    assert batch(measured.ask()) == 64


def test_a_declaration_above_the_machine_is_replaced_by_the_measurement(measured: Host) -> None:
    greedy = TEN.evolve(ram_bytes=2 * GiB)
    assert measured.ask(greedy).kind is DecisionKind.REJECT
    measured.learn(64, 100)

    assert measured.ask(greedy).kind is DecisionKind.START


def test_what_both_say_is_too_much_is_rejected(measured: Host) -> None:
    """Clamped to the capacity it would start with less than anything that is known."""
    measured.learn(1, 1500)

    assert measured.ask(TEN.evolve(ram_bytes=2 * GiB)).reason.code is ReasonCode.RAM_CAPACITY
    none = Policy.unlimited(trust="measured", ram_limit_bytes=0)
    measured.governor.set_policy(none)
    assert measured.ask().kind is DecisionKind.REJECT


def test_trust_is_changed_with_the_policy(host: Host) -> None:
    host.free(100)
    host.learn(40, 20)
    assert batch(host.ask()) == 10
    host.governor.set_policy(MEASURED)
    assert batch(host.ask()) == 64
    host.governor.set_policy(OPEN)
    assert batch(host.ask()) == 10


def test_a_loaded_history_decides_at_once(measured: Host, tmp_path: Any) -> None:
    measured.learn(16, 160)
    measured.learn(32, 640, failed=True)
    expected = measured.ask()
    measured.governor.save_history(tmp_path / "history.json")
    other = Host(measured.clock, MEASURED)
    other.learn(2, 2)
    assert batch(other.ask()) == 4

    other.governor.load_history(tmp_path / "history.json")

    assert other.ask() == expected
    assert expected.reason.code is ReasonCode.LEARNED


# The forecast.


def test_what_others_will_take_by_the_end_is_not_offered(host: Host) -> None:
    host.learn(64, 64, seconds=64.0)
    host.grow(100, then_free=500)

    decision = host.ask()

    # 10 MiB to hold and 110 MiB to lose (1.1 s at 100 MiB/s) for each item.
    assert (batch(decision), decision.reason.code) == (4, ReasonCode.FORECAST)
    assert decision.reason.text == (
        "others take 100 MiB more each second, and such a batch lasts 70.4 s, which takes "
        "6.875 GiB; a batch of 64 items needs 640 MiB of RAM, 500 MiB on offer: 500 MiB available "
        "- 0 B reserve - 0 B promised, capacity 1000 MiB"
    )
    host.clock.advance(60.0)
    host.free(1000)
    assert host.ask().kind is DecisionKind.START, "growth that stopped is forgotten"


def test_growth_that_sets_in_is_forecast_by_batches_that_were_judged_before(host: Host) -> None:
    """How long they last is worked out when it matters first; the next batch need not come."""
    host.learn(64, 64, seconds=64.0)
    assert host.ask().kind is DecisionKind.START

    host.grow(100, then_free=500)

    assert host.ask().reason.code is ReasonCode.FORECAST


def test_a_forecast_may_leave_nothing(host: Host) -> None:
    host.learn(1, 1, seconds=10.0)
    host.grow(100, then_free=500)

    decision = host.ask()

    assert (decision.kind, decision.reason.code) == (DecisionKind.WAIT, ReasonCode.FORECAST)
    assert decision.reason.code.fades
    assert decision.reason.facts["forecast"] == 1100 * MiB
    assert decision.reason.facts["batch"] == 1


def test_without_a_duration_there_is_no_forecast(host: Host) -> None:
    host.grow(100, then_free=700)

    assert host.ask().kind is DecisionKind.START


def test_a_capacity_that_binds_is_not_charged_with_what_others_take(host: Host) -> None:
    """They take of what is live; a budget is lardon's own."""
    host.governor.set_policy(Policy.unlimited(ram_limit_bytes=100 * MiB))
    host.learn(10, 10, seconds=2.0)
    host.grow(100, then_free=500)

    assert batch(host.ask(TEN.evolve(max_batch=10))) == 10


def test_what_takes_no_ram_waits_for_no_forecast(host: Host) -> None:
    host.governor.set_policy(Policy.unlimited(ram_reserve_bytes=400 * MiB))
    host.learn(1, 0, seconds=10.0)
    host.grow(100, then_free=300)
    assert host.ask().reason.code is ReasonCode.RAM_SHORT
    nothing = ResourceEstimate(kind="decode", max_batch=5)

    assert host.ask(nothing).kind is DecisionKind.START


def test_long_batches_get_shorter_while_others_grow(host: Host) -> None:
    host.governor.set_policy(Policy.unlimited(max_batch_s=2.0))
    host.learn(64, 64, seconds=16.0)
    assert host.ask().kind is DecisionKind.START, "nobody grows"
    host.grow(20, then_free=700)

    decision = host.ask()

    assert (batch(decision), decision.reason.code) == (7, ReasonCode.FORECAST)
    assert decision.reason.text == (
        "others take 68.5 MiB more each second, and such a batch lasts 17.6 s: at most 7 items "
        "while that goes on"
    )


@pytest.mark.parametrize("limit", [1e-9, 1.0])
def test_a_batch_that_cannot_be_short_enough_is_the_smallest(host: Host, limit: float) -> None:
    host.governor.set_policy(Policy.unlimited(max_batch_s=limit))
    for items in (1, 64):
        host.learn(items, items, seconds=2.0)
    host.grow(20, then_free=700)

    decision = host.ask(TEN.evolve(min_batch=2))

    assert (batch(decision), decision.reason.facts["resource"]) == (2, "batch")
    assert decision.reason.code is ReasonCode.FORECAST


def test_without_a_known_duration_no_batch_is_shortened(host: Host) -> None:
    host.governor.set_policy(Policy.unlimited(max_batch_s=1e-9))
    host.learn(64, 700, failed=True)
    host.grow(20, then_free=990)

    assert batch(host.ask()) == 32


@pytest.mark.parametrize("limit", [1e300, 1.7e308])
def test_limits_and_batches_of_any_size_are_answered(host: Host, limit: float) -> None:
    host.governor.set_policy(Policy.unlimited(max_batch_s=limit))
    host.learn(64, 64, seconds=16.0)
    host.grow(20, then_free=700)

    decision = host.ask(TEN.evolve(max_batch=10**400))

    assert decision.reason.code is ReasonCode.FORECAST
    assert "about 2^" in decision.reason.text


# GPUs.


def cards(*sizes: int) -> tuple[GpuSnapshot, ...]:
    return tuple(
        GpuSnapshot(index=place, uuid=f"GPU-{place}", total_bytes=size * MiB, free_bytes=size * MiB)
        for place, size in enumerate(sizes)
    )


SHARED: Final = GpuSnapshot(index=0, uuid="GPU-i", integrated=True)
ON_GPU: Final = TEN.evolve(gpu_bytes_per_item=10 * MiB, gpus=1)


def test_gpu_memory_is_learned_as_well(host: Host) -> None:
    host.free(1000, gpus=cards(420))
    host.learn(10, 50, 400)

    decision = host.ask(ON_GPU)

    assert (batch(decision), decision.reason.code) == (9, ReasonCode.LEARNED)
    assert decision.reason.facts["resource"] == "gpu"
    assert "64 items need 2.75 GiB of GPU memory, declared 640 MiB" in decision.reason.text
    start = host.ask(ON_GPU.evolve(max_batch=2))
    assert "2 items need 88 MiB of GPU memory, declared 20 MiB" in start.reason.text


def test_a_forecast_on_ram_beside_a_gpu_that_is_short_names_figures_that_hold(
    host: Host,
) -> None:
    host.learn(1, 1, seconds=10.0)
    host.grow(100, then_free=500)
    host.free(500, gpus=(attrs.evolve(cards(20)[0], free_bytes=5 * MiB),))

    reason = host.ask(ON_GPU).reason

    assert reason.code is ReasonCode.GPU_MEMORY_SHORT
    assert (reason.facts["asked"], reason.facts["found"]) == (10 * MiB, 5 * MiB)


def test_history_asks_of_several_cards_what_each_can_hold(host: Host) -> None:
    host.free(1000, gpus=cards(240, 120))
    host.learn(1, 1, 200)

    decision = host.ask(ON_GPU.evolve(gpus=2))

    assert decision.contract is not None
    assert (batch(decision), decision.contract.gpu_bytes) == (1, 120 * MiB)


def test_history_asks_of_shared_memory_no_more_than_there_is(host: Host) -> None:
    host.free(1000, gpus=(SHARED,))
    host.learn(1, 800, 700)

    decision, reservation = host.governor.reserve(ON_GPU)

    assert decision.contract is not None
    assert reservation is not None
    assert (decision.contract.ram_bytes, decision.contract.gpu_bytes) == (880 * MiB, 120 * MiB)
    assert host.governor.statistics().reserved_ram_bytes == 1000 * MiB
    assert decision.reason.facts["of_batch"] == 64
    reservation.release()
    alone = host.ask(ON_GPU.evolve(max_batch=1))
    assert "1 item needs 1.611 GiB of RAM, declared 20 MiB" in alone.reason.text


def test_gpu_memory_that_is_not_asked_for_is_not_charged(host: Host) -> None:
    host.free(100, gpus=(SHARED,))
    host.learn(1, 1, 500)

    decision = host.ask(TEN.evolve(gpus=1))

    assert decision.contract is not None
    assert (batch(decision), decision.contract.gpu_bytes) == (10, 0)


def test_cards_of_unknown_size_do_not_bound_what_was_learned(host: Host) -> None:
    unknown = GpuSnapshot(index=0, uuid="GPU-u", free_bytes=300 * MiB)
    host.free(1000, gpus=(unknown,))
    host.learn(1, 1, 200)

    assert batch(host.ask(ON_GPU)) == 1
    host.learn(1, 1, 400)
    assert host.ask(ON_GPU).reason.code is ReasonCode.LEARNED


# The explanation.


def test_the_lines_show_what_was_asked_for(host: Host) -> None:
    host.free(420, gpus=cards(300))
    host.learn(20, 400, 100)

    explanation = host.governor.explain(ON_GPU)

    assert explanation.decision == host.governor.decide(ON_GPU)
    ram, card = explanation.lines[0], explanation.lines[-1]
    assert (ram.asked_least, ram.asked_most) == (22 * MiB, 64 * 22 * MiB)
    assert (ram.verdict, card.verdict) == ("reduced", "reduced")
    assert card.asked_most == 640 * MiB, "the larger of both, here the declaration"
    assert explanation.to_start[0].startswith("until this no longer holds: a batch of 64")
    assert explanation.to_start[1].startswith("988 MiB more must be on offer of ram")


def test_the_lines_of_a_shared_memory_show_both(host: Host) -> None:
    host.free(900, gpus=(SHARED,))
    host.learn(1, 800, 700)

    ram, *_, card = host.governor.explain(ON_GPU).lines

    assert ram.asked_least == 880 * MiB
    assert card.asked_least == 1000 * MiB
    assert card.verdict == "short"


def test_an_explanation_of_a_cap_says_until_when(measured: Host) -> None:
    explanation = measured.governor.explain(TEN)

    assert explanation.decision.reason.code is ReasonCode.LEARNED
    (until,) = explanation.to_start
    assert until == f"until this no longer holds: {explanation.decision.reason.text}"
