"""A governor under any mix of events, against a book kept beside it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from lardon import (
    DecisionKind,
    Governor,
    GpuSnapshot,
    InvalidPolicy,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.reservation import Reservation
from lardon.testing import ManualClock, ScriptedProbe

CARDS = (
    GpuSnapshot(index=0, uuid="a", total_bytes=40, free_bytes=40),
    GpuSnapshot(index=1, uuid="b", total_bytes=30, free_bytes=30),
    GpuSnapshot(index=2, uuid="i", integrated=True),
)
MACHINE = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=100, ram_available_bytes=100, cpus=8, gpus=CARDS
)


class GovernorMachine(RuleBasedStateMachine):
    """Books, releases, decides, changes the policy and the machine, in any order."""

    reservations: Bundle[Reservation] = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.probe = ScriptedProbe(MACHINE, clock=self.clock)
        self.governor = Governor(
            Policy.unlimited(io_slots=2, tasks_per_gpu=2), probe=self.probe, clock=self.clock
        )
        self.held: list[Reservation] = []
        self.changes = 0
        self.told = 0
        self.ids: list[int] = []
        self.governor.subscribe(self.note)

    def note(self) -> None:
        self.told += 1

    @rule(
        target=reservations,
        ram=st.integers(0, 60),
        per_item=st.integers(0, 20),
        gpu=st.integers(0, 30),
        gpus=st.sampled_from([None, 1, 2]),
        cpus=st.integers(1, 4),
        io_slots=st.integers(0, 2),
        batch=st.integers(1, 9),
        only=st.sampled_from([None, ("a",), ("i",), ("a", "b")]),
    )
    def reserve(
        self,
        ram: int,
        per_item: int,
        gpu: int,
        gpus: int | None,
        cpus: int,
        io_slots: int,
        batch: int,
        only: tuple[str, ...] | None,
    ) -> Any:
        fields: dict[str, Any] = {"gpu_bytes": gpu, "gpus": gpus}
        asked = ResourceEstimate(
            ram_bytes=ram,
            ram_bytes_per_item=per_item,
            max_batch=batch,
            cpus=cpus,
            min_cpus=1,
            io_slots=io_slots,
            **fields,
        )
        foretold = self.governor.decide(asked, devices=only)
        decision, reservation = self.governor.reserve(asked, devices=only)

        assert decision == foretold
        assert (reservation is not None) == decision.admitted
        assert decision.admitted == (
            decision.kind in {DecisionKind.START, DecisionKind.REDUCE_BATCH}
        )
        if reservation is None:
            return _nothing()
        contract = reservation.contract
        assert contract == decision.contract
        assert 1 <= contract.batch_size <= batch
        assert contract.ram_bytes == ram + per_item * contract.batch_size
        assert contract.gpu_bytes == gpu
        assert 1 <= contract.cpus <= cpus
        assert only is None or set(contract.gpus) <= set(only)
        self.ids.append(reservation.id)
        self.held.append(reservation)
        self.changes += 1
        return reservation

    @rule(reservation=reservations)
    def release(self, reservation: Reservation) -> None:
        active = reservation in self.held

        assert reservation.active is active
        assert reservation.release() is active
        if active:
            self.held.remove(reservation)
            self.changes += 1

    @rule(
        ram=st.one_of(st.none(), st.integers(0, 100)),
        gpu=st.one_of(st.none(), st.integers(0, 40)),
        cpu_reserve=st.integers(0, 8),
        io_slots=st.integers(0, 3),
        tasks=st.integers(0, 3),
    )
    def set_policy(
        self, ram: int | None, gpu: int | None, cpu_reserve: int, io_slots: int, tasks: int
    ) -> None:
        policy = Policy.unlimited(
            ram_limit_bytes=ram,
            gpu_limit_bytes=gpu,
            cpu_reserve=cpu_reserve,
            io_slots=io_slots,
            tasks_per_gpu=tasks,
        )
        before = self.governor.policy
        if self.exceeded(policy):
            with pytest.raises(InvalidPolicy):
                self.governor.set_policy(policy)
            assert self.governor.policy is before
            return
        self.governor.set_policy(policy)
        self.changes += 1
        assert self.governor.policy is policy

    def exceeded(self, policy: Policy) -> bool:
        """Whether what is held is more than *policy* allows, counted afresh."""
        contracts = [held.contract for held in self.held]
        tight = self.ram_held() > policy.ram_capacity(100)
        tight |= sum(contract.cpus for contract in contracts) > max(1, 8 - policy.cpu_reserve)
        tight |= sum(contract.io_slots for contract in contracts) > policy.io_slots
        for card in CARDS:
            there = [contract for contract in contracts if card.uuid in contract.gpus]
            tight |= len(there) > policy.tasks_per_gpu
            if card.total_bytes is not None:
                room = card.total_bytes
                if policy.gpu_limit_bytes is not None:
                    room = min(room, policy.gpu_limit_bytes)
                tight |= sum(contract.gpu_bytes for contract in there) > room
        return tight

    def ram_held(self) -> int:
        return sum(
            held.contract.ram_bytes + (held.contract.gpu_bytes if "i" in held.contract.gpus else 0)
            for held in self.held
        )

    @rule(available=st.integers(0, 120), pressure=st.sampled_from([None, 0.0, 100.0]))
    def the_machine_changes(self, available: int, pressure: float | None) -> None:
        self.probe.set(
            attrs.evolve(MACHINE, ram_available_bytes=available, memory_pressure=pressure)
        )

    @rule()
    def the_probe_fails(self) -> None:
        script = self.probe._script
        self.probe.set(OSError("gone"))
        assert self.governor.reserve(ResourceEstimate())[0].kind is DecisionKind.WAIT
        self.probe._script = script

    @rule(seconds=st.floats(0, 10))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def the_book_is_exact(self) -> None:
        told = self.governor.statistics()
        contracts = [held.contract for held in self.held]
        assert self.governor.reservations() == tuple(self.held)
        assert told.active == len(self.held)
        assert told.reserved_ram_bytes == self.ram_held()
        assert told.reserved_cpus == sum(contract.cpus for contract in contracts)
        assert told.reserved_io_slots == sum(contract.io_slots for contract in contracts)
        for uuid in "abi":
            there = [contract for contract in contracts if uuid in contract.gpus]
            assert (uuid in told.reserved_gpus) == bool(there)
            if there:
                assert told.reserved_gpus[uuid].tasks == len(there)
                size = 0 if uuid == "i" else sum(contract.gpu_bytes for contract in there)
                assert told.reserved_gpus[uuid].gpu_bytes == size

    @invariant()
    def the_machine_is_never_promised_twice(self) -> None:
        told = self.governor.statistics()
        assert told.reserved_ram_bytes <= 100
        assert told.reserved_cpus <= 8
        for card in CARDS:
            if card.uuid in told.reserved_gpus and card.total_bytes is not None:
                assert told.reserved_gpus[card.uuid].gpu_bytes <= card.total_bytes

    @invariant()
    def every_change_is_counted_and_told_once(self) -> None:
        assert self.governor.generation == self.changes == self.told
        assert self.ids == list(range(1, len(self.ids) + 1))


def _nothing() -> Any:
    from hypothesis.stateful import multiple

    return multiple()


TestGovernorMachine = pytest.mark.slow(GovernorMachine.TestCase)
TestGovernorMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
