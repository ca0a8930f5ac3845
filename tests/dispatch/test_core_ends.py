"""What the core decides after an end: the outcome, a recovery, or nothing before it is certain."""

from __future__ import annotations

import attrs
import pytest

from lardon.dispatch.enums import Action, Capability, Cause, State, Tristate
from lardon.dispatch.job_record import Attempt, HoldWish, Operation, Recovery
from lardon.dispatch.model import Declarations, Support
from lardon.dispatch.planning import plan
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.sight import Sight
from tests.dispatch.core_values import (
    GATED,
    NOW,
    OPENED,
    UNGATED,
    a_record,
    a_sight,
    after,
    an_object,
    ended,
    operation,
    policy_for,
    ref,
    seen,
)


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.HELD])
def test_an_end_that_no_rule_names_is_final(cause: Cause) -> None:
    decided = plan(*ended(cause, RecoveryPolicy()), GATED)

    assert decided.call is None
    assert decided.record.outcome is not None
    assert decided.record.outcome.cause is cause
    assert decided.record.outcome.succeeded is (cause is Cause.COMPLETED)


def test_a_restart_waits_its_delay_and_has_the_next_submission_number() -> None:
    record, sight = ended(Cause.PREEMPTED, policy_for(Cause.PREEMPTED, delay_s=30))
    decided = plan(record, sight, GATED)
    assert decided.call is None
    assert decided.wake_at == after(30)
    assert decided.record.spec.submission == 2
    again = plan(decided.record, attrs.evolve(sight, looked_at=after(30)), GATED)
    assert again.call is not None
    assert (again.call.operation, again.call.submission) == (Operation.START, 2)


def test_out_of_memory_is_followed_by_a_larger_estimate() -> None:
    policy = policy_for(Cause.OUT_OF_MEMORY, ram_factor=1.5, delay_s=0)
    record, sight = ended(Cause.OUT_OF_MEMORY, policy)
    unknown = plan(record, sight, GATED).record.outcome
    assert unknown is not None
    assert "no ram_bytes is set" in unknown.reason
    larger = attrs.evolve(record, spec=attrs.evolve(record.spec, ram_bytes=1001))
    decided = plan(larger, sight, GATED)
    assert decided.record.spec.ram_bytes == 1502


def test_a_limit_ends_the_recoveries_of_its_cause_alone() -> None:
    done = Recovery(
        cause=Cause.PREEMPTED,
        action=Action.RESTART,
        submission=1,
        decided_at=NOW,
        not_before=NOW,
    )
    policy = RecoveryPolicy(
        [RecoveryRule(cause, Action.RESTART, limit=2) for cause in (Cause.PREEMPTED, Cause.TIMEOUT)]
    )
    record, sight = ended(Cause.PREEMPTED, policy, recoveries=[done, done])
    outcome = plan(record, sight, GATED).record.outcome
    assert outcome is not None
    assert "after 2 of 2 recoveries" in outcome.reason
    record, sight = ended(Cause.TIMEOUT, policy, recoveries=[done, done])
    assert plan(record, sight, GATED).record.due is not None


def test_a_job_has_no_more_executions_than_its_policy_allows() -> None:
    policy = RecoveryPolicy([RecoveryRule(Cause.PREEMPTED, Action.RESTART)], max_executions=1)
    outcome = plan(*ended(Cause.PREEMPTED, policy), GATED).record.outcome
    assert outcome is not None
    assert "in the last of 1 executions" in outcome.reason


def test_a_lost_node_is_followed_by_nothing_until_it_has_certainly_ceased() -> None:
    policy = policy_for(Cause.NODE_LOST, delay_s=0)
    record, sight = ended(Cause.NODE_LOST, policy, ceased=False)
    waits = plan(record, sight, GATED)
    assert waits.record.due is None
    assert waits.record.outcome is None
    record, sight = ended(Cause.NODE_LOST, policy)
    assert operation(record, sight) is Operation.START


def test_a_wedged_object_is_stopped_once_it_has_ceased_and_counts_as_a_lost_node() -> None:
    record = a_record(
        objects=[an_object(1, **OPENED)], kept=ref(1), policy=policy_for(Cause.NODE_LOST)
    )
    wedged = seen(1, State.RUNNING, cause=Cause.NODE_LOST, attempt="a")
    assert operation(record, a_sight(wedged, ceased=False), UNGATED) is None
    decided = plan(record, a_sight(wedged), UNGATED)
    assert decided.call is not None
    assert decided.call.operation is Operation.STOP
    gone = plan(decided.record, a_sight(seen(1, State.UNKNOWN)), UNGATED)
    assert gone.record.recoveries[0].cause is Cause.NODE_LOST


def test_absence_is_no_end_until_it_has_certainly_ceased() -> None:
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1))
    gone = seen(1, State.UNKNOWN)
    waits = plan(record, a_sight(gone, ceased=False), GATED)
    assert (waits.call, waits.record.outcome) == (None, None)
    decided = plan(record, a_sight(gone), GATED)
    assert decided.record.outcome is not None
    assert decided.record.outcome.cause is Cause.UNKNOWN


def test_without_a_signal_an_end_counts_and_an_absence_does_not() -> None:
    terms = attrs.evolve(GATED, tells_cessation=False)
    record, sight = ended(Cause.PREEMPTED, policy_for(Cause.PREEMPTED, delay_s=0))
    assert operation(record, attrs.evolve(sight, cessations={}), terms) is Operation.START
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1))
    gone = Sight(looked_at=NOW, objects=(seen(1, State.UNKNOWN),))
    waits = plan(record, gone, terms)
    assert (waits.call, waits.record.outcome) == (None, None)


def test_an_object_that_was_never_opened_has_certainly_ceased() -> None:
    record = a_record(objects=[an_object(1)], kept=ref(1), policy=policy_for(Cause.UNKNOWN))
    decided = plan(record, a_sight(seen(1, State.UNKNOWN), ceased=False), GATED)
    assert decided.record.due is not None


@pytest.mark.parametrize("revives", list(Tristate))
def test_a_requeue_is_used_where_the_cluster_revives_what_ended(revives: Tristate) -> None:
    """dispatch.md, 4.8: "let the core prefer a fresh Start" where it does not."""
    promises = Declarations(
        adapter="test",
        call_bound_s=20.0,
        capabilities={Capability.REQUEUE_ENDED: Support(revives)},
    )
    terms = attrs.evolve(GATED, promises=promises)
    record, sight = ended(Cause.PREEMPTED, policy_for(Cause.PREEMPTED, Action.REQUEUE, delay_s=0))
    expected = Operation.REQUEUE if revives is Tristate.YES else Operation.START
    decided = plan(record, sight, terms)
    assert decided.call is not None
    assert decided.call.operation is expected


def test_what_a_hold_has_ended_is_submitted_again_when_it_is_released() -> None:
    hold = HoldWish(instance=1, asked_at=NOW)
    record, sight = ended(Cause.HELD, RecoveryPolicy(), hold=hold)
    assert operation(record, sight, UNGATED) is None
    released = attrs.evolve(record, hold=None)
    decided = plan(released, sight, UNGATED)
    assert decided.call is not None
    assert (decided.call.operation, decided.call.submission) == (Operation.START, 2)
    assert not decided.record.recoveries


def test_evidence_that_faded_is_remembered() -> None:
    """Kubeflow: a cause read from pods reads Unknown later; what was seen once counts."""
    attempt = Attempt(
        attempt="a", submission=1, ref=ref(1), seen_at=NOW, ended_at=NOW, cause=Cause.OUT_OF_MEMORY
    )
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), attempts=[attempt])
    faded = a_sight(seen(1, State.ENDED, cause=Cause.UNKNOWN, attempt="a"))
    outcome = plan(record, faded, UNGATED).record.outcome
    assert outcome is not None
    assert outcome.cause is Cause.OUT_OF_MEMORY
