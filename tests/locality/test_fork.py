"""In a forked child the scheduler is the parent's: every call says so, none hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

import pytest

from lardon.locality import Job, LocalityScheduler, SchedulerStopped
from tests.forking import FORKS, held_elsewhere, in_child

pytestmark = [*FORKS]

CALLS: Final[dict[str, Callable[[LocalityScheduler], object]]] = {
    "schedule_job": lambda s: s.schedule_job(Job("a")),
    "pick_job": lambda s: s.pick_job("w"),
    "pick_job with an event": lambda s: s.pick_job("w", cancel=threading.Event()),
    "on_job_complete": lambda s: s.on_job_complete("w", "a"),
    "register_worker": lambda s: s.register_worker("w"),
    "remove_worker": lambda s: s.remove_worker("w"),
    "renew": lambda s: s.renew("w"),
    "add_artifacts": lambda s: s.add_artifacts("w", ["a"]),
    "remove_artifacts": lambda s: s.remove_artifacts("w", ["a"]),
    "locate_artifact": lambda s: s.locate_artifact("a"),
    "queues": lambda s: s.queues("w"),
    "statistics": lambda s: s.statistics(),
    "resources_changed": lambda s: s.resources_changed(),
    "wait_parked": lambda s: s.wait_parked(),
    "stop": lambda s: s.stop(),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_names_the_owner(name: str) -> None:
    """Forked while another thread holds the lock."""
    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=1)
    scheduler.register_worker("w")
    error = held_elsewhere(scheduler._lock, lambda: in_child(lambda: CALLS[name](scheduler)))

    assert isinstance(error, SchedulerStopped)
    assert error.owner_pid == os.getpid()
    scheduler.schedule_job(Job("the parent's"))


def test_waiting_for_a_job_of_the_parent() -> None:
    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=1)
    handle = scheduler.schedule_job(Job("a"))

    assert isinstance(in_child(handle.wait), SchedulerStopped)
