"""What would have to change for a START is true: that much more, and not a byte less."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from lardon import DecisionKind, GiB, Governor, GpuSnapshot, MiB, ResourceEstimate, ResourceSnapshot
from lardon.governor.explanation import Explanation, ResourceLine
from lardon.testing import ScriptedProbe
from tests.cli.conftest import MACHINE

CARD = GpuSnapshot(index=0, uuid="GPU-a", total_bytes=80 * GiB, free_bytes=20 * GiB)


def explained(snapshot: ResourceSnapshot = MACHINE, **fields: Any) -> Explanation:
    governor = Governor(probe=ScriptedProbe(snapshot))
    return governor.explain(ResourceEstimate(**fields))


def line_of(explanation: Explanation, resource: str) -> ResourceLine:
    return next(line for line in explanation.lines if line.resource == resource)


@pytest.mark.parametrize(("asked", "per_item"), [(10 * GiB, 0), (8 * GiB, GiB), (GiB, 3 * GiB)])
def test_that_much_more_ram_makes_it_a_start(asked: int, per_item: int) -> None:
    fields: dict[str, Any] = {"ram_bytes": asked, "ram_bytes_per_item": per_item, "max_batch": 4}
    before = explained(**fields)
    line = line_of(before, "ram")
    assert line.found is not None
    missing = line.asked_most - line.found
    assert before.decision.kind is not DecisionKind.START

    def with_more(count: int) -> DecisionKind:
        more = attrs.evolve(MACHINE, ram_available_bytes=MACHINE.ram_available_bytes + count)
        return explained(more, **fields).decision.kind

    assert with_more(missing) is DecisionKind.START
    assert with_more(missing - 1) is not DecisionKind.START


def test_a_wait_says_what_the_smallest_batch_lacks_too() -> None:
    explanation = explained(ram_bytes=8 * GiB, ram_bytes_per_item=2 * GiB, max_batch=2)

    assert explanation.decision.kind is DecisionKind.WAIT
    assert explanation.to_start == (
        "3 GiB more must be on offer of ram (1 GiB for the smallest batch)",
    )


def test_a_full_batch_beyond_the_capacity_is_not_promised() -> None:
    """More free memory would not do: whoever waits for it waits for ever."""
    reduced = explained(ram_bytes_per_item=GiB, max_batch=15)
    waiting = explained(ram_bytes_per_item=10 * GiB, max_batch=2)

    assert reduced.decision.kind is DecisionKind.REDUCE_BATCH
    never = "; its capacity of 14 GiB never holds the full batch"
    assert reduced.to_start == (f"6 GiB more must be on offer of ram{never}",)
    assert waiting.decision.kind is DecisionKind.WAIT
    assert waiting.to_start == (
        f"11 GiB more must be on offer of ram (1 GiB for the smallest batch){never}",
    )


def test_without_a_card_there_is_still_a_line() -> None:
    explanation = explained(gpus=2)

    assert explanation.decision.kind is DecisionKind.REJECT
    line = line_of(explanation, "gpus")
    assert (line.asked_least, line.capacity, line.verdict) == (2, 0, "never")
    with_card = explained(attrs.evolve(MACHINE, gpus=(CARD,)), gpu_bytes=MiB)
    assert [line.resource for line in with_card.lines] == ["ram", "cpus", "io_slots", "GPU-a"]
