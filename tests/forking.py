"""What tests of forks share: a call in a child, and a lock that another thread holds."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

PATIENCE_S: Final = 10.0

FORKS: Final = (
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
    # Python 3.12 warns of a fork beside threads, which is what these tests are about.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
)
"""Marks of a module that forks beside threads."""


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


def held_elsewhere(lock: Any, do: Callable[[], Any]) -> Any:
    """Return ``do()``, called while another thread holds *lock*."""
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            holds.set()
            assert let_go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(PATIENCE_S)
    try:
        return do()
    finally:
        let_go.set()
        thread.join(PATIENCE_S)
