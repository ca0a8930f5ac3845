"""Reports on calls from inside callbacks: waits for oneself, deep chains, racing listings."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, WouldDeadlock
from lardon.testing import ScriptedGovernor, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon import Task, TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
WAITS: Final[dict[str, Callable[[TaskQueue, TaskContext], object]]] = {
    "another": lambda queue, _: queue.submit(lambda _: None, estimate=ANY).wait(),
    "itself": lambda queue, context: queue.get(context.task_id).wait(),
    "all": lambda queue, _: queue.join(),
}


@pytest.mark.parametrize("whom", sorted(WAITS))
def test_h71_a_callback_that_waits_for_its_own_queue_is_told_at_once(whom: str) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(lambda context: WAITS[whom](queue, context), estimate=ANY)
        assert isinstance(task.exception(PATIENCE_S), WouldDeadlock)
        # To submit without waiting is allowed.
        task = queue.submit(lambda _: queue.submit(lambda _: "ran", estimate=ANY), estimate=ANY)
        assert task.result(PATIENCE_S).result(PATIENCE_S) == "ran"


@pytest.mark.slow
def test_h72_a_chain_of_done_callbacks_needs_constant_stack() -> None:
    depths: list[int] = []
    ended = threading.Event()

    def depth() -> int:
        frame, count = sys._getframe(), 0
        while frame.f_back is not None:
            frame, count = frame.f_back, count + 1
        return count

    def submit_next(_task: Task | None) -> None:
        depths.append(depth())
        if len(depths) > 5_000:
            ended.set()
            return
        queue.submit(lambda _: None, estimate=ANY).add_done_callback(submit_next)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        submit_next(None)
        assert ended.wait(PATIENCE_S)

    assert len(depths) == 5_001
    # Some are called on this thread, when the task had ended before it got its callback.
    assert max(depths) < min(depths) + 60


@pytest.mark.slow
@pytest.mark.timeout(60)  # ten thousand tasks and as many listings, under coverage
def test_h73_listing_while_tasks_come_and_go_never_raises() -> None:
    errors: list[BaseException] = []
    stop = threading.Event()
    listings = 0

    def look() -> None:
        nonlocal listings
        try:
            while not stop.is_set():
                ids = [view.id for view in queue.tasks()]
                assert ids == sorted(set(ids))
                queue.statistics()
                listings += 1
        except BaseException as error:  # noqa: BLE001  any error is the material here
            errors.append(error)

    with TaskQueue(ScriptedGovernor([start()]), history=16, capacity=32) as queue:
        thread = threading.Thread(target=look)
        thread.start()
        for _ in range(10_000):
            queue.submit(lambda _: None, estimate=ANY)
        assert queue.join(PATIENCE_S)
        stop.set()
        thread.join(PATIENCE_S)

    assert errors == []
    assert listings > 0
    assert queue.statistics().completed == 10_000
