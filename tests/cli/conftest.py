"""The command in this process and in processes of its own, on machines that a test controls."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import GiB, ResourceSnapshot
from lardon.cli import machine
from lardon.cli.main import main
from lardon.testing import ScriptedProbe
from lardon.testing.root import FakeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lardon.governor.snapshot import Probe

MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=11 * GiB, cpus=8
)

# Longer than anything takes here, shorter than the limit of pytest-timeout.
PATIENCE_S: Final = 15.0

_ON_FILES: Final = (
    "from lardon import SystemProbe\n"
    "from lardon.testing.nvml import FakeNvml\n"
    "probe = SystemProbe({root!r}, nvml=FakeNvml(), environ={{}}, rlimits=False)\n"
)
_PROGRAM: Final = (
    "import sys\n"
    "from lardon.cli import machine\n"
    "{probe}"
    "machine.make_probe = lambda: probe\n"
    "from lardon.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


class Answer:
    """What one call of the command said."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err


class Command:
    """The command inside this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.set(MACHINE)

    def set(self, *script: ResourceSnapshot | BaseException) -> None:
        """Let the machine look like this, or fail like this."""
        self.use(lambda: ScriptedProbe(*script))

    def use(self, make_probe: Callable[[], Probe]) -> None:
        """Let the command make this probe."""
        self._monkeypatch.setattr(machine, "make_probe", make_probe)

    def __call__(self, *arguments: str) -> Answer:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(arguments)
        return Answer(status, _read(out), _read(err))


def _read(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


class Program:
    """The command in processes of its own, on a machine of files."""

    def __init__(self, root: FakeRoot) -> None:
        self.root = root
        """The files; what they say may change while a process runs."""
        self._started: list[subprocess.Popen[str]] = []

    def line(self, *arguments: str, probe: str | None = None) -> list[str]:
        """Return the command line; *probe* is code that makes another ``probe``."""
        made = _ON_FILES.format(root=str(self.root.path)) if probe is None else probe
        return [sys.executable, "-W", "error", "-c", _PROGRAM.format(probe=made), *arguments]

    def start(
        self,
        *arguments: str,
        probe: str | None = None,
        environment: dict[str, str] | None = None,
        **how: Any,
    ) -> subprocess.Popen[str]:
        """Start the command, without a terminal unless *how* gives it one."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        process = subprocess.Popen(
            self.line(*arguments, probe=probe),
            # What whoever runs the tests has set for buffers and colours is not theirs.
            env=os.environ | {"PYTHONUNBUFFERED": ""} | (environment or {}),
            text=True,
            **({**streams, "stderr": subprocess.PIPE, "start_new_session": True} | how),
        )
        self._started.append(process)
        return process

    def __call__(self, *arguments: str, **how: Any) -> Answer:
        """Run the command to its end."""
        process = self.start(*arguments, **how)
        out, err = process.communicate(timeout=PATIENCE_S)
        return Answer(process.returncode, out or "", err or "")

    def end_all(self) -> None:
        """End what still runs, and close what is open."""
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return the command on a machine of 16 GiB, 11 of them available, and 8 CPUs."""
    return Command(monkeypatch)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Return the command as a program on a machine of 16 GiB, 12 of them available."""
    one = Program(FakeRoot(tmp_path / "root"))
    yield one
    one.end_all()
