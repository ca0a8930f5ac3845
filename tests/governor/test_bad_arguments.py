"""What is no probe, snapshot, holder or set of devices is refused where it comes in."""

from __future__ import annotations

from typing import Any

import pytest

from lardon import (
    DecisionKind,
    Governor,
    MiB,
    Policy,
    ReasonCode,
    ResourceEstimate,
    SystemProbe,
    TaskQueue,
)
from lardon.testing import ScriptedGovernor, start

ANY: Any = 5
SMALL = ResourceEstimate(ram_bytes=MiB)


class Glitch:
    """A probe whose reading is no snapshot."""

    def __init__(self, reading: object) -> None:
        self._reading = reading

    def snapshot(self) -> Any:
        return self._reading


@pytest.mark.parametrize("probe", [5, SystemProbe, object()])
def test_a_governor_takes_only_a_probe(probe: Any) -> None:
    with pytest.raises(TypeError, match="a probe must have a snapshot method"):
        Governor(probe=probe)


@pytest.mark.parametrize("reading", [None, 5])
def test_a_reading_that_is_no_snapshot_is_a_failed_probe(reading: object) -> None:
    """It passes, like any other glitch, where an error would fail the task."""
    decision = Governor(probe=Glitch(reading)).decide(SMALL)

    assert decision.kind is DecisionKind.WAIT
    assert decision.reason.code is ReasonCode.PROBE_FAILED
    assert "must be a lardon.ResourceSnapshot" in decision.reason.text


def test_a_holder_is_a_text() -> None:
    """Any other would break the reason of everybody who has to wait for it."""
    governor = Governor(Policy.unlimited())

    with pytest.raises(TypeError, match="holder must be a text, not 5"):
        governor.reserve(SMALL, holder=ANY)

    assert governor.reservations() == ()


def test_one_text_is_no_set_of_devices() -> None:
    with pytest.raises(TypeError, match="collection of UUIDs"):
        Governor(Policy.unlimited()).decide(SMALL, devices="GPU-a")


def test_names_and_messages_of_a_queue_are_texts() -> None:
    with pytest.raises(TypeError, match="governor must be"):
        TaskQueue(ANY)
    governor = ScriptedGovernor([start()])
    with pytest.raises(TypeError, match="name must be a text"):
        TaskQueue(governor, name=ANY)
    with TaskQueue(governor) as queue:
        with pytest.raises(TypeError, match="name must be a text"):
            queue.submit(print, estimate=SMALL, name=ANY)
        task = queue.submit(lambda c: c.set_progress(1, 2, ANY), estimate=SMALL)
        with pytest.raises(TypeError, match="message must be a text"):
            task.result(timeout=10)
        with pytest.raises(TypeError, match="must be callable"):
            task.add_done_callback(ANY)
