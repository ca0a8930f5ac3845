"""What the answer of a call does to a job's record."""

from __future__ import annotations

import datetime
from typing import Final

import attrs

from lardon.dispatch.enums import Cause
from lardon.dispatch.errors import (
    DispatchError,
    DuplicateError,
    ExpiredError,
    OutcomeUnknown,
)
from lardon.dispatch.job_record import JobRecord, ObjectRecord, Operation, PendingCall
from lardon.dispatch.model import Ref
from lardon.dispatch.recovering import finished, instead_of_requeue
from lardon.dispatch.sight import Sight, Terms
from lardon.governor.checks import described

# A scheduler that refuses a job so often in a row does not want it.
START_REFUSALS: Final = 5
# A start that raises so often in a row what no backend should is no passing trouble: the adapter
# is broken. Nobody knows what such a start has done, so each is waited for until it has settled,
# about a minute with the usual times: a process that is out of files has five to recover in.
START_FAULTS: Final = 5


@attrs.frozen(kw_only=True)
class Answer:
    """What a call came to: it was done, or there is the error that says what is known."""

    at: datetime.datetime
    """When it came."""
    ref: Ref | None = None
    """What a start or a requeue returned."""
    error: BaseException | None = None

    @property
    def unknown(self) -> bool:
        """Whether the call may have happened; an error that no backend should raise may be too."""
        if self.error is None:
            return False
        return isinstance(self.error, OutcomeUnknown) or not isinstance(self.error, DispatchError)


def answered(record: JobRecord, call: PendingCall, answer: Answer, terms: Terms) -> JobRecord:
    """
    Return *record* with the answer of *call* in it; a pure function.

    An answer that says nothing keeps the call pending, until it is seen or has settled. One
    whose call is not pending any more, or was decided on under an older lease, is ignored.
    """
    pending = record.call(call.number)
    if pending is None or pending.fence != record.fence:
        return record
    if answer.unknown:
        return _still_unknown(record, pending, answer)
    record = record.without_call(call.number)
    if answer.error is None:
        return _done(record, pending, answer, terms)
    return _refused(record, pending, answer, terms)


def _still_unknown(record: JobRecord, call: PendingCall, answer: Answer) -> JobRecord:
    told = getattr(answer.error, "settles_at", None)
    settles_at = call.settles_at if told is None else max(told, call.settles_at)
    calls = tuple(
        attrs.evolve(one, settles_at=settles_at) if one.number == call.number else one
        for one in record.calls
    )
    record = attrs.evolve(record, calls=calls)
    if call.operation is not Operation.START:
        return record
    record = attrs.evolve(record, starts_settle_at=settles_at)
    if isinstance(answer.error, OutcomeUnknown):
        return attrs.evolve(record, start_faults=0)
    assert answer.error is not None
    told = described(answer.error)
    return attrs.evolve(record, start_faults=record.start_faults + 1, last_refusal=told)


def _done(record: JobRecord, call: PendingCall, answer: Answer, terms: Terms) -> JobRecord:
    record = attrs.evolve(record, retry_at=None, last_refusal="")
    match call.operation:
        case Operation.START:
            return _started(attrs.evolve(record, refusals=0, start_faults=0), call, answer, terms)
        case Operation.REQUEUE:
            return _put_back(record, call, answer)
        case _:
            return record  # the next look tells


def _started(record: JobRecord, call: PendingCall, answer: Answer, terms: Terms) -> JobRecord:
    if answer.ref is None or record.object(answer.ref) is not None:
        return record
    started = ObjectRecord(
        ref=answer.ref,
        submission=call.submission,
        claimed_at=answer.at,
        opened_at=None if terms.promises.gated else answer.at,
    )
    return attrs.evolve(record, objects=(*record.objects, started))


def _put_back(record: JobRecord, call: PendingCall, answer: Answer) -> JobRecord:
    known = record.object(call.ref)
    if known is None or answer.ref is None:
        return record
    record = record.with_object(attrs.evolve(known, ref=answer.ref, over=False), known.ref)
    return attrs.evolve(record, kept=answer.ref, due=None)


def _refused(record: JobRecord, call: PendingCall, answer: Answer, terms: Terms) -> JobRecord:
    """Note a call that certainly changed nothing, and when to try again."""
    assert answer.error is not None
    if call.operation is Operation.START and not terms.promises.unique_names:
        # It was the only start of which anything could come.
        record = attrs.evolve(record, starts_settle_at=None)
    expired = isinstance(answer.error, ExpiredError)
    why = f"{call.operation.value}: {described(answer.error)}"
    if call.operation is Operation.START and not expired:
        record = attrs.evolve(record, start_faults=0)
    match call.operation:
        case Operation.HOLD if record.hold is not None and not expired:
            refused_for = record.attempts[-1].attempt if record.attempts else None
            hold = attrs.evolve(record.hold, refused_for=refused_for)
            record = attrs.evolve(record, hold=hold)
        case Operation.REQUEUE if not expired:
            record = instead_of_requeue(record)
        case Operation.START if not (expired or isinstance(answer.error, DuplicateError)):
            # A name that is taken is an earlier start of ours, which the next look finds.
            record = attrs.evolve(record, refusals=record.refusals + 1)
            if record.refusals >= START_REFUSALS:
                sight = Sight(looked_at=answer.at)
                reason = f"the scheduler refused it {record.refusals} times: {why}"
                return finished(record, sight, Cause.UNKNOWN, reason)
        case _:
            pass
    pause = 0.0 if expired else terms.poll_s * 2 ** min(record.refusals, START_REFUSALS)
    retry_at = answer.at + datetime.timedelta(seconds=pause)
    return attrs.evolve(record, retry_at=retry_at, last_refusal=why)
