"""
A cluster in memory that behaves like Slurm or like Kubeflow, for tests and simulations.

    from lardon.dispatch.memory import MemoryBackend
    from lardon.testing import ManualClock

    clock = ManualClock()
    backend = MemoryBackend(shape="slurm", clock=clock)

Importing it registers it under the name ``memory``. It is not for production.
"""

from lardon.dispatch.enums import Shape
from lardon.dispatch.memory.backend import MemoryBackend
from lardon.dispatch.memory.environment import MemoryEnvironment
from lardon.dispatch.memory.hooks import answer_lost, call_started_at, crash_between_steps
from lardon.dispatch.memory.record import Truth
from lardon.dispatch.memory.settings import MemorySettings
from lardon.dispatch.registry import register

__all__ = [
    "MemoryBackend",
    "MemoryEnvironment",
    "MemorySettings",
    "Shape",
    "Truth",
    "answer_lost",
    "call_started_at",
    "crash_between_steps",
]

register("memory", MemoryBackend.from_settings)
