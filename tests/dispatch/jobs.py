"""Jobs, calls and what is seen, for the tests of a cluster in memory."""

from __future__ import annotations

import datetime
import queue
from typing import Any, Final

import pytest

from lardon.dispatch.enums import Shape
from lardon.dispatch.errors import WatchClosed
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref
from lardon.dispatch.stream import BufferedStream
from lardon.testing import ManualClock

JOB: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER: Final = "01BX5ZZKBKACTAV9WEVGEMMVRZ"
SHAPES: Final = pytest.mark.parametrize("shape", list(Shape))


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


def drained(stream: BufferedStream, backend: MemoryBackend) -> list[Observation]:
    """Return what *stream* tells now, once everything that was due has happened."""
    # Any call lets happen what was due.
    backend.find(JOB)
    found = []
    while True:
        try:
            found.append(stream.get_nowait())
        except (queue.Empty, WatchClosed):
            return found
