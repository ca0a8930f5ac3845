"""The side of a dispatch that acts: it takes down wishes, and makes the calls that are due."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.answering import Answer, answered
from lardon.dispatch.errors import (
    ExpiredError,
    FinishedError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from lardon.dispatch.job_record import HoldWish, JobRecord, Operation, PendingCall
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Ref
from lardon.dispatch.observer import Observer
from lardon.dispatch.parts import checked_backend, checked_clock, checked_records, promises_of
from lardon.dispatch.records import RecordConflict, Records
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.sight import CALL_TIMEOUT_S, POLL_S, Terms
from lardon.dispatch.spi import Backend, CessationSignal, Holder, Requeuer
from lardon.governor.checks import refuse, shown

if TYPE_CHECKING:
    from lardon.clock import Clock

# Each conflict is somebody else's success with the same job; so many in a row are none, but a
# store that answers wrongly.
_MOST_CONFLICTS: Final = 1000


class Operator:
    """
    Acts on jobs: what people ask for goes into the records, and a supervisor's calls go out.

    `submit`, `stop`, `hold`, `release` and `allow_open` only write down what is wanted, so
    that a crash forgets nothing of it; a `Supervisor` then brings it about. Any thread may
    call. They block as long as the store takes, and never ask the scheduler.

    Args:
        backend: Who runs the jobs.
        records: Where they are kept.
        clock: What time it is; its `wall` is compared between processes.
        call_timeout_s: How long after a decision its call may still begin.
        poll_s: How often a job is looked at.

    Raises:
        InvalidError: an argument is not what its place asks for; the error names it.
        UnsupportedError: the backend neither gates what it starts nor refuses a name twice,
            so that a start whose answer is lost could run a job twice.

    """

    def __init__(
        self,
        backend: Backend,
        records: Records,
        clock: Clock,
        *,
        call_timeout_s: float = CALL_TIMEOUT_S,
        poll_s: float = POLL_S,
    ) -> None:
        promises = promises_of(checked_backend(backend))
        if not promises.gated and not promises.unique_names:
            message = f"{promises.adapter} has neither gates nor unique names: a start is not safe"
            raise UnsupportedError(message, operation="start")
        self.backend = backend
        self.records = checked_records(records)
        self.clock = checked_clock(clock)
        self.observer = Observer(backend, records, self.clock)
        """What a supervisor of this operator looks with."""
        self.terms = Terms(
            promises=promises,
            can_hold=isinstance(backend, Holder),
            can_requeue=isinstance(backend, Requeuer) and promises.gated,
            tells_cessation=isinstance(backend, CessationSignal),
            call_timeout_s=call_timeout_s,
            poll_s=poll_s,
        )

    # What people ask for

    def submit(
        self,
        spec: JobSpec,
        *,
        policy: RecoveryPolicy | None = None,
        label: str = "",
        position: int = 0,
        may_start: bool = True,
        may_open: bool = True,
        notes: Mapping[str, str] | None = None,
    ) -> JobRecord:
        """
        Take down a new job, and return its record.

        Args:
            spec: What is to run.
            policy: What follows its ends; None makes each end final.
            label: The name that its user knows it by.
            position: Its place in a line of jobs.
            may_start: Whether it may be submitted to the scheduler now.
            may_open: Whether its object may be opened now.
            notes: What its owner wants to find again with it.

        Raises:
            InvalidError: a job of this id is on record, it is no first submission, or a
                value breaks its rule.

        """
        if not isinstance(spec, JobSpec):
            raise refuse(InvalidError, "spec", spec, "a JobSpec")
        if spec.submission != 1:
            raise refuse(InvalidError, "spec.submission", spec.submission, "1 for a new job")
        record = JobRecord(
            spec=spec,
            policy=RecoveryPolicy() if policy is None else policy,
            label=label,
            position=position,
            may_start=may_start,
            may_open=may_open,
            notes={} if notes is None else notes,
            created_at=self.clock.wall(),
        )
        try:
            return self.records.save(record)
        except RecordConflict:
            raise refuse(InvalidError, "spec.id", spec.id, "an id that no other job has") from None

    def stop(self, job: str) -> JobRecord:
        """
        Ask for the end of a job; nothing of it is started or opened after this returned.

        It has ended once its record has an outcome. A job that has one keeps it.

        Raises:
            NotFoundError: no record of this id.

        """
        asked_at = self.clock.wall()
        return self.change(
            job,
            lambda record: (
                record
                if record.outcome is not None or record.stop_asked_at is not None
                else attrs.evolve(record, stop_asked_at=asked_at)
            ),
        )

    def hold(
        self,
        job: str,
        *,
        placed_by: str = "",
        until: datetime.datetime | None = None,
        reason: str = "",
    ) -> JobRecord:
        """
        Ask that the job does not start until it is released.

        It is in force once the record's ``hold.in_force_at`` says since when. An execution
        that runs goes on where the scheduler cannot hold it; then the next one is held.

        Raises:
            NotFoundError: no record of this id.
            FinishedError: it has an outcome.

        """
        asked_at = self.clock.wall()

        def wish(record: JobRecord) -> JobRecord:
            _check_unfinished(record)
            asked = HoldWish(
                instance=record.holds_asked + 1,
                asked_at=asked_at,
                placed_by=placed_by,
                until=until,
                reason=reason,
            )
            return attrs.evolve(record, hold=asked, holds_asked=asked.instance)

        return self.change(job, wish)

    def release(self, job: str) -> JobRecord:
        """Take back the hold of a job; one that is not held stays so. Errors as for `hold`."""

        def wish(record: JobRecord) -> JobRecord:
            _check_unfinished(record)
            return record if record.hold is None else attrs.evolve(record, hold=None)

        return self.change(job, wish)

    def vouch(self, job: str) -> JobRecord:
        """
        Say that no execution of an object that is gone can be running: a person looked.

        For a job that waits because the scheduler forgot its object and cannot tell whether
        it ceased. Objects that are still there are not touched.

        Raises:
            NotFoundError: no record of this id.

        """
        return self.change(
            job,
            lambda record: attrs.evolve(
                record, objects=[attrs.evolve(one, over=True) for one in record.objects]
            ),
        )

    def allow_open(self, job: str) -> JobRecord:
        """Let the object of a job be opened that was submitted with ``may_open=False``."""
        return self.change(
            job,
            lambda record: record if record.may_open else attrs.evolve(record, may_open=True),
        )

    def change(self, job: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """
        Replace a job's record by what *change* makes of it, and return what is stored then.

        *change* is called again when somebody else stored the job meanwhile.

        Raises:
            NotFoundError: no record of this id.
            RecordConflict: the store said so every time.

        """
        conflict: RecordConflict | None = None
        for _ in range(_MOST_CONFLICTS):
            record = self.records.load(job)
            if record is None:
                message = f"no job {job} is on record"
                raise NotFoundError(message, ref=job)
            wanted = change(record)
            if wanted == record:
                return record
            try:
                return self.records.save(wanted)
            except RecordConflict as again:
                conflict = again
        assert conflict is not None
        raise conflict

    # What a supervisor decided

    def perform(self, record: JobRecord, call: PendingCall) -> Answer:
        """
        Make one call that is pending in *record*, and return what it came to.

        It is not made after its deadline, nor once the lease it was decided under ran out:
        then somebody else may have decided meanwhile.
        """
        now = self.clock.wall()
        lease = record.lease
        ends = call.deadline if lease is None else min(call.deadline, lease.expires_at)
        if now >= ends:
            message = f"{call.operation.value} was not begun by {ends.isoformat()}"
            return Answer(at=now, error=ExpiredError(message, deadline=ends, started_at=now))
        try:
            ref = self._make(record, call)
        except Exception as error:  # noqa: BLE001  what a backend raises is an answer
            return Answer(at=self.clock.wall(), error=error)
        return Answer(at=self.clock.wall(), ref=ref)

    def note(self, record: JobRecord, call: PendingCall, answer: Answer) -> JobRecord:
        """
        Store what *call* came to, into whatever the record is by now; return it.

        Raises:
            NotFoundError: the record was removed meanwhile.

        """
        return self.change(record.id, lambda stored: answered(stored, call, answer, self.terms))

    def _make(self, record: JobRecord, call: PendingCall) -> Ref | None:
        if call.operation is Operation.START:
            spec = attrs.evolve(record.spec, submission=call.submission)
            return _ref_of(self.backend.start(spec), call)
        assert call.ref is not None
        match call.operation:
            case Operation.OPEN:
                self.backend.open(call.ref)
            case Operation.STOP:
                self.backend.stop(call.ref)
            case Operation.HOLD | Operation.RELEASE:
                self._hold(record, call, call.ref)
            case _:
                return self._requeue(call, call.ref)
        return None

    def _hold(self, record: JobRecord, call: PendingCall, ref: Ref) -> None:
        assert call.instance is not None
        if not isinstance(self.backend, Holder):
            raise _unsupported(call)
        wish = record.hold
        meta = HoldMeta(deadline=call.deadline, instance=call.instance)
        if call.operation is Operation.RELEASE:
            self.backend.release(ref, meta)
            return
        if wish is not None:
            meta = attrs.evolve(
                meta, placed_by=wish.placed_by, until=wish.until, reason=wish.reason
            )
        self.backend.hold(ref, meta)

    def _requeue(self, call: PendingCall, ref: Ref) -> Ref | None:
        if not isinstance(self.backend, Requeuer):
            raise _unsupported(call)
        meta = CallMeta(deadline=call.deadline)
        if call.operation is Operation.REQUEUE:
            return _ref_of(self.backend.requeue(ref, meta), call)
        self.backend.restore_requeue_bit(ref, meta)
        return None


def _ref_of(answer: object, call: PendingCall) -> Ref:
    """Return what a backend has returned; one that returns no ref has told nothing."""
    if not isinstance(answer, Ref):
        message = f"{call.operation.value} of the backend returned {shown(answer)}, which is no Ref"
        raise TypeError(message)
    return answer


def _unsupported(call: PendingCall) -> UnsupportedError:
    message = f"the backend has no {call.operation.value}"
    return UnsupportedError(message, operation=call.operation.value)


def _check_unfinished(record: JobRecord) -> None:
    if record.outcome is not None:
        message = f"job {record.id} ended already: {record.outcome.reason}"
        raise FinishedError(message, ref=record.kept)
