"""What the core makes of the answer to a call: a refusal, an unknown outcome, an odd error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import pytest

from lardon.dispatch.absorbing import absorb
from lardon.dispatch.answering import START_FAULTS, START_REFUSALS, Answer, answered
from lardon.dispatch.enums import Action, Cause, State
from lardon.dispatch.errors import (
    CrashedError,
    DuplicateError,
    ExpiredError,
    FinishedError,
    OutcomeUnknown,
    RefusedError,
)
from lardon.dispatch.job_record import HoldWish, JobRecord, Operation, Recovery
from lardon.dispatch.planning import plan
from lardon.dispatch.sight import Terms
from tests.dispatch.core_values import (
    GATED,
    NOW,
    UNGATED,
    a_call,
    a_lease,
    a_record,
    a_sight,
    after,
    ended,
    operation,
    policy_for,
    ref,
    seen,
)


def test_a_call_that_was_refused_is_tried_again_later() -> None:
    record = a_record(calls=[a_call(Operation.OPEN, ref=ref(1))], lease=None)
    record = attrs.evolve(record, lease=a_lease())
    after_it = answered(record, record.calls[0], Answer(at=NOW, error=RefusedError("held")), GATED)
    assert not after_it.calls
    assert after_it.retry_at == after(GATED.poll_s)
    assert "held" in after_it.last_refusal


def test_a_start_that_is_refused_again_and_again_is_given_up() -> None:
    record = a_record(lease=a_lease())
    for _ in range(START_REFUSALS):
        record = attrs.evolve(record, calls=[a_call(Operation.START)])
        refused = Answer(at=NOW, error=RefusedError("invalid partition"))
        record = answered(record, record.calls[0], refused, GATED)
    assert record.outcome is not None
    assert "invalid partition" in record.outcome.reason


def test_a_name_that_is_taken_is_an_earlier_start_and_no_refusal() -> None:
    record = a_record(lease=a_lease())
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
    record = a_record(lease=a_lease(), due=due, kept=ref(1), calls=[a_call(Operation.REQUEUE)])
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
    record = a_record(lease=a_lease(), calls=[a_call(Operation.START)])
    record = answered(record, record.calls[0], Answer(at=NOW, error=error), GATED)
    assert record.calls[0].settles_at == after(99)
    assert plan(record, a_sight(at=98), GATED).call is None
    assert operation(record, a_sight(at=100)) is Operation.START


def test_an_error_that_is_no_dispatch_error_is_an_unknown_outcome() -> None:
    record = a_record(lease=a_lease(), calls=[a_call(Operation.START)])
    answer = Answer(at=NOW, error=ConnectionResetError())
    assert answered(record, record.calls[0], answer, GATED).calls


def test_a_call_that_came_too_late_is_decided_on_anew_at_once() -> None:
    record = a_record(lease=a_lease(), calls=[a_call(Operation.START)])
    answer = Answer(at=NOW, error=ExpiredError("too late"))
    record = answered(record, record.calls[0], answer, GATED)
    assert record.refusals == 0
    assert operation(record, a_sight()) is Operation.START


def test_the_answer_to_somebody_elses_call_is_ignored() -> None:
    """The lease has changed hands since: the new holder waits until the call has settled."""
    record = a_record(lease=attrs.evolve(a_lease(), fence=2), calls=[a_call(Operation.START)])
    answer = Answer(at=NOW, ref=ref(1))
    assert answered(record, record.calls[0], answer, GATED) == record
    assert answered(a_record(), a_call(Operation.START), answer, GATED) == a_record()


# A start that raises what none should, again and again


ODD: Final = TypeError("start() missing 1 required argument")


def faulty(record: JobRecord, errors: Sequence[Exception], terms: Terms = GATED) -> JobRecord:
    """Return *record* after starts that raised *errors*, each settled without an object."""
    for error in errors:
        record = attrs.evolve(record, calls=[a_call(Operation.START)])
        record = answered(record, record.calls[0], Answer(at=NOW, error=error), terms)
        record = absorb(record, a_sight(at=999), terms)
    return attrs.evolve(record, retry_at=None)


@pytest.mark.parametrize("terms", [GATED, UNGATED], ids=["gated", "ungated"])
def test_a_start_that_raises_what_none_should_is_given_up_once_nothing_can_come(
    terms: Terms,
) -> None:
    record = faulty(a_record(lease=a_lease()), [ODD] * (START_FAULTS - 1), terms)
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
    record = faulty(a_record(lease=a_lease()), [ODD] * (START_FAULTS - 1))
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
    record = faulty(a_record(lease=a_lease()), [*row, between, *row])

    assert operation(record, a_sight(at=999)) is Operation.START


def test_a_start_that_works_ends_the_row() -> None:
    record = faulty(a_record(lease=a_lease()), [ODD] * (START_FAULTS - 1))
    record = attrs.evolve(record, calls=[a_call(Operation.START)])
    record = answered(record, record.calls[0], Answer(at=NOW, ref=ref(1)), GATED)

    assert record.start_faults == 0
    assert record.last_refusal == ""


def test_a_start_that_was_too_late_is_no_answer_of_the_backend() -> None:
    row = [ODD] * (START_FAULTS - 1)
    record = faulty(a_record(lease=a_lease()), [*row, ExpiredError("too late"), ODD])

    assert plan(record, a_sight(at=999), GATED).record.outcome is not None


def test_lost_answers_alone_are_never_given_up() -> None:
    lost = OutcomeUnknown("lost", settles_at=after(99))
    record = faulty(a_record(lease=a_lease()), [lost] * (4 * START_FAULTS))

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
    record = faulty(a_record(lease=a_lease()), [ODD] * (START_FAULTS - 1))
    record = attrs.evolve(record, hold=hold, start_faults=START_FAULTS)

    assert plan(record, a_sight(at=999), GATED).held
    assert plan(attrs.evolve(record, hold=None), a_sight(at=999), GATED).record.outcome
