"""Jobs and calls for the tests of a cluster in memory."""

from __future__ import annotations

import datetime
from typing import Any, Final

from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref
from lardon.testing import ManualClock

JOB: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER: Final = "01BX5ZZKBKACTAV9WEVGEMMVRZ"


def spec(job: str = JOB, **fields: Any) -> JobSpec:
    return JobSpec(**{"id": job, "command": ["python", "train.py"], **fields})


def slurm(clock: ManualClock, **settings: Any) -> MemoryBackend:
    return MemoryBackend(shape="slurm", clock=clock, **settings)


def kubeflow(clock: ManualClock, **settings: Any) -> MemoryBackend:
    return MemoryBackend(shape="kubeflow", clock=clock, **settings)


def running(backend: MemoryBackend, job: str = JOB, **fields: Any) -> Ref:
    ref = backend.start(spec(job, **fields))
    backend.open(ref)
    backend.env().run(ref)
    return ref


def see(backend: MemoryBackend, ref: Ref) -> Observation:
    return backend.observe_many([ref])[ref]


def call(clock: ManualClock, seconds: float = 60) -> CallMeta:
    return CallMeta(clock.wall() + datetime.timedelta(seconds=seconds))


def holding(clock: ManualClock, instance: int = 1, **fields: Any) -> HoldMeta:
    return HoldMeta(instance=instance, deadline=call(clock).deadline, **fields)
