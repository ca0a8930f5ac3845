"""A process inside cgroups, and the talk with it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.real.cgroups import Group

# Longer than anything takes here, shorter than the limit of pytest-timeout.
PATIENCE_S: Final = 15.0

# A shell goes first, so that all of the interpreter's memory is charged to the group.
_ENTER: Final = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
_PROGRAM: Final = Path(__file__).with_name("inside.py")


class Died(Exception):
    """The process ended instead of answering."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the process inside the group ended with {status}")
        self.status = status
        """As `subprocess.Popen.returncode`: minus the signal that killed it."""


class Child:
    """Runs ``inside.py`` in a group of its own; requests are answered one by one."""

    def __init__(self, group: Group) -> None:
        # -P: this folder is no place to import from.
        program = [sys.executable, "-P", str(_PROGRAM)]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _ENTER, str(group.path), *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._heard = b""

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def ask(self, request: str, **arguments: object) -> Any:
        """Send a request and return the first answer; raises `Died`."""
        self.tell({"do": request, **arguments})
        return self.hear()

    def tell(self, what: object) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        # A process that is gone says so when it is listened to.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(what).encode() + b"\n")

    def hear(self) -> Any:
        """Return the next answer; raises `Died`."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._heard:
            ready, _, _ = select.select([pipe], [], [], PATIENCE_S)
            assert ready, f"no answer in {PATIENCE_S:.0f} s"
            chunk = os.read(pipe, 65536)
            if not chunk:
                raise Died(self._process.wait(PATIENCE_S))
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
