"""The suite finds out: each backend that breaks one rule fails the check that is named for it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lardon.dispatch import registry
from lardon.dispatch.conformance import BACKEND_CHECKS
from tests.dispatch.memory_harness import MemoryHarness
from tests.dispatch.planted_faults import FAULTS, Fault

CHECKS = {check.id: check for check in BACKEND_CHECKS}


def harness_of(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> MemoryHarness:
    def factory(settings: Any, *, clock: Any) -> Any:
        return fault.make(settings, clock=clock)

    monkeypatch.setitem(registry._factories, "planted", factory)
    harness = MemoryHarness(fault.shape, make=fault.make)
    harness.adapter = "planted"
    return harness


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """dispatch.md, section 3: each check fails on a backend that breaks its rule."""
    with pytest.raises(AssertionError) as caught:
        CHECKS[fault.check](harness_of(fault, monkeypatch))

    assert str(caught.value)
    # The check says so itself: no assertion of the backend's own was hit on the way.
    last = caught.traceback[-1]
    assert re.search(r"conformance.(bench|\w+_checks)\.py", str(last.path)), str(last.path)


def test_every_check_of_the_document_is_there_and_has_a_fault() -> None:
    """dispatch.md, section 3: checks 1 to 22; the words of check 2 are lardon's own."""
    assert {check.number for check in BACKEND_CHECKS} == set(range(1, 23))
    assert len(CHECKS) == len(BACKEND_CHECKS)
    found = {int(fault.check[:2]) for fault in FAULTS}
    assert found == set(range(1, 23)) - {2}
