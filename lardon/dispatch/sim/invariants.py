"""What must hold after every step, whatever went wrong before."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from lardon.dispatch.enums import State
from lardon.dispatch.job_record import Operation
from lardon.dispatch.sim.faults import job_of

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.memory import MemoryEnvironment
    from lardon.dispatch.model import Ref
    from lardon.dispatch.sim.faults import CallLog
    from lardon.dispatch.sim.store import SimRecords
    from lardon.dispatch.sim.sweep_judge import SweepJudge

# What may still go out for a job that is to stop.
_MAY_FOLLOW_A_STOP = frozenset({Operation.STOP})


@attrs.define(eq=False)
class Watched:
    """What the judge remembers of one job."""

    before: JobRecord
    calls_at_stop: int | None = None
    """How many calls had been decided on when its stop was asked for."""


class Judge:
    """
    Looks at the truth after every step, and names the rule that is broken.

    It knows what the core cannot know: what really went out, and what really runs.
    """

    def __init__(
        self,
        records: SimRecords,
        env: MemoryEnvironment,
        log: CallLog,
        clock: Clock,
        sweeps: SweepJudge,
    ) -> None:
        self._records = records
        self._env = env
        self._log = log
        self._clock = clock
        self._sweeps = sweeps
        self._jobs: dict[str, Watched] = {}
        # The last records of the jobs whose records were removed.
        self._gone: dict[str, JobRecord] = {}
        self._epochs: dict[str, int] = {}
        self._broken: list[str] = []

    def submitted(self, record: JobRecord) -> None:
        """Watch over a job that was just taken down."""
        self._jobs[record.id] = Watched(record)

    def forgotten(self, job: str) -> None:
        """Watch no more over a job whose record is about to be removed."""
        record = self._records.truth(job)
        assert record is not None
        self._gone[job] = record
        del self._jobs[job]

    def called(self, who: str, job: str, operation: str, ref: Ref | None) -> None:
        """Judge a call that is about to go out."""
        record = self._records.truth(job) or self._gone.get(job)
        planned = operation != "stop" or _plans_to_stop(record, ref, who)
        if ref is not None and not planned and self._records.load(job) is None:
            self._note(self._sweeps.verdict(ref))
            return
        if record is None or record.lease is None or record.lease.holder != who:
            self._broken.append(f"{who} calls {operation} on a job whose lease is another's")
        if ref is not None and not planned:
            self._note(self._sweeps.verdict(ref))
        if operation == "stop":
            return
        for one in self._log.open_for(job, self._clock.wall()):
            if one.operation != "stop":
                self._broken.append(
                    f"{operation} was decided on while the outcome of {one.operation} was unknown"
                )

    def ran(self, job: str, ref: Ref) -> None:
        """Judge an execution that has just begun."""
        record = self._records.truth(job)
        if record is None:
            return  # of the objects that no record claims nothing is promised
        if record.outcome is not None:
            self._broken.append(f"object {ref.id} started after its job was over")
        elif record.hold is not None and record.hold.in_force_at is not None:
            self._broken.append(f"object {ref.id} started though its job is held")
        epoch = self._env.truth(ref).epoch or 0
        if epoch <= self._epochs.get(job, 0):
            self._broken.append(
                f"an execution has the epoch {epoch}, no larger than an earlier one"
            )
        self._epochs[job] = epoch

    def verdict(self) -> str | None:
        """Return a rule that is broken now, or None."""
        self._sweeps.look()
        for broken in (*self._broken, *self._looks()):
            return broken
        return None

    def left_over(self) -> str | None:
        """Return what is wrong with the end of a run, or None."""
        for job, watched in self._jobs.items():
            if watched.before.outcome is None:
                return f"job {job[-8:]} has no outcome: it is lost"
        for ref in self._env.refs():
            live = self._env.truth(ref).state in (State.PENDING, State.RUNNING)
            if live and job_of(ref.name) in self._jobs:
                return f"object {ref.id} of job {job_of(ref.name)[-8:]} was left behind"
        return None

    def _note(self, broken: str | None) -> None:
        if broken is not None:
            self._broken.append(broken)

    def _looks(self) -> Iterator[str]:
        for job, watched in self._jobs.items():
            running = self._env.executing(job)
            if len(running) > 1:
                yield f"{len(running)} executions of job {job[-8:]} run at once"
            record = self._records.truth(job)
            if record is None:
                yield f"job {job[-8:]} is not on record any more"
                continue
            if record is not watched.before:
                yield from self._change(record, watched)
                watched.before = record

    def _change(self, record: JobRecord, watched: Watched) -> Iterator[str]:
        before, now = watched.before, self._clock.wall()
        if record.version <= before.version:
            yield "a record went back"
        if before.outcome is not None and record.outcome != before.outcome:
            yield "an outcome changed"
        if record.outcome is not None and before.outcome is None:
            yield from self._ended(record, now)
        if record.spec.submission < before.spec.submission:
            yield "a submission number went back"
        if {one.attempt for one in before.attempts} - {one.attempt for one in record.attempts}:
            yield "an execution was forgotten"
        limits = {rule.cause: rule.limit for rule in record.policy.rules}
        for cause, limit in limits.items():
            if sum(one.cause is cause for one in record.recoveries) > limit:
                yield f"more than {limit} recoveries after {cause.value}"
        yield from self._stopped(record, watched)

    def _ended(self, record: JobRecord, now: datetime.datetime) -> Iterator[str]:
        for one in self._log.open_for(record.id, now):
            if one.operation != "stop":
                yield f"the job was over while the outcome of {one.operation} was unknown"
        live = (State.PENDING, State.RUNNING)
        for ref in self._env.refs():
            truth = self._env.truth(ref)
            if job_of(ref.name) == record.id and truth.state in live and not truth.gated:
                yield f"the job was over while its object {ref.id} could run"

    def _stopped(self, record: JobRecord, watched: Watched) -> Iterator[str]:
        if record.stop_asked_at is None:
            return
        if watched.calls_at_stop is None:
            watched.calls_at_stop = watched.before.calls_made
        for call in record.calls:
            if call.number > watched.calls_at_stop and call.operation not in _MAY_FOLLOW_A_STOP:
                yield f"{call.operation.value} was decided on after a stop"


def _plans_to_stop(record: JobRecord | None, ref: Ref | None, who: str) -> bool:
    """Whether the record says that *who* is to stop the object: it does before the call."""
    if record is None or record.lease is None or record.lease.holder != who:
        return False
    return any(one.operation is Operation.STOP and one.ref == ref for one in record.calls)
