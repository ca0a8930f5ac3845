"""What follows the end of an execution: a recovery policy, applied to what is on record."""

from __future__ import annotations

import datetime
import math
from typing import Final

import attrs

from lardon.dispatch.enums import Action, Capability, Cause, Tristate
from lardon.dispatch.job_record import Attempt, JobRecord, ObjectRecord, Outcome, Recovery
from lardon.dispatch.model import Observation
from lardon.dispatch.recovery import RecoveryRule
from lardon.dispatch.sight import Sight, Terms

# An execution that is over so soon did not get to work: its node or its set-up is broken.
FAST_FAILURE_S: Final = 60.0
# How many such ends on one node are told apart from bad luck.
FAST_FAILURES_TOLD: Final = 2


def recovered(
    record: JobRecord, current: ObjectRecord, sight: Sight, terms: Terms
) -> tuple[JobRecord, str]:
    """
    Return the record with what follows the end of *current*, and one sentence on why.

    Afterwards it has an outcome, a recovery that is due, or neither: then it is too early to
    say, because the execution is not known to have ceased or the job is held.
    """
    cause, seen = _cause_of(record, current, sight), sight.of(current.ref)
    if cause is Cause.COMPLETED:
        return _over(record, sight, cause, seen, "it completed")
    if cause is Cause.HELD:
        return _resumed(record, current, sight)
    rule = record.policy.rule_for(cause)
    final = _no_recovery(record, rule, cause)
    if final is not None:
        return _over(record, sight, cause, seen, final)
    assert rule is not None
    if not current.over:
        return record, f"it ended with {cause.value}, and may run somewhere still"
    return _apply(record, rule, current, sight, terms)


def finished(
    record: JobRecord,
    sight: Sight,
    cause: Cause,
    reason: str,
    exit_code: int | None = None,
) -> JobRecord:
    """Return *record* with its outcome."""
    last = record.attempts[-1] if record.attempts else None
    outcome = Outcome(
        cause=cause,
        exit_code=exit_code,
        ended_at=sight.looked_at,
        executions=len(record.attempts),
        submissions=record.spec.submission,
        nodes=() if last is None else last.nodes,
        reason=reason,
    )
    return attrs.evolve(record, outcome=outcome, due=None)


def fast_failures(record: JobRecord) -> str:
    """Return a sentence on the node that ended several executions at once, or nothing."""
    by_node: dict[str, int] = {}
    for one in record.attempts:
        if _was_fast(record, one):
            for node in one.nodes:
                by_node[node] = by_node.get(node, 0) + 1
    worst = max(by_node, key=lambda node: by_node[node], default="")
    if not worst or by_node[worst] < FAST_FAILURES_TOLD:
        return ""
    return f"{by_node[worst]} executions ended within {FAST_FAILURE_S:g} s on node {worst}"


def _was_fast(record: JobRecord, one: Attempt) -> bool:
    if one.ended_at is None or one.cause in (None, Cause.COMPLETED, Cause.HELD, Cause.CANCELLED):
        return False
    known = record.object(one.ref)
    began = one.seen_at if known is None or known.opened_at is None else known.opened_at
    if len([other for other in record.attempts if other.ref == one.ref]) > 1:
        began = one.seen_at  # not the first execution since it was opened
    return (one.ended_at - began).total_seconds() <= FAST_FAILURE_S


def _cause_of(record: JobRecord, current: ObjectRecord, sight: Sight) -> Cause:
    """Return why *current* ended: what was known once counts, though its evidence faded."""
    if current.verdict is not None:
        return current.verdict
    seen = sight.of(current.ref)
    told = Cause.UNKNOWN if seen is None or seen.cause is None else seen.cause
    mine = [one for one in record.attempts if one.ref == current.ref]
    if told is Cause.UNKNOWN and mine and mine[-1].cause is not None:
        return mine[-1].cause
    return told


def _over(
    record: JobRecord, sight: Sight, cause: Cause, seen: Observation | None, reason: str
) -> tuple[JobRecord, str]:
    told = fast_failures(record) if cause is not Cause.COMPLETED else ""
    reason = f"{reason}; {told}" if told else reason
    exit_code = None if seen is None else seen.exit_code
    return finished(record, sight, cause, reason, exit_code), reason


def _no_recovery(record: JobRecord, rule: RecoveryRule | None, cause: Cause) -> str | None:
    """Return why nothing is tried after *cause*, or None."""
    if rule is None:
        return f"it ended with {cause.value}, for which the policy has no rule"
    if rule.action is Action.STOP:
        return f"it ended with {cause.value}, after which the policy stops"
    done = sum(one.cause is cause for one in record.recoveries)
    if done >= rule.limit:
        return f"it ended with {cause.value} again, after {done} of {rule.limit} recoveries"
    most = record.policy.max_executions
    if len(record.attempts) >= most:
        return f"it ended with {cause.value} in the last of {most} executions"
    if rule.ram_factor > 1 and record.spec.ram_bytes is None:
        return f"it ended with {cause.value}, and no ram_bytes is set that could be raised"
    return None


def _resumed(record: JobRecord, current: ObjectRecord, sight: Sight) -> tuple[JobRecord, str]:
    """Submit again what a hold has ended, once the hold is released."""
    if record.hold is not None:
        return record, "it is held"
    if not current.over:
        return record, "the hold ended it, and it may run somewhere still"
    now = sight.looked_at
    due = Recovery(
        cause=Cause.HELD,
        action=Action.RESTART,
        submission=record.spec.submission,
        decided_at=now,
        not_before=now,
    )
    return _restarting(record, due, record.spec.ram_bytes), "the hold that ended it was released"


def _apply(
    record: JobRecord, rule: RecoveryRule, current: ObjectRecord, sight: Sight, terms: Terms
) -> tuple[JobRecord, str]:
    time = 1 + sum(one.cause is rule.cause for one in record.recoveries)
    delay = datetime.timedelta(seconds=rule.delay_before(time))
    # A fresh start where the scheduler does not put back what ended, or more memory is due.
    puts_back = (
        rule.action is Action.REQUEUE
        and terms.can_requeue
        and terms.promises.supports(Capability.REQUEUE_ENDED) is Tristate.YES
        and rule.ram_factor <= 1
        and is_known(sight.of(current.ref))
    )
    due = Recovery(
        cause=rule.cause,
        action=Action.REQUEUE if puts_back else Action.RESTART,
        submission=record.spec.submission,
        decided_at=sight.looked_at,
        not_before=sight.looked_at + delay,
    )
    why = f"{due.action.value} {time} of {rule.limit} after {rule.cause.value}"
    told = fast_failures(record)
    why = f"{why}; {told}" if told else why
    if puts_back:
        kept, recoveries = current.ref, (*record.recoveries, due)
        return attrs.evolve(record, due=due, kept=kept, recoveries=recoveries), why
    ram_bytes = record.spec.ram_bytes
    if ram_bytes is not None:
        ram_bytes = math.ceil(ram_bytes * rule.ram_factor)
    record = attrs.evolve(record, recoveries=(*record.recoveries, due))
    return _restarting(record, due, ram_bytes), why


def _restarting(record: JobRecord, due: Recovery, ram_bytes: int | None) -> JobRecord:
    spec = attrs.evolve(record.spec, submission=record.spec.submission + 1, ram_bytes=ram_bytes)
    return attrs.evolve(record, spec=spec, due=due, kept=None, refusals=0, start_faults=0)


def is_known(seen: Observation | None) -> bool:
    """Whether the scheduler still knows the object."""
    return seen is not None and seen.known


def instead_of_requeue(record: JobRecord) -> JobRecord:
    """Return *record* with a fresh start due where a requeue was, because it was refused."""
    due = record.due
    if due is None or due.action is not Action.REQUEUE:
        return record
    return _restarting(record, attrs.evolve(due, action=Action.RESTART), record.spec.ram_bytes)
