"""Pausing one task of a pool, before and after a worker has it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lardon import Reservation, ResourceEstimate, Task, TaskContext, TaskState
from lardon.locality import PoolTask, WorkerPool
from lardon.locality.pool_task import Execution
from lardon.queue.views import TaskEvent
from lardon.units import GiB
from tests.locality.pools import ANY, PATIENCE_S, Pools, where


def paused(pool: WorkerPool) -> threading.Event:
    """Return what is set when a task is paused in the queue of the worker a."""
    event = threading.Event()

    def listen(news: TaskEvent) -> None:
        if news.state is TaskState.PAUSED:
            event.set()

    pool._slots["a"].queue.subscribe(listen)
    return event


def test_a_paused_task_is_passed_over_until_it_is_resumed(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    task, next_one = (pool.submit(where, estimate=ANY) for _ in range(2))

    assert task.pause()
    assert (task.pause(), task.state, task.started) == (False, TaskState.PAUSED, False)
    gate.opened.set()
    assert next_one.result(PATIENCE_S) == "a"
    assert pools.asleep(pool)
    assert not task.done()

    assert task.resume()
    assert task.result(PATIENCE_S) == "a"
    assert (task.resume(), task.pause(), task.state) == (False, False, TaskState.COMPLETED)


def test_a_running_task_parks_at_its_next_pause_point(pools: Pools) -> None:
    pool = pools.make("a")
    entered, go_on = threading.Event(), threading.Event()

    def work(context: TaskContext) -> str:
        context.set_progress(1, 4)
        entered.set()
        assert go_on.wait(PATIENCE_S)
        context.checkpoint()
        return where(context)

    parked = paused(pool)
    task = pool.submit(work, estimate=ResourceEstimate(kind="slow"))
    assert entered.wait(PATIENCE_S)
    assert (task.started, task.kind, task.progress.fraction) == (True, "slow", 0.25)

    assert task.pause()
    go_on.set()
    assert parked.wait(PATIENCE_S)
    assert task.state is TaskState.PAUSED

    assert task.resume()
    assert task.result(PATIENCE_S) == "a"


def test_a_task_that_waits_in_its_worker_s_queue_is_paused_there(pools: Pools) -> None:
    """Claimed because it fitted, and then something else took the room."""
    pool = pools.make("a")
    decide = pool.governor.decide
    held: list[Reservation | None] = []

    def decide_and_take(*args: Any, **options: Any) -> Any:
        decision = decide(*args, **options)
        if not held:
            held.append(pool.governor.reserve(ResourceEstimate(ram_bytes=9 * GiB))[1])
        return decision

    pool.governor.decide = decide_and_take  # type: ignore[method-assign]  # the place of the race
    queue = pool._slots["a"].queue
    submit, waits = queue.submit, threading.Event()

    def submit_and_tell(*args: Any, **options: Any) -> Any:
        inner = submit(*args, **options)
        assert queue.wait_parked(PATIENCE_S)
        waits.set()
        return inner

    queue.submit = submit_and_tell  # type: ignore[method-assign]  # the moment after it
    task = pool.submit(where, estimate=ResourceEstimate(ram_bytes=2 * GiB))
    assert waits.wait(PATIENCE_S)
    assert task.pause()
    assert held[0] is not None
    held[0].release()
    assert (task.state, task.done()) == (TaskState.PAUSED, False)

    assert task.resume()
    assert task.result(PATIENCE_S) == "a"


def test_a_pause_between_the_claim_and_the_queue_is_not_lost(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools.make("a")
    slot = pool._slots["a"]
    claim, submitted = slot._claim, threading.Event()
    tasks: list[PoolTask] = []

    def claim_and_pause() -> object:
        handle = claim()
        if handle is not None:
            assert submitted.wait(PATIENCE_S)
            assert tasks[0].pause()
        return handle

    monkeypatch.setattr(slot, "_claim", claim_and_pause)
    # The claim that sleeps now is the old one: let it take something first.
    assert pool.submit(where, estimate=ANY).result(PATIENCE_S)
    parked = paused(pool)
    tasks.append(pool.submit(where, estimate=ANY))
    submitted.set()
    assert parked.wait(PATIENCE_S)
    assert tasks[0].state is TaskState.PAUSED

    monkeypatch.undo()
    assert tasks[0].resume()
    assert tasks[0].result(PATIENCE_S) == "a"


def test_a_job_that_others_want_too_is_not_paused(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    one, other = (pool.submit(where, estimate=ANY, key="shared") for _ in range(2))

    assert not one.pause()
    assert one.cancel()
    assert not one.pause()
    assert other.pause()
    gate.opened.set()
    assert pools.asleep(pool)
    assert not one.resume()
    assert other.resume()
    assert other.result(PATIENCE_S) == "a"


def test_a_task_that_has_just_ended_is_not_paused(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is done with it, and the pool does not know yet."""
    pool = pools.make("a")
    slot = pool._slots["a"]
    report, answers = slot._report, []

    def pause_and_report(execution: Execution, task: Task) -> None:
        answers.append(execution.views[0].pause())
        report(execution, task)

    monkeypatch.setattr(slot, "_report", pause_and_report)

    assert pool.submit(where, estimate=ANY).result(PATIENCE_S) == "a"
    assert answers == [False]


@pytest.mark.parametrize("end", [WorkerPool.close, lambda pool: None])
def test_a_paused_task_can_be_cancelled(pools: Pools, end: object) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    task: PoolTask = pool.submit(where, estimate=ANY)
    assert task.pause()

    if end is WorkerPool.close:
        gate.opened.set()
        assert pool.close(PATIENCE_S)
    else:
        assert task.cancel()

    assert task.state is TaskState.CANCELLED
    assert not task.resume()


def test_a_pause_lets_pass_those_who_waited_for_its_age(pools: Pools) -> None:
    pool = pools.make("a", "b", max_age_s=60.0)
    gate = pools.gate()
    pool.submit(gate, estimate=ResourceEstimate(ram_bytes=3 * GiB))
    gate.wait_entered()
    large = pool.submit(where, estimate=ResourceEstimate(ram_bytes=9 * GiB))
    assert pools.asleep(pool, 1)
    pools.clock.advance(60.0)
    young = pool.submit(where, estimate=ANY)
    assert pools.asleep(pool, 1)
    assert not young.done()

    assert large.pause()

    assert young.result(PATIENCE_S) == "b"
    assert large.resume()
