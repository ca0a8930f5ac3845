"""Public reports of faults H62 and H63: what is released twice, or given back and retaken."""

from __future__ import annotations

import threading
from typing import Final

from lardon import (
    DecisionKind,
    GiB,
    Governor,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.reservation import Reservation
from lardon.testing import ScriptedProbe

WAIT_S: Final = 5
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=16 * GiB, cpus=8
)
HALF: Final = ResourceEstimate(ram_bytes=8 * GiB)


def book(governor: Governor, estimate: ResourceEstimate = HALF) -> Reservation:
    decision, reservation = governor.reserve(estimate)
    assert reservation is not None, decision.reason.text
    return reservation


def new_governor() -> Governor:
    return Governor(Policy.unlimited(), probe=ScriptedProbe(MACHINE))


def test_h62_a_second_release_changes_nothing_and_is_counted() -> None:
    governor = new_governor()
    first, second = book(governor), book(governor)

    assert [first.release(), first.release(), first.release()] == [True, False, False]

    totals = governor.statistics()
    assert (totals.reserved_ram_bytes, totals.reserved_cpus) == (8 * GiB, 1)
    assert (totals.released, totals.released_again) == (1, 2)
    assert governor.decide(HALF).kind is DecisionKind.START
    assert governor.decide(ResourceEstimate(ram_bytes=8 * GiB + 1)).kind is DecisionKind.WAIT
    second.release()
    assert governor.statistics().reserved_ram_bytes == 0


def test_h62_two_threads_release_the_same_one_once() -> None:
    governor = new_governor()
    kept = book(governor)
    for _ in range(20):
        reservation = book(governor)
        together = threading.Barrier(2)
        answers: list[bool] = []

        def release(
            reservation: Reservation = reservation,
            together: threading.Barrier = together,
            answers: list[bool] = answers,
        ) -> None:
            together.wait(WAIT_S)
            answers.append(reservation.release())

        threads = [threading.Thread(target=release, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert sorted(answers) == [False, True]
        assert governor.statistics().reserved_ram_bytes == 8 * GiB
    kept.release()
    assert governor.statistics().reserved_ram_bytes == 0


def test_h62_the_handle_from_before_a_break_releases_nothing_of_the_successor() -> None:
    governor = new_governor()
    first = book(governor)
    first.release()
    successor = governor.reserve(HALF, replaces=first)[1]
    assert successor is not None

    assert first.release() is False

    assert successor.active
    assert governor.reservations() == (successor,)
    assert governor.statistics().reserved_ram_bytes == 8 * GiB


def test_h63_what_was_given_back_may_be_gone_and_is_never_retaken_beyond_the_total() -> None:
    """A gives its reservation back, B takes everything, A asks again."""
    governor = new_governor()
    mine = book(governor)
    mine.release()
    theirs = book(governor, ResourceEstimate(ram_bytes=16 * GiB))

    decision, nothing = governor.reserve(HALF, replaces=mine)

    assert nothing is None
    assert (decision.kind, decision.reason.code) == (DecisionKind.WAIT, ReasonCode.RAM_SHORT)
    assert decision.reason.facts["found"] == 0
    assert governor.reservations() == (theirs,)
    assert governor.statistics().reserved_ram_bytes == 16 * GiB
    theirs.release()
    assert governor.reserve(HALF, replaces=mine)[1] is not None
