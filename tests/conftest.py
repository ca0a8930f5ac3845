"""What holds for every test: no thread is left behind, and generated cases repeat in CI."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest

from lardon.governor.default import _default

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lardon import TaskContext

# A worker ends a moment after the call that closed it returned, or after the last handle of
# its queue was dropped. The wait is a join: it costs nothing when the thread is gone.
LEAK_PATIENCE_S: Final = 5.0

# Longer than anything takes here, shorter than the limit of pytest-timeout.
PATIENCE_S: Final = 10.0

# Time per example says more about the machine than about lardon; a test that hangs is ended
# by pytest-timeout. CI sees the same cases every time.
# A shell starts its background jobs with SIGINT and SIGQUIT ignored, and nohup its command
# with SIGHUP; children inherit that, and tests that send these to programs of their own would
# see nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _name in ("SIGQUIT", "SIGHUP"):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests on Slurm last: a cluster is this process's children until the end."""
    # A batch beside a child of its own process is not measured, which other tests rely on.
    items.sort(key=lambda item: item.get_closest_marker("slurm") is not None)


@pytest.fixture(autouse=True)
def _no_thread_left_behind() -> Iterator[None]:
    """Fail a test whose threads outlive it, and name them."""
    before = set(threading.enumerate())
    yield
    left = threads_left(before, LEAK_PATIENCE_S)
    if left:
        pytest.fail(f"threads left behind: {', '.join(left)}")


@pytest.fixture(autouse=True)
def _no_default_governor_left_behind() -> Iterator[None]:
    """Let go of the process's own governor: its probe keeps files open that others count."""
    yield
    _default.clear()


def threads_left(before: set[threading.Thread], patience_s: float) -> list[str]:
    """Return the names of threads that are not in *before* and do not end in *patience_s*."""
    deadline = time.monotonic() + patience_s
    left = []
    for thread in set(threading.enumerate()) - before - {threading.current_thread()}:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            left.append(thread.name)
    return sorted(left)


class Gate:
    """A callback that says when it runs, stays until it is opened, and then checkpoints."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._opened = threading.Event()

    def __call__(self, context: TaskContext) -> bool:
        self._entered.set()
        assert self._opened.wait(PATIENCE_S)
        return context.checkpoint()

    def wait_entered(self) -> None:
        """Return once the callback runs."""
        assert self._entered.wait(PATIENCE_S)

    def open(self) -> None:
        """Let the callback go on."""
        self._opened.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Return a callback to hold a worker with; it is let go when the test ends."""
    one = Gate()
    yield one
    one.open()
