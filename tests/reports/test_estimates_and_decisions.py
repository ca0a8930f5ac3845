"""Public reports of faults H46 to H57: estimates, numbers, and what the governor decides."""

from __future__ import annotations

import json
import threading
from fractions import Fraction
from typing import Any, Final

import attrs
import numpy as np
import pytest

from lardon import (
    DecisionKind,
    GiB,
    Governor,
    InvalidEstimate,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.governor.decision import Decision
from lardon.governor.reservation import Reservation
from lardon.testing import ScriptedProbe
from lardon.units import parse_size

WAIT_S: Final = 5


def machine(total: int = 16, available: int | None = None, cpus: int = 8) -> ResourceSnapshot:
    """Return a machine of so many GiB."""
    return ResourceSnapshot(
        taken_at=0.0,
        ram_total_bytes=total * GiB,
        ram_available_bytes=(total if available is None else available) * GiB,
        cpus=cpus,
    )


def governor_of(snapshot: ResourceSnapshot, **rules: Any) -> Governor:
    return Governor(Policy.unlimited(**rules), probe=ScriptedProbe(snapshot))


def estimate(**fields: Any) -> ResourceEstimate:
    """Construct from fields of any type, as a caller without a type checker may."""
    return ResourceEstimate(**fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [("ram_bytes", -1), ("cpus", 0), ("cpus", -2), ("io_slots", 1.5), ("max_batch", -4)],
)
def test_h46_nonsense_quantities_are_refused_at_construction(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field) as caught:
        estimate(**{field: value})

    assert isinstance(caught.value, InvalidEstimate)
    assert (caught.value.field, caught.value.value) == (field, value)


def test_h46_zero_is_legal_where_nothing_may_be_asked() -> None:
    asked = ResourceEstimate(ram_bytes=0, gpu_bytes=0, io_slots=0, gpus=0)

    assert governor_of(machine()).decide(asked).kind is DecisionKind.START


@pytest.mark.parametrize(
    ("field", "value"),
    [("cpus", True), ("gpu_bytes", False), ("max_batch", True), ("gpus", True), ("gpus", False)],
)
def test_h47_a_boolean_is_no_count(field: str, value: bool) -> None:
    with pytest.raises(InvalidEstimate) as caught:
        estimate(**{field: value})

    assert (caught.value.field, caught.value.value) == (field, value)


def test_h48_integer_likes_become_plain_integers() -> None:
    asked = estimate(
        ram_bytes=np.int64(2**30), ram_bytes_per_item=np.uint8(200), max_batch=np.uint8(200)
    )

    assert {type(value) for value in (asked.ram_bytes, asked.ram_bytes_per_item)} == {int}
    assert asked.ram_need(asked.max_batch) == 2**30 + 40_000, "uint8 would have wrapped around"
    decision = governor_of(machine()).decide(asked)
    assert decision.contract is not None
    assert json.loads(json.dumps(attrs.asdict(decision.contract)))["batch_size"] == 200
    assert json.dumps(decision.reason.facts)
    assert estimate(max_batch=np.array(4)).max_batch == 4


@pytest.mark.parametrize(
    "value", [4.0, np.float64(4), np.array(4.0), np.array([4]), float("nan"), float("inf"), "4"]
)
def test_h48_floats_are_refused_also_whole_ones(value: object) -> None:
    with pytest.raises(InvalidEstimate):
        estimate(max_batch=value)


@pytest.mark.parametrize("value", [Fraction(1, 9), 1 / 9, 0.5])
def test_h49_there_are_no_fractional_quantities(value: object) -> None:
    for field in ("cpus", "io_slots", "gpus"):
        with pytest.raises(InvalidEstimate):
            estimate(**{field: value})


@pytest.mark.slow
def test_h49_totals_return_exactly_to_the_start() -> None:
    """Nine ninths fit, and ten thousand turns leave nothing behind."""
    governor = governor_of(machine(9, cpus=9))
    ninth = ResourceEstimate(ram_bytes=GiB)

    held = [governor.reserve(ninth)[1] for _ in range(9)]
    assert all(held)
    assert governor.reserve(ninth)[1] is None
    for reservation in held:
        assert reservation is not None
        reservation.release()
    for _ in range(10_000):
        reservation = governor.reserve(ResourceEstimate(ram_bytes=GiB // 10))[1]
        assert reservation is not None
        reservation.release()

    totals = governor.statistics()
    assert (totals.reserved_ram_bytes, totals.reserved_cpus, totals.active) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2G", 2 * 2**30),
        ("2g", 2 * 2**30),
        ("2GiB", 2 * 2**30),
        ("2 GiB", 2 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("2GB", 2 * 10**9),
        ("2", 2),
    ],
)
def test_h50_each_size_has_one_meaning(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["2Gb", "-1G", "", "G", "2X"])
def test_h50_unknown_forms_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("total", "kind", "code"),
    [
        (16, DecisionKind.WAIT, ReasonCode.RAM_SHORT),
        (11, DecisionKind.WAIT, ReasonCode.RAM_SHORT),
        (10, DecisionKind.REJECT, ReasonCode.RAM_CAPACITY),
    ],
)
def test_h51_no_contract_of_batch_zero(total: int, kind: DecisionKind, code: ReasonCode) -> None:
    asked = ResourceEstimate(ram_bytes=10 * GiB, ram_bytes_per_item=GiB, max_batch=8)

    decision, reservation = governor_of(machine(total, 5)).reserve(asked)

    assert (decision.kind, decision.reason.code) == (kind, code)
    assert decision.contract is None
    assert reservation is None


@pytest.mark.parametrize(
    ("per_item", "fixed", "batch", "granted"),
    [
        (GiB, 5 * GiB, 1, None),
        (1, 0, 2**40, 4 * GiB),
        (0, 0, 2**40, 2**40),
        (0, 4 * GiB, 2**40, 2**40),
        (0, 4 * GiB + 1, 2**40, None),
        (1, 4 * GiB - 1, 2**62, 1),
    ],
)
def test_h52_the_search_ends_at_every_edge(
    per_item: int, fixed: int, batch: int, granted: int | None
) -> None:
    asked = ResourceEstimate(ram_bytes=fixed, ram_bytes_per_item=per_item, max_batch=batch)

    decision = governor_of(machine(16, 4)).decide(asked)

    assert (decision.contract and decision.contract.batch_size) == granted


def test_h53_the_contract_and_the_book_hold_the_reduced_batch() -> None:
    governor = governor_of(machine(16, 4))
    asked = ResourceEstimate(ram_bytes_per_item=GiB, max_batch=16)
    seen: list[tuple[int, int, int]] = []

    def work(task: TaskContext) -> None:
        reserved = governor.statistics().reserved_ram_bytes
        seen.append((task.contract.batch_size, task.contract.ram_bytes, reserved))

    with TaskQueue(governor) as queue:
        task = queue.submit(work, estimate=asked)
        assert task.wait(WAIT_S)

    assert seen == [(4, 4 * GiB, 4 * GiB)]
    assert governor.statistics().reserved_ram_bytes == 0


def test_h54_what_the_caller_keeps_changes_nothing_and_writing_raises() -> None:
    fields = {"ram_bytes": GiB, "max_batch": 4}
    asked = estimate(**fields)
    fields["ram_bytes"] = 99 * GiB
    governor = governor_of(machine())
    refused: list[str] = []

    def work(task: TaskContext) -> None:
        changes: list[Any] = [
            lambda: setattr(task.contract, "batch_size", 99),
            lambda: setattr(task.contract, "extra", 99),
            lambda: task.contract.gpus.append("GPU-b"),  # type: ignore[attr-defined]
        ]
        for change in changes:
            try:
                change()
            except (AttributeError, TypeError) as error:
                refused.append(type(error).__name__)
        assert task.contract.batch_size == 4

    with TaskQueue(governor) as queue:
        task = queue.submit(work, estimate=asked)
        assert task.wait(WAIT_S)

    assert task.state is TaskState.COMPLETED
    assert len(refused) == 3
    assert task.estimate.ram_bytes == GiB
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        asked.ram_bytes = 2  # type: ignore[misc]


def test_h55_an_impossible_task_fails_and_the_next_one_runs() -> None:
    called: list[str] = []
    with TaskQueue(governor_of(machine(16))) as queue:
        huge = queue.submit(lambda _: called.append("huge"), estimate=ResourceEstimate(cpus=200))
        small = queue.submit(lambda _: called.append("small"), estimate=ResourceEstimate())

        assert huge.wait(WAIT_S)
        assert small.wait(WAIT_S)

    assert (huge.state, small.state, called) == (
        TaskState.FAILED,
        TaskState.COMPLETED,
        ["small"],
    )
    assert huge.reason is not None
    assert huge.reason.code is ReasonCode.CPU_CAPACITY
    assert (huge.reason.facts["asked"], huge.reason.facts["limit"]) == (200, 8)
    assert "200" in huge.reason.text
    assert "8" in huge.reason.text


def test_h56_one_bad_item_does_not_block_the_loop() -> None:
    class Shaky(Governor):
        """Raises for the one estimate that asks for three CPUs."""

        def reserve(
            self, estimate: ResourceEstimate, **how: Any
        ) -> tuple[Decision, Reservation | None]:
            if estimate.cpus == 3:
                message = "unexpected"
                raise LookupError(message)
            return super().reserve(estimate, **how)

    governor = Shaky(Policy.unlimited(), probe=ScriptedProbe(machine()))
    with TaskQueue(governor) as queue:
        tasks = [
            queue.submit(lambda _: "done", estimate=ResourceEstimate(cpus=cpus), name=name)
            for name, cpus in (("A", 200), ("B", 1), ("C", 3), ("D", 2))
        ]
        assert all(task.wait(WAIT_S) for task in tasks)

    assert [task.state for task in tasks] == [
        TaskState.FAILED,
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.COMPLETED,
    ]
    rejected, failed = tasks[0].reason, tasks[2].reason
    assert rejected is not None
    assert rejected.code is ReasonCode.CPU_CAPACITY
    assert failed is not None
    assert failed.code is ReasonCode.GOVERNOR_FAILED
    assert "LookupError" in failed.text
    assert governor.reservations() == ()


def test_h57_a_blocked_head_is_not_overtaken() -> None:
    """Fifty small tasks wait behind it; they start when it leaves, and not before."""
    probe = ScriptedProbe(machine(16, 8))
    governor = Governor(Policy.unlimited(recheck_s=None), probe=probe)
    order: list[str] = []
    started = threading.Event()
    with TaskQueue(governor) as queue:
        head = queue.submit(
            lambda _: order.append("head"), estimate=ResourceEstimate(ram_bytes=12 * GiB)
        )
        small = [
            queue.submit(
                lambda _, n=n: (started.set(), order.append(f"small {n}")),
                estimate=ResourceEstimate(ram_bytes=1),
            )
            for n in range(50)
        ]
        assert queue.wait_parked(WAIT_S)
        assert head.reason is not None
        assert head.reason.code is ReasonCode.RAM_SHORT
        assert not started.is_set()
        queue.resources_changed()
        assert queue.wait_parked(WAIT_S)
        assert order == []

        probe.set(machine(16, 13))
        queue.resources_changed()
        assert small[-1].wait(WAIT_S)

    assert order == ["head", *(f"small {n}" for n in range(50))]


def test_h57_a_cancelled_head_lets_the_others_go() -> None:
    governor = Governor(Policy.unlimited(recheck_s=None), probe=ScriptedProbe(machine(16, 8)))
    with TaskQueue(governor) as queue:
        head = queue.submit(lambda _: 1, estimate=ResourceEstimate(ram_bytes=12 * GiB))
        small = queue.submit(lambda _: 2, estimate=ResourceEstimate(ram_bytes=1))
        assert queue.wait_parked(WAIT_S)

        assert head.cancel()
        assert small.result(WAIT_S) == 2

    assert head.state is TaskState.CANCELLED
