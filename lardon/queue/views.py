"""Frozen views of tasks and queues, for people and programs to read."""

from __future__ import annotations

import datetime

import attrs

from lardon.governor.decision import Contract
from lardon.governor.reason import Reason
from lardon.queue.progress import Progress
from lardon.queue.states import TaskState


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
