"""A worker process, as its parent sees it."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lardon.errors import LardonError
from lardon.locality.child import Answer, Call, News, serve

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

    from lardon.locality.current import News as Told
    from lardon.locality.worker_spec import WorkerSpec

# How long a process that was told to stop may take before it is killed.
GRACE_S: Final = 5.0
# What the driver of NVIDIA reads when a process first uses it.
DEVICES: Final = "CUDA_VISIBLE_DEVICES"

# Guards the environment of this process while a child that needs another one is started.
# Taken alone.
_environment: Final = threading.Lock()


class ProcessDied(LardonError):
    """The worker process ended without an answer; `exitcode` is its own."""

    exitcode: int | None


class ChildProcess:
    """
    One worker process: started by `spawn`, pinned by its environment, asked by a pipe.

    `wait_ready`, `ask` and `stop` block; one thread at a time calls them. `cancel` and `kill`
    may be called from any thread.
    """

    def __init__(self, spec: WorkerSpec, max_artifacts: int | None, news: Told) -> None:
        # Not every pool has processes.
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        self._news = news
        self.ready = False
        """Whether the process takes calls."""
        self._connection, theirs = context.Pipe()
        self._cancelled = context.Event()
        self._process = context.Process(
            target=serve,
            args=_arguments(theirs, self._cancelled, spec, max_artifacts),
            name=f"lardon-{spec.name}",
            daemon=True,
        )
        with _visible(spec.device):
            self._process.start()
        # Or the end of the child would not close the pipe.
        theirs.close()
        self._pid = self._process.pid

    @property
    def pid(self) -> int | None:
        """The id of the process."""
        return self._pid

    def wait_ready(self) -> None:
        """Block until the process takes calls, which is once; raises `ProcessDied`."""
        if not self.ready:
            self._receive()
            self.ready = True

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_alive()

    def ask(self, call: Call, cancelled: Callable[[], bool]) -> Answer:
        """
        Block until *call* is answered; what it holds meanwhile goes to the news.

        Args:
            call: What to do.
            cancelled: Whether somebody has asked for its end already.

        Raises:
            ProcessDied: the process ended without an answer.

        """
        self._cancelled.clear()
        if cancelled():
            self._cancelled.set()
        try:
            self._connection.send(call)
        except OSError:
            raise self.death() from None
        while True:
            message = self._receive()
            if isinstance(message, Answer):
                return message
            assert isinstance(message, News)
            self._news(message.added, message.removed)

    def _receive(self) -> Any:
        try:
            data = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise self.death() from None
        try:
            return pickle.loads(data)  # noqa: S301  our own child wrote it
        except Exception as error:  # noqa: BLE001  other people's code makes the objects
            return Answer(None, error)

    def death(self) -> ProcessDied:
        """Return the error that says how the process ended."""
        self._process.join(GRACE_S)
        code = self._process.exitcode
        message = f"the worker process {self._process.name} (pid {self.pid}) ended with {code}"
        return ProcessDied(message, exitcode=code)

    def cancel(self) -> None:
        """Let the call that runs see `cancel_requested`."""
        self._cancelled.set()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def stop(self) -> None:
        """Tell the process to end and wait for it, at most `GRACE_S`; then kill it."""
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.join(GRACE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()
        self._process.close()


def _arguments(
    connection: Connection, cancelled: Event, spec: WorkerSpec, max_artifacts: int | None
) -> tuple[Any, ...]:
    """Return what `serve` is called with."""
    return connection, cancelled, spec.name, spec.device, max_artifacts


@contextlib.contextmanager
def _visible(device: str | None) -> Iterator[None]:
    """Have a child that is started within the block see *device* alone."""
    if device is None:
        yield
        return
    with _environment:
        before = os.environ.get(DEVICES)
        os.environ[DEVICES] = device
        try:
            yield
        finally:
            if before is None:
                del os.environ[DEVICES]
            else:
                os.environ[DEVICES] = before
