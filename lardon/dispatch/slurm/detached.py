"""
The threads of the adapter: a script runs to its own end, whoever still waits for it.

A call that was handed to the host may land, so it is never abandoned half way; who does not
want to wait any more is told so at once, and the script goes on in a session of its own.
Source: the dispatch design, section 4.7.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Final

import attrs

# After the last signal only the kernel's own work is left.
_REAP_S: Final = 5.0


@attrs.frozen
class Ended:
    """What a command came to; `status` is None when nobody knows, and `problem` says why."""

    status: int | None
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    began: bool = True
    """False when it certainly was not started."""


def begin(work: Callable[[], None], name: str) -> None:
    """Do *work* in a thread of its own, which keeps no interpreter alive."""
    threading.Thread(target=work, name=name, daemon=True).start()


class Runner:
    """Runs commands, each in a session of its own with a thread that waits for it."""

    def __init__(self) -> None:
        # Guards the attributes below; notified when a command ended, and on close.
        self._changed = threading.Condition()
        self._waiting: set[int] = set()
        self._ended: dict[int, Ended] = {}
        self._closed = False
        self._number = 0

    def run(self, command: Sequence[str], limit_s: float) -> Ended:
        """
        Run *command*, wait for it for up to *limit_s* seconds, and return what it came to.

        After the limit it is killed, and its status is None; so it is after `close`, which
        does not kill it. An exception in the waiting thread, such as KeyboardInterrupt,
        leaves the command running as well. Call it from any thread.
        """
        with self._changed:
            if self._closed:
                return Ended(None, problem="the backend is closed", began=False)
            self._number += 1
            number = self._number
            self._waiting.add(number)
        try:
            process = subprocess.Popen(  # noqa: S603  the transport made the command
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            with self._changed:
                self._waiting.discard(number)
            problem = f"{command[0]} could not be started: {error.strerror}"
            return Ended(None, problem=problem, began=False)
        begin(lambda: self._wait(process, number, limit_s), f"slurm-{number}")
        abandoned = Ended(None, problem="the backend was closed while the call ran")
        with self._changed:
            try:
                self._changed.wait_for(lambda: self._closed or number in self._ended)
            finally:
                self._waiting.discard(number)
                ended = self._ended.pop(number, abandoned)
        return ended

    def close(self) -> None:
        """Let everybody go who waits; commands run on to their own end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, process: subprocess.Popen[bytes], number: int, limit_s: float) -> None:
        """Wait for *process* (its thread), and leave what it came to."""
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
            ended = Ended(process.returncode, _text(stdout), _text(stderr))
        except subprocess.TimeoutExpired:
            self._end(process)
            ended = Ended(None, problem=f"no answer within {limit_s:g} s")
        with self._changed:
            if number in self._waiting:
                self._ended[number] = ended
            self._changed.notify_all()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Not until the end of the streams: a shared connection may hold them open for ever.
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_S)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
