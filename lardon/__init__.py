"""
A FIFO task queue that asks a resource governor what it may use now.

It asks before every task, and again between the batches of a task:

    from lardon import MiB, ResourceEstimate, TaskQueue

    with TaskQueue() as queue:
        estimate = ResourceEstimate(ram_bytes_per_item=200 * MiB, max_batch=64)
        task = queue.submit(lambda task: task.map_batches(work, items), estimate=estimate)
"""

from typing import TYPE_CHECKING

from lardon.errors import (
    BatchOutOfMemory,
    InvalidEstimate,
    InvalidPolicy,
    InvalidTransition,
    LardonError,
    QueueClosed,
    QueueFull,
    TaskCancelled,
    TaskNotFinished,
    TaskRefused,
    UnknownTask,
    WorkerDied,
    WouldDeadlock,
)
from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.governor import Governor
from lardon.governor.policy import Policy
from lardon.governor.probes import SystemProbe
from lardon.governor.reason import Reason, ReasonCode
from lardon.governor.reservation import Reservation
from lardon.governor.snapshot import GpuSnapshot, ResourceSnapshot
from lardon.queue.context import TaskContext, current_task
from lardon.queue.states import TaskState
from lardon.queue.task import Task
from lardon.queue.task_queue import TaskQueue
from lardon.units import GiB, KiB, MiB

if TYPE_CHECKING:
    from lardon.governor.default import default_governor
    from lardon.queue.executor import GovernedExecutor
    from lardon.queue.views import TaskSnapshot

__version__ = "0.1.0"

__all__ = [
    # Estimates and decisions
    "Contract",
    "Decision",
    "DecisionKind",
    "Governor",
    "GpuSnapshot",
    "Policy",
    "Reason",
    "ReasonCode",
    "Reservation",
    "ResourceEstimate",
    "ResourceSnapshot",
    "SystemProbe",
    "default_governor",
    # Tasks
    "GovernedExecutor",
    "Task",
    "TaskContext",
    "TaskQueue",
    "TaskSnapshot",
    "TaskState",
    "current_task",
    # Units
    "GiB",
    "KiB",
    "MiB",
    # Errors
    "BatchOutOfMemory",
    "InvalidEstimate",
    "InvalidPolicy",
    "InvalidTransition",
    "LardonError",
    "QueueClosed",
    "QueueFull",
    "TaskCancelled",
    "TaskNotFinished",
    "TaskRefused",
    "UnknownTask",
    "WorkerDied",
    "WouldDeadlock",
]

# Imported when somebody asks for them, since not every user does: name and module.
_LATER = {
    "GovernedExecutor": "lardon.queue.executor",
    "TaskSnapshot": "lardon.queue.views",
    "default_governor": "lardon.governor.default",
}


if not TYPE_CHECKING:  # or a name that is not there would be anything to a type checker

    def __getattr__(name: str) -> object:
        """Import one of `_LATER`, as PEP 562 has it."""
        module = _LATER.get(name)
        if module is None:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        from importlib import import_module

        value = globals()[name] = getattr(import_module(module), name)
        return value


def __dir__() -> list[str]:
    """Return every public name, those too that were not asked for yet."""
    return sorted({*globals(), *__all__})
