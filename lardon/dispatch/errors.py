"""What a backend may answer besides doing what it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lardon.errors import LardonError, _InvalidValue

if TYPE_CHECKING:
    import datetime


class DispatchError(LardonError):
    """Base of every error of `lardon.dispatch`; its facts are attributes and survive pickling."""


class InvalidError(DispatchError, _InvalidValue):
    """A value or a setting was refused: see `path`, `value` and `rule`."""

    @property
    def path(self) -> str:
        """Where the value stands, such as ``capabilities.AccountingHistory.value``."""
        return self.field


class UnsupportedError(DispatchError):
    """The backend cannot do this at all, and did nothing: see `operation`."""

    operation: str = ""


class FinishedError(DispatchError):
    """The object ended already, so nothing was changed: see `ref`."""

    ref: object = None


class NotFoundError(DispatchError):
    """No object matches the name, the id and the submit time together: see `ref`."""

    ref: object = None


class RefusedError(DispatchError):
    """The scheduler decided against the call, for `reason`, and changed nothing."""

    reason: str

    def __init__(self, reason: str = "", **facts: Any) -> None:
        super().__init__(reason, reason=reason, **facts)


class DuplicateError(RefusedError):
    """There is an object of this `name` already; after a lost answer it may be our own."""

    name: str = ""


class ExpiredError(DispatchError):
    """The call started after its `deadline`, at `started_at` if that is known; nothing was done."""

    deadline: datetime.datetime | None = None
    started_at: datetime.datetime | None = None


class OutcomeUnknown(DispatchError):
    """
    The call may have happened, may still happen, or never will.

    At `settles_at`, an aware UTC time, it has happened or never will: only then look again
    and decide. None is a call without a deadline, which never settles by itself.
    """

    settles_at: datetime.datetime | None = None


class RequeueBitMaybeSet(OutcomeUnknown):
    """
    A requeue may have left its bit set: read it back, and clear it.

    `result` is what the requeue itself came to, if that is known.
    """

    result: BaseException | None = None


class CrashedError(OutcomeUnknown):
    """A planned crash cut the call off between two of its steps."""


class WatchClosed(DispatchError):
    """The stream ended and nothing is left in it: watch again to see every object as it is."""


class MissingExtra(DispatchError, ImportError):
    """A package of the extra named by `extra` is not installed."""

    extra: str = "dispatch"


class BackendClosed(DispatchError, RuntimeError):
    """The backend was closed and takes no more calls; the objects live on."""
