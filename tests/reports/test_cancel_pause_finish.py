"""Reports on cancel, pause and finish: races at the start, repeats, scope, blocking calls."""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState, UnknownTask
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import Task, TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
ROUNDS: Final = 10_000


@pytest.mark.slow
def test_h74_a_cancel_around_the_start_either_prevents_it_or_is_a_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: set[int] = set()
    random_one = random.Random(74)
    todo: list[Task] = []
    more = threading.Semaphore(0)

    def cancel_them() -> None:
        for _ in range(ROUNDS):
            assert more.acquire(timeout=PATIENCE_S)
            todo.pop().cancel()

    governor = ScriptedGovernor([start()])
    with TaskQueue(governor, history=0) as queue:
        canceller = threading.Thread(target=cancel_them)
        canceller.start()
        tasks = []
        for _ in range(ROUNDS):
            task = queue.submit(lambda context: ran.add(context.task_id), estimate=ANY)
            tasks.append(task)
            # A delay of a random length, without a sleep.
            for _ in range(random_one.randrange(60)):
                pass
            todo.append(task)
            more.release()
        canceller.join(PATIENCE_S)
        assert not canceller.is_alive()

    for task in tasks:
        if task.state is TaskState.CANCELLED:
            assert task.started == (task.id in ran)
        else:
            assert task.state is TaskState.COMPLETED
            assert task.id in ran
    assert governor.reservations() == ()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_h75_a_repeated_cancel_is_no_error() -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        done = queue.submit(lambda _: "kept", estimate=ANY)
        assert done.wait(PATIENCE_S)
        assert not done.cancel()
        assert not queue.cancel(done.id)
        assert done.state is TaskState.COMPLETED
        pending = queue.submit(lambda _: None, estimate=ANY)
        pending.pause()
        assert pending.cancel()
        assert not pending.cancel()
        with pytest.raises(UnknownTask):
            queue.cancel(99)


def test_h76_a_paused_task_goes_on_only_by_its_own_resume(gate: Gate) -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([start()], clock=clock)
    other_queue = TaskQueue(governor)
    with TaskQueue(governor) as queue:
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        task.pause()
        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        (held,) = governor.reservations()
        others = [queue.submit(lambda _: None, estimate=ANY) for _ in range(3)]
        queue.resources_changed()
        assert other_queue.submit(lambda _: "finished", estimate=ANY).wait(PATIENCE_S)
        others[0].cancel()
        clock.advance(2.0)
        assert queue.wait_parked(PATIENCE_S)

        assert task.state is TaskState.PAUSED
        assert governor.reservations() == (held,)
        assert [other.state for other in others[1:]] == [TaskState.PENDING] * 2
        task.resume()
        assert task.result(PATIENCE_S) is True
    other_queue.close(PATIENCE_S)


def test_h77_pause_returns_at_once() -> None:
    """Also for a callback that never looks; the test itself would hang otherwise."""
    go_on, running = threading.Event(), threading.Event()

    def never_looks(_context: TaskContext) -> str:
        running.set()
        assert go_on.wait(PATIENCE_S)
        return "done"

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(never_looks, estimate=ANY)
        assert running.wait(PATIENCE_S)
        pending = queue.submit(lambda _: None, estimate=ANY)
        assert task.pause()
        assert pending.pause()
        assert (task.state, pending.state) == (TaskState.RUNNING, TaskState.PAUSED)
        # A bounded wait says that it has not ended.
        assert not task.wait(timeout=0.01)
        pending.resume()
        go_on.set()

        assert task.result(PATIENCE_S) == "done"


def test_h77_pause_does_not_wait_for_a_governor_that_answers() -> None:
    asked, answer = threading.Event(), threading.Event()
    governor = ScriptedGovernor([wait()])

    def answering() -> None:
        asked.set()
        assert answer.wait(PATIENCE_S)

    governor.on_answer = answering
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert asked.wait(PATIENCE_S)
        assert task.pause()
        assert task.state is TaskState.PAUSED
        assert task.cancel()
        answer.set()
