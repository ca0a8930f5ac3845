"""A queue that nobody holds ends: its tasks are cancelled, its thread goes, with a warning."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState
from lardon.clock import MachineClock
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lardon import Task, TaskContext
    from lardon.queue.views import TaskEvent

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collect what finalizers could not raise, and let warnings be warnings."""
    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", seen.append)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield seen


def drop_with_a_waiting_task(
    governor: ScriptedGovernor,
) -> tuple[weakref.ref[TaskQueue], list[Any]]:
    """Make a queue whose two tasks wait, and forget all of it but what the callbacks note."""
    ends: list[tuple[int, TaskState, str]] = []
    queue = TaskQueue(governor, name="forgotten")

    def note(task: Task) -> None:
        ends.append((task.id, task.state, str(task.reason)))

    for _ in range(2):
        queue.submit(lambda _: None, estimate=ANY).add_done_callback(note)
    assert queue.wait_parked(PATIENCE_S)
    return weakref.ref(queue), ends


def join_worker(thread: threading.Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def worker_of(name: str) -> threading.Thread:
    (thread,) = [one for one in threading.enumerate() if one.name == f"lardon-worker-{name}"]
    return thread


def test_its_tasks_are_cancelled_with_a_resource_warning(unraisable: list[Any]) -> None:
    ref, ends = drop_with_a_waiting_task(ScriptedGovernor([wait()]))
    worker = worker_of("forgotten")
    with pytest.warns(ResourceWarning, match="'forgotten'.* 2 waiting tasks"):
        gc.collect()
    join_worker(worker)

    assert ref() is None
    assert [(number, state) for number, state, _ in ends] == [
        (1, TaskState.CANCELLED),
        (2, TaskState.CANCELLED),
    ]
    assert not unraisable


class CollectingClock(ManualClock):
    """A clock on which the garbage is collected by the sleeping worker itself."""

    collecting = False

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        def collect_and_look() -> bool:
            if self.collecting:
                gc.collect()
            return predicate()

        return super().wait_for(condition, collect_and_look, timeout)


def test_the_same_when_the_worker_finds_it_dropped(unraisable: list[Any]) -> None:
    """The collector may run on any thread: here on the worker's, which holds the lock."""
    gc.collect()
    gc.disable()
    try:
        clock = CollectingClock()
        _, ends = drop_with_a_waiting_task(ScriptedGovernor([wait()], clock=clock))
        worker = worker_of("forgotten")
        clock.collecting = True

        def let_it_look() -> None:
            # Nothing has changed for the sleeper.
            clock.advance(1.0)
            join_worker(worker)

        with pytest.warns(ResourceWarning, match="2 waiting tasks"):
            let_it_look()
    finally:
        gc.enable()

    assert [state for _, state, _ in ends] == [TaskState.CANCELLED] * 2
    assert not unraisable


def test_the_same_when_the_last_handle_goes_while_the_governor_answers(
    unraisable: list[Any],
) -> None:
    ends: list[Task] = []
    governor = ScriptedGovernor([wait()])
    holder = [TaskQueue(governor, name="forgotten")]
    signal = holder[0]._signal
    worker = worker_of("forgotten")
    submitted = threading.Event()

    def forget() -> None:
        assert submitted.wait(PATIENCE_S)
        holder.clear()

    governor.on_answer = forget
    holder[0].submit(lambda _: None, estimate=ANY).add_done_callback(ends.append)
    submitted.set()
    # The worker keeps this alone; it sleeps when it has forgotten the queue.
    assert signal.watch(signal.asleep, PATIENCE_S, MachineClock())
    with pytest.warns(ResourceWarning):
        gc.collect()
    join_worker(worker)

    assert [task.state for task in ends] == [TaskState.CANCELLED]
    assert not unraisable


def test_listeners_hear_of_it(unraisable: list[Any]) -> None:
    events: list[TaskEvent] = []
    queue = TaskQueue(ScriptedGovernor([wait()]), name="forgotten")
    queue.subscribe(events.append)
    queue.submit(lambda _: None, estimate=ANY)
    assert queue.wait_parked(PATIENCE_S)
    worker = worker_of("forgotten")
    del queue
    with pytest.warns(ResourceWarning):
        gc.collect()
    join_worker(worker)

    assert [event.state for event in events] == [TaskState.CANCELLED]
    assert not unraisable


def test_a_queue_without_tasks_goes_without_a_word(unraisable: list[Any]) -> None:
    queue = TaskQueue(ScriptedGovernor([start()]), name="forgotten")
    task = queue.submit(lambda _: "kept", estimate=ANY)
    assert task.wait(PATIENCE_S)
    worker = worker_of("forgotten")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del queue
        gc.collect()
        join_worker(worker)

    # The handle outlives its queue.
    assert task.result(timeout=0) == "kept"
    assert task.cancel() is False
    assert not unraisable


def test_the_handle_of_a_failed_task_does_not_keep_the_queue(unraisable: list[Any]) -> None:
    """The traceback of its error leads to the worker's frames; they hold nothing."""

    def fail(_context: TaskContext) -> None:
        raise OSError("its own")

    queue = TaskQueue(ScriptedGovernor([start(), start(), wait()]), name="forgotten")
    failed = [queue.submit(fail, estimate=ANY) for _ in range(2)]
    queue.submit(lambda _: None, estimate=ANY)
    assert queue.wait_parked(PATIENCE_S)
    ref, worker = weakref.ref(queue), worker_of("forgotten")
    del queue
    with pytest.warns(ResourceWarning, match="1 waiting task"):
        gc.collect()
    join_worker(worker)

    assert ref() is None
    assert [str(task.exception(timeout=0)) for task in failed] == ["its own"] * 2
    assert not unraisable


def test_a_handle_of_an_unfinished_task_keeps_the_queue() -> None:
    governor = ScriptedGovernor([wait()])
    task = TaskQueue(governor).submit(lambda _: "ran", estimate=ANY)
    gc.collect()
    governor.script(start())
    assert task._queue is not None
    task._queue.resources_changed()

    assert task.result(PATIENCE_S) == "ran"


def test_a_future_of_an_unfinished_task_keeps_the_queue() -> None:
    governor = ScriptedGovernor([start()])
    future = TaskQueue(governor).submit(lambda _: "ran", estimate=ANY).future
    gc.collect()

    assert future.result(PATIENCE_S) == "ran"


def test_a_governor_does_not_keep_its_queues() -> None:
    governor = ScriptedGovernor([start()])
    queue = TaskQueue(governor)
    ref, worker = weakref.ref(queue), queue._thread
    del queue
    gc.collect()
    join_worker(worker)

    assert ref() is None
    assert governor._listeners.callbacks == ()


def test_a_closed_queue_can_be_dropped(unraisable: list[Any]) -> None:
    queue = TaskQueue(ScriptedGovernor([wait()]))
    queue.submit(lambda _: None, estimate=ANY)
    assert queue.close(PATIENCE_S)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del queue
        gc.collect()

    assert not unraisable


def test_a_queue_that_was_never_made_can_be_dropped(unraisable: list[Any]) -> None:
    for arguments in ({"capacity": 0}, {"capacity": True}, {"history": -1}):
        with pytest.raises(ValueError, match="must be an integer of at least"):
            TaskQueue(ScriptedGovernor([start()]), **arguments)
    with pytest.raises(TypeError):
        TaskQueue(ScriptedGovernor([start()]), capacity=1.5)  # type: ignore[arg-type]
    gc.collect()

    assert not unraisable
