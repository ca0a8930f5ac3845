"""Brings about what the records ask for: one look, one decision and one call at a time."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.errors import DispatchError, InvalidError, NotFoundError
from lardon.dispatch.job_record import JobRecord, Lease
from lardon.dispatch.parts import checked_operator
from lardon.dispatch.planning import Plan, plan
from lardon.dispatch.records import RecordConflict, StoreAway
from lardon.dispatch.rules import seconds, some_text
from lardon.dispatch.sweeping import Sweeper

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.model import Observation
    from lardon.dispatch.sight import Sight

_log: Final = logging.getLogger("lardon.dispatch")

# Longer than a few looks, so that one slow answer of a scheduler loses no job.
LEASE_S: Final = 120.0
# Clocks of one site that NTP keeps are far closer.
SKEW_S: Final = 5.0
# A job that needs more calls at one time than this is looked at again at the next turn.
_MOST_STEPS: Final = 16


class Supervisor:
    """
    Applies recovery policies: watches the jobs on record and does what `plan` decides.

    Several may serve the same records, in one process or in many. Two of them never act on
    one job at one time: who acts holds the job's lease, which is part of its record, and a
    record is only replaced by one who has seen the last. What another began and did not
    finish is in the record too, and is waited for until it has settled.

    `turn` is called from one thread at a time, and blocks as long as the scheduler takes.

    Args:
        name: Names this supervisor among all that ever serve these records.
        operator: Who makes the calls.
        unmatched: What to do with objects that no record claims, a member or its text.
            `UnmatchedPolicy.STOP` is only for an account of which every job is in this store.
        unmatched_grace_s: For how many seconds an object has to be seen without a record
            before it is logged or stopped; None is the call bound, and at least a minute.
        lease_s: How long a lease lasts that is not renewed.
        skew_s: How far the clocks of two supervisors may be apart: a lease is taken over so
            long after it ran out.

    Raises:
        InvalidError: the name is empty, the operator or the policy is none, or one of the times.
        UnsupportedError: *unmatched* asks for a look, and the backend is no `Watcher`.

    """

    def __init__(
        self,
        name: str,
        operator: Operator,
        *,
        unmatched: UnmatchedPolicy = UnmatchedPolicy.LEAVE,
        unmatched_grace_s: float | None = None,
        lease_s: float = LEASE_S,
        skew_s: float = SKEW_S,
    ) -> None:
        self.name = some_text("name", name)
        self._operator = checked_operator(operator)
        self._lease = datetime.timedelta(seconds=seconds(above=0)("lease_s", lease_s))
        self._skew = datetime.timedelta(seconds=seconds()("skew_s", skew_s))
        self._sweeper = Sweeper(name, operator, unmatched, unmatched_grace_s)
        # When each job is to be looked at again. It is worked out anew after a crash.
        self._wake: dict[str, datetime.datetime] = {}
        self._over: set[str] = set()
        self._plans: dict[str, Plan] = {}
        self.away = False
        """Whether the store was away at the last turn, so that nothing was done."""
        # The jobs whose records cannot be read: each is told once.
        self._unreadable: set[str] = set()

    def turn(self) -> datetime.datetime | None:
        """
        Do everything that is due now; return when to come again, or None: nothing is left.

        A scheduler that does not answer is logged and asked again after ``poll_s``, and so is a
        store that is away. A record that cannot be read is logged once and left alone, and the
        other jobs go on. Who looks for objects that no record claims comes again at least so
        often, whatever is left.
        """
        try:
            self._serve_all()
        except StoreAway as error:
            if not self.away:
                _log.warning("%s: %s; nothing is done until they can be", self.name, error)
            self.away = True
            return self._after_a_poll()
        if self.away:
            _log.info("%s: the records are back", self.name)
        self.away = False
        if self._sweeper.is_due():
            for _ in self.sweep():
                pass
        wakes = (*self._wake.values(), self._sweeper.wake_at)
        return min((one for one in wakes if one is not None), default=None)

    def wake(self, job: str) -> None:
        """Look at a job in the next turn, because something was asked for it."""
        self._over.discard(job)
        self._wake[job] = self._operator.clock.wall()

    def hand_over(self) -> None:
        """
        Give every lease back, so that another supervisor need not wait for its end.

        For the end of a process that means to end; afterwards this one acts on nothing that
        somebody else has taken, and looks for no unmatched objects (`close`). Blocks as long
        as the store takes.
        """
        self.close()
        now = self._operator.clock.wall()

        def given_back(record: JobRecord) -> JobRecord:
            lease = record.lease
            if lease is None or lease.holder != self.name or lease.expires_at <= now:
                return record
            return attrs.evolve(record, lease=attrs.evolve(lease, expires_at=now - self._skew))

        for job in self._operator.records.jobs():
            if job in self._over:
                continue
            try:
                self._operator.change(job, given_back)
            except (InvalidError, NotFoundError) as error:
                _log.warning("%s: no lease to give back: %s", self.name, error)

    def last_plan(self, job: str) -> Plan | None:
        """Return what was decided last for a job, and why; None before the first time."""
        return self._plans.get(job)

    def steps(self, job: str) -> Iterator[str]:
        """
        Do what is due for one job, and stop before every step that others can see.

        It yields the name of the step that comes next: ``look``, ``store``, ``call``,
        ``note``. Whoever drops the iterator there has crashed at that point; a simulator
        does so.
        """
        yield "look"
        record = self._operator.records.load(job)
        if record is None or not self._may_act(record):
            return
        yield from self._act(record, self._operator.observer.look(record))

    # Objects that no record claims

    def unmatched(self) -> tuple[Observation, ...]:
        """
        Return the objects that no record claimed at the last look, the oldest first.

        Those that have been so for less than the grace are among them. Empty for
        `UnmatchedPolicy.LEAVE`. Any thread may call; nobody is asked.
        """
        return self._sweeper.unmatched()

    def sweep(self) -> Iterator[str]:
        """
        Look for objects that no record claims, and stop before every step that others can see.

        It is to this what `steps` is to a job, and yields ``watch``, ``match``, and ``stop``
        for each object that is to be stopped. Nothing for `UnmatchedPolicy.LEAVE`.
        """
        yield from self._sweeper.steps()

    def close(self) -> None:
        """
        Let go of what unmatched objects are looked for with, and look for none any more.

        Jobs go on being served, and leases stay: see `hand_over`. Closing twice is harmless.
        Call it on the thread that makes the turns, or once there are no more.
        """
        self._sweeper.close()

    # One turn

    def _serve_all(self) -> None:
        due: list[JobRecord] = []
        for _ in range(_MOST_STEPS):
            due = [record for record in self._mine() if self._is_due(record.id)]
            if not due:
                return
            self._serve(due)
        # Whatever a store or a backend that contradicts itself makes of that: not at once.
        for record in due:
            if record.id in self._wake and self._is_due(record.id):
                self._later(record.id)

    def _mine(self) -> list[JobRecord]:
        found = []
        jobs = self._operator.records.jobs()
        self._drop_all_but(frozenset(jobs))
        for job in jobs:
            record = None if job in self._over else self._readable(job)
            if record is not None and self._may_act(record):
                found.append(record)
        return found

    def _readable(self, job: str) -> JobRecord | None:
        """Return the record of a job that is listed; None where there is nothing to act on."""
        try:
            record = self._operator.records.load(job)
        except InvalidError as error:
            if job not in self._unreadable:
                _log.error("%s: a record is left alone until it is mended: %s", self.name, error)
            self._unreadable.add(job)
            self._later(job)
            return None
        self._unreadable.discard(job)
        if record is None:  # removed since it was listed
            self._wake.pop(job, None)
        return record

    def _drop_all_but(self, jobs: frozenset[str]) -> None:
        """Forget what was removed from the store: it is never due again."""
        for job in [one for one in self._wake if one not in jobs]:
            del self._wake[job]
        for job in [one for one in self._plans if one not in jobs]:
            del self._plans[job]
        self._over &= jobs
        self._unreadable &= jobs

    def _is_due(self, job: str) -> bool:
        now = self._operator.clock.wall()
        return self._wake.setdefault(job, now) <= now

    def _serve(self, due: list[JobRecord]) -> None:
        try:
            sights = self._operator.observer.look_many(due)
        except DispatchError as error:
            _log.warning("%s: the scheduler did not answer: %s", self.name, error)
            for record in due:
                self._later(record.id)
            return
        for record in due:
            for _ in self._act(record, sights[record.id]):
                pass

    def _later(self, job: str) -> None:
        self._wake[job] = self._after_a_poll()

    def _after_a_poll(self) -> datetime.datetime:
        poll = datetime.timedelta(seconds=self._operator.terms.poll_s)
        return self._operator.clock.wall() + poll

    # One job

    def _may_act(self, record: JobRecord) -> bool:
        """Whether the lease of the job is this supervisor's, or may be taken over."""
        now, lease = self._operator.clock.wall(), record.lease
        if record.closed:
            self._over.add(record.id)
            self._wake.pop(record.id, None)
            self._plans.pop(record.id, None)
            return False
        if _waits_in_line(record):
            self._wake.pop(record.id, None)
            return False
        if lease is None or lease.holder == self.name:
            return True
        free_at = lease.expires_at + self._skew
        if now <= free_at:
            self._wake[record.id] = free_at + datetime.timedelta(microseconds=1)
            return False
        return True

    def _act(self, record: JobRecord, sight: Sight) -> Iterator[str]:
        leased = attrs.evolve(record, lease=self._leased(record))
        decided = self._decide(leased, sight)
        yield "store"
        stored = self._store(record, decided)
        if stored is None:
            return
        self._plans[record.id] = decided
        if decided.wake_at is None:
            self._wake.pop(record.id, None)
        else:
            self._wake[record.id] = decided.wake_at
        if decided.call is None:
            return
        yield "call"
        answer = self._operator.perform(stored, decided.call)
        if not isinstance(answer.error, DispatchError | None):
            _log.error(
                "%s: %s of job %s raised what no backend should",
                self.name,
                decided.call.operation.value,
                record.id,
                exc_info=answer.error,
            )
        yield "note"
        try:
            self._operator.note(stored, decided.call, answer)
        except NotFoundError:
            _log.warning("%s: the record of job %s was removed meanwhile", self.name, record.id)
        except InvalidError as error:  # what came of the call is seen once it is mended
            _log.warning("%s: the record cannot be read any more: %s", self.name, error)

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        return plan(record, sight, self._operator.terms)

    def _leased(self, record: JobRecord) -> Lease:
        now, lease = self._operator.clock.wall(), record.lease
        ends = now + self._lease
        if lease is None or lease.holder != self.name:
            return Lease(holder=self.name, fence=record.fence + 1, expires_at=ends)
        # Renewed when half of it is gone, so that a look that finds no news writes nothing.
        old = lease.expires_at - now < self._lease / 2
        return attrs.evolve(lease, expires_at=ends) if old else lease

    def _store(self, before: JobRecord, decided: Plan) -> JobRecord | None:
        """Store what was decided; None where somebody else stored meanwhile."""
        if decided.record == before:
            return before
        try:
            return self._operator.records.save(decided.record)
        except (RecordConflict, InvalidError):  # the next look tells which record is there
            self._wake[before.id] = self._operator.clock.wall()
            return None


def _waits_in_line(record: JobRecord) -> bool:
    """Whether nothing was begun for a job, and nothing may be: then nobody is asked about it."""
    return not (record.may_start or record.stop_asked_at or record.objects or record.calls)
