"""In a forked child a pool is the parent's: every call says so, none hangs, nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lardon import GiB
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import FolderInUse, PoolClosed, RemoteHandle, RemotePool
from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster
from tests.forking import FORKS, held_elsewhere, in_child

ROOT: Final = Path(__file__).parents[2]

pytestmark = [*FORKS]


def left(pool: RemotePool) -> None:
    with pool:
        pass


CALLS: Final[dict[str, Callable[[RemotePool], object]]] = {
    "submit": lambda pool: pool.submit(COMMAND, estimate=ONE),
    "submit_function": lambda pool: pool.submit_function(print, estimate=ONE),
    "adopt": lambda pool: pool.adopt("a"),
    "handles": lambda pool: pool.handles(),
    "forget": lambda pool: pool.forget("over"),
    "statistics": lambda pool: pool.statistics(),
    "unmatched": lambda pool: pool.unmatched(),
    "join": lambda pool: pool.join(1.0),
    "wait_parked": lambda pool: pool.wait_parked(1.0),
    "close": lambda pool: pool.close(),
    "close without waiting": lambda pool: pool.close(wait=False),
    "close and cancel": lambda pool: pool.close(cancel=True),
    "with": left,
}
HANDLE_CALLS: Final[dict[str, Callable[[RemoteHandle], object]]] = {
    "cancel": lambda handle: handle.cancel(),
    "result": lambda handle: handle.result(1.0),
    "exception": lambda handle: handle.exception(1.0),
}


def written(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def a_pool(cluster: RemoteCluster, folder: Path) -> tuple[RemotePool, RemoteHandle, RemoteHandle]:
    """Return a pool with a task that is over and one that is not."""
    pool = cluster.pool(folder=folder)
    over, handle = (pool.submit(COMMAND, estimate=ONE, name=name) for name in ("over", "a"))
    cluster.rest()
    cluster.finish(over)
    return pool, over, handle


@pytest.mark.parametrize("name", CALLS)
def test_every_call_of_the_pool_names_the_owner(
    cluster: RemoteCluster, tmp_path: Path, name: str
) -> None:
    pool, _, handle = a_pool(cluster, tmp_path)
    before = written(tmp_path)

    error = held_elsewhere(pool._waiter.lock, lambda: in_child(lambda: CALLS[name](pool)))

    assert isinstance(error, PoolClosed), error
    assert error.owner_pid == os.getpid()
    assert str(os.getpid()) in str(error)
    assert written(tmp_path) == before
    # The parent is not affected.
    assert pool.adopt("a") is handle
    assert pool.submit(COMMAND, estimate=ONE).cancel()


@pytest.mark.parametrize("name", HANDLE_CALLS)
def test_every_call_of_an_unfinished_handle_does_too(
    cluster: RemoteCluster, tmp_path: Path, name: str
) -> None:
    pool, over, handle = a_pool(cluster, tmp_path)
    before = written(tmp_path)

    def call() -> object:
        return HANDLE_CALLS[name](handle)

    error = held_elsewhere(handle._condition, lambda: in_child(call))

    assert isinstance(error, PoolClosed), error
    assert error.owner_pid == os.getpid()
    assert written(tmp_path) == before
    assert handle.record.stop_asked_at is None
    # What is over can be told anywhere.
    assert in_child(lambda: over.result(0).succeeded) is True
    assert in_child(over.cancel) is False
    cluster.finish(handle)
    assert handle.result(PATIENCE_S).succeeded
    assert pool.join(PATIENCE_S)


def test_a_child_may_have_a_pool_of_its_own_elsewhere(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    cluster.pool(folder=tmp_path / "parent")

    def use(folder: Path) -> Any:
        clock = ManualClock()
        backend = MemoryBackend(clock=clock)
        with RemotePool(backend, jobs=1, cpus=1, ram_bytes=GiB, folder=folder, clock=clock) as pool:
            handle = pool.submit(COMMAND, estimate=ONE)
            assert pool.wait_parked(PATIENCE_S)
            assert handle.cancel()
            clock.advance(15)
            return pool.join(PATIENCE_S)

    assert in_child(lambda: use(tmp_path / "child")) is True
    refused = in_child(lambda: use(tmp_path / "parent"))
    assert isinstance(refused, FolderInUse)
    assert refused.pid == os.getpid()


FORKER: Final = """
import os, sys
from lardon import GiB, ResourceEstimate
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.records import FileRecords
from lardon.dispatch.remote import RemotePool
from lardon.testing import ManualClock

main = os.getpid()
clock = ManualClock()
backend = MemoryBackend(clock=clock)
real_start = backend.start


def start(spec):
    os.getpid() == main or os.write(1, b"start in child ")
    return real_start(spec)


backend.start = start
pool = RemotePool(backend, jobs=1, cpus=1, ram_bytes=GiB, folder=sys.argv[1], clock=clock)
ways = sys.argv[2]
children = []


def fork(handle):
    child = os.fork()
    if child:
        children.append(child)
    elif ways == "exits":
        sys.exit("in a callback")


first, second = (pool.submit(["a"], estimate=ResourceEstimate(ram_bytes=GiB)) for _ in range(2))
first.add_done_callback(fork)
if ways == "abandoned":
    assert pool.wait_parked(10)
    pool.close(wait=False)
else:
    assert pool.wait_parked(10)
    first.cancel()
    while not second.record.objects:
        clock.advance(15)
        assert pool.wait_parked(10)
(child,) = children
assert os.waitpid(child, 0) == (child, 0)
pool.close(wait=False)
os.write(1, b"done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ways", ["returns", "exits", "abandoned"])
def test_a_child_that_returns_from_a_callback_is_no_second_waiter(
    tmp_path: Path, ways: str
) -> None:
    """It has a copy of the pool's thread, and of the name under which it holds every lease."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKER, tmp_path, ways],
        capture_output=True,
        timeout=15,
        check=False,
        cwd=ROOT,
    )

    assert (ended.returncode, ended.stdout) == (0, b"done"), ended.stderr
    assert b"Traceback" not in ended.stderr or ways == "exits", ended.stderr
