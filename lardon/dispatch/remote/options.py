"""What a remote pool and its tasks can be told besides what they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.rules import apply_rules, must, seconds
from lardon.dispatch.sight import CALL_TIMEOUT_S, POLL_S
from lardon.dispatch.supervisor import LEASE_S
from lardon.governor.checks import refuse

# A network file system shows a new file to others after so long, at the latest: the usual
# ceiling of its attribute cache (acdirmax of nfs) is 60 s.
RESULT_PATIENCE_S: Final = 60.0


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class PoolTimings:
    """How patient a pool is, in seconds of its clock."""

    poll_s: float = attrs.field(default=POLL_S, metadata=must(seconds(above=0)))
    """How often all jobs are looked at."""
    call_timeout_s: float = attrs.field(default=CALL_TIMEOUT_S, metadata=must(seconds(above=0)))
    """How long after a decision its call may still begin."""
    lease_s: float = attrs.field(default=LEASE_S, metadata=must(seconds(above=0)))
    """How long after a crash another process may not act on a job."""
    result_patience_s: float = attrs.field(default=RESULT_PATIENCE_S, metadata=must(seconds()))
    """How long the result of a completed function may take to appear."""
    unmatched_grace_s: float | None = attrs.field(
        default=None, metadata=must(seconds(), optional=True)
    )
    """How long an object is without a record before it counts; see `Supervisor`."""


def check_timings(timings: object) -> None:
    """Raise `InvalidError` for what is no `PoolTimings`."""
    if not isinstance(timings, PoolTimings):
        raise refuse(InvalidError, "timings", timings, "a PoolTimings")


class TaskOptions(TypedDict, total=False):
    """What a task tells the scheduler besides its estimate; see `JobSpec`."""

    nodes: int
    """How many nodes, each of which gets what the estimate says; 1 by default."""
    time_limit_s: float | None
    directory: str | None
    environment: Mapping[str, str]
    extensions: Mapping[str, Mapping[str, str]]


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `InvalidError` for an option that there is not; what a job needs is no option."""
    if not isinstance(options, Mapping):
        raise refuse(InvalidError, "options", options, "a mapping of TaskOptions")
    known = ", ".join(TaskOptions.__annotations__)
    for name, value in options.items():
        if name not in TaskOptions.__annotations__:
            raise refuse(InvalidError, name, value, f"one of the options {known}")


def check_policy(policy: RecoveryPolicy | None) -> None:
    """Raise `InvalidError` for what is no policy, or asks for more memory than was reserved."""
    if policy is not None and not isinstance(policy, RecoveryPolicy):
        raise refuse(InvalidError, "policy", policy, "a RecoveryPolicy")
    for rule in () if policy is None else policy.rules:
        if rule.ram_factor > 1:
            why = "1 in a pool, whose reservations do not grow: raise the estimate and submit again"
            raise refuse(InvalidError, "policy.rules.ram_factor", rule.ram_factor, why)


@attrs.frozen(kw_only=True)
class RemoteStatistics:
    """How many tasks of a pool are where, and what they hold."""

    waiting: int
    """In line."""
    admitted: int
    """With the scheduler, or about to be."""
    done: int
    """With a handle that is done."""
    reserved_ram_bytes: int
    reserved_cpus: int
    waiter_error: str | None
    """
    What the last turn of the waiter failed with, or which record it could not read: it tries
    again. In a pool that has ended by itself: what ended it.
    """
