"""What is kept of one job, as values: everything that a restart has to know is in here."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from lardon.dispatch.enums import Action, Cause, ClosedEnum
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.frozen_map import FrozenMap
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.rules import (
    Check,
    any_text,
    apply_rules,
    count,
    flag,
    instant,
    member,
    must,
    some_text,
    texts,
)
from lardon.governor.checks import refuse


class Operation(ClosedEnum):
    """A call that changes an object."""

    START = "start"
    OPEN = "open"
    STOP = "stop"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"
    RESTORE_REQUEUE_BIT = "restore_requeue_bit"


HARMLESS_WHEN_LATE: Final = frozenset({Operation.STOP})
"""A late one can only end the one object that it names, which was to end anyway."""


def _one(kind: type) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise refuse(InvalidError, name, value, f"a {kind.__name__}")
        return value

    return check


def _many(kind: type) -> Check:
    def check(name: str, value: Any) -> tuple[Any, ...]:
        found = tuple(value) if isinstance(value, Iterable) else (None,)
        for place, entry in enumerate(found):
            _one(kind)(f"{name}[{place}]", entry)
        return found

    return check


def _notes(name: str, value: Any) -> FrozenMap[str, str]:
    if not isinstance(value, Mapping):
        raise refuse(InvalidError, name, value, "a mapping of texts to texts")
    for key, text in value.items():
        some_text(f"a key of {name}", key)
        any_text(f"{name}.{key}", text)
    return FrozenMap(value)


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class PendingCall:
    """A call that was decided on, and whose answer is not in the record."""

    number: int = attrs.field(metadata=must(count(1)))
    """Counts the calls of the job."""
    operation: Operation = attrs.field(metadata=must(member(Operation)))
    ref: Ref | None = attrs.field(default=None, metadata=must(_one(Ref), optional=True))
    """The object that it changes; None for a start."""
    instance: int | None = attrs.field(default=None, metadata=must(count(1), optional=True))
    """Which hold it places or releases."""
    submission: int = attrs.field(metadata=must(count(1)))
    begun_at: datetime.datetime = attrs.field(metadata=must(instant))
    deadline: datetime.datetime = attrs.field(metadata=must(instant))
    """Whoever made it does not begin it after this."""
    settles_at: datetime.datetime = attrs.field(metadata=must(instant))
    """From here on it has happened, or never will: the deadline plus the call bound."""
    fence: int = attrs.field(metadata=must(count(1)))
    """The fence of the lease under which it was decided on."""

    @property
    def blocks(self) -> bool:
        """Whether nothing else is decided on before its outcome is known."""
        return self.operation not in HARMLESS_WHEN_LATE


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Attempt:
    """One execution of the job, as far as it was seen."""

    attempt: str = attrs.field(metadata=must(some_text))
    """Its DISPATCH_ATTEMPT."""
    epoch: int | None = attrs.field(default=None, metadata=must(count(), optional=True))
    submission: int = attrs.field(metadata=must(count(1)))
    ref: Ref = attrs.field(metadata=must(_one(Ref)))
    seen_at: datetime.datetime = attrs.field(metadata=must(instant))
    """When it was first seen, which is after it began."""
    ended_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """When its end was first seen; None while it is not known to have ended."""
    cause: Cause | None = attrs.field(default=None, metadata=must(member(Cause), optional=True))
    """Why it ended; a cause that was once known is kept when its evidence fades."""
    exit_code: int | None = attrs.field(default=None, metadata=must(count(), optional=True))
    nodes: Sequence[str] = attrs.field(default=(), metadata=must(texts))


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class ObjectRecord:
    """One object that a submission of the job has made, duplicates included."""

    ref: Ref = attrs.field(metadata=must(_one(Ref)))
    submission: int = attrs.field(metadata=must(count(1)))
    claimed_at: datetime.datetime = attrs.field(metadata=must(instant))
    opened_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """When it may have begun to run: None is a gated object that nobody was asked to open."""
    stop_asked_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """When the scheduler was last asked to end it."""
    over: bool = attrs.field(default=False, metadata=must(flag))
    """Whether it ended, or is gone, and no execution of it can be running."""
    verdict: Cause | None = attrs.field(default=None, metadata=must(member(Cause), optional=True))
    """Why it was stopped, where that says more than the scheduler will."""


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Recovery:
    """One decision of a recovery policy: what was done about which end."""

    cause: Cause = attrs.field(metadata=must(member(Cause)))
    action: Action = attrs.field(metadata=must(member(Action)))
    submission: int = attrs.field(metadata=must(count(1)))
    """The submission that ended."""
    decided_at: datetime.datetime = attrs.field(metadata=must(instant))
    not_before: datetime.datetime = attrs.field(metadata=must(instant))


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class HoldWish:
    """That the job is not to start, until somebody releases it."""

    instance: int = attrs.field(metadata=must(count(1)))
    asked_at: datetime.datetime = attrs.field(metadata=must(instant))
    placed_by: str = attrs.field(default="", metadata=must(any_text))
    until: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    reason: str = attrs.field(default="", metadata=must(any_text))
    in_force_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """Since when nothing of the job can start; None while that is not known."""
    refused_for: str | None = attrs.field(default=None, metadata=must(some_text, optional=True))
    """The attempt that ran, so that its object could not be held."""


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Lease:
    """Who may act on the job now."""

    holder: str = attrs.field(metadata=must(some_text))
    fence: int = attrs.field(metadata=must(count(1)))
    """One more each time the lease passes to somebody else."""
    expires_at: datetime.datetime = attrs.field(metadata=must(instant))


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Outcome:
    """How a job ended, for good."""

    cause: Cause = attrs.field(metadata=must(member(Cause)))
    """`Cause.COMPLETED`, or what its last execution ended with, or `CANCELLED`."""
    exit_code: int | None = attrs.field(default=None, metadata=must(count(), optional=True))
    ended_at: datetime.datetime = attrs.field(metadata=must(instant))
    """When that was decided."""
    executions: int = attrs.field(default=0, metadata=must(count()))
    """How many executions were seen."""
    submissions: int = attrs.field(default=1, metadata=must(count(1)))
    nodes: Sequence[str] = attrs.field(default=(), metadata=must(texts))
    """Where the last execution ran, if that was told."""
    reason: str = attrs.field(default="", metadata=must(any_text))
    """One sentence on why it was not tried again, for people."""

    @property
    def succeeded(self) -> bool:
        """Whether the command returned 0."""
        return self.cause is Cause.COMPLETED


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class JobRecord:
    """
    All that is known of one job, and of what was asked of the scheduler for it.

    It is a value: a change is another record, and one that was stored is never changed.
    """

    spec: JobSpec = attrs.field(metadata=must(_one(JobSpec)))
    """What is, or will be, submitted: its `submission` is the current one."""
    policy: RecoveryPolicy = attrs.field(
        factory=RecoveryPolicy, metadata=must(_one(RecoveryPolicy))
    )
    label: str = attrs.field(default="", metadata=must(any_text))
    """The name that its user knows it by."""
    position: int = attrs.field(default=0, metadata=must(count()))
    """Its place in a line of jobs, where there is one."""
    created_at: datetime.datetime = attrs.field(metadata=must(instant))
    notes: Mapping[str, str] = attrs.field(factory=dict, metadata=must(_notes))
    """What its owner keeps with it; nothing here reads them."""
    may_start: bool = attrs.field(default=True, metadata=must(flag))
    """Whether it may be submitted; a line of jobs allows that when it has a reservation."""
    may_open: bool = attrs.field(default=True, metadata=must(flag))
    """Whether its object may be opened; a line of jobs allows that in order."""
    stop_asked_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    hold: HoldWish | None = attrs.field(default=None, metadata=must(_one(HoldWish), optional=True))
    holds_asked: int = attrs.field(default=0, metadata=must(count()))
    """Counts the holds, so that each has an instance of its own."""
    objects: Sequence[ObjectRecord] = attrs.field(default=(), metadata=must(_many(ObjectRecord)))
    kept: Ref | None = attrs.field(default=None, metadata=must(_one(Ref), optional=True))
    """The one object that may be open."""
    calls: Sequence[PendingCall] = attrs.field(default=(), metadata=must(_many(PendingCall)))
    calls_made: int = attrs.field(default=0, metadata=must(count()))
    starts_settle_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """
    Until then a duplicate may still come of a start, also of one that was answered. None once
    somebody looked afterwards.
    """
    attempts: Sequence[Attempt] = attrs.field(default=(), metadata=must(_many(Attempt)))
    recoveries: Sequence[Recovery] = attrs.field(default=(), metadata=must(_many(Recovery)))
    due: Recovery | None = attrs.field(default=None, metadata=must(_one(Recovery), optional=True))
    """A recovery that was decided on and is not under way yet."""
    refusals: int = attrs.field(default=0, metadata=must(count()))
    """How often in a row the scheduler refused to start it."""
    start_faults: int = attrs.field(default=0, metadata=must(count()))
    """How often in a row its start raised what no backend should."""
    retry_at: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """Nothing that was refused is tried again before."""
    last_refusal: str = attrs.field(default="", metadata=must(any_text))
    """What was said when a call was refused last, or what the last of the `start_faults` was."""
    outcome: Outcome | None = attrs.field(default=None, metadata=must(_one(Outcome), optional=True))
    """Set once, and never changed."""
    lease: Lease | None = attrs.field(default=None, metadata=must(_one(Lease), optional=True))
    version: int = attrs.field(default=0, metadata=must(count()))
    """Counts how often it was stored."""

    @property
    def id(self) -> str:
        """The job's ULID."""
        return self.spec.id

    @property
    def unsettled(self) -> tuple[PendingCall, ...]:
        """The calls before whose outcome nothing is decided."""
        return tuple(call for call in self.calls if call.blocks)

    @property
    def fence(self) -> int:
        """The fence of the current lease, 0 before the first."""
        return 0 if self.lease is None else self.lease.fence

    @property
    def closed(self) -> bool:
        """Whether it has an outcome, and nothing can come of any of its starts any more."""
        left = any(one.opened_at is None and not one.over for one in self.objects)
        return self.outcome is not None and self.starts_settle_at is None and not left

    def object(self, ref: Ref | None) -> ObjectRecord | None:
        """Return what is kept of the object *ref*, or None."""
        return next((one for one in self.objects if one.ref == ref), None)

    def call(self, number: int) -> PendingCall | None:
        """Return the call of this number if its answer is still missing."""
        return next((one for one in self.calls if one.number == number), None)

    def with_object(self, changed: ObjectRecord, instead_of: Ref | None = None) -> JobRecord:
        """Return a record in which *changed* stands for the object *instead_of*, or its own."""
        old = changed.ref if instead_of is None else instead_of
        objects = tuple(changed if one.ref == old else one for one in self.objects)
        return attrs.evolve(self, objects=objects)

    def without_call(self, number: int) -> JobRecord:
        """Return a record in which the call of this number is not pending any more."""
        return attrs.evolve(self, calls=tuple(one for one in self.calls if one.number != number))
