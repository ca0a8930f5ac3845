"""Reports on memory kept alive: frames of errors, retries, histories, dropped queues."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from lardon import Contract, MiB, ResourceEstimate, TaskQueue, UnknownTask
from lardon.testing import ScriptedGovernor, reduce_batch, start

if TYPE_CHECKING:
    from lardon import TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


class Big(list[int]):
    """A list that can be watched."""


def test_h83_a_failed_tasks_handle_does_not_keep_its_locals() -> None:
    refs: list[weakref.ref[Big]] = []

    def callback(_context: TaskContext) -> None:
        big = Big(range(1_000))
        refs.append(weakref.ref(big))
        raise ValueError("its own message")

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)
        gc.collect()
        assert refs[0]() is None

    with pytest.raises(ValueError, match="its own message"):
        task.result(timeout=0)


def test_h84_a_break_inside_an_except_block_keeps_no_earlier_contract() -> None:
    """What the handler itself holds is the callback's; the library holds nothing of before."""
    alive: list[list[Contract]] = []

    def callback(context: TaskContext) -> list[int]:
        sizes = [context.contract.batch_size]
        try:
            raise MemoryError("too large")
        except MemoryError:
            assert context.sequence_break()
            sizes.append(context.contract.batch_size)
        # The scripted governor keeps what was replaced, for its test to look at.
        governor.replaced.clear()
        gc.collect()
        held = [one for one in gc.get_objects() if isinstance(one, Contract)]
        alive.append([one for one in held if one.batch_size == 77])
        return sizes

    governor = ScriptedGovernor([start(batch_size=77), reduce_batch(2)])
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.result(PATIENCE_S) == [77, 2]

    assert alive == [[]]


@pytest.mark.slow
@pytest.mark.timeout(60)  # a hundred thousand tasks, under coverage on a busy machine
def test_h85_a_hundred_thousand_tasks_leave_a_bounded_history() -> None:
    with TaskQueue(ScriptedGovernor([start()]), history=64, capacity=1_000) as queue:
        for _ in range(10_000):
            queue.submit(nothing, estimate=ANY)
        assert queue.join(PATIENCE_S)
        gc.collect()
        settled = psutil.Process().memory_info().rss
        for _ in range(90_000):
            queue.submit(nothing, estimate=ANY)
        assert queue.join(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        gc.collect()

        # 90,000 records of at least 200 bytes would be 17 MiB.
        assert psutil.Process().memory_info().rss - settled < 8 * MiB

        assert len(queue.tasks()) == 64
        table = queue._life.table
        assert len(table._finished) < 5_000
        assert not table.live
        assert len(queue._life.line) == 0
        with pytest.raises(UnknownTask, match="forgotten"):
            queue.get(1)
    assert queue.statistics().completed == 100_000


def nothing(_context: TaskContext) -> None:
    """Do nothing."""


@pytest.mark.slow
def test_h86_queues_that_are_dropped_leave_no_thread() -> None:
    before = threading.active_count()
    governor = ScriptedGovernor([start()])
    threads = []
    for _ in range(200):
        queue = TaskQueue(governor)
        threads.append(queue._thread)
        queue.submit(nothing, estimate=ANY)
        assert queue.join(PATIENCE_S)
    del queue
    gc.collect()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert threading.active_count() == before
    assert governor._listeners.callbacks == ()
