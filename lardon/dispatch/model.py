"""
The values that a dispatch is talked about in: jobs, references, observations, promises.

This module imports nothing that acts, so that a stored record never pulls in a backend.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final, Self

import attrs

from lardon.dispatch.enums import Action, Capability, Cause, Source, State, Tristate
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.names import job_name, submission_name
from lardon.dispatch.rules import (
    any_text,
    apply_rules,
    command,
    count,
    environment,
    extensions,
    flag,
    instant,
    member,
    must,
    object_id,
    one,
    seconds,
    some_text,
    table,
    texts,
    ulid,
    whole_instant,
)
from lardon.governor.checks import refuse

__all__ = [
    "EPOCH_BOUND",
    "HOLD_BASE",
    "Action",
    "CallMeta",
    "Capability",
    "Cause",
    "Cessation",
    "Declarations",
    "HoldMeta",
    "JobSpec",
    "Observation",
    "Ref",
    "Source",
    "State",
    "Support",
    "Tristate",
    "epoch",
]

HOLD_BASE: Final = 315_576_000
"""Seconds from submission to the start time of hold 0: ten Julian years, as no job waits."""
EPOCH_BOUND: Final = 1_000_000
"""Submission numbers, execution numbers and hold instances stay below; an epoch fits a double."""


def epoch(submission: int, execution: int) -> int:
    """
    Return the number that fences one execution: every later one of the job has a larger.

    Args:
        submission: Which submission of the job, from 1.
        execution: How often this object was put back before (restarts; on Kubeflow the
            executions before, because its restart counter misses some), from 0.

    Raises:
        InvalidError: one of them is out of range, `EPOCH_BOUND` included.

    """
    count(0, EPOCH_BOUND)("submission", submission)
    count(0, EPOCH_BOUND)("execution", execution)
    return submission * EPOCH_BOUND + execution


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class JobSpec:
    """
    What is to run, as it is submitted once.

    Raises:
        InvalidError: a field breaks its rule; the error names path, value and rule.

    """

    id: str = attrs.field(metadata=must(ulid))
    """A ULID that names the job through all its submissions; see `new_ulid`."""
    submission: int = attrs.field(default=1, metadata=must(count(1, EPOCH_BOUND)))
    """Which submission of the job this is."""
    command: Sequence[str] = attrs.field(metadata=must(command))
    """The program and its arguments; no shell reads them."""
    nodes: int = attrs.field(default=1, metadata=must(count(1)))
    cpus: int = attrs.field(default=1, metadata=must(count(1)))
    """CPUs on each node."""
    gpus: int = attrs.field(default=0, metadata=must(count()))
    """GPUs on each node."""
    ram_bytes: int | None = attrs.field(default=None, metadata=must(count(1), optional=True))
    """Memory on each node; None is what the scheduler gives by itself."""
    time_limit_s: float | None = attrs.field(
        default=None, metadata=must(seconds(above=0), optional=True)
    )
    """How long an execution may take; None is what the scheduler gives by itself."""
    directory: str | None = attrs.field(default=None, metadata=must(some_text, optional=True))
    """Where the command starts; None is what the scheduler takes by itself."""
    environment: Mapping[str, str] = attrs.field(factory=dict, metadata=must(environment))
    """Variables for the command; names that start with ``DISPATCH_`` are the backend's."""
    extensions: Mapping[str, Mapping[str, str]] = attrs.field(
        factory=dict, metadata=must(extensions)
    )
    """What one adapter alone understands, by its name: ``{"slurm": {"partition": "gpu"}}``."""

    @property
    def name(self) -> str:
        """The name that all objects of the job share, where names may repeat (Slurm)."""
        return job_name(self.id)

    @property
    def submission_name(self) -> str:
        """The name of this submission alone, where names are unique (Kubeflow)."""
        return submission_name(self.id, self.submission)


@attrs.frozen(field_transformer=apply_rules)
class Ref:
    """
    Which object: a name, an id that the scheduler may give again, and when it was submitted.

    Only all three together identify an object; a look-up that matches some of them has found
    another one.
    """

    name: str = attrs.field(metadata=must(some_text))
    id: int | str = attrs.field(metadata=must(object_id))
    submitted_at: datetime.datetime = attrs.field(metadata=must(whole_instant))
    """In UTC and whole seconds, as the scheduler keeps it."""
    sluid: str | None = attrs.field(
        default=None, eq=False, kw_only=True, metadata=must(some_text, optional=True)
    )
    """Slurm's own unique id where it has one; two refs are equal without it."""


@attrs.frozen(field_transformer=apply_rules)
class CallMeta:
    """What every call carries that changes an object which may be running."""

    deadline: datetime.datetime = attrs.field(metadata=must(instant))
    """The call does nothing when it starts after this; an aware datetime, kept in UTC."""


@attrs.frozen(field_transformer=apply_rules)
class HoldMeta(CallMeta):
    """Which hold is placed or released, and for people: by whom, until when and why."""

    instance: int = attrs.field(metadata=must(count(1, EPOCH_BOUND)))
    """Names the hold: only a release with the same number lifts it."""
    deadline: datetime.datetime = attrs.field(metadata=must(instant))
    placed_by: str = attrs.field(default="", metadata=must(any_text))
    until: datetime.datetime | None = attrs.field(
        default=None, metadata=must(instant, optional=True)
    )
    """When somebody means to release it; nothing releases it by itself."""
    reason: str = attrs.field(default="", metadata=must(any_text))


@attrs.frozen(field_transformer=apply_rules)
class Observation:
    """
    What the scheduler said about one object at one time.

    An object that nobody knows has the state and the cause Unknown, and tells nothing else.
    """

    ref: Ref = attrs.field(metadata=must(one(Ref)))
    state: State = attrs.field(metadata=must(member(State)))
    cause: Cause | None = attrs.field(default=None, metadata=must(member(Cause), optional=True))
    """Why; None while it runs as it should, or waits for no reason that is known."""
    requeue_bit: bool = attrs.field(default=False, metadata=must(flag))
    """Whether the scheduler may requeue it on its own authority."""
    restarts: int = attrs.field(default=0, metadata=must(count()))
    """How often the scheduler says it was put back."""
    hold_instance: int | None = attrs.field(
        default=None, metadata=must(count(1, EPOCH_BOUND), optional=True)
    )
    """Which hold is in place; None is none."""
    exit_code: int | None = attrs.field(
        default=None, kw_only=True, metadata=must(count(), optional=True)
    )
    gated: bool = attrs.field(default=False, kw_only=True, metadata=must(flag))
    """Whether it waits to be opened."""
    admin_held: bool = attrs.field(default=False, kw_only=True, metadata=must(flag))
    attempt: str | None = attrs.field(
        default=None, kw_only=True, metadata=must(some_text, optional=True)
    )
    """The DISPATCH_ATTEMPT of its current or last execution; None before the first."""
    epoch: int | None = attrs.field(
        default=None, kw_only=True, metadata=must(count(), optional=True)
    )
    """The DISPATCH_EPOCH of its current or last execution; None before the first."""
    nodes: Sequence[str] = attrs.field(default=(), kw_only=True, metadata=must(texts))
    """Where its current or last execution runs or ran, if that is told."""
    detail: str = attrs.field(default="", kw_only=True, metadata=must(any_text))
    """The scheduler's own words, for people."""

    @classmethod
    def unknown(cls, ref: Ref) -> Self:
        """Return what there is to say about an object that nobody knows."""
        return cls(ref=ref, state=State.UNKNOWN, cause=Cause.UNKNOWN)

    @property
    def known(self) -> bool:
        """Whether the scheduler knows the object at all."""
        return self.state is not State.UNKNOWN

    @property
    def ended(self) -> bool:
        """Whether the scheduler says that it ended; an unknown object did not end."""
        return self.state is State.ENDED

    @property
    def held(self) -> bool:
        """Whether a hold is in place, whoever placed it."""
        return self.hold_instance is not None or self.admin_held


@attrs.frozen(field_transformer=apply_rules)
class Cessation:
    """Whether the execution of an object has certainly ceased, and how that is known."""

    ceased: bool = attrs.field(metadata=must(flag))
    """False is "not known to have": it may run on, on a node that nobody reaches."""
    detail: str = attrs.field(default="", metadata=must(any_text))


@attrs.frozen(field_transformer=apply_rules)
class Support:
    """Whether something is supported, and how that is known."""

    value: Tristate = attrs.field(metadata=must(member(Tristate)))
    source: Source = attrs.field(default=Source.CONFIGURED, metadata=must(member(Source)))


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Declarations:
    """What a backend promises about the one cluster that it speaks to."""

    adapter: str = attrs.field(metadata=must(some_text))
    """The name that the adapter is registered under."""
    call_bound_s: float = attrs.field(metadata=must(seconds()))
    """A call has happened, or never will, so many seconds after its deadline."""
    gated: bool = attrs.field(default=True, metadata=must(flag))
    """Whether what is started waits to be opened; else `open` has nothing to lift."""
    unique_names: bool = attrs.field(default=False, metadata=must(flag))
    """Whether a second object of one name is refused, so that no duplicate can exist."""
    capabilities: Mapping[Capability, Support] = attrs.field(
        factory=dict, metadata=must(table(Capability, Support))
    )
    rules: Mapping[Action, Support] = attrs.field(
        factory=dict, metadata=must(table(Action, Support))
    )
    """What the adapter can express as a rule of recovery."""
    native: Mapping[Action, Support] = attrs.field(
        factory=dict, metadata=must(table(Action, Support))
    )
    """What the scheduler then does by itself; a yes needs a yes in `rules`."""

    @native.validator
    def _check_native(self, _: object, value: Mapping[Action, Support]) -> None:
        for action, support in value.items():
            rule_of = self.rules.get(action, _NOT_KNOWN).value
            if support.value is Tristate.YES and rule_of is not Tristate.YES:
                why = f"yes only if rules.{action} is yes, which is {rule_of}"
                raise refuse(InvalidError, f"native.{action}", support.value.value, why)

    def supports(self, capability: Capability) -> Tristate:
        """Return whether the cluster has *capability*; unknown where nothing is declared."""
        return self.capabilities.get(capability, _NOT_KNOWN).value


_NOT_KNOWN: Final = Support(Tristate.UNKNOWN, Source.ASSUMED)
