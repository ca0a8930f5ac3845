"""Reservations: ids, one release, the context manager, and exact totals."""

from __future__ import annotations

import threading
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon import (
    Contract,
    DecisionKind,
    Governor,
    GpuSnapshot,
    InvalidEstimate,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.ledger import Booking, Ledger
from lardon.governor.reservation import Reservation
from lardon.testing import ManualClock, ScriptedProbe

MACHINE: Final = ResourceSnapshot(
    taken_at=0.0,
    ram_total_bytes=1000,
    ram_available_bytes=1000,
    cpus=64,
    gpus=(GpuSnapshot(index=0, uuid="GPU-a", total_bytes=1000, free_bytes=1000),),
)
LOOSE: Final = Policy.unlimited(io_slots=8, tasks_per_gpu=8)
SMALL: Final = ResourceEstimate(ram_bytes=100, gpu_bytes=10, cpus=2, io_slots=1)


@pytest.fixture
def governor(clock: ManualClock) -> Governor:
    return Governor(LOOSE, probe=ScriptedProbe(MACHINE, clock=clock), clock=clock)


def book(governor: Governor, estimate: ResourceEstimate = SMALL, holder: str = "") -> Reservation:
    decision, reservation = governor.reserve(estimate, holder=holder)
    assert reservation is not None, decision.reason.text
    assert reservation.contract == decision.contract
    return reservation


def test_ids_count_from_one_and_are_never_used_again(governor: Governor) -> None:
    first, second = book(governor), book(governor)
    second.release()
    first.release()
    refused, nothing = governor.reserve(ResourceEstimate(ram_bytes=10**6))
    third = book(governor)

    assert (refused.kind, nothing) == (DecisionKind.REJECT, None)
    assert [first.id, second.id, third.id] == [1, 2, 3]


def test_a_release_is_true_once_whoever_calls(governor: Governor) -> None:
    reservation = book(governor, holder="me")

    assert (reservation.active, reservation.holder) == (True, "me")
    assert reservation.release() is True
    assert reservation.active is False
    assert [reservation.release() for _ in range(3)] == [False, False, False]
    held = governor.statistics()
    assert (held.released, held.released_again, held.active) == (1, 3, 0)


def test_a_contract_outlives_its_reservation(governor: Governor) -> None:
    reservation = book(governor)
    contract = reservation.contract
    reservation.release()

    assert reservation.contract is contract
    assert contract == Contract(
        batch_size=1, ram_bytes=100, gpu_bytes=10, gpus=("GPU-a",), cpus=2, io_slots=1
    )


def test_many_threads_release_once(governor: Governor) -> None:
    reservation, other = book(governor), book(governor)
    barrier = threading.Barrier(8)
    answers: list[bool] = []

    def release() -> None:
        barrier.wait(timeout=5)
        answers.append(reservation.release())

    threads = [threading.Thread(target=release, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=5)

    assert sorted(answers) == [False] * 7 + [True]
    held = governor.statistics()
    assert (held.active, held.released, held.released_again) == (1, 1, 7)
    assert held.reserved_ram_bytes == other.contract.ram_bytes == 100


def test_the_context_manager_releases_also_after_an_error(governor: Governor) -> None:
    reservation = book(governor)
    with pytest.raises(ZeroDivisionError), reservation:
        raise ZeroDivisionError
    assert not reservation.active
    with book(governor) as second:
        assert governor.reservations() == (second,)
        assert second.release()

    assert governor.reservations() == ()


def test_a_reservation_shows_what_it_holds(governor: Governor) -> None:
    reservation = book(governor)

    assert repr(reservation).startswith("<Reservation 1 active: Contract(batch_size=1")
    reservation.release()
    assert repr(reservation).startswith("<Reservation 1 released: ")


def test_reservations_are_listed_in_order_of_booking(governor: Governor) -> None:
    booked = [book(governor, holder=name) for name in "abcd"]
    booked[1].release()

    assert governor.reservations() == (booked[0], booked[2], booked[3])


def test_one_governor_does_not_release_what_another_booked(governor: Governor) -> None:
    other = Governor(LOOSE, probe=ScriptedProbe(MACHINE))
    mine, theirs = book(governor), book(other)

    assert mine.id == theirs.id
    assert governor._release(theirs) is False
    assert governor.statistics().active == other.statistics().active == 1


def test_deciding_changes_nothing_however_often(governor: Governor) -> None:
    book(governor)
    before = governor.statistics()

    answers = {governor.decide(SMALL) for _ in range(50)}
    governor.explain(SMALL)
    governor.decide(SMALL, MACHINE)

    assert len(answers) == 1
    assert governor.statistics() == before


def test_a_given_snapshot_is_decided_on_and_no_other_is_taken(clock: ManualClock) -> None:
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(LOOSE, probe=probe, clock=clock)
    small = ResourceSnapshot(taken_at=clock.monotonic(), ram_total_bytes=50, ram_available_bytes=50)

    assert governor.decide(ResourceEstimate(ram_bytes=51), small).kind is DecisionKind.REJECT
    assert governor.decide(ResourceEstimate(ram_bytes=50), small).kind is DecisionKind.START
    assert probe.calls == 0
    assert governor.snapshot().ram_total_bytes == 1000
    assert probe.calls == 1


@pytest.mark.parametrize("wrong", [None, {"ram_bytes": 1}, ResourceEstimate])
def test_only_an_estimate_is_decided_on(governor: Governor, wrong: Any) -> None:
    for ask in (governor.decide, governor.reserve, governor.explain):
        with pytest.raises(InvalidEstimate) as caught:
            ask(wrong)
        assert (caught.value.field, caught.value.value) == ("estimate", wrong)


def test_statistics_count_the_answers_of_reserve(governor: Governor) -> None:
    book(governor, ResourceEstimate(ram_bytes=600))
    governor.reserve(ResourceEstimate(ram_bytes=600))
    governor.reserve(ResourceEstimate(ram_bytes=2000))
    governor.reserve(ResourceEstimate(ram_bytes=2000))
    governor.reserve(ResourceEstimate(ram_bytes_per_item=100, max_batch=9))

    assert governor.statistics().decisions == {
        DecisionKind.START: 1,
        DecisionKind.WAIT: 1,
        DecisionKind.REJECT: 2,
        DecisionKind.REDUCE_BATCH: 1,
    }


def test_booking_goes_on_until_exactly_nothing_is_left(governor: Governor) -> None:
    asked = ResourceEstimate(ram_bytes=125)

    kinds = [governor.reserve(asked)[0].kind for _ in range(9)]

    assert kinds == [DecisionKind.START] * 8 + [DecisionKind.WAIT]
    assert governor.statistics().reserved_ram_bytes == 1000


# The ledger.

CONTRACTS: Final = st.builds(
    Contract,
    batch_size=st.just(1),
    ram_bytes=st.one_of(st.integers(0, 9), st.integers(0, 2**80)),
    gpu_bytes=st.integers(0, 2**70),
    gpus=st.sampled_from([(), ("a",), ("a", "b"), ("i",)]),
    cpus=st.integers(1, 9),
    io_slots=st.integers(0, 3),
)


@given(st.lists(st.tuples(CONTRACTS, st.booleans(), st.integers(0, 50)), max_size=30))
def test_totals_are_exactly_the_sum_of_what_is_booked(
    events: list[tuple[Contract, bool, int]],
) -> None:
    ledger = Ledger()
    held: list[Booking] = []

    def check() -> None:
        assert len(ledger) == len(held)
        assert list(ledger) == held
        shared = [b.contract.gpu_bytes if b.contract.gpus == ("i",) else 0 for b in held]
        assert ledger.ram_bytes == sum(b.contract.ram_bytes for b in held) + sum(shared)
        assert ledger.cpus == sum(b.contract.cpus for b in held)
        assert ledger.io_slots == sum(b.contract.io_slots for b in held)
        for uuid in ("a", "b", "i"):
            there = [b.contract for b in held if uuid in b.contract.gpus]
            assert ledger.gpu_tasks(uuid) == len(there)
            bytes_there = sum(c.gpu_bytes for c in there) if uuid != "i" else 0
            assert ledger.gpu_bytes(uuid) == bytes_there
            assert (uuid in ledger.devices()) == bool(there)

    for number, (contract, then_release, which) in enumerate(events, start=1):
        booking = Booking(number, f"h{number}", contract)
        ledger.book(booking, {"i"})
        held.append(booking)
        check()
        if then_release:
            gone = held.pop(which % len(held))
            assert ledger.release(gone)
            assert not ledger.release(gone)
            check()
    while held:
        ledger.release(held.pop())
    assert (ledger.ram_bytes, ledger.cpus, ledger.io_slots) == (0, 0, 0)
    assert ledger.devices() == {}
    assert ledger.holders("ram") == ""


def test_a_booking_of_the_same_id_is_not_another_one() -> None:
    ledger = Ledger()
    contract = Contract(batch_size=1, ram_bytes=5)
    ledger.book(Booking(1, "a", contract))

    assert not ledger.release(Booking(1, "a", contract))
    assert ledger.ram_bytes == 5


def test_the_totals_handed_out_are_copies() -> None:
    ledger = Ledger()
    ledger.book(Booking(1, "a", Contract(batch_size=1, ram_bytes=0, gpu_bytes=5, gpus=("a",))))

    ledger.devices()["a"].gpu_bytes = 99

    assert ledger.gpu_bytes("a") == 5
