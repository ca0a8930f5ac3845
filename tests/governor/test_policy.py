"""`Policy`: the default figures, what None and 0 mean, and what is refused."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import pytest

from lardon import GiB, Governor, InvalidPolicy, MiB, Policy, ResourceSnapshot
from lardon.testing import ScriptedProbe

COUNTS: Final = ("cpu_reserve", "io_slots", "tasks_per_gpu")
BYTES: Final = ("ram_reserve_bytes", "gpu_reserve_bytes", "ram_limit_bytes", "gpu_limit_bytes")
PRESSURES: Final = ("max_memory_pressure", "max_io_pressure", "max_cpu_pressure")
NUMBERS: Final = (*PRESSURES, "max_load_ratio", "recheck_s", "snapshot_max_age_s", "max_batch_s")


def policy(**fields: Any) -> Policy:
    """Construct from fields of any type, as a caller without a type checker may."""
    return Policy(**fields)


def shown(value: Policy) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in attrs.fields(Policy) if field.init}


def test_defaults() -> None:
    assert shown(Policy()) == {
        "ram_reserve_bytes": None,
        "gpu_reserve_bytes": None,
        "cpu_reserve": 0,
        "ram_limit_bytes": None,
        "gpu_limit_bytes": None,
        "io_slots": 1,
        "tasks_per_gpu": 1,
        "max_memory_pressure": 10.0,
        "max_io_pressure": 80.0,
        "max_cpu_pressure": None,
        "max_load_ratio": None,
        "recheck_s": 0.5,
        "snapshot_max_age_s": 1.0,
        "trust": "declared",
        "max_batch_s": None,
    }


def test_interactive_turns_on_the_figures_of_a_desktop() -> None:
    changed = {
        "max_load_ratio": 0.90,
        "max_cpu_pressure": 20.0,
        "max_memory_pressure": 1.0,
        "max_io_pressure": 80.0,
        "cpu_reserve": 1,
    }

    assert shown(Policy.interactive()) == {**shown(Policy()), **changed}
    assert Policy.interactive(cpu_reserve=2, io_slots=3) == Policy(
        **{**changed, "cpu_reserve": 2, "io_slots": 3}  # type: ignore[arg-type]
    )


def test_unlimited_has_no_reserve_and_no_pressure_rule_and_one_slot_each() -> None:
    changed = {
        "ram_reserve_bytes": 0,
        "gpu_reserve_bytes": 0,
        "max_memory_pressure": None,
        "max_io_pressure": None,
    }

    assert shown(Policy.unlimited()) == {**shown(Policy()), **changed}
    assert Policy.unlimited(ram_limit_bytes=5).ram_limit_bytes == 5


@pytest.mark.parametrize("field", COUNTS)
def test_none_is_refused_where_it_means_nothing(field: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        policy(**{field: None})

    assert (caught.value.field, caught.value.value) == (field, None)


def test_none_is_refused_for_the_age_of_a_snapshot() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        policy(snapshot_max_age_s=None)

    assert caught.value.field == "snapshot_max_age_s"


@pytest.mark.parametrize(
    "field", [*BYTES, *PRESSURES, "max_load_ratio", "recheck_s", "max_batch_s"]
)
def test_none_is_legal_elsewhere(field: str) -> None:
    assert getattr(policy(**{field: None}), field) is None


@pytest.mark.parametrize("field", [*COUNTS, *BYTES])
def test_counts_and_bytes_are_integers(field: str) -> None:
    assert getattr(policy(**{field: np.int64(0)}), field) == 0
    assert type(getattr(policy(**{field: np.int64(3)}), field)) is int
    assert getattr(policy(**{field: 10**5000}), field) == 10**5000
    for value in (-1, 1.0, True, "1", float("nan"), np.float64(1)):
        with pytest.raises(InvalidPolicy) as caught:
            policy(**{field: value})
        assert caught.value.field == field
        assert caught.value.rule == "an integer of at least 0"


@pytest.mark.parametrize("field", NUMBERS)
def test_rules_are_finite_numbers(field: str) -> None:
    assert type(getattr(policy(**{field: np.float64(0.5)}), field)) is float
    assert type(getattr(policy(**{field: 1}), field)) is float
    bad = (-0.001, float("nan"), float("inf"), 10**400, True, "1", b"1", [1], object())
    for value in bad:
        with pytest.raises(InvalidPolicy) as caught:
            policy(**{field: value})
        assert (caught.value.field, caught.value.value) == (field, value)
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("field", PRESSURES)
def test_a_pressure_is_a_percentage(field: str) -> None:
    assert getattr(policy(**{field: 100}), field) == 100.0
    assert getattr(policy(**{field: 0}), field) == 0.0
    with pytest.raises(InvalidPolicy, match="at most 100"):
        policy(**{field: 100.5})


def test_a_load_may_exceed_one_hundred_and_an_age_may_be_zero() -> None:
    allowed = Policy(max_load_ratio=500.0, snapshot_max_age_s=0.0)

    assert (allowed.max_load_ratio, allowed.snapshot_max_age_s) == (500.0, 0.0)


@pytest.mark.parametrize("value", ["", "Measured", None, True, 1, ["measured"]])
def test_trust_is_one_of_two_words(value: object) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        policy(trust=value)

    error = caught.value
    assert (error.field, error.value) == ("trust", value)
    assert error.rule == "one of 'declared', 'measured'"
    assert {Policy(trust="declared").trust, Policy(trust="measured").trust} == {
        "declared",
        "measured",
    }


def test_batches_of_no_time_are_refused() -> None:
    with pytest.raises(InvalidPolicy, match="max_batch_s must be a finite number above 0"):
        Policy(max_batch_s=0.0)


def test_a_recheck_without_pause_is_refused() -> None:
    """It would be a busy loop over the probe; never is spelled None."""
    with pytest.raises(InvalidPolicy, match="above 0"):
        Policy(recheck_s=0)


@pytest.mark.parametrize(
    ("total", "reserve"),
    [
        (7, 0),
        (8, 1),
        (16 * GiB - 8, 2 * GiB - 1),
        (16 * GiB - 1, 2 * GiB - 1),
        (16 * GiB, 2 * GiB),
        (1024 * GiB, 2 * GiB),
    ],
)
def test_the_default_ram_reserve_is_an_eighth_up_to_2_gib(total: int, reserve: int) -> None:
    assert Policy().ram_reserve(total) == reserve
    assert Policy().ram_capacity(total) == total - reserve
    assert Policy(ram_reserve_bytes=0).ram_reserve(total) == 0


@pytest.mark.parametrize(
    ("total", "reserve"),
    [
        (15, 0),
        (16, 1),
        (8 * GiB - 16, 512 * MiB - 1),
        (8 * GiB, 512 * MiB),
        (80 * GiB, 512 * MiB),
    ],
)
def test_the_default_gpu_reserve_is_a_sixteenth_up_to_512_mib(total: int, reserve: int) -> None:
    assert Policy().gpu_reserve(total) == reserve
    assert Policy().gpu_capacity(total) == total - reserve
    assert Policy(gpu_reserve_bytes=5).gpu_reserve(total) == 5


def test_a_card_of_unknown_size_keeps_the_largest_reserve() -> None:
    assert Policy().gpu_reserve(None) == 512 * MiB
    assert Policy(gpu_reserve_bytes=0).gpu_reserve(None) == 0


@pytest.mark.parametrize(
    ("reserve", "limit", "capacity"),
    [(0, None, 100), (30, None, 70), (30, 70, 70), (30, 69, 69), (30, 71, 70), (101, None, 0),
     (0, 0, 0), (200, 50, 0)],
)  # fmt: skip
def test_the_capacity_is_the_least_of_what_is_left_and_the_limit(
    reserve: int, limit: int | None, capacity: int
) -> None:
    rules = Policy(
        ram_reserve_bytes=reserve,
        ram_limit_bytes=limit,
        gpu_reserve_bytes=reserve,
        gpu_limit_bytes=limit,
    )

    assert rules.ram_capacity(100) == capacity
    assert rules.gpu_capacity(100) == capacity


def test_a_limit_binds_a_card_of_unknown_size_too() -> None:
    assert Policy(gpu_limit_bytes=7).gpu_capacity(None) == 7
    assert Policy().gpu_capacity(None) is None


@pytest.mark.parametrize(
    ("reserve", "cpus", "capacity"), [(0, 4, 4), (1, 4, 3), (3, 4, 1), (4, 4, 1), (99, 4, 1)]
)
def test_the_cpu_reserve_never_takes_the_last_cpu(reserve: int, cpus: int, capacity: int) -> None:
    assert Policy(cpu_reserve=reserve).cpu_capacity(cpus) == capacity


def test_a_policy_never_changes() -> None:
    rules = Policy()

    for name in shown(rules):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(rules, name, 0)


def test_a_policy_that_was_used_is_still_the_same_value() -> None:
    used = Policy()
    used.ram_terms(64 * GiB)

    assert used == Policy()
    assert hash(used) == hash(Policy())
    assert repr(used) == repr(Policy())
    assert used.ram_terms(8 * GiB) == (8 * GiB, GiB, 7 * GiB)
    assert used.ram_terms(64 * GiB) == (64 * GiB, 2 * GiB, 62 * GiB)


def test_a_governor_takes_nothing_else_for_a_policy() -> None:
    probe = ScriptedProbe(ResourceSnapshot(taken_at=0.0, ram_total_bytes=1, ram_available_bytes=1))
    for wrong in ({"io_slots": 2}, "Policy()", Policy):
        with pytest.raises(InvalidPolicy) as caught:
            Governor(wrong, probe=probe)  # type: ignore[arg-type]
        assert caught.value.field == "policy"
    assert Governor(probe=probe).policy == Policy()


def test_any_number_of_sizes_of_cards_is_told_right() -> None:
    """What is remembered of sizes is bounded, and never mixed up."""
    rules = Policy(gpu_limit_bytes=50 * GiB)

    for _ in range(2):
        for gib in range(1, 300):
            total = gib * GiB
            reserve = min(512 * MiB, total // 16)
            assert rules.gpu_terms(total) == (reserve, min(total - reserve, 50 * GiB))
        assert rules.gpu_terms(None) == (512 * MiB, 50 * GiB)
    assert rules == Policy(gpu_limit_bytes=50 * GiB)
