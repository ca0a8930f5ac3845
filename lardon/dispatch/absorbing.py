"""What was seen of a job goes into its record, before anything is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.job_record import (
    Attempt,
    JobRecord,
    ObjectRecord,
    Operation,
    PendingCall,
)
from lardon.dispatch.model import Observation
from lardon.dispatch.sight import Sight, Terms

_WHY_PENDING_AGAIN: Final = (Cause.PREEMPTED, Cause.REQUEUED)


def absorb(record: JobRecord, sight: Sight, terms: Terms) -> JobRecord:
    """
    Return *record* with all in it that *sight* shows; a pure function, nothing is decided.

    Objects nobody claimed are claimed, executions and their ends are noted, and a pending
    call whose outcome can be seen, or that had settled before the look, is pending no more.
    """
    for seen in sight.objects:
        if record.object(seen.ref) is None:
            record = _claim(record, seen, sight, terms)
    for known in record.objects:
        seen_now = sight.of(known.ref)
        if seen_now is not None:
            updated = _updated(known, seen_now, sight, terms)
            record = _note_attempt(record.with_object(updated), updated, seen_now, sight)
    for call in record.calls:
        if _settled(record, call, sight):
            record = _nothing_came(record.without_call(call.number), call, terms)
    settles_at = record.starts_settle_at
    if settles_at is not None and sight.looked_at > settles_at:
        record = attrs.evolve(record, starts_settle_at=None)
    return _note_hold(record, sight)


def is_live(seen: Observation | None) -> bool:
    """Whether the object is there and has not ended."""
    return seen is not None and seen.known and not seen.ended


def _claim(record: JobRecord, seen: Observation, sight: Sight, terms: Terms) -> JobRecord:
    """Take up an object of the job's name that is not in its record."""
    before = _predecessor(record, seen, sight)
    if before is not None:
        # A requeue gave the same object another submit time.
        renewed = attrs.evolve(before, ref=seen.ref, over=False)
        kept = seen.ref if record.kept == before.ref else record.kept
        return attrs.evolve(record.with_object(renewed, before.ref), kept=kept)
    free = not seen.gated or not terms.promises.gated
    claimed = ObjectRecord(
        ref=seen.ref,
        submission=_submission_of_the_last_start(record),
        claimed_at=sight.looked_at,
        opened_at=sight.looked_at if free else None,
    )
    started = [call for call in record.calls if call.operation is Operation.START]
    for call in started:
        record = record.without_call(call.number)
    return attrs.evolve(record, objects=(*record.objects, claimed))


def _submission_of_the_last_start(record: JobRecord) -> int:
    """Return which submission an object that was not known comes from."""
    for call in record.calls:
        if call.operation is Operation.START:
            return call.submission
    # A duplicate of one that is known: of those before it none can come any more.
    return max((one.submission for one in record.objects), default=record.spec.submission)


def _nothing_came(record: JobRecord, call: PendingCall, terms: Terms) -> JobRecord:
    """
    Return *record* after a call that has settled; a start that nobody saw is given up.

    Where nothing is gated its object may have run and been deleted before anybody looked, so
    its number is not used again: every execution has an epoch of its own.
    """
    if call.operation is not Operation.START or terms.promises.gated:
        return record
    spec = attrs.evolve(record.spec, submission=call.submission + 1)
    return attrs.evolve(record, spec=spec)


def _predecessor(record: JobRecord, seen: Observation, sight: Sight) -> ObjectRecord | None:
    if not seen.restarts:
        return None  # it is new: its id may have been another object's
    for known in record.objects:
        now = sight.of(known.ref)
        gone = now is None or not now.known
        same = (known.ref.name, known.ref.id) == (seen.ref.name, seen.ref.id)
        if same and gone and known.ref.submitted_at <= seen.ref.submitted_at:
            return known
    return None


def _updated(known: ObjectRecord, seen: Observation, sight: Sight, terms: Terms) -> ObjectRecord:
    opened_at = known.opened_at
    if opened_at is None and is_live(seen) and not seen.gated:
        opened_at = sight.looked_at  # somebody else opened it
    if is_live(seen):
        return attrs.evolve(known, opened_at=opened_at, over=False)
    over = known.over or _certainly_over(known, seen, sight, terms)
    return attrs.evolve(known, opened_at=opened_at, over=over)


def _certainly_over(known: ObjectRecord, seen: Observation, sight: Sight, terms: Terms) -> bool:
    """Whether no execution of an object that ended or is gone can be running."""
    if known.opened_at is None and seen.attempt is None and terms.promises.gated:
        return True  # it never ran: the gate was never lifted
    if terms.tells_cessation:
        told = sight.cessations.get(known.ref)
        return told is not None and told.ceased
    return seen.ended


def _note_attempt(
    record: JobRecord, known: ObjectRecord, seen: Observation, sight: Sight
) -> JobRecord:
    """Note the execution that is seen, and the end of those that it follows."""
    attempts = list(record.attempts)
    if seen.attempt is None:
        gone = known.over and not seen.known
        return _all_ended(record, known, sight) if gone else record
    names = [one.attempt for one in attempts]
    if seen.attempt not in names:
        attempts = [
            attrs.evolve(one, ended_at=sight.looked_at, cause=one.cause or Cause.REQUEUED)
            if one.ref.id == seen.ref.id and one.ended_at is None
            else one
            for one in attempts
        ]
        attempts.append(
            Attempt(
                attempt=seen.attempt,
                epoch=seen.epoch,
                submission=known.submission,
                ref=seen.ref,
                seen_at=sight.looked_at,
                nodes=seen.nodes,
            )
        )
        names.append(seen.attempt)
    place = names.index(seen.attempt)
    attempts[place] = _ended(attempts[place], seen, sight)
    return attrs.evolve(record, attempts=attempts)


def _all_ended(record: JobRecord, known: ObjectRecord, sight: Sight) -> JobRecord:
    """Note the end of the executions of an object that nobody knows any more."""
    attempts = [
        attrs.evolve(one, ended_at=sight.looked_at, cause=one.cause or Cause.UNKNOWN)
        if one.ref == known.ref and one.ended_at is None
        else one
        for one in record.attempts
    ]
    return attrs.evolve(record, attempts=attempts)


def _ended(attempt: Attempt, seen: Observation, sight: Sight) -> Attempt:
    if seen.state is State.RUNNING:
        # A wedged execution keeps its cause; one whose node came back has none any more.
        faded = seen.cause is Cause.UNKNOWN and attempt.cause is not None
        return attempt if faded else attrs.evolve(attempt, cause=seen.cause)
    told = seen.cause
    if seen.state is State.PENDING and told not in _WHY_PENDING_AGAIN:
        told = Cause.REQUEUED  # it says why the next one waits
    # What was known once counts, though its evidence faded since.
    known = attempt.ended_at is not None and attempt.cause not in (None, Cause.UNKNOWN)
    cause = attempt.cause if known or told in (None, Cause.UNKNOWN) else told
    return attrs.evolve(
        attempt,
        cause=cause or told,
        exit_code=seen.exit_code if attempt.exit_code is None else attempt.exit_code,
        ended_at=attempt.ended_at or sight.looked_at,
    )


def _settled(record: JobRecord, call: PendingCall, sight: Sight) -> bool:
    """Whether the outcome of *call* is seen, or nothing can come of it any more."""
    if sight.looked_at > call.settles_at:
        return True
    known, seen = record.object(call.ref), sight.of(call.ref)
    if known is None or seen is None:
        return False
    if call.operation is Operation.STOP:
        return seen.ended or known.over
    # That the object ended is no outcome: the call may still find it revived.
    return seen.known and _IS_SEEN[call.operation](call, seen)


_IS_SEEN: Final[Mapping[Operation, Callable[[PendingCall, Observation], bool]]] = {
    # An object that comes of a start is claimed, which settles the start.
    Operation.START: lambda _call, _seen: False,
    Operation.OPEN: lambda _call, seen: seen.attempt is not None or not (seen.gated or seen.ended),
    Operation.HOLD: lambda call, seen: seen.hold_instance == call.instance,
    Operation.RELEASE: lambda call, seen: not seen.ended and seen.hold_instance != call.instance,
    # It has three steps, and what is seen may be the work of the second.
    Operation.REQUEUE: lambda _call, _seen: False,
    Operation.RESTORE_REQUEUE_BIT: lambda _call, seen: not (seen.ended or seen.requeue_bit),
}


def _note_hold(record: JobRecord, sight: Sight) -> JobRecord:
    """Note since when a hold that was asked for is in force, or that it is not."""
    hold = record.hold
    if hold is None:
        return record
    can_run = [
        one
        for one in record.objects
        if one.opened_at is not None
        and not one.over
        and not _is_held(sight.of(one.ref), hold.instance)
    ]
    if can_run or record.unsettled:
        return attrs.evolve(record, hold=attrs.evolve(hold, in_force_at=None))
    since = hold.in_force_at or sight.looked_at
    return attrs.evolve(record, hold=attrs.evolve(hold, in_force_at=since))


def _is_held(seen: Observation | None, instance: int) -> bool:
    return seen is not None and seen.state is State.PENDING and seen.hold_instance == instance
