"""In a forked child the scheduler is the parent's: every call says so, none hangs."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from lardon.locality import Job, LocalityScheduler, SchedulerStopped

PATIENCE_S: Final = 10.0

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
    # Python 3.12 warns of a fork beside threads, which is what these tests are about.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

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
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with scheduler._lock:
            holds.set()
            assert let_go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(PATIENCE_S)
    try:
        error = in_child(lambda: CALLS[name](scheduler))
    finally:
        let_go.set()
        thread.join(PATIENCE_S)

    assert isinstance(error, SchedulerStopped)
    assert error.owner_pid == os.getpid()
    scheduler.schedule_job(Job("the parent's"))


def test_waiting_for_a_job_of_the_parent() -> None:
    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=1)
    handle = scheduler.schedule_job(Job("a"))

    assert isinstance(in_child(handle.wait), SchedulerStopped)


def in_child(call: Callable[[], object]) -> Any:
    """Return what *call* returns in a forked child, or the error it raises there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                answer = call()
            except BaseException as error:  # noqa: BLE001  the error is the answer
                answer = error
            os.write(write, pickle.dumps(answer))
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        if not select.select([stream], [], [], PATIENCE_S)[0]:
            os.kill(child, signal.SIGKILL)
        data = stream.read()
    assert os.waitpid(child, 0)[1] == 0, "the child hung or died"
    return pickle.loads(data)  # noqa: S301  our own child's


def test_the_refusal_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above see from afar, on this side of the fork."""
    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=1)
    monkeypatch.setattr("lardon.locality.scheduler.forks", lambda: -1)
    for call in CALLS.values():
        with pytest.raises(SchedulerStopped, match=f"process {os.getpid()}"):
            call(scheduler)
