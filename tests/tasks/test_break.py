"""`sequence_break`: strictly release, ask, take over; what each answer leads to, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from lardon import (
    Contract,
    Governor,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
    TaskQueue,
    TaskRefused,
    TaskState,
)
from lardon.testing import ScriptedProbe, reduce_batch, reject, start, wait
from tests.tasks.breaking import ANSWERS, ANY, PATIENCE_S, Breaker, assert_refused

if TYPE_CHECKING:
    from lardon import TaskContext

# Admitted ------------------------------------------------------------------------------


def test_a_granted_break_replaces_reservation_and_contract(breaker: Breaker) -> None:
    seen: list[Any] = []

    def callback(context: TaskContext) -> None:
        context.set_progress(3, 10, "halfway")
        first = context.contract
        seen.append((context.sequence, breaker.held(), breaker.governor.released))
        seen.append(context.sequence_break())
        seen.append((context.sequence, breaker.held(), breaker.governor.released))
        assert (first.sequence, first.batch_size) == (0, 4)
        assert context.contract.batch_size == 2
        assert task.progress.done == 3
        assert (task.progress.total, task.progress.message) == (10, "halfway")
        seen.append(context.sequence_break())
        seen.append((context.sequence, breaker.held(), breaker.governor.released))

    breaker.governor.script(wait())
    task = breaker.queue.submit(callback, estimate=ANY)
    assert breaker.queue.wait_parked(PATIENCE_S)
    breaker.active.clear()
    breaker.governor.replaced.clear()
    breaker.governor.script(start(batch_size=4), reduce_batch(batch_size=2))
    breaker.queue.resources_changed()
    assert task.wait(PATIENCE_S)

    assert task.state is TaskState.COMPLETED, task.reason
    assert seen == [(0, 1, 0), True, (1, 1, 1), True, (2, 1, 2)]
    assert task.snapshot().sequence == 2
    # The first question replaces nothing; each break names the reservation just released.
    assert [one and one.id for one in breaker.governor.replaced] == [None, 1, 2]
    assert [one.active for one in breaker.governor.replaced if one] == [False, False]


def test_a_reader_sees_the_old_contract_until_the_new_one_is_in_force(breaker: Breaker) -> None:
    """Contracts are replaced whole, and never before there is a reservation for them."""
    seen: list[Contract | None] = []
    breaker.governor.subscribe(
        lambda: seen.append(breaker.task.contract if breaker.task is not None else None)
    )
    task = breaker.run(lambda context: context.sequence_break(), start(batch_size=2))
    assert task.result(PATIENCE_S) is True

    old, new = breaker.contracts[1], task.contract
    assert old is not None
    assert (old.batch_size, old.sequence) == (4, 0)
    assert new is not None
    assert (new.batch_size, new.sequence) == (2, 1)
    # At the release in the break and at the booking that followed, the old one stood.
    assert {one for one in seen if one is not None} <= {old, new}
    assert breaker.contracts == [None, old]


def test_the_snapshot_is_taken_after_the_release() -> None:
    """What the task itself held counts as free, on a fresh reading."""
    snapshot = ResourceSnapshot(
        taken_at=0.0, ram_total_bytes=1 << 34, ram_available_bytes=1 << 34, cpus=2
    )
    probe = ScriptedProbe(snapshot)
    governor = Governor(Policy(recheck_s=None), probe=probe)
    held: list[int] = []
    probe.on_snapshot = lambda: held.append(len(governor.reservations()))
    whole = ResourceEstimate(cpus=2)
    with TaskQueue(governor) as queue:
        task = queue.submit(
            lambda context: [context.sequence_break() for _ in range(3)], estimate=whole
        )
        assert task.result(PATIENCE_S) == [True, True, True]

    assert held == [0] * 4
    assert governor.statistics().booked == governor.statistics().released == 4


def test_a_smaller_batch_is_granted_as_a_reduction(breaker: Breaker) -> None:
    task = breaker.run(lambda context: context.sequence_break(), reduce_batch(1, "less now"))

    assert task.result(PATIENCE_S) is True
    assert task.reason is not None
    assert task.reason.text == "less now"


# WAIT, at once -----------------------------------------------------------------------


def test_without_a_timeout_a_wait_dooms_the_task_at_once(breaker: Breaker) -> None:
    """The reason shows before the callback is over; the state does not claim that it is."""
    seen: list[Any] = []

    def callback(context: TaskContext) -> str:
        seen.append(context.sequence_break())
        task = breaker.queue.get(context.task_id)
        seen.extend((task.state, str(task.reason), breaker.held(), task.wait(timeout=0)))
        return "ignored"

    task = breaker.run(callback, answer := wait("nothing left"))

    assert_refused(task, "nothing left", answer)
    assert seen == [False, TaskState.RUNNING, "nothing left", 0, False]
    assert breaker.clock.monotonic() == 0.0


def test_a_doomed_task_ends_failed_whatever_its_callback_does(breaker: Breaker) -> None:
    """Its own error becomes the cause of the refusal."""

    def callback(context: TaskContext) -> None:
        context.sequence_break()
        raise OSError("its own")

    task = breaker.run(callback, answer := wait("nothing left"))

    assert_refused(task, "nothing left", answer)
    error = task.exception(timeout=0)
    assert isinstance(error, TaskRefused)
    assert isinstance(error.__cause__, OSError)


@pytest.mark.parametrize("answer", ["wait", "reject", "raise"])
def test_after_a_refused_break_every_later_one_is_false_and_asks_nobody(
    breaker: Breaker, answer: str
) -> None:
    def callback(context: TaskContext) -> list[bool]:
        calls: list[Callable[[], bool]] = [
            context.sequence_break,
            context.checkpoint,
            lambda: context.sequence_break(timeout=None),
            lambda: context.sequence_break(timeout=1.0, on_pause="park"),
        ]
        answers = [call() for call in calls]
        # Not even a resume makes it go on, nor does a pause hold it up.
        breaker.queue.pause(context.task_id)
        answers += [call() for call in calls]
        breaker.queue.resume(context.task_id)
        answers.append(context.checkpoint())
        results.extend(answers)
        assert breaker.held() == 0
        return answers

    results: list[bool] = []
    task = breaker.run(callback, ANSWERS[answer], start())
    assert task.wait(PATIENCE_S)

    assert results == [False] * 9
    assert len(breaker.governor.asked) == 2
    assert task.state is TaskState.FAILED


# WAIT, with patience -------------------------------------------------------------------


def test_with_a_timeout_a_wait_is_asked_again_at_every_recheck(breaker: Breaker) -> None:
    task = breaker.run(
        lambda context: context.sequence_break(timeout=10.0), wait(), wait(), start(batch_size=2)
    )
    breaker.parked()
    # In the break it runs, holds nothing, and says why and since when.
    assert task.state is TaskState.RUNNING
    assert breaker.held() == 0
    view = task.snapshot()
    assert (view.waiting_since, str(view.reason)) == (0.0, "told to wait by the script")
    assert len(breaker.governor.asked) == 2

    breaker.clock.advance(0.5)
    breaker.parked()
    assert len(breaker.governor.asked) == 3
    assert task.snapshot().waiting_since == 0.0
    breaker.clock.advance(0.5)

    assert task.result(PATIENCE_S) is True
    assert task.snapshot().waiting_since is None


def test_a_break_that_waits_for_slots_has_no_timer(breaker: Breaker) -> None:
    task = breaker.run(
        lambda context: context.sequence_break(timeout=None), wait(code=ReasonCode.CPUS_BUSY)
    )
    breaker.parked()
    breaker.clock.advance(1e6)
    breaker.parked()
    assert len(breaker.governor.asked) == 2

    breaker.governor.script(start())
    breaker.queue.resources_changed()
    assert task.result(PATIENCE_S) is True


@pytest.mark.parametrize("code", [ReasonCode.CPUS_BUSY, ReasonCode.RAM_SHORT])
def test_a_break_that_times_out_fails_with_the_last_answer(
    breaker: Breaker, code: ReasonCode
) -> None:
    first, last = wait("at first", code=code), wait("at last", code=code)
    task = breaker.run(lambda context: context.sequence_break(timeout=0.75), first, last)
    breaker.parked()
    breaker.clock.advance(0.5)
    breaker.parked()
    assert task.state is TaskState.RUNNING
    breaker.clock.advance(0.25)

    assert_refused(task, "at last", last)
    # It was asked at the deadline too: what came free in time is not missed.
    assert len(breaker.governor.asked) == (3 if code is ReasonCode.CPUS_BUSY else 4)


def test_without_a_limit_a_break_waits_as_long_as_it_takes(breaker: Breaker) -> None:
    task = breaker.run(lambda context: context.sequence_break(timeout=None), wait())
    for _ in range(5):
        breaker.parked()
        breaker.clock.advance(1e6)
    breaker.parked()
    assert task.state is TaskState.RUNNING
    breaker.governor.script(start())
    breaker.queue.resources_changed()

    assert task.result(PATIENCE_S) is True


def test_a_release_during_the_answer_to_a_break_is_not_lost(breaker: Breaker) -> None:
    breaker.during_break(breaker.queue.resources_changed)
    task = breaker.run(lambda context: context.sequence_break(timeout=None), wait(), start())

    assert task.result(PATIENCE_S) is True


def test_a_rejection_ends_even_a_patient_break(breaker: Breaker) -> None:
    task = breaker.run(
        lambda context: context.sequence_break(timeout=None), answer := reject("never here")
    )

    assert_refused(task, "never here", answer)


def test_a_governor_that_raises_in_a_break_fails_the_task(breaker: Breaker) -> None:
    task = breaker.run(
        lambda context: context.sequence_break(timeout=None), OSError("the governor broke")
    )

    assert_refused(task, "the governor broke", None)
    assert task.reason is not None
    assert task.reason.code is ReasonCode.GOVERNOR_FAILED


# Where it may be called --------------------------------------------------------------------


def test_a_break_from_another_thread_is_refused_and_changes_nothing(breaker: Breaker) -> None:
    errors: list[BaseException] = []

    def elsewhere(context: TaskContext) -> None:
        calls: list[Callable[[], object]] = [
            context.sequence_break,
            context.checkpoint,
            lambda: next(context.batches([1])),
        ]
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                errors.append(error)

    def callback(context: TaskContext) -> None:
        before = (context.contract, breaker.held())
        thread = threading.Thread(target=elsewhere, args=(context,))
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert (context.contract, breaker.held()) == before

    assert breaker.run(callback).result(PATIENCE_S) is None
    assert len(errors) == 3
    assert all("another thread" in str(error) for error in errors)
    assert len(breaker.governor.asked) == 1


def test_a_break_after_the_callback_is_refused(breaker: Breaker) -> None:
    kept: list[TaskContext] = []
    assert breaker.run(kept.append).wait(PATIENCE_S)
    (context,) = kept

    for call in (context.sequence_break, context.checkpoint):
        with pytest.raises(RuntimeError, match="after its callback"):
            call()
    assert len(breaker.governor.asked) == 1


def test_a_break_after_the_callback_is_refused_on_the_worker_too(breaker: Breaker) -> None:
    """A context that another task's callback got hold of is not its own."""
    kept: list[TaskContext] = []
    assert breaker.run(kept.append).wait(PATIENCE_S)
    other = breaker.queue.submit(lambda _: kept[0].sequence_break(), estimate=ANY)

    assert isinstance(other.exception(PATIENCE_S), RuntimeError)


@pytest.mark.parametrize(
    "arguments",
    [{"timeout": -1.0}, {"timeout": float("nan")}, {"on_pause": "stop"}],
    ids=str,
)
def test_a_break_with_a_wrong_argument_changes_nothing(
    breaker: Breaker, arguments: dict[str, Any]
) -> None:
    def callback(context: TaskContext) -> bool:
        with pytest.raises(ValueError, match="must be"):
            context.sequence_break(**arguments)
        return breaker.held() == 1

    assert breaker.run(callback).result(PATIENCE_S) is True
    assert len(breaker.governor.asked) == 1
