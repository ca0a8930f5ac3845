"""A task that is past its age is waited for, however many small ones would fit beside it."""

from __future__ import annotations

import threading
from typing import Final

import pytest

from lardon import ResourceEstimate, TaskContext
from lardon.locality import PoolTask, WorkerPool, WorkerSpec
from lardon.units import GiB
from tests.locality.pools import ANY, PATIENCE_S, Gate, Pools, machine, where

AGE_S: Final = 60.0
SMALL: Final = ResourceEstimate(ram_bytes=3 * GiB)
# More than two small ones leave of the 10 GiB, and a little less than all.
LARGE: Final = ResourceEstimate(ram_bytes=9 * GiB)


class Starving:
    """A pool of three workers: two are at small tasks, and a large one waits for its age."""

    def __init__(self, pools: Pools, *, age_s: float = AGE_S) -> None:
        self.pools = pools
        self.pool: WorkerPool = pools.make("a", "b", "c", max_age_s=AGE_S)
        self.gates: list[Gate] = []
        self.order: list[str] = []
        for _ in range(2):
            gate = pools.gate()
            self.pool.submit(gate, estimate=SMALL)
            gate.wait_entered()
            self.gates.append(gate)
        self.large = self.submit("large", LARGE)
        assert pools.asleep(self.pool, 1)
        pools.clock.advance(age_s)
        # One more reading of the clock, as any news brings.
        self.pool.resources_changed()
        assert pools.asleep(self.pool, 1)

    def submit(self, name: str, estimate: ResourceEstimate) -> PoolTask:
        def run(context: TaskContext) -> str:
            self.order.append(name)
            return where(context)

        return self.pool.submit(run, estimate=estimate, name=name)


def test_younger_tasks_wait_until_the_large_one_has_room(pools: Pools) -> None:
    """Each of them would fit, and together they would keep the room taken for ever."""
    pool = Starving(pools)
    young = [pool.submit(f"young {number}", SMALL) for number in range(4)]
    assert pools.asleep(pool.pool, 1)
    assert pool.order == []

    pool.gates[0].opened.set()
    assert pools.asleep(pool.pool, 2)
    assert pool.order == []
    pool.gates[1].opened.set()

    assert all(task.result(PATIENCE_S) for task in (pool.large, *young))
    assert pool.order[0] == "large"


def test_before_its_age_it_is_overtaken(pools: Pools) -> None:
    pool = Starving(pools, age_s=AGE_S - 1)

    assert pool.submit("young", SMALL).result(PATIENCE_S) == "c"
    assert not pool.large.done()


def test_a_task_that_is_older_still_goes_first(pools: Pools) -> None:
    """Only younger ones wait: what was there before is not the worse for it."""
    made = pools.make("a", "b", "c", max_age_s=AGE_S)
    gate = pools.gate()
    made.submit(gate, estimate=SMALL)
    gate.wait_entered()
    older = made.submit(where, estimate=LARGE)
    large = made.submit(where, estimate=LARGE.evolve(ram_bytes=8 * GiB))
    assert pools.asleep(made, 2)
    pools.clock.advance(AGE_S)
    made.resources_changed()
    assert pools.asleep(made, 2)

    first = made.precedence._first
    assert first is not None
    assert first[0] is older._execution.handle
    gate.opened.set()
    assert older.result(PATIENCE_S)
    assert large.result(PATIENCE_S)


def test_when_it_is_cancelled_the_others_go_on(pools: Pools) -> None:
    pool = Starving(pools)
    young = pool.submit("young", SMALL)
    assert pools.asleep(pool.pool, 1)

    assert pool.large.cancel()

    assert young.result(PATIENCE_S) == "c"


def test_when_the_worker_that_was_asked_is_paused_the_others_go_on(pools: Pools) -> None:
    """Its own worker cannot take it any more, and the next free one is asked about it anew."""
    pool = Starving(pools)
    young = pool.submit("young", ANY)
    assert pools.asleep(pool.pool, 1)
    assert pool.pool.pause_worker("c")

    pool.gates[0].opened.set()
    assert pools.asleep(pool.pool, 1)
    assert not young.done()
    pool.gates[1].opened.set()

    assert pool.large.result(PATIENCE_S) in {"a", "b"}
    assert young.result(PATIENCE_S) in {"a", "b"}
    assert pool.order == ["large", "young"]


class Fussy:
    """A large task that only one worker of two can ever run, past its age, and a young one."""

    def __init__(self, pools: Pools) -> None:
        pools.probe.set(machine(gpus=3))
        specs = [WorkerSpec("small card", device="GPU-0"), WorkerSpec("large card", device="GPU-2")]
        self.pool = pools.make(*specs, max_age_s=AGE_S)
        _, held = self.pool.governor.reserve(LARGE)
        assert held is not None
        self.held = held
        needs_the_large = ResourceEstimate(ram_bytes=6 * GiB, gpu_bytes=25 * GiB, gpus=1)
        self.pool.submit(where, estimate=needs_the_large)
        assert pools.asleep(self.pool)
        pools.clock.advance(AGE_S)
        self.pool.resources_changed()
        assert pools.asleep(self.pool)
        self.young = self.pool.submit(where, estimate=ANY)
        assert pools.asleep(self.pool)
        assert not self.young.done()


def test_a_pause_lets_pass_those_who_waited_for_what_only_that_worker_can_run(
    pools: Pools,
) -> None:
    fussy = Fussy(pools)

    assert fussy.pool.pause_worker("large card")

    assert fussy.young.result(PATIENCE_S) == "small card"
    fussy.held.release()


def test_the_end_of_that_worker_does_so_too(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    fussy = Fussy(pools)
    slot = fussy.pool._slots["large card"]
    monkeypatch.setattr(slot, "_fits", lambda **_: 1 / 0)

    slot.wake.set()

    assert fussy.young.result(PATIENCE_S) == "small card"
    fussy.held.release()


def test_the_others_go_on_as_soon_as_it_has_a_worker(pools: Pools) -> None:
    """They need not wait for its end, nor for news."""
    pool = Starving(pools)
    pool.large.cancel()
    gate = pools.gate()
    pool.large = pool.pool.submit(gate, estimate=LARGE)
    pools.clock.advance(AGE_S)
    pool.pool.resources_changed()
    young = [pool.submit("young", ANY) for _ in range(2)]
    assert pools.asleep(pool.pool, 1)
    assert pool.order == []

    for one in pool.gates:
        one.opened.set()

    gate.wait_entered()
    assert all(task.result(PATIENCE_S) for task in young)
    assert not pool.large.done()


def test_without_an_age_nobody_is_waited_for(pools: Pools) -> None:
    made = pools.make("a", "b", max_age_s=None)
    gate = pools.gate()
    made.submit(gate, estimate=SMALL)
    gate.wait_entered()
    large = made.submit(where, estimate=LARGE)
    pools.clock.advance(10 * AGE_S)

    assert made.submit(where, estimate=SMALL).result(PATIENCE_S) == "b"
    assert not large.done()
    gate.opened.set()
    assert large.result(PATIENCE_S)


def test_a_stream_of_small_tasks_does_not_starve_a_large_one(pools: Pools) -> None:
    """Each small task submits the next, so that without a limit there is always one that fits."""
    made = pools.make("a", "b", max_age_s=AGE_S)
    done = threading.Event()
    rounds = 0

    def small(_context: TaskContext) -> None:
        nonlocal rounds
        rounds += 1
        pools.clock.advance(1.0)
        if not done.is_set() and rounds < 10_000:
            made.submit(small, estimate=SMALL)

    for _ in range(2):
        made.submit(small, estimate=SMALL)
    large = made.submit(where, estimate=LARGE)

    assert large.result(PATIENCE_S)
    done.set()
    assert rounds < 10_000
