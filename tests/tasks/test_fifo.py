"""Strict FIFO: tasks start in order of submission, one at a time, and none overtakes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, reject, start, wait

if TYPE_CHECKING:
    from lardon import TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


def test_tasks_start_in_order_of_submission() -> None:
    order: list[int] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        for number in range(200):
            queue.submit(lambda _context, number=number: order.append(number), estimate=ANY)

    assert order == list(range(200))


def test_order_holds_for_many_submitters(gate: Gate) -> None:
    """Whoever submits: ids are given in the order in which the tasks run."""
    order: list[int] = []
    barrier = threading.Barrier(4)

    def note(context: TaskContext) -> None:
        order.append(context.task_id)

    def submit_some() -> None:
        barrier.wait(PATIENCE_S)
        for _ in range(50):
            queue.submit(note, estimate=ANY)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        threads = [threading.Thread(target=submit_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        gate.open()

    assert order == list(range(2, 202))


def test_one_worker_runs_one_task_at_a_time() -> None:
    """The worker is one named daemon thread, and callbacks never overlap."""
    inside: list[int] = []
    threads: set[threading.Thread] = set()

    def callback(context: TaskContext) -> int:
        inside.append(context.task_id)
        threads.add(threading.current_thread())
        overlap = len(inside)
        inside.remove(context.task_id)
        return overlap

    with TaskQueue(ScriptedGovernor([start()]), name="photos") as queue:
        tasks = [queue.submit(callback, estimate=ANY) for _ in range(20)]

    assert {task.result(timeout=0) for task in tasks} == {1}
    (worker,) = threads
    assert worker.daemon
    assert "photos" in worker.name
    assert worker is not threading.current_thread()


def test_nothing_behind_a_waiting_head_starts_or_is_asked_about() -> None:
    head_estimate = ResourceEstimate(max_batch=99)
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        head = queue.submit(lambda _: "head", estimate=head_estimate)
        assert queue.wait_parked(PATIENCE_S)
        behind = [queue.submit(lambda _: "behind", estimate=ANY) for _ in range(20)]
        assert queue.wait_parked(PATIENCE_S)

        assert set(governor.asked) == {head_estimate}
        assert [task.state for task in (head, *behind)] == [TaskState.PENDING] * 21
        assert all(task.reason is None for task in behind)

        governor.script(start())
        queue.resources_changed()

    assert all(task.state is TaskState.COMPLETED for task in behind)


@pytest.mark.parametrize("answer", [reject(), OSError("the governor broke")], ids=repr)
def test_a_head_that_is_refused_leaves_the_line(answer: Any) -> None:
    governor = ScriptedGovernor([answer, start()])
    with TaskQueue(governor) as queue:
        refused = queue.submit(lambda _: "never", estimate=ANY)
        behind = queue.submit(lambda _: "ran", estimate=ANY)

        assert behind.result(PATIENCE_S) == "ran"

    assert refused.state is TaskState.FAILED
    assert not refused.started


def test_a_head_that_is_cancelled_leaves_the_line() -> None:
    governor = ScriptedGovernor([wait(), start()])
    with TaskQueue(governor) as queue:
        head = queue.submit(lambda _: "never", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        behind = queue.submit(lambda _: "ran", estimate=ResourceEstimate(max_batch=2))
        head.cancel()

        assert behind.result(PATIENCE_S) == "ran"


def test_an_older_task_that_is_resumed_during_the_answer_starts_first() -> None:
    """The head is looked at again after the answer; what was booked for another goes back."""
    order: list[int] = []

    def note(context: TaskContext) -> None:
        order.append(context.task_id)

    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        older = queue.submit(note, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        older.pause()
        younger = queue.submit(note, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        governor.on_answer = older.resume
        governor.script(start())
        queue.resources_changed()

        assert younger.wait(PATIENCE_S)

    assert order == [older.id, younger.id]
    # Two ran, and one booking was undone.
    assert governor.released == 3
    assert governor.reservations() == ()
