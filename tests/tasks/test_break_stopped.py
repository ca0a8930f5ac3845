"""A cancel or a pause before, during and after the question of a `sequence_break`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lardon import TaskQueue, TaskState
from lardon.testing import ManualClock, ScriptedGovernor, start, wait
from tests.tasks.breaking import ANSWERS, ANY, PATIENCE_S, Breaker, assert_cancelled, assert_refused

if TYPE_CHECKING:
    from lardon import TaskContext

# Cancel ----------------------------------------------------------------------------------


def test_a_cancel_before_the_break_releases_and_asks_nobody(breaker: Breaker) -> None:
    def callback(context: TaskContext) -> None:
        breaker.queue.cancel(context.task_id)
        assert breaker.held() == 1
        assert not context.sequence_break(timeout=None)
        assert breaker.held() == 0

    task = breaker.run(callback)

    assert_cancelled(task)
    assert len(breaker.governor.asked) == 1


@pytest.mark.parametrize("answer", sorted(ANSWERS))
@pytest.mark.parametrize("timeout", [0.0, None])
@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_cancel_during_the_break_ends_it(
    breaker: Breaker, answer: str, timeout: float | None, how: str
) -> None:
    """Whatever the governor was about to say: CANCELLED, False, and nothing is held."""
    seen: list[Any] = []

    def callback(context: TaskContext) -> None:
        seen.append(context.sequence_break(timeout=timeout))
        seen.append(breaker.held())
        seen.append(context.checkpoint())

    end = breaker.queue.cancel_all if how == "cancel" else breaker.queue.close
    breaker.during_break(end)
    task = breaker.run(callback, ANSWERS[answer])

    assert_cancelled(task)
    assert seen == [False, 0, False]


def test_a_cancel_while_the_break_sleeps_ends_it(breaker: Breaker) -> None:
    task = breaker.run(lambda context: context.sequence_break(timeout=None), wait())
    breaker.parked()
    task.cancel()

    assert_cancelled(task)


class TellingClock(ManualClock):
    """Calls back at each reading, once the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_reading: Callable[[], object] | None = None

    def monotonic(self) -> float:
        if self.on_reading is not None:
            self.on_reading()
        return super().monotonic()


def test_a_cancel_between_the_answer_and_the_refusal_wins() -> None:
    """The request was accepted while the task was not doomed, so it came first."""
    clock = TellingClock()
    governor = ScriptedGovernor([start(), wait()], clock=clock)
    with TaskQueue(governor) as queue:

        def answering() -> None:
            if len(governor.asked) == 2:
                clock.on_reading = lambda: answers.append(queue.cancel(1))

        answers: list[bool] = []
        governor.on_answer = answering
        task = queue.submit(lambda context: context.sequence_break(), estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert answers[0] is True
    assert_cancelled(task)


# Pause -----------------------------------------------------------------------------------


@pytest.mark.parametrize("on_pause", ["cancel", "park"])
def test_a_pause_before_the_break_parks_first_with_everything_kept(
    breaker: Breaker, on_pause: Literal["cancel", "park"]
) -> None:
    def callback(context: TaskContext) -> bool:
        breaker.queue.pause(context.task_id)
        return context.sequence_break(on_pause=on_pause)

    task = breaker.run(callback, start(batch_size=2))
    breaker.parked()
    assert task.state is TaskState.PAUSED
    assert breaker.held() == 1
    assert len(breaker.governor.asked) == 1
    task.resume()

    assert task.result(PATIENCE_S) is True
    assert len(breaker.governor.asked) == 2


@pytest.mark.parametrize("answer", ["start", "wait", "reject"])
@pytest.mark.parametrize("timeout", [0.0, None])
def test_a_pause_during_the_break_cancels_the_task(
    breaker: Breaker, answer: str, timeout: float | None
) -> None:
    """As in the design of origin, unless the callback asked to be parked."""
    seen: list[Any] = []

    def callback(context: TaskContext) -> None:
        seen.append(context.sequence_break(timeout=timeout))
        seen.extend((breaker.held(), context.checkpoint()))

    breaker.during_break(breaker.queue.pause_all)
    task = breaker.run(callback, ANSWERS[answer])

    assert_cancelled(task)
    assert seen == [False, 0, False]
    assert task.reason is not None
    assert "pause" in task.reason.text


def test_a_pause_while_the_break_sleeps_cancels_the_task(breaker: Breaker) -> None:
    task = breaker.run(lambda context: context.sequence_break(timeout=None), wait())
    breaker.parked()
    task.pause()

    assert_cancelled(task)


def test_a_pause_that_is_withdrawn_during_the_break_does_nothing(breaker: Breaker) -> None:
    breaker.during_break(lambda: (breaker.queue.pause_all(), breaker.queue.resume_all()))
    task = breaker.run(lambda context: context.sequence_break(), start())

    assert task.result(PATIENCE_S) is True


def test_park_during_a_granted_break_parks_under_the_new_contract(breaker: Breaker) -> None:
    breaker.during_break(breaker.queue.pause_all)
    task = breaker.run(lambda context: context.sequence_break(on_pause="park"), start(batch_size=2))
    breaker.parked()

    assert task.state is TaskState.PAUSED
    assert breaker.held() == 1
    assert task.contract is not None
    assert (task.contract.batch_size, task.contract.sequence) == (2, 1)
    task.resume()
    assert task.result(PATIENCE_S) is True


def test_cancelled_while_parked_by_a_granted_break_gives_the_new_one_back(breaker: Breaker) -> None:
    held: list[int] = []

    def callback(context: TaskContext) -> None:
        assert not context.sequence_break(on_pause="park")
        held.append(breaker.held())

    breaker.during_break(breaker.queue.pause_all)
    task = breaker.run(callback, start(batch_size=2))
    breaker.parked()
    task.cancel()

    assert_cancelled(task)
    assert held == [0]


@pytest.mark.parametrize("answer", ["wait", "reject"])
@pytest.mark.parametrize("timeout", [0.0, None])
def test_park_during_a_refused_break_parks_with_nothing_and_asks_again(
    breaker: Breaker, answer: str, timeout: float | None
) -> None:
    breaker.during_break(breaker.queue.pause_all)
    task = breaker.run(
        lambda context: context.sequence_break(timeout=timeout, on_pause="park"),
        ANSWERS[answer],
        start(batch_size=2),
    )
    breaker.parked()
    assert task.state is TaskState.PAUSED
    assert breaker.held() == 0
    breaker.clock.advance(1e6)
    assert len(breaker.governor.asked) == 2
    task.resume()

    assert task.result(PATIENCE_S) is True
    assert len(breaker.governor.asked) == 3


def test_park_while_the_break_sleeps_and_go_on_after_the_resume(breaker: Breaker) -> None:
    """Time in a pause is not time in the break."""
    task = breaker.run(
        lambda context: context.sequence_break(timeout=2.0, on_pause="park"), wait("short")
    )
    breaker.parked()
    breaker.clock.advance(1.0)
    breaker.parked()
    task.pause()
    breaker.parked()
    assert task.state is TaskState.PAUSED
    breaker.clock.advance(1_000.0)
    task.resume()
    breaker.parked()
    assert task.state is TaskState.RUNNING
    breaker.clock.advance(0.5)
    breaker.parked()
    assert task.state is TaskState.RUNNING

    breaker.clock.advance(0.5)
    assert_refused(task, "short", wait("short"))


def test_cancelled_while_parked_in_a_break(breaker: Breaker) -> None:
    task = breaker.run(
        lambda context: context.sequence_break(timeout=None, on_pause="park"), wait()
    )
    breaker.parked()
    task.pause()
    breaker.parked()
    assert task.state is TaskState.PAUSED
    task.cancel()

    assert_cancelled(task)
