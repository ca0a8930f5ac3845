"""
The decision: a pure function of a record, a sight and the terms, tested without a scheduler.

"The pure decision is a function of values with hypothesis tests" (the issue).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import pytest
from hypothesis import given, settings

from lardon.dispatch.absorbing import absorb, is_live
from lardon.dispatch.answering import START_FAULTS, START_REFUSALS, Answer, answered
from lardon.dispatch.enums import Action, Capability, Cause, State, Tristate
from lardon.dispatch.errors import (
    CrashedError,
    DuplicateError,
    ExpiredError,
    FinishedError,
    OutcomeUnknown,
    RefusedError,
)
from lardon.dispatch.job_record import Attempt, HoldWish, JobRecord, Lease, Operation, Recovery
from lardon.dispatch.model import Declarations, Ref, Support
from lardon.dispatch.planning import plan
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.sight import Sight, Terms
from tests.dispatch.core_values import (
    GATED,
    NOW,
    a_call,
    a_record,
    a_sight,
    after,
    an_object,
    ref,
    seen,
    sights,
    states_of_a_job,
)

UNGATED = attrs.evolve(
    GATED,
    promises=Declarations(adapter="test", call_bound_s=20.0, gated=False, unique_names=True),
    can_requeue=False,
)
STARTING = frozenset({Operation.START, Operation.OPEN, Operation.REQUEUE, Operation.RELEASE})
OPENED = {"opened_at": NOW}


def operation(record: JobRecord, sight: Sight, terms: Terms = GATED) -> Operation | None:
    decided = plan(record, sight, terms)
    return None if decided.call is None else decided.call.operation


# What holds of every decision


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_a_decision_is_the_same_whenever_it_is_made(record: JobRecord, sight: Sight) -> None:
    assert plan(record, sight, GATED) == plan(record, sight, GATED)


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_nothing_is_decided_on_an_unknown_outcome_before_it_has_settled(
    record: JobRecord, sight: Sight
) -> None:
    """The issue: "no decision is taken on an unknown outcome" before its bound."""
    for terms in (GATED, UNGATED):
        open_calls = absorb(record, sight, terms).unsettled
        if open_calls:
            decided = plan(record, sight, terms)
            assert decided.call is None or decided.call.operation is Operation.STOP
            assert decided.record.outcome is None
            assert decided.record.due == record.due
    for call in absorb(record, sight, GATED).calls:
        assert call.settles_at >= sight.looked_at


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_a_stop_wins(record: JobRecord, sight: Sight) -> None:
    """The issue: "Stop wins over restart": nothing but stops is decided on from then."""
    stopped = attrs.evolve(record, stop_asked_at=NOW)
    for terms in (GATED, UNGATED):
        assert operation(stopped, sight, terms) in (None, Operation.STOP)


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_a_held_job_is_neither_started_nor_opened(record: JobRecord, sight: Sight) -> None:
    held = attrs.evolve(record, hold=HoldWish(instance=2, asked_at=NOW))
    for terms in (GATED, UNGATED):
        assert operation(held, sight, terms) not in STARTING


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_a_start_and_an_opening_wait_until_every_other_object_is_over(
    record: JobRecord, sight: Sight
) -> None:
    decided = plan(record, sight, GATED)
    call = decided.call
    if call is None or call.operation not in (Operation.START, Operation.OPEN):
        return
    others = [one for one in decided.record.objects if one.ref != call.ref]
    assert all(one.over for one in others)
    assert not any(is_live(sight.of(one.ref)) for one in others)


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_a_call_is_in_the_record_before_it_is_made_and_settles_after_the_bound(
    record: JobRecord, sight: Sight
) -> None:
    decided = plan(record, sight, GATED)
    if decided.call is None:
        return
    assert decided.call in decided.record.calls
    assert decided.call.number == record.calls_made + 1 == decided.record.calls_made
    bound = decided.call.settles_at - decided.call.deadline
    assert bound.total_seconds() == GATED.promises.call_bound_s
    assert decided.call.deadline > sight.looked_at


@given(states_of_a_job, sights)
@settings(max_examples=100)
def test_there_is_always_a_next_look_until_a_job_is_over(record: JobRecord, sight: Sight) -> None:
    decided = plan(record, sight, GATED)
    if decided.wake_at is None:
        assert decided.record.closed
    else:
        assert decided.wake_at > sight.looked_at or decided.call is not None
    assert decided.why


# Which decision, one by one


def test_a_new_job_is_started_and_then_opened() -> None:
    assert operation(a_record(), a_sight()) is Operation.START
    started = a_record(objects=[an_object(1)])
    assert operation(started, a_sight(seen(1, gated=True))) is Operation.OPEN
    opened = a_record(objects=[an_object(1, **OPENED)], kept=ref(1))
    assert operation(opened, a_sight(seen(1))) is None


def test_a_line_decides_when_a_job_may_start_and_open() -> None:
    assert operation(a_record(may_start=False), a_sight()) is None
    started = a_record(objects=[an_object(1)], may_open=False)
    assert operation(started, a_sight(seen(1, gated=True))) is None


def test_of_duplicates_the_oldest_is_kept_and_the_others_are_stopped() -> None:
    """The issue: "Gated duplicates found by name: keep one, stop the rest, open exactly one"."""
    sight = a_sight(seen(1, gated=True), seen(2, gated=True), seen(3, gated=True))
    first = plan(a_record(), sight, GATED)

    assert first.record.kept == ref(1)
    assert first.call is not None
    assert (first.call.operation, first.call.ref) == (Operation.STOP, ref(2))
    gone = a_sight(
        seen(1, gated=True),
        seen(2, State.ENDED, cause=Cause.CANCELLED),
        seen(3, State.ENDED, cause=Cause.CANCELLED),
    )
    record = attrs.evolve(first.record, calls=())
    assert operation(record, gone) is Operation.OPEN


def test_one_that_may_run_already_is_kept_before_one_that_is_gated() -> None:
    record = a_record(objects=[an_object(1), an_object(2)], kept=ref(1))
    decided = plan(record, a_sight(seen(1, gated=True), seen(2, State.RUNNING)), GATED)

    assert decided.record.kept == ref(2)
    assert decided.call is not None
    assert (decided.call.operation, decided.call.ref) == (Operation.STOP, ref(1))


def test_a_stop_that_was_heard_is_not_sent_at_every_look() -> None:
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), stop_asked_at=NOW)
    running = seen(1, State.RUNNING)
    first = plan(record, a_sight(running), GATED)
    heard = attrs.evolve(first.record, calls=())
    again = plan(heard, a_sight(running, at=1), GATED)

    assert first.call is not None
    assert again.call is None
    assert again.wake_at == after(2)
    assert operation(heard, a_sight(running, at=GATED.poll_s)) is Operation.STOP


def test_what_waits_under_an_administrators_hold_is_left_alone() -> None:
    record = a_record(objects=[an_object(1)], kept=ref(1))
    decided = plan(record, a_sight(seen(1, gated=True, admin_held=True)), GATED)
    assert decided.call is None
    assert decided.held


def test_nothing_is_opened_or_started_while_another_object_may_run_somewhere() -> None:
    """It ended on a node that nobody reaches: the next one waits, submitted or not."""
    first = an_object(1, **OPENED)
    lost = seen(1, State.ENDED, cause=Cause.NODE_LOST, attempt="a")
    two = a_record(objects=[first, an_object(2, submission=2)], kept=ref(2))
    gated = seen(2, gated=True)
    assert operation(two, a_sight(lost, gated, ceased=False)) is None
    assert operation(two, a_sight(lost, gated)) is Operation.OPEN
    one = a_record(objects=[first], spec=attrs.evolve(two.spec, submission=2))
    assert operation(one, a_sight(lost, ceased=False)) is None
    assert operation(one, a_sight(lost)) is Operation.START


def test_a_start_waits_until_no_duplicate_of_the_one_before_can_come() -> None:
    """Under one name a late duplicate could not be told from it, and has the old epoch."""
    record, sight = ended(Cause.PREEMPTED, policy_for(Cause.PREEMPTED, delay_s=0))
    record = attrs.evolve(record, starts_settle_at=after(30))
    waits = plan(record, sight, GATED)
    assert waits.call is None
    assert waits.record.spec.submission == 2
    assert waits.wake_at is not None
    later = attrs.evolve(sight, looked_at=waits.wake_at)
    assert operation(waits.record, later) is Operation.START
    # A name of its own tells it apart.
    assert operation(record, sight, UNGATED) is Operation.START


def test_a_late_duplicate_of_what_ran_already_is_stopped_and_never_opened() -> None:
    """It has the epoch of the execution that ended, and asks for what that one had."""
    record, _ = ended(Cause.OUT_OF_MEMORY, policy_for(Cause.OUT_OF_MEMORY, ram_factor=2))
    record = attrs.evolve(record, spec=attrs.evolve(record.spec, ram_bytes=1000))
    lost = seen(1, State.ENDED, cause=Cause.OUT_OF_MEMORY, attempt="a")
    record = plan(record, a_sight(lost), GATED).record
    assert record.spec.submission == 2
    decided = plan(record, a_sight(lost, seen(2, gated=True), at=30), GATED)
    assert decided.call is not None
    assert (decided.call.operation, decided.call.ref) == (Operation.STOP, ref(2))
    duplicate = decided.record.object(ref(2))
    assert duplicate is not None
    assert duplicate.submission == 1


@pytest.mark.parametrize("kept", [None, ref(1)])
def test_a_duplicate_of_what_ran_without_us_is_not_opened_either(kept: Ref | None) -> None:
    """
    Found by a simulated run: somebody revived an object while no supervisor looked.

    It ran twice, so that a second object of the same submission, opened afterwards, would have
    run with a smaller epoch. The end of the one that ran is what the policy is asked about.
    """
    policy = policy_for(Cause.NODE_LOST)
    record = a_record(objects=[an_object(1)], kept=kept, policy=policy)
    ran = seen(1, State.ENDED, cause=Cause.NODE_LOST, attempt="a", epoch=1_000_002, restarts=2)
    decided = plan(record, a_sight(ran, seen(2, gated=True)), GATED)
    assert decided.call is not None
    assert (decided.call.operation, decided.call.ref) == (Operation.STOP, ref(2))

    stopped = seen(2, State.ENDED, cause=Cause.CANCELLED)
    then = plan(decided.record, a_sight(ran, stopped, at=30), GATED)
    assert then.record.outcome is None
    assert then.record.due is not None
    assert then.record.due.cause is Cause.NODE_LOST
    assert then.record.spec.submission == 2


def test_a_start_that_nobody_saw_uses_up_its_number_where_nothing_is_gated() -> None:
    """Its object may have run and been deleted: "a new execution has a new epoch, always"."""
    record = a_record(calls=[a_call(Operation.START)], calls_made=1)
    for terms, submission in ((GATED, 1), (UNGATED, 2)):
        decided = plan(record, a_sight(at=21), terms)
        assert decided.call is not None
        assert decided.call.operation is Operation.START
        assert decided.call.submission == submission


def test_where_nothing_can_be_held_the_gate_keeps_a_held_job() -> None:
    terms = attrs.evolve(GATED, can_hold=False)
    hold = HoldWish(instance=1, asked_at=NOW)
    record = a_record(objects=[an_object(1)], kept=ref(1), hold=hold)
    held = plan(record, a_sight(seen(1, gated=True)), terms)
    assert held.call is None
    assert held.held
    assert held.record.hold is not None
    assert held.record.hold.in_force_at == NOW
    assert operation(attrs.evolve(record, hold=None), a_sight(seen(1, gated=True)), terms) is (
        Operation.OPEN
    )


def test_a_requeue_bit_that_somebody_left_set_is_cleared() -> None:
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1))
    running = a_sight(seen(1, State.RUNNING, requeue_bit=True))
    assert operation(record, running) is Operation.RESTORE_REQUEUE_BIT
    assert operation(record, running, attrs.evolve(GATED, can_requeue=False)) is None


def test_a_hold_is_placed_once_and_released_by_its_number() -> None:
    hold = HoldWish(instance=2, asked_at=NOW)
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), hold=hold)
    placed = plan(record, a_sight(seen(1)), GATED)
    assert placed.call is not None
    assert (placed.call.operation, placed.call.instance) == (Operation.HOLD, 2)
    assert operation(record, a_sight(seen(1, hold_instance=2))) is None
    released = plan(attrs.evolve(record, hold=None), a_sight(seen(1, hold_instance=2)), GATED)
    assert released.call is not None
    assert (released.call.operation, released.call.instance) == (Operation.RELEASE, 2)


def test_a_running_object_that_could_not_be_held_is_not_asked_again() -> None:
    hold = HoldWish(instance=1, asked_at=NOW)
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), hold=hold, lease=_lease())
    running = seen(1, State.RUNNING, attempt="a")
    first = plan(record, a_sight(running), GATED)
    assert first.call is not None
    assert first.call.operation is Operation.HOLD
    refused = Answer(at=NOW, error=RefusedError("Job is no longer pending execution"))
    record = answered(first.record, first.call, refused, GATED)
    later = GATED.poll_s
    assert operation(record, a_sight(running, at=later)) is None
    # The next execution's object can be held.
    assert operation(record, a_sight(seen(1, attempt="a"), at=later)) is Operation.HOLD


def test_an_object_that_was_renamed_by_a_requeue_is_the_same_one() -> None:
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1))
    renewed = attrs.evolve(
        seen(1, restarts=1), ref=attrs.evolve(ref(1), submitted_at=NOW.replace(microsecond=0))
    )
    decided = plan(record, a_sight(seen(1, State.UNKNOWN), renewed, ceased=False), GATED)

    assert decided.record.kept == renewed.ref
    assert len(decided.record.objects) == 1
    assert decided.call is None


# What follows an end


def ended(
    cause: Cause, policy: RecoveryPolicy, *, ceased: bool = True, **fields: object
) -> tuple[JobRecord, Sight]:
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), policy=policy, **fields)
    return record, a_sight(seen(1, State.ENDED, cause=cause, attempt="a"), ceased=ceased)


def policy_for(cause: Cause, action: Action = Action.RESTART, **fields: object) -> RecoveryPolicy:
    return RecoveryPolicy([RecoveryRule(cause, action, **fields)])  # type: ignore[arg-type]


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


# Answers


def test_a_call_that_was_refused_is_tried_again_later() -> None:
    record = a_record(calls=[a_call(Operation.OPEN, ref=ref(1))], lease=None)
    record = attrs.evolve(record, lease=_lease())
    after_it = answered(record, record.calls[0], Answer(at=NOW, error=RefusedError("held")), GATED)
    assert not after_it.calls
    assert after_it.retry_at == after(GATED.poll_s)
    assert "held" in after_it.last_refusal


def test_a_start_that_is_refused_again_and_again_is_given_up() -> None:
    record = a_record(lease=_lease())
    for _ in range(START_REFUSALS):
        record = attrs.evolve(record, calls=[a_call(Operation.START)])
        refused = Answer(at=NOW, error=RefusedError("invalid partition"))
        record = answered(record, record.calls[0], refused, GATED)
    assert record.outcome is not None
    assert "invalid partition" in record.outcome.reason


def test_a_name_that_is_taken_is_an_earlier_start_and_no_refusal() -> None:
    record = a_record(lease=_lease())
    for _ in range(START_REFUSALS):
        record = attrs.evolve(record, calls=[a_call(Operation.START)])
        taken = Answer(at=NOW, error=DuplicateError("it is there", name="x"))
        record = answered(record, record.calls[0], taken, UNGATED)
    assert record.outcome is None
    assert record.refusals == 0
    found = plan(record, a_sight(seen(1, State.RUNNING), at=UNGATED.poll_s), UNGATED)
    assert found.record.kept == ref(1)


def test_a_requeue_that_is_refused_becomes_a_fresh_start() -> None:
    due = Recovery(
        cause=Cause.PREEMPTED,
        action=Action.REQUEUE,
        submission=1,
        decided_at=NOW,
        not_before=NOW,
    )
    record = a_record(lease=_lease(), due=due, kept=ref(1), calls=[a_call(Operation.REQUEUE)])
    error = FinishedError("Job has already finished")
    record = answered(record, record.calls[0], Answer(at=NOW, error=error), GATED)
    assert record.due is not None
    assert record.due.action is Action.RESTART
    assert (record.kept, record.spec.submission) == (None, 2)


@pytest.mark.parametrize(
    "error",
    [OutcomeUnknown("lost", settles_at=after(99)), CrashedError("cut", settles_at=after(99))],
)
def test_an_unknown_outcome_stays_pending_until_the_time_it_names(error: Exception) -> None:
    record = a_record(lease=_lease(), calls=[a_call(Operation.START)])
    record = answered(record, record.calls[0], Answer(at=NOW, error=error), GATED)
    assert record.calls[0].settles_at == after(99)
    assert plan(record, a_sight(at=98), GATED).call is None
    assert operation(record, a_sight(at=100)) is Operation.START


def test_an_error_that_is_no_dispatch_error_is_an_unknown_outcome() -> None:
    record = a_record(lease=_lease(), calls=[a_call(Operation.START)])
    answer = Answer(at=NOW, error=ConnectionResetError())
    assert answered(record, record.calls[0], answer, GATED).calls


def faulty(record: JobRecord, errors: Sequence[Exception], terms: Terms = GATED) -> JobRecord:
    """Return *record* after starts that raised *errors*, each settled without an object."""
    for error in errors:
        record = attrs.evolve(record, calls=[a_call(Operation.START)])
        record = answered(record, record.calls[0], Answer(at=NOW, error=error), terms)
        record = absorb(record, a_sight(at=999), terms)
    return attrs.evolve(record, retry_at=None)


ODD: Final = TypeError("start() missing 1 required argument")


@pytest.mark.parametrize("terms", [GATED, UNGATED], ids=["gated", "ungated"])
def test_a_start_that_raises_what_none_should_is_given_up_once_nothing_can_come(
    terms: Terms,
) -> None:
    record = faulty(a_record(lease=_lease()), [ODD] * (START_FAULTS - 1), terms)
    assert operation(record, a_sight(at=999), terms) is Operation.START
    record = attrs.evolve(record, calls=[a_call(Operation.START)])
    record = answered(record, record.calls[0], Answer(at=NOW, error=ODD), terms)

    settles_at = record.calls[0].settles_at
    early = plan(record, a_sight(at=(settles_at - NOW).total_seconds()), terms)
    assert (early.call, early.record.outcome) == (None, None), "it may have come"
    late = plan(record, a_sight(at=(settles_at - NOW).total_seconds() + 1), terms)
    assert late.call is None
    assert late.wake_at is None
    outcome = late.record.outcome
    assert outcome is not None
    assert outcome.cause is Cause.UNKNOWN
    assert "TypeError: start() missing 1 required argument" in outcome.reason
    assert f"{START_FAULTS} times" in outcome.reason


def test_an_object_that_comes_of_such_a_start_is_the_jobs() -> None:
    """Also of the last one: then its error says nothing about what it did."""
    record = faulty(a_record(lease=_lease()), [ODD] * (START_FAULTS - 1))
    record = attrs.evolve(record, calls=[a_call(Operation.START)])
    record = answered(record, record.calls[0], Answer(at=NOW, error=ODD), GATED)
    decided = plan(record, a_sight(seen(1, State.PENDING, gated=True), at=999), GATED)

    assert decided.record.outcome is None
    assert decided.call is not None
    assert decided.call.operation is Operation.OPEN


@pytest.mark.parametrize(
    "between",
    [OutcomeUnknown("lost", settles_at=after(99)), RefusedError("no"), DuplicateError("there")],
    ids=lambda error: type(error).__name__,
)
def test_only_a_row_of_such_errors_counts(between: Exception) -> None:
    """What a backend may answer shows that its start works after all."""
    row = [ODD] * (START_FAULTS - 1)
    record = faulty(a_record(lease=_lease()), [*row, between, *row])

    assert operation(record, a_sight(at=999)) is Operation.START


def test_a_start_that_works_ends_the_row() -> None:
    record = faulty(a_record(lease=_lease()), [ODD] * (START_FAULTS - 1))
    record = attrs.evolve(record, calls=[a_call(Operation.START)])
    record = answered(record, record.calls[0], Answer(at=NOW, ref=ref(1)), GATED)

    assert record.start_faults == 0
    assert record.last_refusal == ""


def test_a_start_that_was_too_late_is_no_answer_of_the_backend() -> None:
    row = [ODD] * (START_FAULTS - 1)
    record = faulty(a_record(lease=_lease()), [*row, ExpiredError("too late"), ODD])

    assert plan(record, a_sight(at=999), GATED).record.outcome is not None


def test_lost_answers_alone_are_never_given_up() -> None:
    lost = OutcomeUnknown("lost", settles_at=after(99))
    record = faulty(a_record(lease=_lease()), [lost] * (4 * START_FAULTS))

    assert record.outcome is None
    assert operation(record, a_sight(at=999)) is Operation.START


def test_a_restart_begins_the_row_anew() -> None:
    policy = policy_for(Cause.PREEMPTED, Action.RESTART, delay_s=0)
    record, sight = ended(Cause.PREEMPTED, policy, start_faults=START_FAULTS)
    decided = plan(record, sight, GATED)

    assert decided.call is not None
    assert decided.call.operation is Operation.START
    assert decided.record.start_faults == 0


def test_a_job_that_is_held_is_not_given_up_before_its_release() -> None:
    hold = HoldWish(instance=1, asked_at=NOW)
    record = faulty(a_record(lease=_lease()), [ODD] * (START_FAULTS - 1))
    record = attrs.evolve(record, hold=hold, start_faults=START_FAULTS)

    assert plan(record, a_sight(at=999), GATED).held
    assert plan(attrs.evolve(record, hold=None), a_sight(at=999), GATED).record.outcome


def test_a_call_that_came_too_late_is_decided_on_anew_at_once() -> None:
    record = a_record(lease=_lease(), calls=[a_call(Operation.START)])
    answer = Answer(at=NOW, error=ExpiredError("too late"))
    record = answered(record, record.calls[0], answer, GATED)
    assert record.refusals == 0
    assert operation(record, a_sight()) is Operation.START


def test_the_answer_to_somebody_elses_call_is_ignored() -> None:
    """The lease has changed hands since: the new holder waits until the call has settled."""
    record = a_record(lease=attrs.evolve(_lease(), fence=2), calls=[a_call(Operation.START)])
    answer = Answer(at=NOW, ref=ref(1))
    assert answered(record, record.calls[0], answer, GATED) == record
    assert answered(a_record(), a_call(Operation.START), answer, GATED) == a_record()


def _lease() -> Lease:
    return Lease(holder="one", fence=1, expires_at=after(60))
