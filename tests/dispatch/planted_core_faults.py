"""Cores that break one rule each: the real code, with one decision changed."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import attrs

from lardon.dispatch.answering import Answer
from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.errors import DispatchError, WatchClosed
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.job_record import JobRecord, Operation, PendingCall
from lardon.dispatch.model import Cessation
from lardon.dispatch.planning import Plan
from lardon.dispatch.records import MemoryRecords, RecordConflict
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.sight import Sight
from lardon.dispatch.spi import WatchStream
from lardon.dispatch.supervisor import Supervisor
from lardon.dispatch.sweeping import Sweeper
from lardon.dispatch.unmatched import Stray


class DecidesOnTheUnknown(Supervisor):
    """Forgets what is pending, so that it decides before anything has settled."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        return super()._decide(attrs.evolve(record, calls=()), sight)


class KnowsNoLease(Supervisor):
    """Acts on every job, whoever holds its lease."""

    def _may_act(self, record: JobRecord) -> bool:
        return not record.closed


class CallsLate(Operator):
    """Makes a call however long ago it was decided on."""

    def perform(self, record: JobRecord, call: PendingCall) -> Answer:
        later = datetime.timedelta(days=1)
        lease = record.lease
        assert lease is not None
        lease = attrs.evolve(lease, expires_at=lease.expires_at + later)
        late = attrs.evolve(call, deadline=call.deadline + later)
        return super().perform(attrs.evolve(record, lease=lease), late)


class KeepsDuplicates(Supervisor):
    """Never stops a duplicate."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(record, sight)
        return plan if plan.call is None or "duplicate" not in plan.why else _without_call(plan)


class IgnoresStops(Supervisor):
    """Goes on with a job that is to stop."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(attrs.evolve(record, stop_asked_at=None), sight)
        asked = attrs.evolve(plan.record, stop_asked_at=record.stop_asked_at)
        return attrs.evolve(plan, record=asked)


class IgnoresHolds(Supervisor):
    """Starts and opens what is held."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(attrs.evolve(record, hold=None), sight)
        hold = record.hold
        if hold is not None:
            hold = attrs.evolve(hold, in_force_at=sight.looked_at)
        return attrs.evolve(plan, record=attrs.evolve(plan.record, hold=hold))


class TrustsEveryEnd(Supervisor):
    """Takes every execution on a lost node for ceased."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        ceased = {one.ref: Cessation(ceased=True) for one in sight.objects}
        return super()._decide(record, attrs.evolve(sight, cessations=ceased))


class TakesAbsenceForAnEnd(Supervisor):
    """Takes an object that it does not see for one that is over."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        objects = [attrs.evolve(one, over=True) for one in record.objects]
        return super()._decide(attrs.evolve(record, objects=objects), sight)


class StoresWithoutLooking(Supervisor):
    """Overwrites what another one has stored meanwhile."""

    def _store(self, before: JobRecord, decided: Plan) -> JobRecord | None:
        newest = self._operator.records.load(before.id)
        if newest is None:
            return None  # it was removed
        record = attrs.evolve(decided.record, version=newest.version)
        try:
            return self._operator.records.save(record)
        except RecordConflict:
            return None


class WritesNothingDown(Supervisor):
    """Makes its calls without having stored that it would."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(record, sight)
        if plan.call is None:
            return plan
        forgotten = plan.record.without_call(plan.call.number)
        return attrs.evolve(plan, record=attrs.evolve(forgotten, calls_made=record.calls_made))


class KnowsNoLimit(Supervisor):
    """Recovers as often as it likes."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(attrs.evolve(record, recoveries=()), sight)
        recoveries = (*record.recoveries, *plan.record.recoveries)
        return attrs.evolve(plan, record=attrs.evolve(plan.record, recoveries=recoveries))


class GivesUp(Supervisor):
    """Loses a job whose scheduler has once refused a call."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(record, sight)
        return plan if not record.last_refusal else attrs.evolve(plan, record=record, call=None)


class ForgetsTheMemory(Supervisor):
    """Starts a job again with what it had."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(record, sight)
        spec = attrs.evolve(plan.record.spec, ram_bytes=record.spec.ram_bytes)
        return attrs.evolve(plan, record=attrs.evolve(plan.record, spec=spec))


class RecoversNothing(Supervisor):
    """Knows no policy."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(attrs.evolve(record, policy=RecoveryPolicy()), sight)
        return attrs.evolve(plan, record=attrs.evolve(plan.record, policy=record.policy))


class TakesNothingOver(Supervisor):
    """Leaves the jobs of one who died alone."""

    def _may_act(self, record: JobRecord) -> bool:
        foreign = record.lease is not None and record.lease.holder != self.name
        return not foreign and super()._may_act(record)


class OpensAtOnce(Supervisor):
    """Opens every gated object that it sees, beside the one that runs."""

    def _decide(self, record: JobRecord, sight: Sight) -> Plan:
        plan = super()._decide(record, sight)
        call = plan.call
        if call is None or call.operation is not Operation.STOP or "duplicate" not in plan.why:
            return plan
        opening = attrs.evolve(call, operation=Operation.OPEN)
        calls = tuple(opening if one.number == call.number else one for one in plan.record.calls)
        return attrs.evolve(plan, call=opening, record=attrs.evolve(plan.record, calls=calls))


class StopsUnderReport(Supervisor):
    """Stops what it is to report."""

    def __init__(self, name: str, operator: Operator, **how: Any) -> None:
        super().__init__(name, operator, **how)
        self._sweeper.terms = attrs.evolve(self._sweeper.terms, policy=UnmatchedPolicy.STOP)


class KnowsNoGrace(Supervisor):
    """Stops an object as soon as it sees no record of it."""

    def __init__(self, name: str, operator: Operator, **how: Any) -> None:
        super().__init__(name, operator, **{**how, "unmatched_grace_s": 0.0})


class LooksForNoStrays(Supervisor):
    """Does as if it had been told to leave them."""

    def sweep(self) -> Iterator[str]:
        return iter(())


class StopsWithoutLookingAgain(Supervisor):
    """Stops what had no record when it decided to."""

    def __init__(self, name: str, operator: Operator, **how: Any) -> None:
        super().__init__(name, operator, **how)
        self._sweeper = _Blind(name, operator, how["unmatched"], how["unmatched_grace_s"])


class _Blind(Sweeper):
    def _stop(self, one: Stray) -> None:
        with contextlib.suppress(DispatchError):
            self._operator.backend.stop(one.ref)


class KnowsNoRecord(Supervisor):
    """Takes every object for one that no record claims."""

    def __init__(self, name: str, operator: Operator, **how: Any) -> None:
        super().__init__(name, _without_records(operator), **how)
        self._operator = operator


def _without_records(operator: Operator) -> Operator:
    terms = operator.terms
    return Operator(
        operator.backend,
        MemoryRecords(),
        operator.clock,
        call_timeout_s=terms.call_timeout_s,
        poll_s=terms.poll_s,
    )


class WatchesOnce(Supervisor):
    """Takes a stream that ended for one that has nothing to tell."""

    def __init__(self, name: str, operator: Operator, **how: Any) -> None:
        super().__init__(name, operator, **how)
        self._sweeper = _Deaf(name, operator, how["unmatched"], how["unmatched_grace_s"])


class _Deaf(Sweeper):
    def _read(self, stream: WatchStream) -> None:
        with contextlib.suppress(WatchClosed):
            super()._read(stream)


def _without_call(plan: Plan) -> Plan:
    assert plan.call is not None
    record = plan.record.without_call(plan.call.number)
    later = plan.record.lease
    assert later is not None
    return attrs.evolve(plan, call=None, record=record, wake_at=later.expires_at)
