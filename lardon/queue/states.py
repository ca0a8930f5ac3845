"""The states of a task, and the only moves between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class TaskState(enum.StrEnum):
    """Where a task is in its life."""

    PENDING = "PENDING"
    """Waits for its turn and for the governor; holds nothing."""
    RUNNING = "RUNNING"
    """Its callback runs, under a reservation or in a break."""
    PAUSED = "PAUSED"
    """Passed over in the queue, or parked in its callback with its reservation kept."""
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    COMPLETED = "COMPLETED"

    @property
    def terminal(self) -> bool:
        """Whether the state is final: the callback is over and nothing is held."""
        return self in TERMINAL


TERMINAL: Final = frozenset({TaskState.CANCELLED, TaskState.FAILED, TaskState.COMPLETED})

TRANSITIONS: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    # Started; paused before its start; cancelled or closed; refused or out of time.
    TaskState.PENDING: frozenset(
        {TaskState.RUNNING, TaskState.PAUSED, TaskState.CANCELLED, TaskState.FAILED}
    ),
    # Resumed before its start; resumed in its callback; cancelled in either.
    TaskState.PAUSED: frozenset({TaskState.PENDING, TaskState.RUNNING, TaskState.CANCELLED}),
    # Parked at a pause point; cancelled; raised or refused; returned.
    TaskState.RUNNING: frozenset(
        {TaskState.PAUSED, TaskState.CANCELLED, TaskState.FAILED, TaskState.COMPLETED}
    ),
    TaskState.CANCELLED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.COMPLETED: frozenset(),
}
