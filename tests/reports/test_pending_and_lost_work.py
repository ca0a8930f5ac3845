"""Reports on reservations that tasks hold or lost: lazy cancels, work that goes on without one."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Final

from lardon import ResourceEstimate, TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


class Data:
    """Something that can be watched."""


def test_h64_a_pending_task_is_cancelled_at_once_with_all_that_it_held() -> None:
    """Listeners are told at the time of the cancel; then the queue goes on."""
    told: list[tuple[int, TaskState]] = []
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        queue.subscribe(lambda event: told.append((event.task_id, event.state)))
        data = [Data() for _ in range(3)]
        refs = [weakref.ref(one) for one in data]
        tasks = [queue.submit(lambda _context, _data: None, one, estimate=ANY) for one in data]
        del data
        assert queue.wait_parked(PATIENCE_S)
        for task in (tasks[1], tasks[2], tasks[0]):
            assert task.cancel()
            assert task.state is TaskState.CANCELLED
            assert told[-1] == (task.id, TaskState.CANCELLED)
        gc.collect()
        assert [ref() for ref in refs] == [None] * 3

        governor.script(start())
        after = queue.submit(lambda _: "goes on", estimate=ANY)
        assert after.result(PATIENCE_S) == "goes on"

    assert len(told) == 5


def test_h65_a_callback_that_ignores_a_refused_break_gets_nothing_more() -> None:
    """Every later call is False, no reservation is made, and its result does not count."""
    answers: list[bool] = []
    held: list[int] = []

    def callback(context: TaskContext) -> str:
        for number in range(10):
            answers.append(context.sequence_break(timeout=None if number else 0.0))
            answers.append(context.checkpoint())
            context.set_progress(number, 10)
            held.append(len(governor.reservations()))
        assert queue.get(context.task_id).reason is not None
        return "ignored"

    governor = ScriptedGovernor([start(), wait("taken by somebody else"), start()])
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert answers == [False] * 20
    assert held == [0] * 10
    assert len(governor.asked) == 2
    assert task.state is TaskState.FAILED
    assert str(task.reason) == "taken by somebody else"
    assert task.progress.done == 9
