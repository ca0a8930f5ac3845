"""Public reports that adaptation touches: H17, H18, H40 to H45, H51 to H57, H83 to H86, again."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import weakref
from typing import Any, Final, NoReturn

import attrs
import pytest

from lardon import (
    Decision,
    DecisionKind,
    GiB,
    Governor,
    GpuSnapshot,
    MiB,
    Policy,
    ReasonCode,
    Reservation,
    ResourceEstimate,
    ResourceSnapshot,
    TaskQueue,
    TaskState,
)
from lardon.governor import experience, history
from lardon.governor.probes.peaks import THREAD_NAME
from lardon.governor.snapshot import OwnUse
from lardon.governor.zones import HEALTHY_PER_STEP, Zone
from lardon.testing import FakeNvml, FakeRoot, ManualClock, ScriptedProbe

WAIT_S: Final = 5
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=16 * GiB, cpus=8
)
ITEMS: Final = ResourceEstimate(ram_bytes_per_item=GiB, max_batch=16)


class Host:
    """A governor that learned, on a machine and a clock that a test moves."""

    def __init__(self, policy: Policy | None = None, **machine: Any) -> None:
        self.clock = ManualClock(start=100.0)
        self.probe = ScriptedProbe(
            attrs.evolve(MACHINE, **machine), clock=self.clock, own_use=OwnUse(ram_bytes=0)
        )
        self.governor = Governor(policy or Policy.unlimited(), probe=self.probe, clock=self.clock)

    def learn(self, items: int, ram: int | None, gpu: int | None = None, **more: Any) -> None:
        self.governor.record_batch("general", items, 1.0, ram, gpu, **more)

    def says(self, **machine: Any) -> None:
        self.probe.set(attrs.evolve(MACHINE, **machine))

    def ask(self, estimate: ResourceEstimate = ITEMS) -> Decision:
        decision, reservation = self.governor.reserve(estimate)
        if reservation is not None:
            reservation.release()
        return decision

    def hold(self, estimate: ResourceEstimate) -> Reservation:
        reservation = self.governor.reserve(estimate)[1]
        assert reservation is not None
        return reservation


def batch(decision: Decision) -> int:
    return decision.contract.batch_size if decision.contract is not None else 0


def card(total: float, free: float) -> GpuSnapshot:
    return GpuSnapshot(
        index=0, uuid="GPU-a", total_bytes=int(total * GiB), free_bytes=int(free * GiB)
    )


def test_h17_what_a_task_left_pauses_nothing_for_ever() -> None:
    """It turns the zone RED for who comes after; the way back is bounded, and close() works."""
    host = Host(Policy(recheck_s=None))
    host.says(ram_available_bytes=GiB // 2)
    with TaskQueue(host.governor) as queue:
        cancelled = queue.submit(lambda context: None, estimate=ITEMS)
        task = queue.submit(lambda context: context.contract.batch_size, estimate=ITEMS)
        assert queue.wait_parked(WAIT_S)
        assert cancelled.reason is not None
        assert cancelled.snapshot().waiting_since is not None
        assert cancelled.cancel()
        assert queue.wait_parked(WAIT_S)
        host.says(ram_available_bytes=15 * GiB)
        for _ in range(HEALTHY_PER_STEP):
            queue.resources_changed()
            assert queue.wait_parked(WAIT_S)

        assert task.result(WAIT_S) == 1
    assert host.governor.zone is Zone.YELLOW


@pytest.mark.parametrize("trust", ["declared", "measured"])
def test_h18_a_momentary_high_reading_grows_nothing_beyond_what_was_asked(trust: Any) -> None:
    host = Host(Policy.unlimited(trust=trust))
    host.learn(2, 2 * GiB - 200 * MiB)
    host.says(ram_available_bytes=4 * GiB)
    assert batch(host.ask()) == 4
    host.says(ram_total_bytes=2**50, ram_available_bytes=2**50)

    assert batch(host.ask()) == (16 if trust == "declared" else 4), "at most twice what was seen"
    host.learn(16, 16 * GiB)
    assert batch(host.ask()) == 16


def test_h40_and_h45_what_others_hold_of_a_card_is_free_for_no_history() -> None:
    host = Host(Policy.unlimited(trust="measured"), gpus=(card(80, 0.3),))
    host.learn(1, 1, 10 * GiB)

    decision = host.ask(ResourceEstimate(gpu_bytes=20 * GiB))

    assert decision.kind is DecisionKind.WAIT
    assert "needs 11 GiB" in decision.reason.text
    assert "in use by others 79.7 GiB" in decision.reason.text
    assert "declared 20 GiB" in decision.reason.text


def test_h41_a_learned_amount_is_promised_like_any_other() -> None:
    host = Host(Policy.unlimited(trust="measured"))
    host.learn(1, 10 * GiB - 512 * MiB)
    one = ITEMS.evolve(max_batch=1)

    first = host.hold(one)
    second = host.governor.reserve(one)[0]

    assert first.contract.ram_bytes > 9 * GiB
    assert second.kind is DecisionKind.WAIT
    assert second.reason.facts["promised"] == first.contract.ram_bytes


def test_h42_measured_use_counts_against_what_was_learned() -> None:
    host = Host()
    host.learn(1, 8 * GiB)
    first = host.hold(ITEMS.evolve(max_batch=1))
    host.probe.use = OwnUse(ram_bytes=first.contract.ram_bytes)
    host.says(ram_available_bytes=16 * GiB - first.contract.ram_bytes)

    other = ResourceEstimate(ram_bytes=16 * GiB - first.contract.ram_bytes, kind="other")
    assert host.governor.decide(other).kind is DecisionKind.START
    assert not host.governor.decide(other.evolve(ram_bytes=other.ram_bytes + 1)).admitted


def test_h43_memory_that_is_not_back_yet_is_no_growth_of_others() -> None:
    """The last batch's memory leaves our own figure before it shows as available."""
    host = Host(gpus=(card(24, 4),))
    host.learn(1, 1, 1)
    asked = ResourceEstimate(gpu_bytes=20 * GiB)

    assert host.ask(asked).kind is DecisionKind.WAIT
    host.clock.advance(3.0)
    host.says(gpus=(card(24, 24),))
    assert host.ask(asked).kind is DecisionKind.START


@pytest.mark.parametrize("jitter", [-MiB, MiB])
def test_h44_jitter_moves_no_zone_and_is_no_growth(jitter: int) -> None:
    half = 8 * GiB + 512 * MiB
    host = Host(ram_available_bytes=half)
    host.learn(16, GiB)
    for place in range(40):
        host.clock.advance(0.06)
        host.says(ram_available_bytes=half + jitter * (place % 2))
        assert batch(host.ask()) == 8
    assert host.governor.zone is Zone.GREEN


def test_h51_failures_never_halve_a_batch_to_nothing() -> None:
    host = Host()
    for items in (16, 8, 4, 2, 1, 1, 1):
        host.learn(items, None, failed=True)
        assert batch(host.ask()) == max(1, items // 2)


@pytest.mark.parametrize("trust", ["declared", "measured"])
@pytest.mark.parametrize(
    "fields",
    [
        {"ram_bytes_per_item": 1, "max_batch": 2**40},
        {"ram_bytes": GiB, "max_batch": 10**400},
        {"ram_bytes": 64 * GiB, "max_batch": 2},
    ],
)
def test_h52_the_search_ends_at_every_edge(trust: Any, fields: dict[str, Any]) -> None:
    host = Host(Policy.unlimited(trust=trust, max_batch_s=1.0))
    for items, failed in ((1, False), (2**60, False), (3, True)):
        host.learn(items, items, failed=failed)

    decision = host.ask(ResourceEstimate(**fields))

    assert decision.kind in DecisionKind
    assert decision.reason.text


def test_h53_the_reduced_batch_is_what_is_reserved() -> None:
    host = Host()
    host.learn(4, 8 * GiB)
    held = host.hold(ITEMS)

    contract = held.contract
    assert contract.batch_size == 7
    assert host.governor.statistics().reserved_ram_bytes == contract.ram_bytes
    assert contract.ram_bytes == 7 * (8 * GiB // 4 + 8 * GiB // 40 + 1)
    with TaskQueue(host.governor) as queue:
        held.release()
        task = queue.submit(lambda context: context.contract, estimate=ITEMS)
        assert task.result(WAIT_S) == attrs.evolve(contract)


def test_h54_what_is_remembered_cannot_be_changed_from_outside() -> None:
    host = Host()
    host.learn(1, GiB)
    window: Any = host.governor.history("general")

    assert isinstance(window, tuple)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        window[0].items = 5
    counts: Any = host.governor.statistics().history
    counts["general"] = 99
    assert host.governor.statistics().history == {"general": 1}


def test_h55_and_h56_an_impossible_task_fails_in_any_zone_and_the_next_one_runs() -> None:
    host = Host(Policy(trust="measured", recheck_s=None))
    host.says(ram_available_bytes=0)
    host.ask()
    assert host.governor.zone is Zone.RED
    with TaskQueue(host.governor) as queue:
        impossible = queue.submit(lambda context: 1, estimate=ResourceEstimate(cpus=200))
        assert impossible.wait(WAIT_S)
        assert impossible.state is TaskState.FAILED
        assert impossible.reason is not None
        assert impossible.reason.code is ReasonCode.CPU_CAPACITY
        host.says(ram_available_bytes=15 * GiB)
        fine = queue.submit(lambda context: 2, estimate=ResourceEstimate())
        for _ in range(HEALTHY_PER_STEP):
            queue.resources_changed()
            assert queue.wait_parked(WAIT_S)
        assert fine.result(WAIT_S) == 2


def test_h57_a_head_that_the_zone_holds_back_is_not_overtaken() -> None:
    host = Host(Policy(recheck_s=None))
    host.says(ram_available_bytes=0)
    host.ask()
    started: list[int] = []
    with TaskQueue(host.governor) as queue:
        tasks = [
            queue.submit(lambda context, place=place: started.append(place), estimate=ITEMS)
            for place in range(20)
        ]
        assert queue.wait_parked(WAIT_S)
        assert started == []
        host.says(ram_available_bytes=15 * GiB)
        for _ in range(HEALTHY_PER_STEP):
            queue.resources_changed()
            assert queue.wait_parked(WAIT_S)
        assert queue.join(WAIT_S)
    assert started == list(range(20))
    assert {task.state for task in tasks} == {TaskState.COMPLETED}


class _Large:
    """Something that a failed reading held."""


def test_h83_and_h84_a_watch_that_failed_keeps_nothing_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is logged is kept by whoever collects logs, as pytest does.
    monkeypatch.setattr(logging.getLogger("lardon"), "disabled", True)
    kept: list[weakref.ref[_Large]] = []

    class Broken(ScriptedProbe):
        def watch_peak(self) -> NoReturn:
            large = _Large()
            kept.append(weakref.ref(large))
            raise MemoryError

    probe = Broken(MACHINE)
    governor = Governor(Policy.unlimited(), probe=probe)
    reservation = governor.reserve(ITEMS)[1]
    assert reservation is not None

    watch = governor.watch_batch(reservation)

    assert watch.stop().peak_ram_bytes is None
    gc.collect()
    assert kept[0]() is None


def test_h85_a_kind_per_task_leaves_bounded_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (history, experience):
        monkeypatch.setattr(module, "MAX_KINDS", 50)
    host = Host()
    for number in range(500):
        kind = f"kind {number}"
        host.governor.record_batch(kind, 1, 1.0, 5 * GiB)
        assert batch(host.ask(ITEMS.evolve(kind=kind))) == 2

    learned = host.governor._experience
    tables: list[int] = [learned.history.known, len(learned._lessons), len(learned._granted)]
    assert tables == [50, 50, 50]
    assert batch(host.ask(ITEMS.evolve(kind="kind 0"))) == 16, "forgotten whole"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's files")
def test_h86_watches_that_are_dropped_leave_no_thread(tmp_path: Any) -> None:
    from lardon import SystemProbe

    probe = SystemProbe(FakeRoot(tmp_path), nvml=FakeNvml(), environ={})
    governor = Governor(Policy.unlimited(), probe=probe)
    reservation = governor.reserve(ResourceEstimate())[1]
    assert reservation is not None
    for _ in range(20):
        governor.watch_batch(reservation)
    gc.collect()

    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(WAIT_S)
            assert not thread.is_alive()
