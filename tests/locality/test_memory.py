"""Dead entries go: memory is bounded by live jobs and known artifacts."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from lardon.locality import Job, LocalityScheduler, PendingJob, Placement
from lardon.locality.job import Stage
from lardon.locality.lane import Lane
from lardon.locality.options import Options
from lardon.locality.waiting_list import WaitingList
from lardon.testing import ManualClock


def jobs(count: int) -> list[PendingJob]:
    return [PendingJob(Job(number), number, 0.0) for number in range(count)]


def test_a_lane_forgets_jobs_that_left_early() -> None:
    lane, waiting = Lane(1e9), jobs(10_000)
    for job in waiting:
        lane.enter(job, 0.0)
    for job in waiting[5:]:
        lane.leave(job)

    assert len(lane) <= 2 * 5 + 64
    assert [lane.pop_due(1e9) for _ in range(6)] == [*waiting[:5], None]


def test_a_queue_forgets_jobs_that_left_from_the_middle() -> None:
    queue, waiting = WaitingList(), jobs(10_000)
    for job in reversed(waiting):
        assert queue.add(job)
    for job in waiting[5:]:
        queue.drop(job)

    assert len(queue) <= 2 * 5 + 32
    assert queue.ids() == (0, 1, 2, 3, 4)


def test_a_job_that_leaves_a_queue_and_comes_back_is_in_it_once() -> None:
    queue, (first, second, third) = WaitingList(), jobs(3)
    for job in (first, second, third):
        queue.add(job)
    queue.drop(second)
    assert queue.add(second)
    assert not queue.add(second)

    assert list(queue.in_order()) == [first, second, third]
    assert list(queue.in_order()) == [first, second, third], "looking takes nothing out"


def test_a_queue_may_lose_a_job_while_it_is_looked_through() -> None:
    queue, (first, second) = WaitingList(), jobs(2)
    queue.add(first)
    queue.add(second)
    looking = queue.in_order()
    assert next(looking) is first
    assert next(looking) is second
    queue.drop(first)
    looking.close()

    assert queue.head() is second


@pytest.mark.slow
def test_long_histories_leave_nothing_behind() -> None:
    """20,000 jobs through CACHE and DEPS with delays of a day, picked at once, and evicted."""
    placement = Placement(Options(cache_timeout_s=1e4, deps_timeout_s=1e5), random.Random(0))
    placement.register("w", 0)
    placement.learn("w", ["dep", "stays"])
    placement.schedule(Job("stays"), 0)
    for number in range(20_000):
        if number % 2:
            placement.learn("w", [number])
        placement.schedule(Job(number, ("dep", "stays")), number)
        handle = placement.pick("w", number, lambda job: job.job.id != "stays")
        assert handle is not None
        placement.complete("w", handle.job.id, number)
        placement.forget("w", [handle.job.id])

    assert len(placement._live) == 1
    assert len(placement._where) == 2
    assert not placement._dependents
    assert len(placement._cache_lane) + len(placement._deps_lane) < 200
    (worker,) = placement._workers.values()
    assert len(worker.first) + len(worker.second) + len(placement._global) < 200


def test_a_finished_handle_does_not_keep_the_scheduler_alive() -> None:
    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=1, clock=ManualClock())
    scheduler.register_worker("w")
    handle = scheduler.schedule_job(Job("a"))
    scheduler.on_job_complete("w", "a", 1)
    gone = weakref.ref(scheduler)
    del scheduler
    gc.collect()

    assert gone() is None
    assert handle.wait()
    assert handle.stage is Stage.FINISHED
