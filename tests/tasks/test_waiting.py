"""Waiting for the end of a task: threads that may and may not, its future, and `await`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import TaskCancelled, TaskQueue, TaskRefused, TaskState, WouldDeadlock
from lardon.testing import ScriptedGovernor, reject, start, wait
from tests.tasks.callbacks import ANY, PATIENCE_S, raising

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon import Task, TaskContext
    from tests.conftest import Gate

# Waiting -----------------------------------------------------------------------------------


def test_many_may_wait_for_one_task(gate: Gate, queue: TaskQueue) -> None:
    task = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(task.result(PATIENCE_S))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert answers == [True] * 8


def test_join_waits_for_all_and_a_paused_task_has_not_ended(gate: Gate, queue: TaskQueue) -> None:
    assert queue.join(timeout=0)
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert not queue.join(timeout=0)
    paused = queue.submit(lambda _: None, estimate=ANY)
    paused.pause()
    gate.open()
    assert queue.wait_parked(PATIENCE_S)
    assert not queue.join(timeout=0.01)
    joined: list[bool] = []
    thread = threading.Thread(target=lambda: joined.append(queue.join()))
    thread.start()
    paused.resume()
    thread.join(PATIENCE_S)

    assert joined == [True]


WAITS: Final[dict[str, Callable[[TaskQueue, Task], object]]] = {
    "wait": lambda _queue, task: task.wait(),
    "wait in time": lambda _queue, task: task.wait(PATIENCE_S),
    "result": lambda _queue, task: task.result(),
    "exception": lambda _queue, task: task.exception(PATIENCE_S),
    "future.result": lambda _queue, task: task.future.result(),
    "future.exception": lambda _queue, task: task.future.exception(PATIENCE_S),
    "join": lambda queue, _task: queue.join(),
}


@pytest.mark.parametrize("way", sorted(WAITS))
@pytest.mark.parametrize("whom", ["another", "itself"])
def test_a_callback_that_waits_for_its_own_queue_is_told(way: str, whom: str) -> None:
    def callback(context: TaskContext) -> None:
        task = queue.get(context.task_id if whom == "itself" else 2)
        with pytest.raises(WouldDeadlock):
            WAITS[way](queue, task)
        # Looking costs nothing.
        assert not task.wait(timeout=0)
        assert not queue.join(timeout=0)

    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        queue.submit(lambda _: None, estimate=ANY)
        governor.script(start())
        queue.resources_changed()

        assert task.result(PATIENCE_S) is None


def test_a_callback_may_read_a_task_that_has_ended(queue: TaskQueue) -> None:
    first = queue.submit(lambda _: "first", estimate=ANY)
    second = queue.submit(
        lambda _: (first.result(), first.wait(), first.future.result(), first.exception()),
        estimate=ANY,
    )

    assert second.result(PATIENCE_S) == ("first", True, "first", None)


def test_a_callback_may_wait_for_a_task_of_another_queue(queue: TaskQueue) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as other:
        task = queue.submit(
            lambda _: other.submit(lambda _: "theirs", estimate=ANY).result(PATIENCE_S),
            estimate=ANY,
        )

        assert task.result(PATIENCE_S) == "theirs"


def test_a_task_that_ends_between_two_looks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait` looks without the lock first, and again with it."""
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)

        def end_it() -> int:
            monkeypatch.undo()
            task.cancel()
            return 0

        monkeypatch.setattr("lardon.queue.signal.forks", end_it)
        queue._signal._born = 0
        assert task.wait()


def test_wait_parked_says_no_when_the_worker_is_busy(gate: Gate, queue: TaskQueue) -> None:
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()

    assert not queue.wait_parked(timeout=0.01)
    gate.open()
    assert queue.wait_parked(PATIENCE_S)


# Futures -----------------------------------------------------------------------------------


def test_the_future_is_a_real_one_and_always_the_same(gate: Gate, queue: TaskQueue) -> None:
    running = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: "value", estimate=ANY)
    early = pending.future
    assert isinstance(early, concurrent.futures.Future)
    assert (early.running(), early.done()) == (False, False)
    assert running.future.running()
    gate.open()

    done, not_done = concurrent.futures.wait([running.future, early], PATIENCE_S)
    assert done == {running.future, early}
    assert not not_done
    assert early is pending.future
    assert early.result(timeout=0) == "value"


@pytest.mark.parametrize("early", [True, False])
def test_the_future_mirrors_every_end(early: bool) -> None:
    def cancel_itself(context: TaskContext) -> None:
        queue.cancel(context.task_id)

    error = OSError("its own")
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        tasks = [
            queue.submit(lambda _: "value", estimate=ANY),
            queue.submit(raising(error), estimate=ANY),
            queue.submit(cancel_itself, estimate=ANY),
            queue.submit(lambda context: context.sequence_break(), estimate=ANY),
            queue.submit(lambda _: None, estimate=ANY),
        ]
        futures = [task.future for task in tasks] if early else []
        tasks[4].cancel()
        governor.script(start(), start(), start(), start(), reject("no more"))
        queue.resources_changed()
        assert queue.join(PATIENCE_S)

    value, failed, cancelled, refused, unstarted = futures or [task.future for task in tasks]
    assert value.result(timeout=0) == "value"
    assert failed.exception(timeout=0) is error
    assert isinstance(cancelled.exception(timeout=0), TaskCancelled)
    assert isinstance(refused.exception(timeout=0), TaskRefused)
    assert unstarted.cancelled()
    assert not cancelled.cancelled()
    finished = list(concurrent.futures.as_completed([task.future for task in tasks], timeout=0))
    assert len(finished) == 5


def test_the_future_runs_when_the_task_does(gate: Gate) -> None:
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        task = queue.submit(gate, estimate=ANY)
        future = task.future
        assert queue.wait_parked(PATIENCE_S)
        assert not future.running()
        governor.script(start())
        queue.resources_changed()
        gate.wait_entered()
        assert future.running()
        gate.open()


def test_a_listener_that_makes_the_future_of_an_ending_task(
    queue: TaskQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The end is taken over once, whoever comes first."""
    futures: list[concurrent.futures.Future[Any]] = []
    queue.subscribe(
        lambda event: (
            futures.append(queue.get(event.task_id).future) if event.state.terminal else None
        )
    )
    told = threading.Event()
    task = queue.submit(lambda _: "value", estimate=ANY)
    task.add_done_callback(lambda _: told.set())

    assert told.wait(PATIENCE_S)
    assert futures[0].result(timeout=0) == "value"
    assert futures[0] is task.future
    assert not caplog.records


# asyncio -----------------------------------------------------------------------------------


def test_a_task_can_be_awaited(queue: TaskQueue) -> None:
    async def main() -> list[Any]:
        tasks = [queue.submit(lambda _, n=number: n * n, estimate=ANY) for number in range(5)]
        wrapped = asyncio.wrap_future(queue.submit(lambda _: "wrapped", estimate=ANY).future)
        return [*await asyncio.gather(*tasks), await wrapped]

    assert asyncio.run(main()) == [0, 1, 4, 9, 16, "wrapped"]


def test_awaiting_raises_what_result_raises(queue: TaskQueue) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="its own"):
            await queue.submit(raising(OSError("its own")), estimate=ANY)
        with pytest.raises(RuntimeError) as caught:
            await queue.submit(raising(StopIteration(7)), estimate=ANY)
        assert isinstance(caught.value.__cause__, StopIteration)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_cancelling_the_awaiting_side_cancels_what_has_not_started(
    gate: Gate, queue: TaskQueue
) -> None:
    async def await_it(task: Task) -> Any:
        return await task

    async def main() -> None:
        waiting = asyncio.ensure_future(await_it(pending))
        await asyncio.sleep(0)  # one turn of the loop, in which the other begins to wait
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: None, estimate=ANY)
    asyncio.run(main())
    gate.open()

    assert pending.wait(PATIENCE_S)
    assert pending.state is TaskState.CANCELLED
