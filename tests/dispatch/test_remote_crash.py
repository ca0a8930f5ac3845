"""
Handles are adopted again by name after a crash: a real process, and a real `kill -9`.

The cluster lives in the test's process, as one lives on when a login host goes down.
"""

from __future__ import annotations

import datetime
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Listener
from pathlib import Path

import pytest

from lardon import GiB
from lardon.dispatch.enums import Shape, State
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import RemotePool
from lardon.testing import ManualClock
from tests.dispatch.crashing_submitter import KEY, NAMES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(Shape))
def test_handles_are_adopted_by_name_after_a_kill(tmp_path: Path, shape: Shape) -> None:
    now = datetime.datetime.now(datetime.UTC)
    clock = ManualClock(wall=now)
    backend = MemoryBackend(clock=clock, shape=shape, min_job_age_s=1e6)

    listener = Listener(str(tmp_path / "cluster"), authkey=KEY)
    thread = threading.Thread(target=_lend, args=(listener, backend))
    thread.start()
    folder = tmp_path / "pool"
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.dispatch.crashing_submitter", listener.address, folder],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "submitted\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=10)
        thread.join(10)
        listener.close()
    assert child.returncode == -signal.SIGKILL

    before = backend.env().refs()
    assert len(before) == 2
    with RemotePool(backend, jobs=2, cpus=4, ram_bytes=4 * GiB, folder=folder, clock=clock) as pool:
        handles = [pool.adopt(name) for name in NAMES]
        assert [handle is not None and handle.name for handle in handles] == list(NAMES)
        assert pool.wait_parked(10)
        assert pool.statistics().reserved_ram_bytes == 2 * GiB
        for _ in range(100):
            # The lease of the dead process runs out, and its jobs go on.
            clock.advance(15)
            assert pool.wait_parked(10)
            _work(backend)
            if all(handle is not None and handle.done() for handle in handles):
                break
        for handle in handles:
            assert handle is not None
            assert handle.result(0).succeeded
            assert handle.result(0).executions == 1
    # No job was started a second time.
    assert backend.env().refs()[:2] == before
    assert len(backend.env().refs()) == 3


def _lend(listener: Listener, backend: MemoryBackend) -> None:
    """Do what the other process asks for, until it is gone."""
    with listener.accept() as connection:
        while True:
            try:
                name, args = connection.recv()
            except (EOFError, ConnectionError):
                return
            connection.send(getattr(backend, name)(*args))


def _work(backend: MemoryBackend) -> None:
    env = backend.env()
    for ref in env.refs():
        truth = env.truth(ref)
        if truth.state is State.PENDING and not truth.gated:
            env.run(ref)
        elif truth.state is State.RUNNING:
            env.finish(ref)
