"""Measured use: what a holder uses already is not promised twice, and breaks do not starve."""

from __future__ import annotations

from collections.abc import Callable
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
from lardon.governor.reservation import Reservation
from lardon.governor.snapshot import OwnUse
from lardon.testing import ManualClock, ScriptedProbe

SLACK: Final = 8 * MiB
CARD: Final = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=16 * GiB, free_bytes=16 * GiB)
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0,
    ram_total_bytes=16 * GiB,
    ram_available_bytes=16 * GiB,
    cpus=8,
    gpus=(CARD,),
)
OPEN: Final = Policy.unlimited(tasks_per_gpu=2)


class Host:
    """
    A machine of 16 GiB with one process of ours on it.

    `own` and `own_gpu` are what we use, `others` what everybody else does; the readings of
    the probe follow.
    """

    def __init__(self, clock: ManualClock, policy: Policy = OPEN) -> None:
        self.own = 1 * GiB
        self.others = 0
        self.own_gpu: int | None = None
        self.probe = ScriptedProbe(MACHINE, clock=clock, own_use=self.measure)
        self.probe.on_snapshot = self._read
        self.governor = Governor(policy, probe=self.probe, clock=clock)

    def measure(self) -> OwnUse | None:
        cards = {} if self.own_gpu is None else {"GPU-a": self.own_gpu}
        return OwnUse(ram_bytes=self.own, gpu_bytes=cards)

    def _read(self) -> None:
        card = attrs.evolve(CARD, free_bytes=16 * GiB - (self.own_gpu or 0))
        free = max(0, 16 * GiB - self.own - self.others)
        self.probe.set(attrs.evolve(MACHINE, ram_available_bytes=free, gpus=(card,)))

    def book(self, replaces: Reservation | None = None, **need: Any) -> Reservation:
        decision, reservation = self.governor.reserve(ResourceEstimate(**need), replaces=replaces)
        assert reservation is not None, decision.reason.text
        return reservation

    def on_offer(self, replaces: Reservation | None = None) -> int:
        """Return the most that a new estimate would get, to the byte."""
        asked = ResourceEstimate(ram_bytes_per_item=1, min_batch=1, max_batch=32 * GiB)
        decision, reservation = self.governor.reserve(asked, replaces=replaces)
        if reservation is None or decision.contract is None:
            return 0
        reservation.release()
        return decision.contract.ram_bytes


@pytest.fixture
def host(clock: ManualClock) -> Host:
    return Host(clock)


def test_h42_unused_reservations_count_in_full(host: Host) -> None:
    """One end of the formula: nothing of it is used yet."""
    host.book(ram_bytes=6 * GiB)

    assert host.on_offer() == 15 * GiB - 6 * GiB


def test_h42_used_reservations_are_not_promised_twice(host: Host) -> None:
    """The other end: all of it is used, and missing from what is available already."""
    host.book(ram_bytes=6 * GiB)
    host.own += 6 * GiB

    assert host.on_offer() == 15 * GiB - 6 * GiB


@pytest.mark.parametrize("used", [0, 1, 3 * GiB, 6 * GiB - 1, 6 * GiB])
def test_what_is_on_offer_does_not_depend_on_how_much_is_used_already(
    host: Host, used: int
) -> None:
    host.book(ram_bytes=6 * GiB)
    host.own += used

    assert host.on_offer() == 9 * GiB


def test_use_beyond_the_reservation_takes_from_the_offer(host: Host) -> None:
    host.book(ram_bytes=6 * GiB)
    host.own += 8 * GiB

    assert host.on_offer() == 15 * GiB - 8 * GiB


def test_a_process_that_shrank_has_used_nothing(host: Host) -> None:
    host.book(ram_bytes=6 * GiB)
    host.own -= GiB // 2

    assert host.on_offer() == 15 * GiB + GiB // 2 - 6 * GiB


def test_use_from_before_the_booking_is_not_the_holders(host: Host) -> None:
    host.own = 5 * GiB
    host.book(ram_bytes=6 * GiB)

    assert host.on_offer() == 11 * GiB - 6 * GiB


def test_decide_and_explain_measure_as_reserve_does(host: Host) -> None:
    host.book(ram_bytes=6 * GiB)
    host.own += 6 * GiB
    fits, one_more = ResourceEstimate(ram_bytes=9 * GiB), ResourceEstimate(ram_bytes=9 * GiB + 1)

    assert host.governor.decide(fits).kind is DecisionKind.START
    assert host.governor.decide(one_more).kind is DecisionKind.WAIT
    explanation = host.governor.explain(one_more)
    assert explanation.decision.kind is DecisionKind.WAIT
    assert explanation.lines[0].promised == 0
    assert explanation.lines[0].found == 9 * GiB


def test_with_two_holders_use_belongs_to_none_of_them(host: Host) -> None:
    host.book(ram_bytes=3 * GiB)
    host.book(ram_bytes=3 * GiB)
    host.own += 6 * GiB

    assert host.on_offer() == 9 * GiB - 6 * GiB


def test_a_probe_that_cannot_measure_promises_in_full(host: Host) -> None:
    host.probe.use = None
    host.book(ram_bytes=6 * GiB)
    host.own += 6 * GiB

    assert host.on_offer() == 9 * GiB - 6 * GiB
    host.probe.use = host.measure
    assert host.on_offer() == 9 * GiB - 6 * GiB, "its use at booking is unknown"


def test_a_probe_without_the_method_promises_in_full(clock: ManualClock) -> None:
    class Plain:
        def snapshot(self) -> ResourceSnapshot:
            return attrs.evolve(MACHINE, taken_at=clock.monotonic(), ram_available_bytes=9 * GiB)

    governor = Governor(OPEN, probe=Plain(), clock=clock)
    assert governor.reserve(ResourceEstimate(ram_bytes=6 * GiB))[1] is not None

    assert governor.decide(ResourceEstimate(ram_bytes=3 * GiB)).admitted
    assert not governor.decide(ResourceEstimate(ram_bytes=3 * GiB + 1)).admitted


def test_a_measurement_that_raises_counts_as_unknown_and_is_logged_once(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> OwnUse:
        message = "no status file"
        raise OSError(message)

    host.probe.use = fail
    host.book(ram_bytes=6 * GiB)

    assert host.on_offer() == 9 * GiB
    assert [record.message for record in caplog.records] == ["lardon: the probe's own use failed"]


def test_the_measured_use_on_a_card(host: Host) -> None:
    host.own_gpu = GiB
    host.book(gpu_bytes=6 * GiB)
    for used, offer in ((0, 9 * GiB), (2 * GiB, 9 * GiB), (6 * GiB, 9 * GiB), (7 * GiB, 8 * GiB)):
        host.own_gpu = GiB + used

        assert host.governor.decide(ResourceEstimate(gpu_bytes=offer)).admitted
        assert not host.governor.decide(ResourceEstimate(gpu_bytes=offer + 1)).admitted


def test_a_card_that_is_not_measured_counts_in_full(host: Host) -> None:
    host.own_gpu = None
    host.book(gpu_bytes=6 * GiB)

    assert host.governor.decide(ResourceEstimate(gpu_bytes=10 * GiB)).admitted
    assert not host.governor.decide(ResourceEstimate(gpu_bytes=10 * GiB + 1)).admitted


@pytest.mark.parametrize("method", ["reserve", "decide", "explain"])
def test_a_holder_that_comes_and_goes_during_the_answer_is_not_the_others_use(
    host: Host, method: str
) -> None:
    """
    A measurement made while two held something is not the use of the one that is left.

    The second holder's 4 GiB are in the measurement; it frees and releases them before the
    machine is read. Taken for the first one's use, they would be offered twice.
    """
    host.others = 5 * GiB
    host.book(ram_bytes=6 * GiB)

    def measure_while_another_holds() -> OwnUse | None:
        host.probe.use = host.measure
        second = host.book(ram_bytes=4 * GiB)
        host.own += 4 * GiB
        measured = host.measure()
        host.own -= 4 * GiB
        second.release()
        return measured

    host.probe.use = measure_while_another_holds
    answer = getattr(host.governor, method)(ResourceEstimate(ram_bytes=4 * GiB + 1))

    decision = answer[0] if isinstance(answer, tuple) else getattr(answer, "decision", answer)
    assert decision.reason.code is ReasonCode.RAM_SHORT
    assert host.governor.decide(ResourceEstimate(ram_bytes=4 * GiB)).admitted


# The successor at a break.


def test_a_break_does_not_starve_on_its_own_leftovers(host: Host) -> None:
    first = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB
    first.release()

    assert host.on_offer() == 5 * GiB
    assert host.on_offer(replaces=first) == 15 * GiB - SLACK


def test_without_replaces_leftovers_are_not_free(host: Host) -> None:
    first = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB
    first.release()

    decision, nothing = host.governor.reserve(ResourceEstimate(ram_bytes=10 * GiB))

    assert (decision.kind, nothing) == (DecisionKind.WAIT, None)
    assert decision.reason.code is ReasonCode.RAM_SHORT


@pytest.mark.parametrize(("gained", "credit"), [
    (-GiB, 0), (0, 0), (SLACK - 1, 0), (SLACK, 0), (SLACK + 1, 1),
    (GiB, GiB - SLACK), (4 * GiB, 4 * GiB - SLACK),
    (4 * GiB + SLACK, 4 * GiB), (6 * GiB, 4 * GiB),
])  # fmt: skip
def test_the_credit_is_what_was_gained_less_the_slack_at_most_the_size(
    host: Host, gained: int, credit: int
) -> None:
    first = host.book(ram_bytes=4 * GiB)
    host.own += gained
    first.release()

    assert host.on_offer(replaces=first) == 15 * GiB - gained + credit


def test_several_breaks_with_an_allocator_that_retains_memory(host: Host) -> None:
    """Each successor reuses what its predecessor left, so nothing more is gained under it."""
    host.others = 5 * GiB
    reservation = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB

    for _ in range(20):
        reservation.release()
        reservation = host.book(
            replaces=reservation, ram_bytes_per_item=GiB, min_batch=9, max_batch=10
        )
        assert reservation.contract.batch_size == 9, "the slack of 8 MiB takes the tenth"

    # And what it uses is still not promised twice to others.
    host.others = 0
    assert host.on_offer() == 5 * GiB


def test_several_breaks_with_an_allocator_that_gives_memory_back(host: Host) -> None:
    reservation = host.book(ram_bytes=10 * GiB)
    for _ in range(20):
        host.own += 10 * GiB
        host.own -= 10 * GiB
        reservation.release()
        reservation = host.book(replaces=reservation, ram_bytes=15 * GiB)

    reservation.release()
    assert host.on_offer(replaces=reservation) == 15 * GiB


def test_a_refused_break_keeps_its_claim(host: Host) -> None:
    """WAIT books nothing: the next try with the same predecessor may count on the same."""
    first = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB
    host.others = 5 * GiB
    first.release()
    asked = ResourceEstimate(ram_bytes=12 * GiB)

    assert host.governor.reserve(asked, replaces=first)[0].kind is DecisionKind.WAIT
    assert host.governor.reserve(asked, replaces=first)[0].kind is DecisionKind.WAIT
    host.others = 0
    assert host.governor.reserve(asked, replaces=first)[0].kind is DecisionKind.START


def test_one_of_two_holders_has_no_claim(host: Host) -> None:
    first, other = host.book(ram_bytes=4 * GiB), host.book(ram_bytes=1 * GiB)
    host.own += 4 * GiB
    first.release()
    other.release()

    assert host.on_offer(replaces=first) == 11 * GiB
    assert host.on_offer(replaces=other) == 11 * GiB + GiB


def test_nothing_is_credited_while_another_holds_something(host: Host) -> None:
    first = host.book(ram_bytes=4 * GiB)
    host.own += 4 * GiB
    first.release()
    other = host.book(ram_bytes=1 * GiB)

    assert host.on_offer(replaces=first) == 11 * GiB - GiB
    other.release()


def test_an_active_reservation_is_no_predecessor(host: Host) -> None:
    active = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB

    assert host.on_offer(replaces=active) == 5 * GiB


def test_a_probe_that_cannot_measure_credits_nothing(host: Host) -> None:
    first = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB
    first.release()
    host.probe.use = None

    assert host.on_offer(replaces=first) == 5 * GiB


def test_a_predecessor_that_was_not_measured_credits_nothing(host: Host) -> None:
    host.probe.use = None
    first = host.book(ram_bytes=10 * GiB)
    host.probe.use = host.measure
    host.own += 10 * GiB
    first.release()

    assert host.on_offer(replaces=first) == 5 * GiB


def test_the_credit_never_reaches_above_the_machine_or_the_capacity(host: Host) -> None:
    first = host.book(ram_bytes=10 * GiB)
    host.own += 10 * GiB
    first.release()
    host.own -= 10 * GiB
    host.probe.use = OwnUse(ram_bytes=11 * GiB)

    assert host.on_offer(replaces=first) == 16 * GiB
    host.governor.set_policy(Policy.unlimited(ram_limit_bytes=2 * GiB))
    assert host.on_offer(replaces=first) == 2 * GiB


def test_a_holder_that_comes_and_goes_during_a_break_is_not_credited(host: Host) -> None:
    """Its memory is in the measurement and, freed by then, in the availability as well."""
    host.others = 8 * GiB
    first = host.book(ram_bytes=4 * GiB)
    first.release()

    def measure_while_another_holds() -> OwnUse | None:
        host.probe.use = host.measure
        second = host.book(ram_bytes=4 * GiB)
        host.own += 4 * GiB
        measured = host.measure()
        host.own -= 4 * GiB
        second.release()
        return measured

    host.probe.use = measure_while_another_holds

    assert host.on_offer(replaces=first) == 7 * GiB


def test_a_break_across_such_a_moment_still_knows_where_it_began(host: Host) -> None:
    """No credit for one break, but the next one may count on the leftovers again."""
    first = host.book(ram_bytes=4 * GiB)
    host.own += 4 * GiB
    first.release()

    def change() -> OwnUse | None:
        host.probe.use = host.measure
        host.governor.set_policy(OPEN)
        return host.measure()

    host.probe.use = change
    second = host.book(replaces=first, ram_bytes=4 * GiB)
    second.release()

    assert host.on_offer(replaces=second) == 11 * GiB + 4 * GiB - SLACK


def test_the_credit_on_a_card(host: Host) -> None:
    host.own_gpu = GiB
    first = host.book(gpu_bytes=10 * GiB)
    host.own_gpu += 10 * GiB
    first.release()
    asked = ResourceEstimate(gpu_bytes=15 * GiB - SLACK)

    assert host.governor.reserve(asked)[0].reason.code is ReasonCode.GPU_MEMORY_SHORT
    more = asked.evolve(gpu_bytes=asked.gpu_bytes + 1)
    assert host.governor.reserve(more, replaces=first)[0].kind is DecisionKind.WAIT
    assert host.governor.reserve(asked, replaces=first)[0].kind is DecisionKind.START


def test_a_card_that_is_not_measured_is_not_credited(host: Host) -> None:
    host.own_gpu = GiB
    first = host.book(gpu_bytes=10 * GiB)
    host.own_gpu = 11 * GiB
    first.release()
    host.probe.use = lambda: OwnUse(ram_bytes=host.own)

    asked = ResourceEstimate(gpu_bytes=5 * GiB + 1)
    assert host.governor.reserve(asked, replaces=first)[0].kind is DecisionKind.WAIT


def test_what_is_not_asked_for_is_not_measured(host: Host) -> None:
    """A task of CPUs alone costs no measurement while nothing is held."""
    calls: list[int] = []
    measured: Callable[[], OwnUse | None] = host.measure

    def count() -> OwnUse | None:
        calls.append(1)
        return measured()

    host.probe.use = count
    host.book(cpus=2).release()
    host.governor.decide(ResourceEstimate(ram_bytes=GiB))
    assert calls == []
    host.book(ram_bytes=GiB)
    assert calls == [1]
    host.book(cpus=2)
    assert calls == [1, 1]
