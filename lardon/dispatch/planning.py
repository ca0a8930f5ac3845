"""
What is to be done next for one job: a function of its record, a sight of it, and the terms.

The rules, in the order in which they are asked:

1. What was seen goes into the record (`lardon.dispatch.absorbing`).
2. A job that has an outcome gets nothing but the end of late duplicates.
3. A stop that was asked for wins over everything else.
4. While the outcome of a call is unknown, nothing is decided, until it is seen or has settled.
5. Of several objects one is kept and the others are stopped, before anything is opened.
6. What the kept object needs: a hold, its release, its requeue bit cleared, its gate lifted.
7. What follows its end: the policy (`lardon.dispatch.recovering`).
"""

from __future__ import annotations

import datetime
from typing import Final, TypeAlias

import attrs

from lardon.dispatch.absorbing import absorb, is_live
from lardon.dispatch.answering import START_FAULTS
from lardon.dispatch.enums import Action, Cause, State
from lardon.dispatch.job_record import JobRecord, ObjectRecord, Operation, PendingCall
from lardon.dispatch.model import Observation, Ref
from lardon.dispatch.recovering import fast_failures, finished, recovered
from lardon.dispatch.sight import Sight, Terms


@attrs.frozen(kw_only=True)
class Plan:
    """What was decided: the record to store first, then at most one call to make."""

    record: JobRecord
    call: PendingCall | None = None
    """The call, which is in `record.calls` already, so that a crash does not forget it."""
    why: str
    """One sentence, for people."""
    wake_at: datetime.datetime | None = None
    """When to look again; None is never, because the job is over."""
    held: bool = False
    """Whether it waits for somebody to lift a hold."""


_Maybe: TypeAlias = Plan | None
# When to look whether a stop was heard: a scheduler takes about so long to end a job.
STOPPED_S: Final = 1.0


def plan(record: JobRecord, sight: Sight, terms: Terms) -> Plan:
    """
    Return what is to be done now for the job of *record*; a pure function.

    At most one call is planned: after its answer the next look tells the next.
    """
    record = absorb(record, sight, terms)
    if record.outcome is not None:
        return _tidy(record, sight, terms)
    if record.stop_asked_at is not None:
        return _stop(record, sight, terms)
    blocked = _blocked(record)
    if blocked is not None:
        return blocked
    record, keeper = _keep(record, sight)
    for step in (_strays, _retry_later):
        decided = step(record, sight, terms)
        if decided is not None:
            return decided
    if keeper is not None:
        return _tend(record, keeper, sight, terms)
    return _without_live(record, sight, terms)


def settle_time(
    now: datetime.datetime, terms: Terms
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the deadline of a call that is decided on *now*, and when it has settled."""
    deadline = now + datetime.timedelta(seconds=terms.call_timeout_s)
    return deadline, deadline + datetime.timedelta(seconds=terms.promises.call_bound_s)


# What comes of it


def _call(
    record: JobRecord,
    sight: Sight,
    terms: Terms,
    operation: Operation,
    why: str,
    ref: Ref | None = None,
    instance: int | None = None,
) -> Plan:
    deadline, settles_at = settle_time(sight.looked_at, terms)
    call = PendingCall(
        number=record.calls_made + 1,
        operation=operation,
        ref=ref,
        instance=instance,
        submission=record.spec.submission,
        begun_at=sight.looked_at,
        deadline=deadline,
        settles_at=settles_at,
        fence=max(1, record.fence),
    )
    record = attrs.evolve(record, calls=(*record.calls, call), calls_made=call.number)
    if operation is Operation.START:
        record = attrs.evolve(record, starts_settle_at=settles_at, due=None)
    known = record.object(ref)
    if operation is Operation.OPEN and known is not None:
        # From here on it may run, whatever becomes of the call.
        record = record.with_object(attrs.evolve(known, opened_at=sight.looked_at))
    return Plan(record=record, call=call, why=why, wake_at=sight.looked_at)


def _wait(
    record: JobRecord, sight: Sight, terms: Terms, why: str, until: datetime.datetime | None = None
) -> Plan:
    poll = sight.looked_at + datetime.timedelta(seconds=terms.poll_s)
    return Plan(record=record, why=why, wake_at=poll if until is None else until)


def _after(moment: datetime.datetime) -> datetime.datetime:
    """Return the first time at which a look begins after *moment*."""
    return moment + datetime.timedelta(microseconds=1)


# 2 and 3: over, or to be over


def _tidy(record: JobRecord, sight: Sight, terms: Terms) -> Plan:
    for one in record.objects:
        seen = sight.of(one.ref)
        if is_live(seen) and one.opened_at is None:
            return _stop_object(record, sight, terms, one.ref, "a duplicate that came late")
    if record.closed:
        return Plan(record=record, why="it is over")
    return _wait(record, sight, terms, "a start may still make a duplicate")


def _stop(record: JobRecord, sight: Sight, terms: Terms) -> Plan:
    for one in record.objects:
        if is_live(sight.of(one.ref)):
            return _stop_object(record, sight, terms, one.ref, "it is to stop")
    blocked = _blocked(record)
    if blocked is not None:
        return blocked
    for one in record.objects:
        seen = sight.of(one.ref)
        if not one.over and (seen is None or not seen.known):
            why = f"object {one.ref.id} is gone, and may run somewhere still"
            return _wait(record, sight, terms, why)
    completed = any(one.cause is Cause.COMPLETED for one in record.attempts)
    cause = Cause.COMPLETED if completed else Cause.CANCELLED
    why = "it had completed when it was stopped" if completed else "it was stopped on request"
    return _finish(record, sight, cause, why, terms)


def _stop_object(record: JobRecord, sight: Sight, terms: Terms, ref: Ref, why: str) -> Plan:
    known = record.object(ref)
    assert known is not None
    asked = any(one.operation is Operation.STOP and one.ref == ref for one in record.calls)
    if known.stop_asked_at is not None:
        # Looked at soon at first, then less and less often, and asked for again at last.
        since_s = (sight.looked_at - known.stop_asked_at).total_seconds()
        if asked or since_s < terms.poll_s:
            pause_s = min(max(since_s, STOPPED_S), terms.poll_s)
            soon = sight.looked_at + datetime.timedelta(seconds=pause_s)
            return _wait(record, sight, terms, f"object {ref.id} is being stopped: {why}", soon)
    record = record.with_object(attrs.evolve(known, stop_asked_at=sight.looked_at))
    return _call(record, sight, terms, Operation.STOP, why, ref)


def _finish(record: JobRecord, sight: Sight, cause: Cause, why: str, terms: Terms) -> Plan:
    record = finished(record, sight, cause, why)
    if record.closed:
        return Plan(record=record, why=why)
    return _wait(record, sight, terms, why)


# 4: nothing on an unknown outcome


def _blocked(record: JobRecord) -> _Maybe:
    unsettled = record.unsettled
    if not unsettled:
        return None
    last = max(call.settles_at for call in unsettled)
    names = ", ".join(call.operation.value for call in unsettled)
    why = f"the outcome of {names} is not known, and settles at {last.isoformat()}"
    return Plan(record=record, why=why, wake_at=_after(last))


# 5: one object


def _keep(record: JobRecord, sight: Sight) -> tuple[JobRecord, Observation | None]:
    """Choose the object that stands for the job, and keep to the choice."""
    live = [seen for one in record.objects if is_live(seen := sight.of(one.ref))]
    kept = sight.of(record.kept)
    free = [one for one in live if one is not None and not one.gated]
    if is_live(kept) and (kept in free or not free):
        return attrs.evolve(record, due=None), kept
    # One that may run already, before one that has to be opened. A duplicate of what was
    # opened once comes too late: it would run with an epoch that is used up.
    fresh = [one for one in live if one is not None and not _was_used(record, one.ref)]
    chosen = next(iter(free or fresh), None)
    if chosen is None:
        return record, None
    return attrs.evolve(record, kept=chosen.ref, due=None), chosen


def _was_used(record: JobRecord, ref: Ref) -> bool:
    """Whether another object of the same submission was opened before, by whomever, or ran."""
    known = record.object(ref)
    used = {
        one.submission for one in record.objects if one.opened_at is not None and one.ref != ref
    }
    # One that somebody else opened may be seen for the first time when it has ended. A requeue
    # may have given the object itself another submit time since.
    used |= {one.submission for one in record.attempts if one.ref.id != ref.id}
    return known is not None and known.submission in used


def _strays(record: JobRecord, sight: Sight, terms: Terms) -> _Maybe:
    for one in record.objects:
        if one.ref != record.kept and is_live(sight.of(one.ref)):
            return _stop_object(
                record, sight, terms, one.ref, "a duplicate of the one that is kept"
            )
    return None


def _retry_later(record: JobRecord, sight: Sight, terms: Terms) -> _Maybe:
    if record.retry_at is None or record.retry_at <= sight.looked_at:
        return None
    return _wait(record, sight, terms, f"refused: {record.last_refusal}", record.retry_at)


# 6: what the kept object needs


def _tend(record: JobRecord, seen: Observation, sight: Sight, terms: Terms) -> Plan:
    for step in (_holding, _bit, _wedged, _opening):
        decided = step(record, seen, sight, terms)
        if decided is not None:
            return decided
    return _wait(record, sight, terms, f"it is {seen.state.value.lower()}")


def _holding(record: JobRecord, seen: Observation, sight: Sight, terms: Terms) -> _Maybe:
    hold, there = record.hold, seen.hold_instance
    if not terms.can_hold:
        return None
    if hold is None and there is not None:
        why = f"hold {there} was released"
        return _call(record, sight, terms, Operation.RELEASE, why, seen.ref, there)
    if hold is None or there == hold.instance:
        return None
    if seen.state is State.RUNNING and hold.refused_for == seen.attempt:
        return None  # refused already: it holds the next one
    why = f"hold {hold.instance} was asked for"
    return _call(record, sight, terms, Operation.HOLD, why, seen.ref, hold.instance)


def _bit(record: JobRecord, seen: Observation, sight: Sight, terms: Terms) -> _Maybe:
    if not (seen.requeue_bit and terms.can_requeue):
        return None
    why = "its requeue bit is set, so that the scheduler might start it by itself"
    return _call(record, sight, terms, Operation.RESTORE_REQUEUE_BIT, why, seen.ref)


def _wedged(record: JobRecord, seen: Observation, sight: Sight, terms: Terms) -> _Maybe:
    """End an object that counts as running on a lost node, once nothing runs there."""
    if seen.state is not State.RUNNING or seen.cause not in (Cause.NODE_LOST, Cause.UNKNOWN):
        return None
    told = sight.cessations.get(seen.ref)
    if told is None or not told.ceased:
        return _wait(record, sight, terms, "its node is lost, and may run it still")
    known = record.object(seen.ref)
    assert known is not None
    record = record.with_object(attrs.evolve(known, verdict=Cause.NODE_LOST))
    return _stop_object(record, sight, terms, seen.ref, f"its node is lost ({told.detail})")


def _opening(record: JobRecord, seen: Observation, sight: Sight, terms: Terms) -> _Maybe:
    if not seen.gated:
        return None
    if record.hold is not None or seen.held:
        return attrs.evolve(_wait(record, sight, terms, "it is held"), held=True)
    if not record.may_open:
        return _wait(record, sight, terms, "others are opened before it")
    unclear = [one for one in record.objects if one.ref != seen.ref and not one.over]
    if unclear:
        why = f"object {unclear[0].ref.id} may run somewhere still"
        return _wait(record, sight, terms, why)
    return _call(record, sight, terms, Operation.OPEN, "it is the only one", seen.ref)


# 7: no object is live


def _without_live(record: JobRecord, sight: Sight, terms: Terms) -> Plan:
    current = _current(record)
    if record.due is None and current is not None:
        if not _final(current, sight):
            why = f"object {current.ref.id} is gone, and may run somewhere still"
            return _wait(record, sight, terms, why)
        record, why = recovered(record, current, sight, terms)
        if record.outcome is not None:
            return _finish_now(record, sight, terms, why)
        if record.due is None:
            return _wait(record, sight, terms, why)
    return _begin(record, sight, terms)


def _finish_now(record: JobRecord, sight: Sight, terms: Terms, why: str) -> Plan:
    if record.closed:
        return Plan(record=record, why=why)
    return _wait(record, sight, terms, why)


def _current(record: JobRecord) -> ObjectRecord | None:
    """Return what the current submission came to: the object kept, or one that ran, or any."""
    kept = record.object(record.kept)
    if kept is not None:
        return kept
    mine = [one for one in record.objects if one.submission == record.spec.submission]
    ran = {one.ref.id for one in record.attempts}
    found = [one for one in mine if one.ref.id in ran] or mine
    return found[-1] if found else None


def _final(current: ObjectRecord, sight: Sight) -> bool:
    seen = sight.of(current.ref)
    return current.over or (seen is not None and seen.ended)


def _begin(record: JobRecord, sight: Sight, terms: Terms) -> Plan:
    """Submit what is due, or put it back; a held job is left alone."""
    if record.hold is not None:
        return attrs.evolve(_wait(record, sight, terms, "it is held"), held=True)
    if not record.may_start:
        return _wait(record, sight, terms, "it waits for its turn")
    due = record.due
    early = _too_early(record, sight, terms)
    if early is not None:
        return early
    if due is not None and due.action is Action.REQUEUE:
        return _call(record, sight, terms, Operation.REQUEUE, f"after {due.cause}", record.kept)
    if due is None and record.start_faults >= START_FAULTS:
        why = (
            f"its start raised {record.start_faults} times what no backend should, and no object "
            f"of it came: {record.last_refusal}"
        )
        return _finish(record, sight, Cause.UNKNOWN, why, terms)
    why = "it was submitted" if due is None else f"again, after {due.cause.value}"
    return _call(record, sight, terms, Operation.START, why)


def _too_early(record: JobRecord, sight: Sight, terms: Terms) -> _Maybe:
    """Return the wait for what has to pass before anything is started again, or None."""
    due = record.due
    if due is not None and due.not_before > sight.looked_at:
        why = f"{due.action.value} after {due.cause.value} waits until {due.not_before.isoformat()}"
        told = fast_failures(record)
        why = f"{why}; {told}" if told else why
        return _wait(record, sight, terms, why, due.not_before)
    unclear = [one for one in record.objects if not one.over]
    if unclear:
        why = f"object {unclear[0].ref.id} may run somewhere still"
        return _wait(record, sight, terms, why)
    if record.starts_settle_at is not None and not terms.promises.unique_names:
        # It would bear the same name, and could not be told from what is started now.
        why = "a duplicate of an earlier start may still come"
        return _wait(record, sight, terms, why, _after(record.starts_settle_at))
    return None
