"""The end of a pool: leaving its block, `close` and `join`, from inside, in a child, at exit."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import lardon.locality.executions
from lardon import GiB, QueueClosed, ResourceEstimate, TaskContext, TaskState, WouldDeadlock
from lardon.locality import PoolTask
from tests.locality.pools import ANY, PATIENCE_S, Gate, Pools, where


def test_leaving_the_block_waits_for_the_tasks(pools: Pools) -> None:
    done: list[int] = []
    with pools.make("a", "b") as pool:
        for number in range(20):
            pool.submit(lambda _, number=number: done.append(number), estimate=ANY)

    assert sorted(done) == list(range(20))
    with pytest.raises(QueueClosed, match="is closed"):
        pool.submit(where, estimate=ANY)
    with pool:
        pass


def test_leaving_it_by_an_error_cancels(pools: Pools) -> None:
    gate = pools.gate()
    tasks: list[PoolTask] = []
    with pytest.raises(ZeroDivisionError), pools.make("a") as pool:
        tasks.append(pool.submit(waits_for_cancel, gate, estimate=ANY))
        gate.wait_entered()
        tasks += [pool.submit(where, estimate=ANY) for _ in range(3)]
        raise ZeroDivisionError

    assert [task.state for task in tasks] == [TaskState.CANCELLED] * 4


def waits_for_cancel(context: TaskContext, gate: Gate) -> None:
    gate.entered.set()
    while context.checkpoint():
        threading.Event().wait(0.001)


def test_close_has_a_timeout(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    gate.wait_entered()

    assert not pool.close(0)
    gate.opened.set()
    assert pool.close(PATIENCE_S)

    assert task.state is TaskState.CANCELLED


def test_closing_from_a_callback_requests_it(pools: Pools) -> None:
    pool = pools.make("a")
    task = pool.submit(lambda _: pool.close(), estimate=ANY)

    assert task.wait(PATIENCE_S)
    assert task.state is TaskState.CANCELLED
    assert pool.close(PATIENCE_S)


def test_a_callback_must_not_wait_for_its_own_pool(pools: Pools) -> None:
    pool = pools.make("a", "b")
    other = pool.submit(where, estimate=ANY)
    assert other.wait(PATIENCE_S)
    waiting = ResourceEstimate(ram_bytes=9 * GiB)
    _, held = pool.governor.reserve(waiting)
    assert held is not None
    later = pool.submit(where, estimate=waiting)

    def wait_inside(_context: TaskContext) -> list[Any]:
        assert not later.wait(0)
        assert not pool.join(0)
        errors: list[Any] = [other.result()]
        for call in (later.wait, later.result, pool.join):
            try:
                call()
            except WouldDeadlock as error:
                errors.append(type(error))
        return errors

    found = pool.submit(wait_inside, estimate=ANY).result(PATIENCE_S)

    assert found == [other.result(), WouldDeadlock, WouldDeadlock, WouldDeadlock]
    held.release()
    assert later.wait(PATIENCE_S)


def test_join_is_by_the_governors_clock(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert not pool.join(0)
    ended: list[bool] = []
    waits, wait_for = threading.Event(), pools.clock.wait_for

    def told(*args: Any) -> bool:
        waits.set()
        return wait_for(*args)

    monkeypatch.setattr(pools.clock, "wait_for", told)
    thread = threading.Thread(target=lambda: ended.append(pool.join(5)))
    thread.start()
    assert waits.wait(PATIENCE_S)
    with pool._lock:
        pass
    pools.clock.advance(5)
    thread.join(PATIENCE_S)

    assert ended == [False]


def test_a_done_callback_runs_without_the_pools_lock(pools: Pools) -> None:
    """Also where a cancel ends the task."""
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    seen: list[bool] = []

    def other_thread_may(_task: PoolTask) -> None:
        thread = threading.Thread(target=lambda: seen.append(bool(pool.workers())))
        thread.start()
        thread.join(PATIENCE_S)

    for key in (None, "shared", "shared"):
        task = pool.submit(where, estimate=ANY, key=key)
        task.add_done_callback(other_thread_may)
    assert task.cancel()
    gate.opened.set()
    assert pool.join(PATIENCE_S)

    assert seen == [True] * 3


def test_a_done_callback_may_close_but_not_wait(pools: Pools) -> None:
    pool = pools.make("a")
    seen: list[Any] = []

    def closing(_task: PoolTask) -> None:
        try:
            pool.join()
        except WouldDeadlock as error:
            seen.append(type(error))
        seen.append(pool.close())

    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    task.add_done_callback(closing)
    gate.opened.set()
    assert pool.join(PATIENCE_S)

    assert seen == [WouldDeadlock, False]


def test_in_a_forked_child_the_pool_is_the_parents(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the scheduler's own tests see it with a real fork."""
    pool = pools.make("a")
    with monkeypatch.context() as patched:
        patched.setattr("lardon.locality.pool.forks", lambda: -1)
        for call in (
            lambda: pool.submit(where, estimate=ANY),
            pool.statistics,
            pool.workers,
            pool.join,
            pool.close,
            pool.resources_changed,
            lambda: pool.pause_worker("a"),
        ):
            with pytest.raises(QueueClosed, match="belongs to process"):
                call()
        from lardon.locality.pool import _close_all

        _close_all()
    assert pool.submit(where, estimate=ANY).result(PATIENCE_S) == "a"


def test_the_end_of_the_interpreter_closes_what_is_open(pools: Pools) -> None:
    from lardon.locality.pool import _close_all

    pool = pools.make("a")
    _close_all()

    assert pool.closing
    assert lardon.locality.executions.Unnamed(3) != lardon.locality.executions.Unnamed(3)
