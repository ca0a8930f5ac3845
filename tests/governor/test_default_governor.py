"""One governor per process, and a fresh one in a forked child."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import threading
import weakref
from typing import Final

import pytest

from lardon import (
    Governor,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    TaskQueue,
    default_governor,
)
from lardon.governor import default
from lardon.testing import ScriptedProbe

FORKED: Final = """
import os, sys, threading
from lardon import Governor, Policy, ResourceEstimate, ResourceSnapshot, default_governor
from lardon.testing import ScriptedProbe

machine = ResourceSnapshot(taken_at=0.0, ram_total_bytes=100, ram_available_bytes=100)
governor = Governor(Policy.unlimited(), probe=ScriptedProbe(machine))
mine = default_governor()
asked = ResourceEstimate(ram_bytes=60)
held = governor.reserve(asked)[1]
governor.record_batch("kind", 1, 1.0)
told = []
governor.subscribe(lambda: told.append(os.getpid()))
governor._lock.acquire()  # as another thread of the parent may, at the moment of the fork
child = os.fork()
if not child:
    # Its book is its own: nothing of the parent's is held, released or told here.
    assert governor.reservations() == () and governor.generation == 0
    assert governor.statistics().reserved_ram_bytes == 0
    assert held.release() is False
    own = governor.reserve(asked)[1]
    assert own is not None and own.id == 1 and own.release() is True
    assert governor.generation == 2 and told == []
    assert default_governor() is not mine and default_governor() is default_governor()
    print("child", flush=True)
    sys.exit(0)
governor._lock.release()
assert os.waitpid(child, 0)[1] == 0
assert governor.reservations() == (held,) and governor.statistics().reserved_ram_bytes == 60
assert held.release() is True and told == [os.getpid()]
assert default_governor() is mine
print("parent")
"""


def test_everybody_gets_the_same_one() -> None:
    found: list[Governor] = []
    start = threading.Barrier(4)

    def get() -> None:
        start.wait(timeout=5)
        found.append(default_governor())

    threads = [threading.Thread(target=get, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=5)

    assert set(found) == {default_governor()}
    assert len(found) == 4
    assert default_governor().policy == Policy()


class Overtaken:
    """A lock at whose door one thread, having found no governor, lets another go first."""

    def __init__(self) -> None:
        self.slow: threading.Thread | None = None
        self.arrived = threading.Event()
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if threading.current_thread() is self.slow:
            self.arrived.set()
            assert self.go_on.wait(timeout=5)
        self._lock.acquire()

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()


def test_two_threads_that_both_found_none_get_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The later one looks again below the lock, and makes no second governor."""
    found: list[Governor] = []
    lock = Overtaken()
    monkeypatch.setattr(default, "_default", {})
    monkeypatch.setattr(default, "_lock", lock)
    lock.slow = threading.Thread(target=lambda: found.append(default_governor()), daemon=True)

    lock.slow.start()
    assert lock.arrived.wait(timeout=5)
    first = default_governor()
    lock.go_on.set()
    lock.slow.join(timeout=5)

    assert found == [first]
    assert default_governor() is first


def test_a_platform_without_forks_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    assert default.__file__ is not None
    spec = importlib.util.spec_from_file_location("lardon.governor.default_2", default.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    spec.loader.exec_module(module)

    assert module.default_governor() is module.default_governor()
    assert module.default_governor() is not default_governor()


def test_a_queue_that_is_given_none_takes_it() -> None:
    with TaskQueue() as queue:
        assert queue._life.governor is default_governor()


def test_it_reads_this_machine() -> None:
    governor = default_governor()

    shot = governor.snapshot()

    assert shot.ram_total_bytes > 0
    assert 0 <= governor.clock.monotonic() - shot.taken_at < 60
    decision, reservation = governor.reserve(ResourceEstimate(ram_bytes=2**60))
    assert reservation is None, decision.reason.text


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_with_an_empty_book() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("child\nparent\n", "", 0)


def test_a_governor_is_not_kept_alive_by_the_fork_handler() -> None:
    machine = ResourceSnapshot(taken_at=0.0, ram_total_bytes=1, ram_available_bytes=1)
    seen = weakref.ref(Governor(probe=ScriptedProbe(machine)))
    gc.collect()

    assert seen() is None
