"""The side of a dispatch that reads: it looks, and never changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import NotFoundError, UnsupportedError
from lardon.dispatch.parts import checked_backend, checked_clock, checked_records
from lardon.dispatch.sight import Sight
from lardon.dispatch.spi import CessationSignal, MultiFinder

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence

    from lardon.clock import Clock
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.model import Cessation, Observation, Ref
    from lardon.dispatch.records import Records
    from lardon.dispatch.spi import Backend


@attrs.frozen(kw_only=True)
class JobView:
    """A job as it is now: what is on record, and what the scheduler says."""

    record: JobRecord
    sight: Sight

    @property
    def kept(self) -> Observation | None:
        """What is seen of the one object that stands for the job, if there is one."""
        return self.sight.of(self.record.kept)

    @property
    def state(self) -> State:
        """`ENDED` once there is an outcome, else what the kept object's is, else pending."""
        if self.record.outcome is not None:
            return State.ENDED
        return State.PENDING if self.kept is None else self.kept.state


class Observer:
    """
    Reads jobs: their records, and their objects through any backend or read-only view.

    Any thread may call; every method blocks as long as the scheduler takes.

    Args:
        backend: What is asked.
        records: Where the jobs are kept.
        clock: What time it is.

    Raises:
        InvalidError: an argument is not what its place asks for; the error names it.

    """

    def __init__(self, backend: Backend, records: Records, clock: Clock) -> None:
        self._backend = checked_backend(backend)
        self._records = checked_records(records)
        self._clock = checked_clock(clock)

    def get(self, job: str) -> JobView:
        """
        Return the job of this id as it is now.

        Raises:
            NotFoundError: no record of this id.
            DispatchError: the scheduler did not answer.

        """
        record = self._records.load(job)
        if record is None:
            message = f"no job {job} is on record"
            raise NotFoundError(message, ref=job)
        return JobView(record=record, sight=self.look(record))

    def look(self, record: JobRecord) -> Sight:
        """Return what is seen of the job now; see `look_many`."""
        return self.look_many([record])[record.id]

    def look_many(self, records: Iterable[JobRecord]) -> dict[str, Sight]:
        """
        Return what is seen of each job now, by its id.

        One question is asked for the objects of all of them, and one more for each job whose
        objects have to be found by name: because one may have come that nobody knows, or
        because the known one ended or is gone.
        """
        looked_at = self._clock.wall()
        jobs = list(records)
        refs = [one.ref for record in jobs for one in record.objects if not one.over]
        seen = self._backend.observe_many(refs) if refs else {}
        return {record.id: self._complete(record, seen, looked_at) for record in jobs}

    def named(self, job: str) -> Sequence[Observation]:
        """
        Return what is seen of the objects that bear the name of the job *job*, on record or not.

        All of them where the backend can tell, else the newest. Raises `DispatchError` where
        the scheduler did not answer.
        """
        if isinstance(self._backend, MultiFinder):
            try:
                return self._backend.find_all(job)
            except UnsupportedError:
                pass
        newest = self._backend.find(job)
        return [] if newest is None else [newest]

    def _complete(
        self, record: JobRecord, seen: Mapping[Ref, Observation], looked_at: datetime.datetime
    ) -> Sight:
        mine = {one.ref: seen[one.ref] for one in record.objects if one.ref in seen}
        if _is_to_be_searched(record, mine):
            mine = {**mine, **{one.ref: one for one in self.named(record.id)}}
        over = {one.ref for one in record.objects if one.over}
        asked = (one.ref for one in mine.values() if _may_have_left_something(one))
        told = self._cessations(ref for ref in asked if ref not in over)
        return Sight(looked_at=looked_at, objects=tuple(mine.values()), cessations=told)

    def _cessations(self, refs: Iterable[Ref]) -> dict[Ref, Cessation]:
        if not isinstance(self._backend, CessationSignal):
            return {}
        try:
            return {ref: self._backend.ceased(ref) for ref in refs}
        except UnsupportedError:
            return {}


def _is_to_be_searched(record: JobRecord, seen: Mapping[Ref, Observation]) -> bool:
    """Whether objects of the job's name may be there that the record does not tell of."""
    known = record.object(record.kept)
    if known is None or known.opened_at is None or record.stop_asked_at is not None:
        return True  # it is about to be opened, or everything is about to be stopped
    kept = seen.get(known.ref)
    if kept is None or not kept.known or kept.ended or record.calls:
        return True
    return record.starts_settle_at is not None


def _may_have_left_something(one: Observation) -> bool:
    """Whether the end of its execution is worth a question: it ended, is gone, or is cut off."""
    cut_off = one.cause in (Cause.NODE_LOST, Cause.UNKNOWN)
    return one.ended or not one.known or cut_off
