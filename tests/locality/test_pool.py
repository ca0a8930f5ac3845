"""A task of a pool: its worker, what it leaves there, its handle, its key, its cancelling."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from lardon import InvalidEstimate, TaskCancelled, TaskContext, TaskNotFinished, TaskState
from lardon.locality import PoolTask, UnknownWorker, current_worker
from tests.locality.pools import ANY, PATIENCE_S, Pools, where

# A task, its worker and its end ----------------------------------------------------------


def test_a_task_runs_on_a_worker_and_its_result_comes_back(pools: Pools) -> None:
    pool = pools.make("a", "b")
    word = contextvars.ContextVar("word", default="none")
    word.set("the submitter's")

    def work(context: TaskContext, one: int, *, other: int) -> tuple[Any, ...]:
        return context.contract.batch_size, one, other, word.get(), where(context)

    task = pool.submit(work, 1, other=2, estimate=ANY, name="work")

    assert task.result(PATIENCE_S) == (1, 1, 2, "the submitter's", task.worker)
    assert (task.state, task.done(), task.name) == (TaskState.COMPLETED, True, "work")
    assert task.contract is not None
    assert task.reason is not None
    assert task.wait()
    assert not task.cancel()
    assert current_worker() is None


def test_a_task_goes_to_the_worker_that_holds_what_it_needs(pools: Pools) -> None:
    pool = pools.make("a", "b", "c")
    pool.add_artifacts("c", ["model"])

    tasks = [pool.submit(where, estimate=ANY, deps=["model"]) for _ in range(5)]

    assert [task.result(PATIENCE_S) for task in tasks] == ["c"] * 5
    assert pool.statistics().locality.picks_deps == 5


def test_a_worker_holds_what_its_finished_tasks_used_and_made(pools: Pools) -> None:
    pool = pools.make("a", "b")
    first = pool.submit(where, estimate=ANY, key="first", deps=["model"]).result(PATIENCE_S)

    assert pool.scheduler.locate_artifact("model") == first
    assert pool.scheduler.locate_artifact("first") == first
    later = [
        pool.submit(where, estimate=ANY, deps=["model"]),
        pool.submit(where, estimate=ANY, deps=["first"]),
        pool.submit(where, estimate=ANY, key="first"),
    ]
    assert [task.result(PATIENCE_S) for task in later] == [first] * 3
    views = {view.name: set(view.artifacts) for view in pool.workers()}
    assert views.pop(first) == {"model", "first"}
    assert list(views.values()) == [set()]


def test_a_task_without_a_key_leaves_no_artifact_of_its_own(pools: Pools) -> None:
    pool = pools.make("a")
    for _ in range(3):
        pool.submit(where, estimate=ANY).result(PATIENCE_S)

    assert pool.statistics().locality.artifacts == 0


def test_a_failed_task_leaves_nothing(pools: Pools) -> None:
    pool = pools.make("a")

    def fail(_context: TaskContext) -> None:
        raise ZeroDivisionError

    task = pool.submit(fail, estimate=ANY, key="k", deps=["model"])

    with pytest.raises(ZeroDivisionError):
        task.result(PATIENCE_S)
    assert task.state is TaskState.FAILED
    assert pool.scheduler.locate_artifact("model") is None
    assert pool.scheduler.locate_artifact("k") is None
    assert pool.statistics().failed == 1


def test_what_stays_on_a_worker_is_evicted_with_its_artifact(pools: Pools) -> None:
    pool = pools.make("a", max_artifacts=2)

    def use(_context: TaskContext, model: str) -> list[str]:
        worker = current_worker()
        assert worker is not None
        worker.state.setdefault(model, object())
        return sorted(map(str, worker.state))

    seen = [
        pool.submit(use, model, estimate=ANY, deps=[model]).result(PATIENCE_S)
        for model in ("x", "y", "x", "z", "x")
    ]

    assert seen == [["x"], ["x", "y"], ["x", "y"], ["x", "y", "z"], ["x", "z"]]
    assert pool.scheduler.locate_artifact("y") is None
    assert set(pool.workers()[0].artifacts) == {"x", "z"}


def test_a_callback_may_say_what_its_worker_holds(pools: Pools) -> None:
    pool = pools.make("a", "b")

    def load(_context: TaskContext) -> str:
        worker = current_worker()
        assert worker is not None
        assert worker.device is None
        worker.add_artifacts(["m1", "m2"])
        worker.add_artifacts(["m1"])
        worker.remove_artifacts(["m2", "m3"])
        worker.remove_artifacts(["m2"])
        return worker.name

    name = pool.submit(load, estimate=ANY).result(PATIENCE_S)

    assert pool.scheduler.locate_artifact("m1") == name
    assert pool.scheduler.locate_artifact("m2") is None
    pool.remove_artifacts(name, ["m1"])
    assert pool.scheduler.locate_artifact("m1") is None


def test_more_artifacts_at_once_than_a_worker_keeps(pools: Pools) -> None:
    """The first are dropped before anybody is told of them."""
    pool = pools.make("a", max_artifacts=2)

    pool.submit(where, estimate=ANY, key="k", deps=["m1", "m2", "m3"]).result(PATIENCE_S)

    assert pool.workers()[0].artifacts == ("m3", "k")
    pool.submit(where, estimate=ANY, key="k", deps=["m1"]).result(PATIENCE_S)
    assert set(pool.workers()[0].artifacts) == {"m1", "k"}


def test_the_order_in_one_worker_is_first_in_first_out(pools: Pools) -> None:
    pool = pools.make("a")
    gate, order = pools.gate(), list[int]()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    tasks = [
        pool.submit(lambda _, number=number: order.append(number), estimate=ANY)
        for number in range(5)
    ]
    gate.opened.set()
    assert all(task.wait(PATIENCE_S) for task in tasks)

    assert order == list(range(5))


def test_a_job_ends_once(pools: Pools) -> None:
    pool = pools.make("a")
    task = pool.submit(where, estimate=ANY)
    assert task.result(PATIENCE_S) == "a"

    pool.executions.end(task._execution, "other", None)

    assert (task.result(), pool.statistics().completed) == ("a", 1)


# Handles ---------------------------------------------------------------------------------


def test_the_handle_is_a_future_and_can_be_awaited(pools: Pools) -> None:
    pool = pools.make("a")
    told: list[PoolTask] = []

    async def use() -> Any:
        return await pool.submit(where, estimate=ANY)

    assert asyncio.run(use()) == "a"
    task = pool.submit(where, estimate=ANY)
    task.add_done_callback(told.append)
    assert task.future.result(PATIENCE_S) == "a"
    assert task.exception() is None
    task.add_done_callback(told.append)
    assert pool.join(PATIENCE_S)
    assert told == [task, task]
    assert repr(task) == "<PoolTask #2 COMPLETED>"


def test_a_task_that_is_not_over_in_time(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY, key="k")

    with pytest.raises(TaskNotFinished, match="task 'k' did not finish within 0"):
        task.result(0)
    with pytest.raises(ValueError, match="timeout"):
        task.wait(-1)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (TypeError, "must be callable", lambda p: p.submit(3, estimate=ANY)),
        (InvalidEstimate, "estimate", lambda p: p.submit(where, estimate=3)),
        (TypeError, "deps", lambda p: p.submit(where, estimate=ANY, deps="model")),
        (TypeError, "hashable", lambda p: p.submit(where, estimate=ANY, key=[])),
        (TypeError, "name", lambda p: p.submit(where, estimate=ANY, name=3)),
        (TypeError, "ids", lambda p: p.add_artifacts("a", "model")),
        (TypeError, "ids", lambda p: p.remove_artifacts("a", "model")),
        (UnknownWorker, "no worker 'z'", lambda p: p.add_artifacts("z", [])),
        (UnknownWorker, "no worker 'z'", lambda p: p.pause_worker("z")),
    ],
)
def test_bad_arguments(
    pools: Pools, error: type[Exception], words: str, call: Callable[[Any], object]
) -> None:
    pool = pools.make("a")
    with pytest.raises(error, match=words):
        call(pool)
    assert pool.statistics().unfinished == 0
    assert pool.submit(where, estimate=ANY).result(PATIENCE_S) == "a"


# Keys that are shared --------------------------------------------------------------------


def test_submissions_of_one_key_share_one_job(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    first = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    second = pool.submit(gate, estimate=ANY, key="k")
    assert second is not first
    assert second.future.running()

    gate.opened.set()

    assert first.result(PATIENCE_S) == second.result(PATIENCE_S) == "a"
    seen = pool.statistics()
    assert (seen.submitted, seen.completed, seen.locality.scheduled) == (2, 2, 1)
    assert pool.submit(where, estimate=ANY, key="k").result(PATIENCE_S) == "a"


def test_who_cancels_leaves_the_others_their_result(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    owner = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    waiter = pool.submit(gate, estimate=ANY, key="k")

    assert owner.cancel()
    assert not owner.cancel()
    assert owner.state is TaskState.CANCELLED
    gate.opened.set()

    assert waiter.result(PATIENCE_S) == "a"
    with pytest.raises(TaskCancelled):
        owner.result()


def test_who_comes_after_the_last_has_cancelled_gets_a_run_of_its_own(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    owner = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    assert owner.cancel()
    late = pool.submit(where, estimate=ANY, key="k")
    later = pool.submit(where, estimate=ANY, key="k")

    gate.opened.set()

    assert late.result(PATIENCE_S) == later.result(PATIENCE_S) == "a"
    with pytest.raises(TaskCancelled):
        owner.result(PATIENCE_S)
    seen = pool.statistics()
    assert (seen.completed, seen.cancelled, seen.unfinished) == (2, 1, 0)


def test_the_first_of_two_may_cancel_after_the_second_has_asked_for_the_end(
    pools: Pools,
) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    first = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    assert first.cancel()
    second = pool.submit(gate, estimate=ANY, key="k")
    assert second.cancel(), "it is one of two, and ends at once"
    assert second.state is TaskState.CANCELLED
    gate.opened.set()
    with pytest.raises(TaskCancelled):
        first.result(PATIENCE_S)
    assert pool.statistics().cancelled == 2


# Cancelling ------------------------------------------------------------------------------


def test_a_waiting_task_is_cancelled_at_once(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    task = pool.submit(where, estimate=ANY)
    other = pool.submit(where, estimate=ANY)

    assert task.cancel()
    assert other.future.cancel()

    assert task.state is other.state is TaskState.CANCELLED
    with pytest.raises(TaskCancelled, match="#2"):
        task.result()
    with pytest.raises(TaskCancelled):
        other.exception()
    assert pool.statistics().locality.waiting == 0


def test_a_running_task_sees_it(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert task.state is TaskState.RUNNING
    assert not task.future.cancel(), "it runs"
    assert task.cancel()
    assert not task.cancel()
    assert gate.context is not None
    assert gate.context.cancel_requested
    gate.opened.set()

    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)
    assert task.state is TaskState.CANCELLED


def test_a_cancel_between_the_claim_and_the_queue(pools: Pools) -> None:
    pool = pools.make("a")
    ran = []
    pick = pool.scheduler.pick_job

    def cancelled_at_once(*args: Any, **options: Any) -> Any:
        handle = pick(*args, **options)
        if handle is not None:
            assert handle.job.payload.views[0].cancel()
        return handle

    pool.scheduler.pick_job = cancelled_at_once  # type: ignore[method-assign]  # the race
    pool.pause_worker("a")
    pool.resume_worker("a")
    # The call that slept was the old one; from now on it is the new one.
    task = pool.submit(lambda _: ran.append(1), estimate=ANY)
    assert task.wait(PATIENCE_S) or True
    late = pool.submit(lambda _: ran.append(2), estimate=ANY)

    assert late.wait(PATIENCE_S)
    assert late.state is TaskState.CANCELLED
    assert 2 not in ran
