"""Waiting for admission: when the governor is asked, what is said, and how a wait ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from lardon import Decision, GiB, Governor, Policy, ReasonCode, ResourceEstimate, ResourceSnapshot
from lardon.cli.waiting import REMIND_S, Admission, Outcome, wait_for_admission
from lardon.testing import ManualClock, ScriptedProbe

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

ROOM = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=11 * GiB, cpus=8
)
FULL = attrs.evolve(ROOM, ram_available_bytes=GiB)
ASKED = ResourceEstimate(ram_bytes=4 * GiB)


class LeapingClock(ManualClock):
    """A clock whose sleepers are woken at once, at the time that they asked for."""

    def __init__(self) -> None:
        super().__init__(start=100.0)
        self.slept: list[float | None] = []

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        self.slept.append(timeout)
        self.advance(timeout or 0.0)
        return predicate()


class Wait:
    """One governor on a script of readings, and what was told."""

    def __init__(
        self, *script: ResourceSnapshot | BaseException, policy: Policy | None = None
    ) -> None:
        self.clock = LeapingClock()
        self.probe = ScriptedProbe(*script, clock=self.clock)
        self.governor = Governor(policy, probe=self.probe, clock=self.clock)
        self.told: list[tuple[ReasonCode, float]] = []
        self.interrupted = False

    def tell(self, decision: Decision, waited_s: float) -> None:
        self.told.append((decision.reason.code, waited_s))

    def __call__(
        self, estimate: ResourceEstimate = ASKED, timeout_s: float | None = None
    ) -> Admission:
        return wait_for_admission(
            self.governor,
            estimate,
            holder="job",
            timeout_s=timeout_s,
            interrupted=lambda: self.interrupted,
            tell=self.tell,
        )


def test_who_fits_is_admitted_at_once_and_without_a_word() -> None:
    wait = Wait(ROOM)

    admission = wait()

    assert admission.outcome is Outcome.ADMITTED
    assert admission.reservation is not None
    assert admission.reservation.holder == "job"
    assert wait.governor.reservations() == (admission.reservation,)
    assert (wait.told, wait.clock.slept) == ([], [])


def test_a_wait_ends_when_the_machine_has_room() -> None:
    wait = Wait(FULL, FULL, FULL, ROOM)

    admission = wait()

    assert admission.outcome is Outcome.ADMITTED
    assert admission.waited_s == 1.5
    assert wait.told == [(ReasonCode.RAM_SHORT, 0.0)]
    assert wait.clock.slept == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(("timeout_s", "asked"), [(0.0, 1), (0.25, 2), (1.2, 4)])
def test_the_last_question_comes_when_the_time_is_up(timeout_s: float, asked: int) -> None:
    wait = Wait(FULL)

    admission = wait(timeout_s=timeout_s)

    assert admission.outcome is Outcome.TIMED_OUT
    assert admission.decision.reason.code is ReasonCode.RAM_SHORT
    assert wait.probe.calls == asked
    assert wait.clock.monotonic() == pytest.approx(100.0 + timeout_s)
    assert wait.governor.statistics().active == 0


def test_room_at_the_very_end_of_the_time_out_is_taken() -> None:
    wait = Wait(FULL, ROOM)

    assert wait(timeout_s=0.5).outcome is Outcome.ADMITTED


def test_a_reject_ends_the_wait_at_once() -> None:
    wait = Wait(FULL)

    admission = wait(ResourceEstimate(ram_bytes=20 * GiB))

    assert (admission.outcome, admission.reservation) == (Outcome.REJECTED, None)
    assert (wait.told, wait.clock.slept) == ([], [])


def test_an_interruption_ends_the_wait() -> None:
    wait = Wait(FULL)
    wait.probe.on_snapshot = lambda: setattr(wait, "interrupted", wait.probe.calls >= 2)

    admission = wait()

    assert (admission.outcome, admission.reservation) == (Outcome.INTERRUPTED, None)
    assert wait.probe.calls == 3


def test_a_reason_is_told_when_it_changes_and_once_a_minute() -> None:
    """Not at every question: a log would be full of it."""
    pressed = attrs.evolve(FULL, memory_pressure=50.0)
    minutes = 3
    count = int(REMIND_S * minutes * 2)
    wait = Wait(OSError("no /proc"), pressed, *[FULL] * count, ROOM)

    admission = wait()

    assert admission.outcome is Outcome.ADMITTED
    assert wait.told[:3] == [
        (ReasonCode.PROBE_FAILED, 0.0),
        (ReasonCode.MEMORY_PRESSURE, 0.5),
        (ReasonCode.RAM_SHORT, 1.0),
    ]
    assert [waited_s for _, waited_s in wait.told[3:]] == [61.0, 121.0]


def test_a_policy_without_a_recheck_still_lets_signals_in() -> None:
    wait = Wait(FULL, ROOM, policy=Policy(recheck_s=None))

    assert wait().outcome is Outcome.ADMITTED
    assert wait.clock.slept == [0.5]
