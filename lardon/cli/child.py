"""The command that `lardon run` starts: signals go to it, and its end is ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from lardon.cli.statuses import ExitStatus, status_of_child

if TYPE_CHECKING:
    from types import FrameType, TracebackType

# What is passed on to the command, where the platform has it.
FORWARDED: Final = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGBREAK")
    if name in signal.Signals.__members__
)
# A terminal sends these to every process that runs in its foreground, the command too.
_FROM_KEYBOARD: Final = frozenset(FORWARDED) & {
    getattr(signal, name, None) for name in ("SIGINT", "SIGQUIT", "SIGBREAK")
}
# After a second Ctrl-C the command has this long to end by SIGTERM; all in all it is over
# within 2 s then.
GRACE_S: Final = 0.5
# On Windows no signal interrupts a wait, so that it has to be looked after.
_SLICE_S: Final = None if os.name == "posix" else 0.2


class CannotRun(Exception):
    """The command cannot be started: `status` is what a shell would exit with."""

    def __init__(self, status: ExitStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def check_can_run(name: str, environment: Mapping[str, str]) -> None:
    """
    Raise `CannotRun` where it is clear beforehand.

    So that nobody waits ten minutes for room to hear of a typing error.
    """
    path = environment.get("PATH", os.defpath)
    if shutil.which(name, path=path) is not None:
        return
    place = Path(name)
    if place.name != name and place.exists():
        raise CannotRun(ExitStatus.NOT_EXECUTABLE, f"{name}: not executable")
    raise CannotRun(ExitStatus.NOT_FOUND, f"{name}: command not found")


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start *command* on our own standard streams; raises `CannotRun`."""
    try:
        # Descriptors that we inherited are the command's business, such as make's jobs.
        return subprocess.Popen(  # noqa: S603  to run what the user says is what it is for
            command, env=dict(environment), close_fds=os.name != "posix"
        )
    except FileNotFoundError as error:
        raise CannotRun(ExitStatus.NOT_FOUND, f"{command[0]}: {error.strerror}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotRun(ExitStatus.NOT_EXECUTABLE, f"{command[0]}: {reason}") from error


class SignalRelay:
    """
    Takes the signals that come for us, and passes them on to the command once there is one.

    Only the main thread may use it, because only there does Python handle signals. What
    was ignored when we started, as by `nohup`, stays ignored.

    A SIGINT or SIGQUIT while we are in the foreground of a terminal counts as typed: the
    terminal has sent it to the command as well, and nobody wants to be interrupted twice.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        """The signals that came, in order."""
        self._pending: deque[int] = deque()
        self._process: subprocess.Popen[bytes] | None = None
        self._interrupts = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._interrupts > 1 and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Return the status of *process* when it has ended; signals go to it until then."""
        self._process = process
        self._pass_on_pending(process)
        while True:
            try:
                return status_of_child(process.wait(_SLICE_S))
            except subprocess.TimeoutExpired:
                continue

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        self._pending.append(number)
        if self._process is not None:
            self._pass_on_pending(self._process)

    def _pass_on_pending(self, process: subprocess.Popen[bytes]) -> None:
        # Taken out one by one: another signal may arrive, and do the same, at any moment.
        with contextlib.suppress(IndexError):
            while True:
                self._pass_on(process, self._pending.popleft())

    def _pass_on(self, process: subprocess.Popen[bytes], number: int) -> None:
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                self._end(process)
                return
        if number not in _FROM_KEYBOARD or not _typed_for_both():
            process.send_signal(number)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End *process* within `GRACE_S`: the first Ctrl-C has asked it to."""
        if not hasattr(signal, "setitimer") or self._interrupts > 2:  # noqa: PLR2004  the third and later
            process.kill()
            return
        process.terminate()
        self._before.setdefault(
            signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: process.kill())
        )
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)


def _typed_for_both() -> bool:
    """Whether what the keyboard sends reaches the command without us."""
    if sys.platform == "win32":
        return True
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
