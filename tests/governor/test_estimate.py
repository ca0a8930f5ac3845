"""`ResourceEstimate`: its defaults, its arithmetic, and what it refuses at construction."""

from __future__ import annotations

import enum
import pickle
from typing import Any, Final

import attrs
import numpy as np
import pytest

from lardon import InvalidEstimate, LardonError, ResourceEstimate, ResourceSnapshot
from lardon.governor.admission import evaluate
from lardon.governor.ledger import Ledger
from lardon.governor.policy import Policy

COUNTS: Final = {
    "ram_bytes": 0,
    "ram_bytes_per_item": 0,
    "gpu_bytes": 0,
    "gpu_bytes_per_item": 0,
    "min_batch": 1,
    "max_batch": 1,
    "cpus": 1,
    "min_cpus": 1,
    "gpus": 0,
    "io_slots": 0,
}


class Unprintable:
    def __repr__(self) -> str:
        message = "no text for this"
        raise RuntimeError(message)


class Grip(enum.IntEnum):
    FIRM = 3


class Indexed:
    def __index__(self) -> int:
        return 7


def estimate(**fields: Any) -> ResourceEstimate:
    """Construct from fields of any type, as a caller without a type checker may."""
    return ResourceEstimate(**fields)


def test_defaults() -> None:
    asked = ResourceEstimate()

    assert asked == ResourceEstimate(
        ram_bytes=0,
        ram_bytes_per_item=0,
        gpu_bytes=0,
        gpu_bytes_per_item=0,
        min_batch=1,
        max_batch=1,
        cpus=1,
        min_cpus=1,
        gpus=0,
        io_slots=0,
        kind="general",
    )


def test_fields_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        ResourceEstimate(1)  # type: ignore[call-arg]


def test_the_need_is_fixed_plus_per_item() -> None:
    asked = ResourceEstimate(
        ram_bytes=100, ram_bytes_per_item=7, gpu_bytes=30, gpu_bytes_per_item=2, max_batch=50
    )

    assert [asked.ram_need(b) for b in (1, 2, 50)] == [107, 114, 450]
    assert [asked.gpu_need(b) for b in (1, 2, 50)] == [32, 34, 130]


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({}, 0),
        ({"gpu_bytes": 1}, 1),
        ({"gpu_bytes_per_item": 1}, 1),
        ({"gpu_bytes": 1, "gpus": 3}, 3),
        ({"gpus": 2}, 2),
        ({"gpus": 0}, 0),
    ],
)
def test_gpus_follow_from_the_memory_asked(fields: dict[str, int], gpus: int) -> None:
    assert estimate(**fields).gpus == gpus


@pytest.mark.parametrize(("cpus", "least", "expected"), [(4, None, 4), (4, 2, 2), (1, None, 1)])
def test_min_cpus_defaults_to_cpus(cpus: int, least: int | None, expected: int) -> None:
    assert estimate(cpus=cpus, min_cpus=least).min_cpus == expected


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize(
    "value",
    [
        1.0,
        4.0,
        float("nan"),
        float("inf"),
        "4",
        b"4",
        True,
        False,
        [1],
        np.float64(2),
        Unprintable(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_but_an_integer_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidEstimate) as caught:
        estimate(**{field: value})

    error = caught.value
    assert isinstance(error, ValueError)
    assert isinstance(error, LardonError)
    assert error.field == field
    assert error.value is value
    assert error.rule == f"an integer of at least {COUNTS[field]}"
    assert str(error).startswith(f"{field} must be {error.rule}, not ")


@pytest.mark.parametrize("field", COUNTS)
def test_a_value_below_the_least_is_refused_and_the_least_is_not(field: str) -> None:
    least = COUNTS[field]

    assert getattr(estimate(**{field: least}), field) == least
    for value in (least - 1, np.int64(least - 1), -(10**5000)):
        with pytest.raises(InvalidEstimate) as caught:
            estimate(**{field: value})
        assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize("field", sorted(set(COUNTS) - {"min_cpus", "gpus"}))
def test_none_stands_in_only_where_a_default_follows_from_other_fields(field: str) -> None:
    with pytest.raises(InvalidEstimate) as caught:
        estimate(**{field: None})

    assert (caught.value.field, caught.value.value) == (field, None)


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize(
    "value", [Grip.FIRM, np.uint8(3), np.int64(3), np.array(3)], ids=lambda v: type(v).__name__
)
def test_whatever_has_an_index_becomes_a_plain_int(field: str, value: object) -> None:
    widened = {"min_batch": {"max_batch": 9}, "min_cpus": {"cpus": 9}}.get(field, {})

    stored = getattr(estimate(**{field: value, **widened}), field)

    assert (type(stored), stored) == (int, 3)


def test_index_is_asked_not_int() -> None:
    assert estimate(ram_bytes=Indexed()).ram_bytes == 7


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"min_batch": 3, "max_batch": 2}, "min_batch", "at most max_batch (2)"),
        ({"min_batch": 2}, "min_batch", "at most max_batch (1)"),
        ({"cpus": 2, "min_cpus": 3}, "min_cpus", "at most cpus (2)"),
        ({"gpus": 0, "gpu_bytes": 1}, "gpus", "at least 1 when GPU memory is asked for"),
        ({"gpus": 0, "gpu_bytes_per_item": 1}, "gpus", "at least 1 when GPU memory is asked for"),
        ({"kind": ""}, "kind", "a text that is not empty"),
        ({"kind": None}, "kind", "a text that is not empty"),
        ({"kind": 3}, "kind", "a text that is not empty"),
    ],
)
def test_fields_that_contradict_each_other(
    fields: dict[str, object], field: str, rule: str
) -> None:
    with pytest.raises(InvalidEstimate) as caught:
        estimate(**fields)

    assert (caught.value.field, caught.value.rule) == (field, rule)


def test_equal_limits_are_legal() -> None:
    asked = ResourceEstimate(min_batch=5, max_batch=5, cpus=2, min_cpus=2)

    assert (asked.min_batch, asked.min_cpus) == (5, 2)


@pytest.mark.parametrize("field", COUNTS)
def test_an_integer_of_any_size_is_legal(field: str) -> None:
    huge = 10**5000
    widened = {"min_batch": {"max_batch": huge}, "min_cpus": {"cpus": huge}}.get(field, {})

    assert getattr(estimate(**{field: huge, **widened}), field) == huge


def test_an_estimate_never_changes() -> None:
    asked = ResourceEstimate(ram_bytes=1)

    for field in attrs.fields_dict(ResourceEstimate):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(asked, field, 9)
    with pytest.raises((AttributeError, TypeError)):
        asked.other = 1  # type: ignore[attr-defined]


def test_a_copy_with_changes_is_checked_too() -> None:
    asked = ResourceEstimate(ram_bytes_per_item=5, max_batch=8)

    assert asked.evolve(max_batch=3) == ResourceEstimate(ram_bytes_per_item=5, max_batch=3)
    assert asked.evolve(max_batch=3).ram_most == 15
    with pytest.raises(InvalidEstimate):
        asked.evolve(min_batch=9)


def test_an_estimate_that_was_decided_on_is_still_the_same_value() -> None:
    """What admission remembers of an estimate shows in no comparison, hash, text or pickle."""
    fresh, asked = ResourceEstimate(ram_bytes=3), ResourceEstimate(ram_bytes=3)
    snapshot = ResourceSnapshot(taken_at=0.0, ram_total_bytes=100, ram_available_bytes=100)
    assert evaluate(asked, snapshot, Policy(), Ledger(), 0.0).admitted

    assert asked == fresh
    assert hash(asked) == hash(fresh)
    assert repr(asked) == repr(fresh)
    assert pickle.loads(pickle.dumps(asked)) == fresh  # noqa: S301  our own
