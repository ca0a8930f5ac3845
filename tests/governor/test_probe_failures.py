"""A probe that raises: WAIT with the error in the reason, nothing lost, nothing started."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from lardon import DecisionKind, Governor, Policy, ReasonCode, ResourceEstimate, ResourceSnapshot
from lardon.testing import ManualClock, ScriptedProbe

MACHINE: Final = ResourceSnapshot(taken_at=0.0, ram_total_bytes=100, ram_available_bytes=100)
ASKED: Final = ResourceEstimate(ram_bytes=10)


class Wordless(Exception):
    def __repr__(self) -> str:
        message = "no text for this"
        raise RuntimeError(message)


def governor_of(clock: ManualClock, *script: ResourceSnapshot | BaseException) -> Governor:
    return Governor(Policy.unlimited(), probe=ScriptedProbe(*script, clock=clock), clock=clock)


def test_a_failure_is_a_wait_that_passes(clock: ManualClock) -> None:
    governor = governor_of(clock, KeyError("MemAvailable"), MACHINE)

    decision, reservation = governor.reserve(ASKED)

    assert reservation is None
    assert (decision.kind, decision.contract) == (DecisionKind.WAIT, None)
    assert decision.reason.code is ReasonCode.PROBE_FAILED
    assert not decision.reason.code.slots_only, "the queue must look again by itself"
    assert decision.reason.facts["error"] == "KeyError: 'MemAvailable'"
    assert "the machine could not be read: KeyError" in decision.reason.text
    assert governor.generation == 0
    assert governor.statistics().decisions == {DecisionKind.WAIT: 1}
    assert governor.reserve(ASKED)[0].kind is DecisionKind.START


def test_a_failure_hides_no_figure_of_an_earlier_reading(clock: ManualClock) -> None:
    """Nothing starts on no data: not on the last snapshot either."""
    governor = governor_of(clock, MACHINE, OSError("gone"))
    assert governor.reserve(ASKED)[1] is not None

    assert governor.reserve(ASKED)[0].reason.code is ReasonCode.PROBE_FAILED
    assert governor.decide(ASKED).reason.code is ReasonCode.PROBE_FAILED
    assert governor.explain(ASKED).decision.reason.code is ReasonCode.PROBE_FAILED
    assert len(governor.reservations()) == 1


def test_a_failure_is_logged_once_per_type(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    script = [KeyError("a"), KeyError("b"), OSError("c"), KeyError("d"), OSError("e")]
    governor = governor_of(clock, *script)

    with caplog.at_level(logging.DEBUG, logger="lardon"):
        for _ in script:
            governor.decide(ASKED)

    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        KeyError,
        OSError,
    ]


def test_an_error_without_a_text_is_told_by_its_type(clock: ManualClock) -> None:
    governor = governor_of(clock, Wordless())

    decision = governor.decide(ASKED)

    assert str(decision.reason.facts["error"]).startswith("Wordless")


def test_a_long_error_is_cut_short(clock: ManualClock) -> None:
    governor = governor_of(clock, ValueError("x" * 10_000))

    assert len(governor.decide(ASKED).reason.text) < 400


def test_an_interrupt_is_no_failure_of_the_probe(clock: ManualClock) -> None:
    governor = governor_of(clock, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        governor.reserve(ASKED)

    assert governor.reservations() == ()


def test_snapshot_lets_the_error_through(clock: ManualClock) -> None:
    with pytest.raises(KeyError, match="MemAvailable"):
        governor_of(clock, KeyError("MemAvailable")).snapshot()


def test_a_clock_behind_the_probe_gives_a_wait_and_not_a_start() -> None:
    """The probe takes the same clock; with another one every reading is stale."""
    behind = ManualClock(start=0.0)
    governor = Governor(probe=ScriptedProbe(MACHINE, clock=ManualClock(5.0)), clock=behind)

    assert governor.reserve(ASKED)[0].reason.code is ReasonCode.STALE_SNAPSHOT


class Untidy(ScriptedProbe):
    """Fails to give freed memory back."""

    tidied = 0

    def tidy(self) -> None:
        self.tidied += 1
        message = "malloc_trim is not there"
        raise OSError(message)


def test_memory_that_cannot_be_given_back_hinders_no_admission(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    probe = Untidy(MACHINE, clock=clock)
    governor = Governor(Policy.unlimited(), probe=probe, clock=clock)

    with caplog.at_level(logging.WARNING, logger="lardon"):
        for _ in range(2):
            governor.record_batch("general", items=1, duration_s=1.0)
            reservation = governor.reserve(ASKED)[1]
            assert reservation is not None
            reservation.release()

    assert probe.tidied == 2
    assert [record.getMessage() for record in caplog.records] == [
        "lardon: the probe's tidying failed"
    ]
