"""How a task ended: its result, its own error, or the error that says why there is none."""

from __future__ import annotations

import concurrent.futures
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from lardon import (
    ReasonCode,
    ResourceEstimate,
    TaskCancelled,
    TaskNotFinished,
    TaskQueue,
    TaskRefused,
    TaskState,
)
from lardon.testing import ScriptedGovernor, reject, start, wait
from tests.tasks.callbacks import ANY, PATIENCE_S, raising

if TYPE_CHECKING:
    from lardon import TaskContext

# Results ---------------------------------------------------------------------------------


def test_the_result_is_what_the_callback_returned(queue: TaskQueue) -> None:
    value = object()
    task = queue.submit(
        lambda _context, *args, **kwargs: (value, args, kwargs), 1, 2, estimate=ANY, key="word"
    )

    assert task.result(PATIENCE_S) == (value, (1, 2), {"key": "word"})
    assert task.exception(timeout=0) is None
    assert task.state is TaskState.COMPLETED
    assert task.wait(timeout=0)


def test_names_of_the_signature_may_be_keyword_arguments_of_the_callback(queue: TaskQueue) -> None:
    """Only `estimate`, `name` and `start_timeout_s` are the queue's own."""
    task = queue.submit(
        lambda _context, **kwargs: kwargs, estimate=ANY, fn=1, self=2, args=3, kwargs=4
    )

    assert task.result(PATIENCE_S) == {"fn": 1, "self": 2, "args": 3, "kwargs": 4}


def test_the_callbacks_own_error_is_raised_again(queue: TaskQueue) -> None:
    error = OSError("its own")
    task = queue.submit(raising(error), estimate=ANY)

    with pytest.raises(OSError, match="its own") as caught:
        task.result(PATIENCE_S)
    assert caught.value is error
    assert task.exception(timeout=0) is error
    assert task.state is TaskState.FAILED
    assert task.reason is not None
    assert task.reason.code is ReasonCode.CALLBACK_RAISED
    assert task.reason.text == "the callback raised OSError: its own"
    # Where it was raised can still be read.
    assert "raise error" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("bare"), StopIteration(5)],
    ids=repr,
)
def test_any_error_is_a_failure_and_the_worker_lives(
    queue: TaskQueue, error: BaseException
) -> None:
    task = queue.submit(raising(error), estimate=ANY)
    after = queue.submit(lambda _: "ran", estimate=ANY)

    assert after.result(PATIENCE_S) == "ran"
    assert task.state is TaskState.FAILED
    assert task.exception(timeout=0) is error
    with pytest.raises(type(error)):
        task.result(timeout=0)


class Hostile(BaseException):
    """Not even an Exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise Hostile

    __repr__ = __str__


def test_an_error_that_cannot_be_printed_leaves_a_reason(queue: TaskQueue) -> None:
    task = queue.submit(raising(Unprintable()), estimate=ANY)

    assert task.wait(PATIENCE_S)
    assert task.reason is not None
    assert "Unprintable" in task.reason.text
    assert isinstance(task.exception(timeout=0), Unprintable)


def test_a_governors_error_that_cannot_be_printed_leaves_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    governor = ScriptedGovernor([Unprintable(), start(), Unprintable()])
    with TaskQueue(governor) as queue:
        first = queue.submit(lambda _: None, estimate=ANY)
        second = queue.submit(lambda context: context.sequence_break(), estimate=ANY)
        assert first.wait(PATIENCE_S)
        assert second.wait(PATIENCE_S)

    for task in (first, second):
        assert task.state is TaskState.FAILED
        assert task.reason is not None
        assert task.reason.code is ReasonCode.GOVERNOR_FAILED
        assert "Unprintable" in task.reason.text


def test_the_reason_of_a_long_error_is_bounded(queue: TaskQueue) -> None:
    long, short = OSError("x" * 1_000_000), OSError()
    tasks = [queue.submit(raising(error), estimate=ANY) for error in (long, short)]

    assert all(task.wait(PATIENCE_S) for task in tasks)
    texts = [task.reason.text for task in tasks if task.reason is not None]
    assert len(texts[0]) < 1_000
    assert texts[0].endswith("…")
    assert texts[1] == "the callback raised OSError"
    # The error itself is whole.
    assert tasks[0].exception(timeout=0) is long


def test_a_callable_that_takes_no_context_fails_its_task(queue: TaskQueue) -> None:
    task = queue.submit(lambda: None, estimate=ANY)

    assert isinstance(task.exception(PATIENCE_S), TypeError)


@pytest.mark.parametrize("fn", [None, "text", 5])
def test_what_cannot_be_called_is_refused_at_submit(queue: TaskQueue, fn: Any) -> None:
    with pytest.raises(TypeError, match="callable"):
        queue.submit(fn, estimate=ANY)


@pytest.mark.parametrize("estimate", [None, 5, {"ram_bytes": 1}])
def test_what_is_no_estimate_is_refused_at_submit(queue: TaskQueue, estimate: Any) -> None:
    with pytest.raises(ValueError, match="estimate"):
        queue.submit(lambda _: None, estimate=estimate)
    assert queue.statistics().submitted == 0


def test_progress_after_the_end_changes_nothing() -> None:
    kept: list[TaskContext] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(kept.append, estimate=ResourceEstimate())
        assert task.wait(timeout=10)
    ended = task.snapshot()

    kept[0].set_progress(99, 100, "late")

    assert task.snapshot() == ended


# No result ---------------------------------------------------------------------------------


def test_a_rejected_task_raises_the_governors_refusal() -> None:
    answer = reject("never on this machine")
    with TaskQueue(ScriptedGovernor([answer])) as queue:
        task = queue.submit(lambda _: pytest.fail("it was rejected"), estimate=ANY, name="big")
        with pytest.raises(TaskRefused, match="never on this machine") as caught:
            task.result(PATIENCE_S)

    assert caught.value.task_id == task.id
    assert caught.value.decision == answer
    assert caught.value.reason == answer.reason == task.reason
    assert "big" in str(caught.value)
    assert isinstance(task.exception(timeout=0), TaskRefused)
    assert task.contract is None


def test_a_cancelled_task_raises_in_result_and_exception() -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        task.cancel()

    for call in (task.result, task.exception):
        with pytest.raises(TaskCancelled) as caught:
            call(timeout=0)
        assert isinstance(caught.value, concurrent.futures.CancelledError)
        assert caught.value.task_id == task.id
        assert pickle.loads(pickle.dumps(caught.value)).task_id == task.id  # noqa: S301


@pytest.mark.parametrize("timeout", [0, 0.0, 0.01])
def test_what_is_not_finished_in_time_raises_its_own_error(timeout: float) -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert not task.wait(timeout)
        for call in (task.result, task.exception):
            with pytest.raises(TaskNotFinished) as caught:
                call(timeout)
            assert isinstance(caught.value, TimeoutError)
            assert (caught.value.task_id, caught.value.timeout) == (task.id, timeout)
        task.cancel()


def test_a_callbacks_own_timeout_error_is_not_mistaken(queue: TaskQueue) -> None:
    task = queue.submit(raising(TimeoutError("its own")), estimate=ANY)

    with pytest.raises(TimeoutError) as caught:
        task.result(PATIENCE_S)
    assert not isinstance(caught.value, TaskNotFinished)
