"""
The simulator finds a core that breaks a rule: each fault here is planted, and each is found.

"The simulator: invariants checked after every step": a judge that never objects would pass
every core, so each rule is broken on purpose, in the real code with one decision changed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest

from lardon.dispatch.answering import Answer
from lardon.dispatch.enums import Shape
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.job_record import JobRecord, Operation, PendingCall
from lardon.dispatch.model import Cessation
from lardon.dispatch.planning import Plan
from lardon.dispatch.records import RecordConflict
from lardon.dispatch.sight import Sight
from lardon.dispatch.sim import Setting, Simulation, Violation
from lardon.dispatch.supervisor import Supervisor

SEEDS: Final = 150
LEASE: Final = {"lease_s": 60.0, "skew_s": 2.0}


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
        assert newest is not None
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


def _without_call(plan: Plan) -> Plan:
    assert plan.call is not None
    record = plan.record.without_call(plan.call.number)
    later = plan.record.lease
    assert later is not None
    return attrs.evolve(plan, call=None, record=record, wake_at=later.expires_at)


def hunt(shape: Shape, **makers: Any) -> tuple[int, str] | None:
    """Return the first seed that finds a fault, and the rule that it breaks."""
    for seed in range(SEEDS):
        try:
            Simulation(Setting(seed=seed, shape=shape, quiet_bound_s=3600.0), **makers).run()
        except Violation as violation:
            return seed, violation.rule
    return None


def made_of(kind: type[Supervisor]) -> Callable[[str, Operator], Supervisor]:
    return lambda name, operator: kind(name, operator, **LEASE)


SLURM, KUBEFLOW = Shape.SLURM, Shape.KUBEFLOW


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "shape", "rules"),
    [
        (DecidesOnTheUnknown, SLURM, "was unknown"),
        (KnowsNoLease, SLURM, "lease is another's"),
        (KeepsDuplicates, SLURM, "left behind|not over"),
        (IgnoresStops, SLURM, "after a stop"),
        (IgnoresHolds, SLURM, "is held"),
        (IgnoresHolds, KUBEFLOW, "is held"),
        (TrustsEveryEnd, SLURM, "run at once"),
        (TrustsEveryEnd, KUBEFLOW, "run at once"),
        (TakesAbsenceForAnEnd, KUBEFLOW, "run at once|could run|left behind"),
        (StoresWithoutLooking, SLURM, "not over|went back|after a stop"),
        (WritesNothingDown, SLURM, "was unknown"),
        (WritesNothingDown, KUBEFLOW, "was unknown"),
        (KnowsNoLimit, SLURM, "recoveries after"),
        (GivesUp, SLURM, "not over"),
        (OpensAtOnce, SLURM, "run at once"),
    ],
)
def test_a_supervisor_that_breaks_a_rule_is_found(
    kind: type[Supervisor], shape: Shape, rules: str
) -> None:
    found = hunt(shape, make_supervisor=made_of(kind))

    assert found is not None, f"{kind.__doc__} In {SEEDS} seeds nothing was broken"
    assert re.search(rules, found[1]), found


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_operator_that_calls_late_is_found() -> None:
    found = hunt(SLURM, make_operator=CallsLate)

    assert found is not None
    assert "lease is another's" in found[1] or "was unknown" in found[1]
