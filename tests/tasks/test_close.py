"""`close`: refuse, cancel, join, release; from outside, from inside, twice, in time."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import QueueClosed, ReasonCode, ResourceEstimate, TaskCancelled, TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon import Task, TaskContext
    from lardon.queue.views import TaskEvent
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


def never(_context: TaskContext) -> None:
    pytest.fail("a task of a closed queue was started")


def assert_cancelled(*tasks: Task) -> None:
    for task in tasks:
        assert task.state is TaskState.CANCELLED
        assert task.reason is not None
        assert task.reason.code is ReasonCode.CANCELLED
        with pytest.raises(TaskCancelled):
            task.result(timeout=0)


# From outside ----------------------------------------------------------------------------


def test_an_idle_queue_is_closed_at_once() -> None:
    queue = TaskQueue(ScriptedGovernor([start()]), name="idle")

    assert queue.close()

    assert not any("idle" in thread.name for thread in threading.enumerate())
    assert not queue.statistics().worker_alive


def test_everything_ends_cancelled_and_nothing_is_held(gate: Gate) -> None:
    events: list[TaskEvent] = []
    governor = ScriptedGovernor([start()])
    queue = TaskQueue(governor)
    queue.subscribe(events.append)
    running = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(never, estimate=ANY)
    paused = queue.submit(never, estimate=ANY)
    paused.pause()
    closer = threading.Thread(target=queue.close)
    closer.start()
    assert pending.wait(PATIENCE_S)
    assert paused.wait(PATIENCE_S)
    # The running callback is not over, so its task is not, and close has not returned.
    assert running.state is TaskState.RUNNING
    assert closer.is_alive()
    assert len(governor.reservations()) == 1
    gate.open()
    closer.join(PATIENCE_S)
    assert not closer.is_alive()

    assert_cancelled(running, pending, paused)
    assert governor.reservations() == ()
    assert governor.released == 1
    ends = [event.task_id for event in events if event.state.terminal]
    assert sorted(ends) == [running.id, pending.id, paused.id]
    assert ends[-1] == running.id


@pytest.mark.parametrize("paused", [False, True])
def test_a_waiting_head_is_cancelled(paused: bool) -> None:
    queue = TaskQueue(ScriptedGovernor([wait()]))
    head = queue.submit(never, estimate=ANY)
    behind = queue.submit(never, estimate=ANY)
    assert queue.wait_parked(PATIENCE_S)
    if paused:
        head.pause()

    assert queue.close(PATIENCE_S)
    assert_cancelled(head, behind)


@pytest.mark.parametrize("where", ["parked", "in a break"])
def test_a_callback_that_sleeps_is_woken(gate: Gate, where: str) -> None:
    def callback(context: TaskContext) -> None:
        gate(context)
        assert not context.checkpoint() or not context.sequence_break(timeout=None)
        assert context.cancel_requested

    governor = ScriptedGovernor([start(), wait()])
    queue = TaskQueue(governor)
    task = queue.submit(callback, estimate=ANY)
    gate.wait_entered()
    if where == "parked":
        task.pause()
    gate.open()
    assert queue.wait_parked(PATIENCE_S)

    assert queue.close(PATIENCE_S)
    assert_cancelled(task)
    assert governor.reservations() == ()


def test_a_task_that_the_governor_admits_meanwhile_does_not_start() -> None:
    """The booking is undone; the worker ends."""
    governor = ScriptedGovernor([wait()])
    queue = TaskQueue(governor)
    task = queue.submit(never, estimate=ANY)
    assert queue.wait_parked(PATIENCE_S)
    ended = threading.Event()
    task.add_done_callback(lambda _: ended.set())
    closer = threading.Thread(target=queue.close)

    def answering() -> None:
        closer.start()
        # Cancelled by the closer, which then waits for this very thread.
        assert ended.wait(PATIENCE_S)

    governor.on_answer = answering
    governor.script(start())
    queue.resources_changed()
    closer_started = ended.wait(PATIENCE_S)
    closer.join(PATIENCE_S)

    assert closer_started
    assert not closer.is_alive()
    assert_cancelled(task)
    assert governor.reservations() == ()
    assert governor.released == 1


def test_a_closed_queue_takes_nothing_and_still_answers() -> None:
    queue = TaskQueue(ScriptedGovernor([start()]), name="closed one")
    task = queue.submit(lambda _: "kept", estimate=ANY)
    assert task.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)

    for submit in (queue.submit, queue.submit_nowait):
        with pytest.raises(QueueClosed, match="closed one") as caught:
            submit(never, estimate=ANY)
        assert caught.value.owner_pid is None
    assert queue.get(task.id) is task
    assert task.result(timeout=0) == "kept"
    assert [view.id for view in queue.tasks()] == [task.id]
    assert queue.statistics().completed == 1
    assert queue.join(timeout=0)
    assert queue.cancel_all() == queue.pause_all() == queue.resume_all() == 0
    queue.resources_changed()


def test_closing_again_waits_again_and_answers_the_same(gate: Gate) -> None:
    queue = TaskQueue(ScriptedGovernor([start()]))
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()

    assert not queue.close(timeout=0)
    assert not queue.close(timeout=0.01)
    gate.open()
    assert queue.close(PATIENCE_S)
    assert queue.close()
    assert queue.close(timeout=0)


def test_closing_from_many_threads_at_once(gate: Gate) -> None:
    queue = TaskQueue(ScriptedGovernor([start()]))
    task = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(queue.close(PATIENCE_S))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert answers == [True] * 8
    assert_cancelled(task)


def test_closing_answers_true_on_any_thread_once_the_worker_has_ended() -> None:
    """The system may give a new thread the identifier of the worker that ended."""
    queue = TaskQueue(ScriptedGovernor([start()]))
    assert queue.close(PATIENCE_S)
    answers: list[bool] = []
    for _ in range(20):
        thread = threading.Thread(target=lambda: answers.append(queue.close(PATIENCE_S)))
        thread.start()
        thread.join(PATIENCE_S)

    assert answers == [True] * 20


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_timeout_that_is_none_changes_nothing(timeout: float) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        with pytest.raises(ValueError, match="timeout"):
            queue.close(timeout)

        assert queue.submit(lambda _: 1, estimate=ANY).result(PATIENCE_S) == 1


def test_a_submitter_that_waits_for_room_is_told(gate: Gate) -> None:
    queue = TaskQueue(ScriptedGovernor([start()]), capacity=1)
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    queue.submit(never, estimate=ANY)
    errors: list[BaseException] = []
    waits = threading.Event()

    def submit() -> None:
        try:
            waits.set()
            queue.submit(never, estimate=ANY)
        except QueueClosed as error:
            errors.append(error)

    thread = threading.Thread(target=submit)
    thread.start()
    assert waits.wait(PATIENCE_S)
    queue.close(timeout=0)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    gate.open()

    assert len(errors) == 1
    assert queue.close(PATIENCE_S)


# From inside -----------------------------------------------------------------------------


def test_a_callback_may_close_its_own_queue() -> None:
    """It requests closing and goes on; it ends CANCELLED, and the worker ends the pending."""
    seen: list[Any] = []

    def callback(context: TaskContext) -> None:
        seen.extend((queue.close(), context.cancel_requested, context.checkpoint()))
        with pytest.raises(QueueClosed):
            queue.submit(never, estimate=ANY)

    governor = ScriptedGovernor([wait()])
    queue = TaskQueue(governor)
    task = queue.submit(callback, estimate=ANY)
    behind = queue.submit(never, estimate=ANY)
    paused = queue.submit(never, estimate=ANY)
    paused.pause()
    governor.script(start())
    queue.resources_changed()

    assert task.wait(PATIENCE_S)
    assert behind.wait(PATIENCE_S)
    assert paused.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert seen == [False, True, False]
    assert_cancelled(task, behind, paused)
    assert governor.reservations() == ()


@pytest.mark.parametrize("where", ["listener", "done-callback"])
def test_a_callback_on_the_workers_thread_may_close_the_queue(where: str) -> None:
    answers: list[bool] = []
    queue = TaskQueue(ScriptedGovernor([wait()]))

    def close(_anything: object) -> None:
        answers.append(queue.close())

    first = queue.submit(lambda _: "done", estimate=ANY)
    behind = queue.submit(never, estimate=ANY)
    if where == "listener":
        queue.subscribe(lambda event: close(event) if event.state.terminal else None)
    else:
        first.add_done_callback(close)
    assert isinstance(queue._life.governor, ScriptedGovernor)
    queue._life.governor.script(start())
    queue.resources_changed()

    assert behind.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert answers[0] is False
    assert first.result(timeout=0) == "done"
    assert_cancelled(behind)


def test_a_done_callback_of_a_closing_queue_sees_it_closed(gate: Gate) -> None:
    """What runs on the closing thread may close again: it has nothing to wait for there."""
    queue = TaskQueue(ScriptedGovernor([start()]))
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(never, estimate=ANY)
    answers: list[bool] = []
    pending.add_done_callback(lambda _: answers.append(queue.close(timeout=0)))
    assert not queue.close(timeout=0)
    gate.open()

    assert queue.close(PATIENCE_S)
    assert answers == [False]


def test_a_task_admitted_while_its_worker_is_told_to_close_does_not_start() -> None:
    """Told inside the answer, on the worker's own thread: the task is still pending then."""
    governor = ScriptedGovernor([start()])
    queue = TaskQueue(governor)
    governor.on_answer = queue.close
    task = queue.submit(never, estimate=ANY)

    assert task.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert_cancelled(task)
    assert not task.started
    assert governor.released == 1


# From a signal handler ---------------------------------------------------------------------


@pytest.fixture
def on_alarm() -> Any:
    """Return a function that installs a handler for SIGUSR1 until the test ends."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(handler: Callable[[], object]) -> None:
        signal.signal(signal.SIGUSR1, lambda _number, _frame: handler())

    yield install
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_may_close_while_the_main_thread_waits(on_alarm: Any, gate: Gate) -> None:
    answers: list[bool] = []
    queue = TaskQueue(ScriptedGovernor([start()]))
    task = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    on_alarm(lambda: (gate.open(), answers.append(queue.close(PATIENCE_S))))
    main = threading.main_thread().ident
    assert main is not None
    sender = threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGUSR1))
    sender.start()

    # In short waits: a signal that comes just before a long one would be handled after it.
    assert any(task.wait(timeout=0.05) for _ in range(200))
    sender.join(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert answers == [True]
    assert_cancelled(task)


def test_a_signal_handler_that_interrupts_the_queue_itself_does_not_wait(on_alarm: Any) -> None:
    """The interrupted call holds the lock that the worker needs: closing is only requested."""
    answers: list[bool] = []
    queue = TaskQueue(ScriptedGovernor([wait()]))
    pending = queue.submit(never, estimate=ANY)
    on_alarm(lambda: answers.append(queue.close()))
    with queue._signal.lock:
        signal.raise_signal(signal.SIGUSR1)
        assert answers == [False]
        # Nobody was told while the lock was held.
        assert not pending._state.terminal

    assert pending.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert_cancelled(pending)
