"""What went wrong in other schedulers with locality, tried on this one."""

from __future__ import annotations

import threading
from itertools import permutations
from typing import Final

import pytest

from lardon.locality import Job, LocalityScheduler, Stage, WorkerLost
from lardon.testing import ManualClock

PATIENCE_S: Final = 10.0


def scheduler_on(clock: ManualClock, lease_s: float | None = None) -> LocalityScheduler:
    return LocalityScheduler(cache_timeout_s=1, deps_timeout_s=10, lease_s=lease_s, clock=clock)


def test_h110_location_news_that_comes_late() -> None:
    """A job in the global queue is in the first local queue of a worker that reports it."""
    clock = ManualClock()
    scheduler = scheduler_on(clock)
    scheduler.register_worker("w0")
    scheduler.register_worker("w1")
    scheduler.schedule_job(Job("j"))
    clock.advance(10)
    assert scheduler.queues("w0") == ((), (), ("j",))

    scheduler.add_artifacts("w0", ["j"])

    assert scheduler.queues("w0") == (("j",), (), ("j",))
    assert scheduler.queues("w1") == ((), (), ("j",))


def test_h110_the_order_of_the_two_events_does_not_matter() -> None:
    """Schedule, report, and the registration of the reporter, in every order."""
    found = set()
    for order in permutations(("schedule", "report", "register")):
        clock = ManualClock()
        scheduler = scheduler_on(clock)
        for name in order:
            if name == "schedule":
                scheduler.schedule_job(Job("j"))
            elif name == "report":
                scheduler.add_artifacts("w0", ["j"])
            else:
                scheduler.register_worker("w0")
        for _ in range(2):
            clock.advance(10)
            scheduler.queues("w0")
        found.add(scheduler.queues("w0"))

    assert found == {(("j",), (), ("j",))}


def test_h111_identical_jobs_share_one_handle_until_it_is_finished() -> None:
    """The owner gives up; the second waiter has its result; a late clean-up hits nothing."""
    clock = ManualClock()
    scheduler = scheduler_on(clock)
    scheduler.register_worker("w0")
    first = scheduler.schedule_job(Job("j"))
    second = scheduler.schedule_job(Job("j"))
    assert second is first
    results: list[object] = []
    waiter = threading.Thread(target=lambda wait=second.wait: results.append(wait()))
    waiter.start()

    # The owner stops waiting; nothing is withdrawn by that.
    assert not first.wait(0)
    del first
    clock.advance(10)
    picked = scheduler.pick_job("w0", timeout=0)
    assert picked is second
    assert scheduler.on_job_complete("w0", "j", 1)
    waiter.join(PATIENCE_S)
    assert results == [True]

    newer = scheduler.schedule_job(Job("j"))
    assert newer is not second
    # The clean-up of the first, however late, is not the newer one's.
    del second, picked
    scheduler.remove_artifacts("w0", ["j"])
    clock.advance(1)
    scheduler.statistics()
    clock.advance(10)
    assert scheduler.queues("w0") == ((), (), ("j",))
    assert scheduler.schedule_job(Job("j")) is newer
    assert not newer.finished


def test_h112_jobs_wait_for_workers_that_do_not_exist_yet() -> None:
    clock = ManualClock()
    scheduler = scheduler_on(clock)
    handle = scheduler.schedule_job(Job("j"))
    clock.advance(3600)
    assert scheduler.statistics().waiting == 1

    scheduler.register_worker("late")

    assert scheduler.pick_job("late", timeout=0) is handle


def test_h112_the_job_of_a_worker_that_stops_polling_comes_back_once() -> None:
    clock = ManualClock()
    scheduler = scheduler_on(clock, lease_s=60)
    for worker in ("w0", "w1"):
        scheduler.register_worker(worker)
    handle = scheduler.schedule_job(Job("j"))
    clock.advance(10)
    assert scheduler.pick_job("w0", timeout=0) is handle

    clock.advance(59)
    assert scheduler.pick_job("w1", timeout=0) is None
    clock.advance(1)
    assert scheduler.pick_job("w1", timeout=0) is handle
    assert scheduler.pick_job("w1", timeout=0) is None

    clock.advance(60)
    assert scheduler.queues("w1") == ((), (), ())
    assert handle.stage is Stage.FINISHED
    with pytest.raises(WorkerLost):
        raise handle.error or AssertionError
