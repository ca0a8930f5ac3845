"""
The decision: a pure function of a record, a sight and the terms, tested without a scheduler.

"The pure decision is a function of values with hypothesis tests" (the issue).
"""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings

from lardon.dispatch.absorbing import absorb, is_live
from lardon.dispatch.answering import Answer, answered
from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import RefusedError
from lardon.dispatch.job_record import HoldWish, JobRecord, Operation
from lardon.dispatch.model import Ref
from lardon.dispatch.planning import plan
from lardon.dispatch.sight import Sight
from tests.dispatch.core_values import (
    GATED,
    NOW,
    OPENED,
    UNGATED,
    a_call,
    a_lease,
    a_record,
    a_sight,
    after,
    an_object,
    ended,
    operation,
    policy_for,
    ref,
    seen,
    sights,
    states_of_a_job,
)

STARTING = frozenset({Operation.START, Operation.OPEN, Operation.REQUEUE, Operation.RELEASE})


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
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), hold=hold, lease=a_lease())
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
