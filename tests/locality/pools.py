"""Pools on a machine that a test describes, and callbacks that wait to be let go."""

from __future__ import annotations

import threading
from typing import Any, Final

from lardon import (
    GiB,
    Governor,
    GpuSnapshot,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    TaskContext,
)
from lardon.locality import WorkerPool, current_worker
from lardon.testing import ManualClock, ScriptedProbe

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
BIG: Final = ResourceEstimate(ram_bytes=6 * GiB)


def machine(gpus: int = 0, **changes: Any) -> ResourceSnapshot:
    cards = tuple(
        GpuSnapshot(
            index=index,
            uuid=f"GPU-{index}",
            name="card",
            total_bytes=(index + 1) * 10 * GiB,
            free_bytes=(index + 1) * 10 * GiB,
        )
        for index in range(gpus)
    )
    facts = {"ram_total_bytes": 10 * GiB, "ram_available_bytes": 10 * GiB, "cpus": 16}
    return ResourceSnapshot(taken_at=0.0, gpus=cards, **{**facts, **changes})


class Pools:
    """Makes pools on a machine that a test describes."""

    def __init__(self) -> None:
        self.pools: list[WorkerPool] = []
        self.gates: list[Gate] = []
        self.clock = ManualClock()
        self.probe = ScriptedProbe(machine(), clock=self.clock)

    def make(self, *workers: Any, policy: Policy | None = None, **options: Any) -> WorkerPool:
        policy = policy if policy is not None else Policy.unlimited(recheck_s=None)
        governor = Governor(policy, probe=self.probe, clock=self.clock)
        pool = WorkerPool(governor, workers=list(workers) or None, **options)
        self.pools.append(pool)
        assert self.asleep(pool)
        return pool

    def asleep(self, pool: WorkerPool, calls: int | None = None) -> bool:
        """Wait until so many workers sleep; None is all."""
        calls = len(pool.workers()) if calls is None else calls
        return pool.scheduler.wait_parked(calls, PATIENCE_S)

    def gate(self) -> Gate:
        gate = Gate()
        self.gates.append(gate)
        return gate


class Gate:
    """A callback that says where it runs, and stays until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.context: TaskContext | None = None

    def __call__(self, context: TaskContext) -> str:
        self.context = context
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        return where(context)

    def wait_entered(self) -> None:
        assert self.entered.wait(PATIENCE_S)


def where(_context: object) -> str:
    """Return the worker that this runs on."""
    worker = current_worker()
    assert worker is not None
    return worker.name
