"""Frozen views of tasks and queues, for people and programs to read."""

from __future__ import annotations

import datetime
import math
from typing import Final

import attrs

from lardon.governor.decision import Contract
from lardon.governor.reason import Reason
from lardon.queue.states import TaskState


@attrs.frozen
class Progress:
    """How far a task is. Never goes back, and survives breaks."""

    done: float = 0
    total: float | None = None
    """None while it is unknown."""
    message: str = ""
    fraction: float = 0.0
    """0 to 1; 0 while the total is unknown."""

    def advanced(self, done: float, total: float | None, message: str) -> Progress:
        """Return the progress after a report: neither `done` nor `fraction` goes back."""
        done = max(self.done, _amount("done", done))
        total = self.total if total is None else _amount("total", total)
        fraction = self.fraction
        if total is not None:
            share = 1.0 if total == 0 else min(1.0, done / total)
            fraction = max(fraction, share)
        return Progress(done, total, message, fraction)


NO_PROGRESS: Final = Progress()


def _amount(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"{name} must be a number, not {value!r}"
        raise TypeError(message)
    # An integer of any size is finite, and may be too large for a float.
    if (isinstance(value, float) and not math.isfinite(value)) or value < 0:
        message = f"{name} must be a finite number of at least 0, not {value!r}"
        raise ValueError(message)
    return value


@attrs.frozen(kw_only=True)
class TaskSnapshot:
    """
    One task at one moment.

    The wall-clock times of one task are monotonic seconds added to one reading of the wall
    clock, taken within a second of the submission: a jump of the wall clock never shows a
    negative duration.
    """

    id: int
    name: str
    kind: str
    state: TaskState
    reason: Reason | None
    """Why it waits, runs with what it has, or ended; None before the governor was asked."""
    contract: Contract | None
    """What it was granted last; None before its start."""
    sequence: int
    progress: Progress
    submitted_at: datetime.datetime
    started_at: datetime.datetime | None
    finished_at: datetime.datetime | None
    waiting_since: float | None
    """Monotonic seconds of the queue's clock since when the governor says WAIT."""


@attrs.frozen
class TaskEvent:
    """One transition of one task, as told to the listeners of its queue."""

    task_id: int
    name: str
    state: TaskState
    previous: TaskState
    reason: Reason | None
    at: datetime.datetime
    """Wall clock, UTC."""
