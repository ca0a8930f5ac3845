"""Two users of one governor can never both get the last bytes."""

from __future__ import annotations

import threading
from typing import Any, Final

import attrs
import pytest

from lardon import (
    Decision,
    DecisionKind,
    Governor,
    GpuSnapshot,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.reservation import Reservation
from lardon.testing import ManualClock, ScriptedProbe

CARD: Final = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=24, free_bytes=24)
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=24, ram_available_bytes=24, cpus=4, gpus=(CARD,)
)
OPEN: Final = Policy.unlimited(tasks_per_gpu=9, io_slots=1)
WAIT_S: Final = 5


def in_threads(
    governor: Governor, asked: list[ResourceEstimate]
) -> list[tuple[Decision, Reservation | None]]:
    answers: list[tuple[Decision, Reservation | None]] = []
    threads = [
        threading.Thread(target=lambda e=e: answers.append(governor.reserve(e)), daemon=True)
        for e in asked
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=WAIT_S)
    assert len(answers) == len(asked)
    return answers


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (ResourceEstimate(ram_bytes=20), ReasonCode.RAM_SHORT),
        (ResourceEstimate(gpu_bytes=20), ReasonCode.GPU_MEMORY_SHORT),
        (ResourceEstimate(cpus=3), ReasonCode.CPUS_BUSY),
        (ResourceEstimate(io_slots=1), ReasonCode.IO_SLOTS_BUSY),
    ],
)
def test_two_users_with_the_same_reading(
    clock: ManualClock, asked: ResourceEstimate, code: ReasonCode
) -> None:
    """Both have read the machine before either has booked; one of them gets it."""
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)
    both_have_read = threading.Barrier(2)
    probe.on_snapshot = lambda: both_have_read.wait(WAIT_S)

    answers = in_threads(governor, [asked, asked])

    probe.on_snapshot = None
    assert sorted(decision.kind for decision, _ in answers) == ["START", "WAIT"]
    refused = next(decision for decision, reservation in answers if reservation is None)
    assert refused.reason.code is code
    (held,) = governor.reservations()
    assert held.release()
    assert governor.decide(asked).kind is DecisionKind.START


def test_eight_users_of_three_places(clock: ManualClock) -> None:
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)
    all_have_read = threading.Barrier(8)
    probe.on_snapshot = lambda: all_have_read.wait(WAIT_S)

    answers = in_threads(governor, [ResourceEstimate(ram_bytes=8)] * 8)

    booked = [reservation for _, reservation in answers if reservation is not None]
    assert sorted(reservation.id for reservation in booked) == [1, 2, 3]
    assert governor.statistics().reserved_ram_bytes == 24


def test_a_booking_between_the_reading_and_the_answer_is_seen(clock: ManualClock) -> None:
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)
    asked = ResourceEstimate(ram_bytes=20)

    def another_is_faster() -> None:
        probe.on_snapshot = None
        assert governor.reserve(asked)[1] is not None

    for ask in (governor.decide, governor.reserve, governor.explain):
        probe.on_snapshot = another_is_faster
        answer: Any = ask(asked)
        decision = answer[0] if isinstance(answer, tuple) else getattr(answer, "decision", answer)
        assert decision.reason.code is ReasonCode.RAM_SHORT
        for reservation in governor.reservations():
            reservation.release()


def test_a_release_between_the_reading_and_the_answer_is_seen(clock: ManualClock) -> None:
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)
    first = governor.reserve(ResourceEstimate(ram_bytes=20))[1]
    assert first is not None
    probe.on_snapshot = first.release

    decision, second = governor.reserve(ResourceEstimate(ram_bytes=20))

    assert decision.kind is DecisionKind.START
    assert second is not None
    assert governor.reservations() == (second,)


def test_a_policy_between_the_reading_and_the_answer_is_seen(clock: ManualClock) -> None:
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)

    def tighten() -> None:
        probe.on_snapshot = None
        governor.set_policy(attrs.evolve(OPEN, ram_limit_bytes=9))

    probe.on_snapshot = tighten

    assert governor.reserve(ResourceEstimate(ram_bytes=10))[0].kind is DecisionKind.REJECT


def test_the_probe_is_read_with_no_lock_held(clock: ManualClock) -> None:
    """Everything that does not read the machine goes on while a probe hangs."""
    probe = ScriptedProbe(MACHINE, clock=clock)
    governor = Governor(OPEN, probe=probe, clock=clock)
    held = governor.reserve(ResourceEstimate(ram_bytes=1))[1]
    assert held is not None
    reading, answer = threading.Event(), threading.Event()

    def hang() -> None:
        reading.set()
        assert answer.wait(WAIT_S)

    probe.on_snapshot = hang
    asking = threading.Thread(target=governor.reserve, args=(ResourceEstimate(),), daemon=True)
    asking.start()
    assert reading.wait(WAIT_S)

    seen = governor.generation
    assert governor.statistics().active == 1
    assert held.release() is True
    assert governor.reservations() == ()
    assert governor.wait_for_change(seen, 0) is True
    governor.record_batch("general", 1, 1.0)
    answer.set()
    asking.join(timeout=WAIT_S)
    assert len(governor.reservations()) == 1


@pytest.mark.slow
def test_many_users_never_exceed_the_capacity() -> None:
    """Eight threads book and release as they like; every total is within the machine."""
    governor = Governor(OPEN, probe=ScriptedProbe(MACHINE))
    start = threading.Barrier(8)
    exceeded: list[object] = []

    def use(number: int) -> None:
        start.wait(WAIT_S)
        for turn in range(60):
            asked = ResourceEstimate(ram_bytes_per_item=1 + (number + turn) % 5, max_batch=9)
            reservation = governor.reserve(asked)[1]
            held = governor.statistics()
            if held.reserved_ram_bytes > 24 or held.reserved_cpus > 4:
                exceeded.append(held)
            if reservation is not None:
                assert reservation.release()

    threads = [threading.Thread(target=use, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=15)

    held = governor.statistics()
    assert exceeded == []
    assert (held.active, held.reserved_ram_bytes, held.reserved_cpus) == (0, 0, 0)
    assert held.booked == held.released == held.generation // 2
    assert held.booked >= 8
