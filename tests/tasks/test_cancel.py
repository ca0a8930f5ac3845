"""Cancel: at once for what has not started, a request for what runs, nothing after the end."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import (
    ReasonCode,
    ResourceEstimate,
    TaskCancelled,
    TaskQueue,
    TaskRefused,
    TaskState,
)
from lardon.testing import ScriptedGovernor, reject, start, wait

if TYPE_CHECKING:
    from lardon import Task, TaskContext
    from lardon.queue.views import TaskEvent
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


def never(_context: TaskContext) -> None:
    pytest.fail("the callback of a cancelled task was called")


def assert_cancelled(task: Task) -> None:
    assert task.state is TaskState.CANCELLED
    assert task.reason is not None
    assert task.reason.code is ReasonCode.CANCELLED
    with pytest.raises(TaskCancelled) as caught:
        task.result(timeout=0)
    assert caught.value.task_id == task.id
    with pytest.raises(TaskCancelled):
        task.exception(timeout=0)


@pytest.mark.parametrize("paused", [False, True], ids=["pending", "paused"])
def test_a_task_that_has_not_started_is_cancelled_at_once(gate: Gate, paused: bool) -> None:
    events: list[tuple[TaskEvent, threading.Thread]] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        task = queue.submit(never, estimate=ANY)
        if paused:
            task.pause()
        queue.subscribe(lambda event: events.append((event, threading.current_thread())))

        assert task.cancel()

        # All of it has happened when the call returns, on the thread that called.
        assert_cancelled(task)
        (event, thread), *rest = events
        assert not rest
        assert event.task_id == task.id
        assert event.state is TaskState.CANCELLED
        assert event.previous is (TaskState.PAUSED if paused else TaskState.PENDING)
        assert thread is threading.current_thread()
        assert not task.started
        gate.open()


def test_what_a_cancelled_task_would_have_used_is_free_at_once() -> None:
    class Data:
        pass

    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        head = queue.submit(never, estimate=ANY)
        data = Data()
        seen = weakref.ref(data)
        task = queue.submit(lambda _context, _data, more: None, data, more=[data], estimate=ANY)
        del data
        gc.collect()
        assert seen() is not None

        task.cancel()
        gc.collect()

        assert seen() is None
        head.cancel()


def test_a_running_task_is_asked_to_end(gate: Gate) -> None:
    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()

        assert task.cancel()

        # Its callback is not over, so it is not CANCELLED, and holds what it held.
        assert task.state is TaskState.RUNNING
        assert not task.wait(timeout=0)
        assert len(governor.reservations()) == 1
        gate.open()
        assert task.wait(PATIENCE_S)

    assert_cancelled(task)
    assert governor.reservations() == ()


def test_the_callback_sees_the_request_everywhere() -> None:
    seen: list[Any] = []

    def callback(context: TaskContext) -> str:
        seen.append(context.cancel_requested)
        queue.cancel(context.task_id)
        seen.append(context.cancel_requested)
        seen.extend(context.checkpoint() for _ in range(2))
        seen.append(context.sequence_break(timeout=None))
        seen.append(context.checkpoint())
        return "a value that nobody gets"

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert seen == [False, True, False, False, False, False]
    assert_cancelled(task)


def test_the_request_wins_over_an_error_which_stays_in_the_reason() -> None:
    def callback(context: TaskContext) -> None:
        queue.cancel(context.task_id)
        raise OSError("the disk is full")

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert_cancelled(task)
    assert task.reason is not None
    assert "the disk is full" in task.reason.text
    assert "OSError" in str(task.reason.facts["error"])


def test_a_parked_task_is_cancelled_where_it_parks(gate: Gate) -> None:
    events: list[TaskEvent] = []
    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        queue.subscribe(events.append)
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        task.pause()
        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PAUSED

        assert task.cancel()
        # A resume that comes too late changes nothing.
        task.resume()
        assert task.wait(PATIENCE_S)

    assert_cancelled(task)
    assert [event.state for event in events] == [
        TaskState.RUNNING,
        TaskState.PAUSED,
        TaskState.CANCELLED,
    ]
    assert governor.released == 1


def test_a_pause_does_not_hold_up_a_cancelled_task(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        task.cancel()
        assert task.pause()
        gate.open()
        assert task.wait(PATIENCE_S)

    assert_cancelled(task)


def test_a_task_cancelled_while_the_governor_answers_never_runs() -> None:
    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        governor.on_answer = queue.cancel_all
        task = queue.submit(never, estimate=ANY)
        assert task.wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)

        assert governor.reservations() == ()
        assert governor.released == 1

    assert_cancelled(task)


@pytest.mark.parametrize("answer", [wait(), reject(), OSError("broken")], ids=repr)
def test_a_cancel_during_a_refusal_wins(answer: Any) -> None:
    """The state is final: what the governor says afterwards does not matter."""
    governor = ScriptedGovernor([answer])
    with TaskQueue(governor) as queue:
        governor.on_answer = queue.cancel_all
        task = queue.submit(never, estimate=ANY)
        assert task.wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)

    assert_cancelled(task)


def test_a_listener_may_cancel_a_task_as_it_starts() -> None:
    """The callback is called, for the reservation was booked; it sees the request at once."""
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.subscribe(
            lambda event: queue.cancel(event.task_id) if event.state is TaskState.RUNNING else None
        )
        seen: list[bool] = []
        task = queue.submit(lambda context: seen.append(context.checkpoint()), estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert seen == [False]
    assert_cancelled(task)


# Again, and after the end ------------------------------------------------------------


def test_cancel_is_true_once(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        running = queue.submit(gate, estimate=ANY)
        pending = queue.submit(never, estimate=ANY)
        paused = queue.submit(never, estimate=ANY)
        gate.wait_entered()
        paused.pause()
        for task in (running, pending, paused):
            assert task.cancel()
            assert not task.cancel()
            assert not queue.cancel(task.id)
        gate.open()

    assert not running.cancel()


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED])
def test_later_calls_change_neither_state_nor_reason_nor_result(state: TaskState) -> None:
    def callback(context: TaskContext) -> str:
        if state is TaskState.FAILED:
            raise OSError("its own")
        if state is TaskState.CANCELLED:
            queue.cancel(context.task_id)
        return "its own"

    events: list[TaskEvent] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)
        queue.subscribe(events.append)
        before = task.snapshot()
        answers = [task.cancel(), task.pause(), task.resume(), task.cancel()]
        answers += [queue.pause(task.id), queue.resume(task.id), queue.cancel(task.id)]

        # A call that was on its way when the task ended.
        answers += [queue._life.cancel(task), queue._life.pause(task), queue._life.resume(task)]

        assert answers == [False] * 10
        assert task.snapshot() == before
        assert not events

    assert task.state is state
    if state is TaskState.COMPLETED:
        assert task.result(timeout=0) == "its own"
    elif state is TaskState.FAILED:
        assert str(task.exception(timeout=0)) == "its own"


def test_a_refusal_that_came_first_wins_over_a_later_cancel() -> None:
    def callback(context: TaskContext) -> None:
        assert not context.sequence_break()
        assert queue.cancel(context.task_id)
        assert not queue.cancel(context.task_id)

    with TaskQueue(ScriptedGovernor([start(), wait("no more")])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert task.state is TaskState.FAILED
    assert task.reason is not None
    assert task.reason.text == "no more"
    with pytest.raises(TaskRefused):
        task.result(timeout=0)


def test_cancel_all_counts_what_is_new(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        tasks = [queue.submit(gate, estimate=ANY)]
        gate.wait_entered()
        tasks += [queue.submit(never, estimate=ANY) for _ in range(3)]
        tasks[1].cancel()
        tasks[2].pause()

        assert queue.cancel_all() == 3
        assert queue.cancel_all() == 0
        gate.open()

    for task in tasks:
        assert_cancelled(task)
    assert queue.statistics().cancelled == 4


# The future of a task -----------------------------------------------------------------


def test_the_futures_cancel_cancels_only_what_has_not_started(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        running = queue.submit(gate, estimate=ANY)
        pending = queue.submit(never, estimate=ANY)
        gate.wait_entered()

        assert not running.future.cancel()
        assert pending.future.cancel()
        assert pending.future.cancel()

        assert_cancelled(pending)
        assert pending.future.cancelled()
        gate.open()
        assert running.result(PATIENCE_S) is True

    assert not running.future.cancel()
    assert running.future.result(timeout=0) is True
