"""Errors carry their facts as attributes, also through a pickle."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
from typing import Any, Final

import pytest

import lardon
from lardon import errors
from lardon.errors import LardonError

BASES: Final[dict[str, type[Exception]]] = {
    "InvalidEstimate": ValueError,
    "InvalidPolicy": ValueError,
    "QueueClosed": RuntimeError,
    "QueueFull": LardonError,
    "TaskNotFinished": TimeoutError,
    "TaskCancelled": concurrent.futures.CancelledError,
    "TaskRefused": LardonError,
    "WouldDeadlock": RuntimeError,
    "InvalidTransition": RuntimeError,
    "UnknownTask": KeyError,
    "WorkerDied": RuntimeError,
}
FACTS: Final[dict[str, dict[str, Any]]] = {
    "InvalidEstimate": {"field": "cpus", "value": -1, "rule": "at least 1"},
    "InvalidPolicy": {"field": "policy", "resource": "ram", "reserved": 9, "capacity": 8},
    "QueueClosed": {"owner_pid": 12},
    "QueueFull": {"capacity": 3},
    "TaskNotFinished": {"task_id": 4, "timeout": 0.5},
    "TaskCancelled": {"task_id": 4},
    "TaskRefused": {
        "task_id": 4,
        "decision": lardon.Decision(
            kind=lardon.DecisionKind.WAIT,
            reason=lardon.Reason(code=lardon.ReasonCode.RAM_SHORT, facts={"asked": 1}),
        ),
    },
    "InvalidTransition": {"task_id": 4, "state": "PENDING", "target": "RUNNING"},
    "UnknownTask": {"task_id": 4},
}


def test_every_error_of_the_page_is_public() -> None:
    assert set(BASES) <= set(lardon.__all__)
    assert "LardonError" in lardon.__all__


@pytest.mark.parametrize("name", BASES)
def test_bases(name: str) -> None:
    error = getattr(errors, name)

    assert issubclass(error, LardonError)
    assert issubclass(error, BASES[name])
    assert getattr(lardon, name) is error


@pytest.mark.parametrize("name", BASES)
def test_facts_are_attributes_and_survive_a_pickle_and_a_copy(name: str) -> None:
    error = getattr(errors, name)("what was asked and found", **FACTS.get(name, {}))

    for again in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  our own
        assert type(again) is type(error)
        assert str(again) == "what was asked and found"
        for fact, value in FACTS.get(name, {}).items():
            assert getattr(again, fact) == value


@pytest.mark.parametrize("name", BASES)
def test_an_error_can_be_made_without_facts(name: str) -> None:
    error = getattr(errors, name)()

    assert str(error) == ""
    assert str(pickle.loads(pickle.dumps(error))) == ""  # noqa: S301  our own


def test_a_refused_estimate_can_be_pickled_with_what_was_given() -> None:
    with pytest.raises(lardon.InvalidEstimate) as caught:
        lardon.ResourceEstimate(cpus=0)

    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  our own

    assert (again.field, again.value, again.rule) == ("cpus", 0, "an integer of at least 1")
    assert str(again) == str(caught.value) == "cpus must be an integer of at least 1, not 0"


def test_no_callbacks_timeout_is_mistaken_for_a_task_that_is_not_finished() -> None:
    assert not issubclass(TimeoutError, errors.TaskNotFinished)
