"""Scripted Slurm commands on PATH, and real clusters in a folder."""

from __future__ import annotations

import datetime
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

NONCE: Final = "0123456789abcdef0123456789abcdef"
PATIENCE_S: Final = 15.0
SHELLS: Final = ("dash", "bash")


def soon(seconds: float = 3600) -> datetime.datetime:
    """Return a deadline that far from now."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


class Running:
    """A script that runs, and the processes that it is made of."""

    def __init__(self, process: subprocess.Popen[bytes], entered: Path) -> None:
        self.process = process
        self._entered = entered

    def wait_entered(self) -> None:
        """Return once the scripted command says that it runs; opening a pipe waits for it."""
        self._entered.read_bytes()

    def everyone(self) -> list[psutil.Process]:
        """Return every process of the script, the shell first."""
        shell = psutil.Process(self.process.pid)
        return [shell, *shell.children(recursive=True)]

    def signal_everyone(self, number: signal.Signals) -> int:
        """Send the signal to each of them; return how many there were."""
        processes = self.everyone()
        for process in processes:
            process.send_signal(number)
        return len(processes)

    def end(self) -> tuple[int, str]:
        """Return the exit status and all of stderr."""
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr.decode()


class ScriptedSlurm:
    """A folder of commands that do what a test says, and a log of what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "calls"
        self.entered = folder / "entered"
        self.go_on = folder / "go-on"
        for fifo in (self.entered, self.go_on):
            os.mkfifo(fifo)
        self.path = f"{self.bin}:/usr/bin:/bin"
        self._started: list[subprocess.Popen[bytes]] = []

    def command(self, name: str, body: str) -> None:
        """
        Put a command on PATH that logs its arguments and then runs *body* in sh.

        Two functions wait: `meet` tells the test that the command runs, and `stay` blocks
        until the test opens the other pipe.
        """
        file = self.bin / name
        file.write_text(
            "#!/bin/sh\n"
            f'printf "%s\\n" "{name} $*" >> {self.log}\n'
            f"meet() {{ echo > {self.entered}; }}\n"
            f"stay() {{ cat {self.go_on} > /dev/null; }}\n"
            f"{body}\n"
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def calls(self) -> list[str]:
        """Return what was called, in order."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def start(self, script: str, shell: str = "sh") -> Running:
        """Start a script in a session of its own."""
        process = subprocess.Popen(
            [shell, "-c", script],
            env={"PATH": self.path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._started.append(process)
        return Running(process, self.entered)

    def run(self, script: str, shell: str = "sh") -> tuple[int, str]:
        """Run a script to its end; return its status and stderr."""
        return self.start(script, shell).end()

    def end_all(self) -> None:
        """End what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                for one in psutil.Process(process.pid).children(recursive=True):
                    one.kill()
                process.kill()
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[ScriptedSlurm]:
    """Return a folder of scripted commands, where `scontrol` succeeds."""
    one = ScriptedSlurm(tmp_path)
    one.command("scontrol", "exit 0")
    yield one
    one.end_all()
