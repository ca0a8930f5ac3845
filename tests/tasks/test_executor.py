"""`GovernedExecutor`: a `concurrent.futures.Executor` for plain functions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import GovernedExecutor, ResourceEstimate, TaskQueue, WouldDeadlock
from lardon.testing import ScriptedGovernor, wait

if TYPE_CHECKING:
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ESTIMATE: Final = ResourceEstimate(max_batch=7)


@pytest.fixture(name="executor")
def one_executor(queue: TaskQueue) -> GovernedExecutor:
    return GovernedExecutor(queue, ESTIMATE)


def test_it_runs_plain_functions_under_its_estimate(queue: TaskQueue) -> None:
    with GovernedExecutor(queue, ESTIMATE) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        future = executor.submit(lambda *args, **kwargs: (args, kwargs), 1, 2, fn=3, context=4)
        assert future.result(PATIENCE_S) == ((1, 2), {"fn": 3, "context": 4})
        failing = executor.submit(int, "no number")
        assert isinstance(failing.exception(PATIENCE_S), ValueError)

    governor = queue._life.governor
    assert isinstance(governor, ScriptedGovernor)
    assert governor.asked == [ESTIMATE, ESTIMATE]


def test_map_keeps_the_order(executor: GovernedExecutor) -> None:
    assert list(executor.map(pow, range(5), range(5), timeout=PATIENCE_S)) == [1, 1, 4, 27, 256]


def test_as_completed_and_run_in_executor(executor: GovernedExecutor) -> None:
    futures = [executor.submit(pow, 2, number) for number in range(5)]
    done = concurrent.futures.as_completed(futures, timeout=PATIENCE_S)
    assert sorted(future.result() for future in done) == [1, 2, 4, 8, 16]

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(loop.run_in_executor(executor, pow, 3, number) for number in range(3))
        )

    assert asyncio.run(main()) == [1, 3, 9]


def test_shutting_down_waits_and_leaves_the_queue_open(
    gate: Gate, queue: TaskQueue, executor: GovernedExecutor
) -> None:
    queue.submit(gate, estimate=ESTIMATE)
    gate.wait_entered()
    future = executor.submit(pow, 2, 3)
    foreign = queue.submit(lambda _: "foreign", estimate=ESTIMATE)
    foreign.pause()
    thread = threading.Thread(target=executor.shutdown)
    thread.start()
    gate.open()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()

    assert future.result(timeout=0) == 8
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(pow, 2, 3)
    executor.shutdown()
    foreign.resume()
    assert foreign.result(PATIENCE_S) == "foreign"


def test_shutting_down_without_waiting(
    gate: Gate, queue: TaskQueue, executor: GovernedExecutor
) -> None:
    queue.submit(gate, estimate=ESTIMATE)
    gate.wait_entered()
    future = executor.submit(pow, 2, 3)

    executor.shutdown(wait=False)

    assert not future.done()
    gate.open()
    assert future.result(PATIENCE_S) == 8


def test_cancel_futures_cancels_only_its_own(
    gate: Gate, queue: TaskQueue, executor: GovernedExecutor
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return "ran"

    running = executor.submit(hold)
    assert entered.wait(PATIENCE_S)
    pending = [executor.submit(pow, 2, 3) for _ in range(3)]
    foreign = queue.submit(lambda _: "foreign", estimate=ESTIMATE)

    executor.shutdown(wait=False, cancel_futures=True)

    assert all(future.cancelled() for future in pending)
    go_on.set()
    assert running.result(PATIENCE_S) == "ran"
    assert foreign.result(PATIENCE_S) == "foreign"


def test_two_executors_share_a_queue(queue: TaskQueue) -> None:
    with GovernedExecutor(queue, ESTIMATE) as first, GovernedExecutor(queue, ESTIMATE) as second:
        first.submit(pow, 1, 1)
        first.shutdown()
        assert second.submit(pow, 2, 2).result(PATIENCE_S) == 4


def test_a_function_that_waits_for_its_own_executor_is_told(executor: GovernedExecutor) -> None:
    future = executor.submit(lambda: list(executor.map(pow, [1], [2])))
    assert isinstance(future.exception(PATIENCE_S), WouldDeadlock)

    future = executor.submit(executor.shutdown)
    assert isinstance(future.exception(PATIENCE_S), WouldDeadlock)


def test_a_closed_queue_ends_its_executors_futures() -> None:
    queue = TaskQueue(ScriptedGovernor([wait()]))
    executor = GovernedExecutor(queue, ESTIMATE)
    future = executor.submit(pow, 2, 3)
    assert queue.close(PATIENCE_S)

    assert future.cancelled()
    with pytest.raises(RuntimeError):
        executor.submit(pow, 2, 3)
    executor.shutdown()


def test_ended_calls_are_not_kept(queue: TaskQueue, executor: GovernedExecutor) -> None:
    for number in range(20):
        executor.submit(pow, 2, number)
    assert queue.join(PATIENCE_S)
    assert queue.wait_parked(PATIENCE_S)

    assert not executor._pending
