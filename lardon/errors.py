"""Every error that lardon raises, with its facts as attributes."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lardon.governor.decision import Contract, Decision
    from lardon.governor.reason import Reason


class LardonError(Exception):
    """
    Base of every error of this library.

    The facts of an error are its attributes, and survive pickling.
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


class _InvalidValue(LardonError, ValueError):
    """A field that breaks a rule."""

    field: str
    """The name of the field."""
    value: object
    """What was given."""
    rule: str
    """The rule that it breaks."""

    def __init__(
        self, message: str = "", *, field: str = "", value: object = None, rule: str = "",
        **facts: Any,
    ) -> None:  # fmt: skip
        super().__init__(message, field=field, value=value, rule=rule, **facts)


class InvalidEstimate(_InvalidValue):
    """An estimate was refused: see `field`, `value` and `rule`."""


class InvalidPolicy(_InvalidValue):
    """
    A policy was refused: see `field`, `value` and `rule`.

    When active reservations already exceed the new capacity, `resource`, `reserved` and
    `capacity` say which and by how much; otherwise these three are None.
    """

    resource: str | None = None
    reserved: int | None = None
    capacity: int | None = None


class InvalidOption(_InvalidValue):
    """An option of a scheduler or a pool was refused: see `field`, `value` and `rule`."""


class QueueClosed(LardonError, RuntimeError):
    """The queue takes no more calls: it was closed, or belongs to the process `owner_pid`."""

    owner_pid: int | None = None


class QueueFull(LardonError):
    """`capacity` tasks are pending already, and the call may not wait for room."""

    capacity: int


class TaskNotFinished(LardonError, TimeoutError):
    """
    The task did not finish within the timeout of this call.

    No callback's own `TimeoutError` is ever of this type.
    """

    task_id: int
    timeout: float | None


class TaskCancelled(LardonError, concurrent.futures.CancelledError):
    """The task was cancelled, so there is no result."""

    task_id: int
    reason: Reason | None = None


class TaskRefused(LardonError):
    """
    The governor refused the task, at its start or at a break, so there is no result.

    `decision` is the governor's last answer, or None when the governor itself failed or
    was never asked; `reason` says what was asked and what was found.
    """

    task_id: int
    decision: Decision | None = None
    reason: Reason | None = None


class BatchOutOfMemory(LardonError, MemoryError):
    """
    A batch ran out of memory and cannot be made smaller; the callback's error is the cause.

    `items` is its size, `contract` what was granted for it, `reason` the governor's.
    """

    task_id: int
    items: int
    contract: Contract
    reason: Reason | None = None


class WouldDeadlock(LardonError, RuntimeError):
    """A callback waits for something that only its own worker thread could do."""


class InvalidTransition(LardonError, RuntimeError):
    """A task was asked to go from `state` to `target`, which the table does not allow."""

    task_id: int
    state: object
    target: object


class UnknownTask(LardonError, KeyError):
    """No task of this id is known: it never was, or it is finished and forgotten."""

    task_id: int

    def __str__(self) -> str:
        # KeyError shows its argument quoted; this is a sentence.
        return str(self.args[0]) if self.args else ""


class WorkerDied(LardonError, RuntimeError):
    """The worker thread of the queue ended by an internal error, which is the cause."""


class UnknownWorker(LardonError, KeyError):
    """No worker of this name is registered: it never was, or it was removed."""

    worker: object

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class SchedulerStopped(LardonError, RuntimeError):
    """The scheduler takes no more jobs: it was stopped, or belongs to the process `owner_pid`."""

    owner_pid: int | None = None


class WorkerLost(LardonError, RuntimeError):
    """A job was offered a second time, and its second worker was lost like the first."""

    job_id: object
    worker: object
