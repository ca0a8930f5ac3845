"""
The remote tasks in order: who is admitted, opened, and done. It has no thread and no lock.

One turn admits from the head of the line, lets the supervisor do what is due, allows the next
object to be opened, and gives back the reservation of each job that is over.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lardon.dispatch.enums import Cause
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.job_record import JobRecord, Operation, Outcome
from lardon.dispatch.records import StoreAway
from lardon.dispatch.remote.capacity import as_granted, in_all, told_to_the_command
from lardon.dispatch.remote.errors import RecordLost, RemoteFailed, ResultMissing
from lardon.dispatch.remote.function import read_result
from lardon.dispatch.remote.lost import LostJobs
from lardon.dispatch.remote.notes import BATCH, RESULT, batch_of, estimate_of
from lardon.errors import TaskRefused
from lardon.governor.checks import described
from lardon.governor.decision import DecisionKind
from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.remote.capacity import Limits
    from lardon.dispatch.remote.handle import RemoteHandle
    from lardon.dispatch.supervisor import Supervisor
    from lardon.governor.decision import Contract, Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.governor import Governor
    from lardon.governor.reservation import Reservation

_log: Final = logging.getLogger("lardon.dispatch")

# A task is admitted once, opened once and ends once, and what it held is given back once.
_ROUNDS_EACH: Final = 4


@attrs.define(eq=False)
class Entry:
    """One task in the line."""

    handle: RemoteHandle
    estimate: ResourceEstimate
    """What each node needs."""
    nodes: int
    reservation: Reservation | None = None
    admitted: bool = False

    @classmethod
    def of(cls, handle: RemoteHandle) -> Entry:
        """Return the entry of a handle, from what is on record."""
        record = handle.record
        return cls(handle, estimate_of(record), record.spec.nodes, admitted=record.may_start)


class Line:
    """
    The tasks of a pool that are not done, the oldest first.

    Everything is called on one thread, and blocks as long as store and scheduler take.

    Args:
        operator: Who writes down what is wanted.
        supervisor: Who brings it about.
        governor: Who admits.
        limits: How many jobs may be with the scheduler.
        result_patience_s: How long the result of a completed function may take to appear.

    """

    def __init__(
        self,
        operator: Operator,
        supervisor: Supervisor,
        governor: Governor,
        limits: Limits,
        result_patience_s: float,
    ) -> None:
        self._operator = operator
        self._supervisor = supervisor
        self._governor = governor
        self._limits = limits
        self._patience = datetime.timedelta(seconds=result_patience_s)
        self._entries: dict[str, Entry] = {}
        self._lost = LostJobs(operator)
        # What is wrong with the record of a task that cannot be read now, and with the store.
        self._unreadable: dict[str, str] = {}
        self._away: str | None = None

    @property
    def trouble(self) -> str | None:
        """What keeps the last turn from looking at every task; None where nothing does."""
        if self._away is not None:
            return self._away
        told = list(self._unreadable.values())
        more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
        return f"{told[0]}{more}" if told else None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The tasks that are not done, the oldest first."""
        return tuple(self._entries.values())

    def add(self, handle: RemoteHandle) -> None:
        """Put a task at the end, or where it stood before a crash; adding it twice is once."""
        if handle.id in self._entries:
            return
        entry = self._entries[handle.id] = Entry.of(handle)
        if entry.admitted and handle.record.outcome is None:
            self._book_again(entry)
        self._supervisor.wake(handle.id)

    def hand_over(self) -> None:
        """Let a successor act on the jobs at once, or else when the leases have run out."""
        try:
            self._supervisor.hand_over()
        except BaseException:  # noqa: BLE001  whatever the store raises, the pool ends
            _log.exception("a remote pool could not hand its jobs over")

    def wake(self, job: str) -> None:
        """Look at a job in the next turn."""
        self._supervisor.wake(job)

    def turn(self) -> datetime.datetime | None:
        """Do all that is due; return when to come again, or None: on news only."""
        try:
            wake_at = self._do_all()
        except StoreAway as error:
            if self._away is None and not self._supervisor.away:
                _log.warning("nothing is concluded about the tasks of a pool: %s", error)
            self._away = described(error)
            return self._after_a_poll()
        self._away = None
        return wake_at

    def _do_all(self) -> datetime.datetime | None:
        for _ in range(_ROUNDS_EACH * (len(self._entries) + len(self._lost)) + 1):
            admitted = self._admit()
            wake_at = self._supervisor.turn()
            opened = self._open_in_order()
            if not (self._finish() or admitted or opened):
                return self._soonest(wake_at)
        # A store that forgets what it has stored, say: the pool must not turn for ever.
        _log.error("what was stored of the tasks of a pool does not show: it is tried again later")
        return self._after_a_poll()

    # In

    def _admit(self) -> bool:
        """Admit from the head of the line, as long as there is room; return whether one was."""
        admitted = False
        for entry, record in self._on_record(one for one in self.entries if not one.admitted):
            if record is None or record.outcome is not None or record.stop_asked_at is not None:
                continue
            if not self._may_enter():
                break
            if not self._ask(entry):
                break
            admitted = True
        return admitted

    def _may_enter(self) -> bool:
        admitted = [one for one in self.entries if one.admitted]
        # One whose result is still to appear holds nothing on the cluster any more.
        inside = [one for one in admitted if one.handle.outcome is None]
        if len(inside) + len(self._lost) >= self._limits.jobs:
            return False
        # Where nothing is gated, to start is to open: then the one before comes first.
        gated = self._operator.terms.promises.gated
        return gated or all(self._was_opened(record) for _, record in self._on_record(inside))

    def _ask(self, entry: Entry) -> bool:
        """Ask for the reservation of the head; return whether the next may be asked for."""
        estimate = in_all(entry.estimate, entry.nodes)
        decision, reservation = self._governor.reserve(estimate, holder=entry.handle.name)
        entry.handle.decision = decision
        if decision.kind is DecisionKind.REJECT:
            self._refuse(entry, decision)
            return True
        if reservation is None or decision.contract is None:
            return False
        contract = decision.contract
        try:
            self._operator.change(entry.handle.id, _admission(contract, entry.nodes))
        except BaseException:
            reservation.release()
            raise
        entry.reservation, entry.admitted = reservation, True
        entry.handle.contract = contract
        self._supervisor.wake(entry.handle.id)
        return True

    def _book_again(self, entry: Entry) -> None:
        """Book what a job holds that was admitted before a crash."""
        batch = batch_of(entry.handle.record) or entry.estimate.max_batch
        estimate = in_all(entry.estimate, entry.nodes)
        estimate = estimate.evolve(min_batch=batch, max_batch=batch)
        decision, entry.reservation = self._governor.reserve(estimate, holder=entry.handle.name)
        entry.handle.decision, entry.handle.contract = decision, decision.contract
        if entry.reservation is None:
            _log.warning(
                "%s was admitted before and does not fit the limits now: %s",
                entry.handle.name,
                decision.reason,
            )

    def _refuse(self, entry: Entry, decision: Decision) -> None:
        now, reason = self._operator.clock.wall(), str(decision.reason)

        def refused(record: JobRecord) -> JobRecord:
            outcome = Outcome(cause=Cause.NO_CAPACITY, ended_at=now, reason=reason)
            return record if record.outcome else attrs.evolve(record, outcome=outcome)

        self._operator.change(entry.handle.id, refused)

    # In order

    def _open_in_order(self) -> bool:
        """Allow the next job to be opened, once those before it were; return whether one was."""
        for entry, record in self._on_record(self.entries):
            if record is None:
                continue
            entry.handle._seen(record)
            if not entry.admitted or record.outcome is not None:
                continue
            if not record.may_open:
                self._operator.allow_open(record.id)
                self._supervisor.wake(record.id)
                return True
            if not self._was_opened(record):
                return False
        return False

    def _was_opened(self, record: JobRecord | None) -> bool:
        """
        Whether nothing behind the task has to wait for it any more.

        One that is held, or whose opening was refused, is passed. One of which nobody knows
        yet whether it was opened is waited for: that is known before long.
        """
        if record is None:
            return True
        plan = self._supervisor.last_plan(record.id)
        passed = record.outcome is not None or record.stop_asked_at is not None
        held = record.hold is not None or (plan is not None and plan.held)
        opened = any(one.opened_at is not None for one in record.objects)
        unknown = any(one.operation is Operation.OPEN for one in record.calls)
        return passed or held or (opened and not unknown)

    # Out

    def _finish(self) -> bool:
        """Give back what is not held any more, and end the handles; return whether any was."""
        released = self._lost.turn()
        for entry, record in self._on_record(self.entries):
            if record is None:
                self._lose(entry)
                released = True
                continue
            if record.outcome is None:
                continue
            entry.handle._seen(record)
            if entry.reservation is not None:
                released = entry.reservation.release() or released
                entry.reservation = None
            if self._end(entry, record.outcome):
                del self._entries[record.id]
                released = True
        return released

    def _lose(self, entry: Entry) -> None:
        """End a handle whose record was removed; what its job may hold is kept for it."""
        handle, reservation = entry.handle, entry.reservation
        del self._entries[handle.id]
        if reservation is not None:
            self._lost.add(handle.record, reservation)
        message = (
            f"the record of {handle.name} was removed by somebody else before it was over: its "
            f"job {handle.id} is left alone, and how it ends is not told here"
        )
        handle._lose(RecordLost(message, name=handle.name, job=handle.id))

    def _end(self, entry: Entry, outcome: Outcome) -> bool:
        """End a handle; return whether its result was there."""
        handle = entry.handle
        if outcome.cause is Cause.CANCELLED and handle.record.stop_asked_at is not None:
            handle._end(TaskState.CANCELLED)
            return True
        if not entry.admitted and outcome.cause is Cause.NO_CAPACITY:
            handle._end(TaskState.FAILED, error=_refusal(handle))
            return True
        path = handle.record.notes.get(RESULT)
        if path is not None:
            return self._end_function(handle, outcome, Path(path))
        if outcome.succeeded:
            handle._end(TaskState.COMPLETED, outcome)
        else:
            handle._end(TaskState.FAILED, error=_failure(handle, outcome))
        return True

    def _end_function(self, handle: RemoteHandle, outcome: Outcome, path: Path) -> bool:
        epochs = (one.epoch for one in handle.record.attempts if one.epoch is not None)
        returned = read_result(path, since=max(epochs, default=None))
        if returned is not None and returned.error is not None:
            error = returned.error
            if not outcome.succeeded:
                _give_cause(error, _failure(handle, outcome))
            handle._end(TaskState.FAILED, error=error)
        elif returned is not None and outcome.succeeded:
            handle._end(TaskState.COMPLETED, returned.value)
        elif not outcome.succeeded:
            handle._end(TaskState.FAILED, error=_failure(handle, outcome))
        elif self._operator.clock.wall() - outcome.ended_at < self._patience:
            return False
        else:
            message = f"{handle.name} completed, and {path} did not appear"
            error = ResultMissing(message, name=handle.name, path=str(path))
            handle._end(TaskState.FAILED, error=error)
        return True

    def _soonest(self, wake_at: datetime.datetime | None) -> datetime.datetime | None:
        if not self._entries and not self._lost:
            return wake_at
        # Of the result of a function, and of a record that somebody removes, the supervisor
        # does not know.
        again = self._after_a_poll()
        return again if wake_at is None else min(again, wake_at)

    def _after_a_poll(self) -> datetime.datetime:
        poll = datetime.timedelta(seconds=self._operator.terms.poll_s)
        return self._operator.clock.wall() + poll

    # On record

    def _on_record(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, JobRecord | None]]:
        """
        Yield each of *entries* with what is on record of it now, in their order.

        None says that somebody removed it before the job was over. A task whose record cannot
        be read is left out: it keeps what it holds, and nobody waits for it. The supervisor
        logs it.
        """
        for entry in entries:
            job, known = entry.handle.id, entry.handle.record
            try:
                found = self._operator.records.load(job)
            except InvalidError as error:
                if known.outcome is None:
                    self._unreadable[job] = described(error)
                    continue
                found = None
            self._unreadable.pop(job, None)
            yield entry, known if found is None and known.outcome is not None else found


def _admission(contract: Contract, nodes: int) -> Callable[[JobRecord], JobRecord]:
    """Return the change that lets a job start, as *contract* grants it."""
    granted: dict[str, Any] = as_granted(contract, nodes)

    def admit(record: JobRecord) -> JobRecord:
        told = {**record.spec.environment, **told_to_the_command(contract, nodes)}
        spec = attrs.evolve(record.spec, environment=told, **granted)
        notes = {**record.notes, BATCH: str(contract.batch_size)}
        return attrs.evolve(record, spec=spec, notes=notes, may_start=True)

    return admit


def _give_cause(error: BaseException, cause: BaseException) -> None:
    try:
        error.__cause__ = cause
    except BaseException:  # noqa: BLE001  its class is a function's, and may do anything
        _log.warning("an error of a function takes no cause, which was: %s", cause)


def _refusal(handle: RemoteHandle) -> TaskRefused:
    decision = handle.decision
    outcome = handle.outcome
    assert outcome is not None
    return TaskRefused(
        f"{handle.name} was refused: {outcome.reason}",
        task_id=handle.id,
        decision=decision,
        reason=None if decision is None else decision.reason,
    )


def _failure(handle: RemoteHandle, outcome: Outcome) -> RemoteFailed:
    message = f"{handle.name} failed: {outcome.reason}"
    return RemoteFailed(message, name=handle.name, outcome=outcome)
