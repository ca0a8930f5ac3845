"""`lardon run` as a process: signals, terminals, waits on a machine that changes."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pytest

from lardon import GiB

if TYPE_CHECKING:
    from tests.cli.conftest import Program

pytestmark = pytest.mark.slow

# Says each signal that it gets, and ends at SIGTERM with 5.
LISTENER: Final = """
import os, signal
names = "SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2".split()
numbers = [signal.Signals[name] for name in names]
# Blocked and waited for: one that arrives between a handler and a pause would be missed.
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
os.write(1, b"ready" + chr(10).encode())
while True:
    number = signal.sigwait(numbers)
    os.write(1, (signal.Signals(number).name + chr(10)).encode())
    if number == signal.SIGTERM:
        os._exit(5)
"""
# Ends at nothing but SIGKILL.
STUBBORN: Final = LISTENER.replace("os._exit(5)", "pass")
# The first process of a session that opens a terminal gets it as its own.
OWN_TERMINAL: Final = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.argv[1], sys.argv[1:])
"""


def python(code: str) -> list[str]:
    return ["--", sys.executable, "-S", "-c", code]


def next_line(stream: IO[Any] | None) -> str:
    """Return the next line, which the process may still have to write."""
    assert stream is not None
    line = stream.readline()
    return (line.decode() if isinstance(line, bytes) else str(line)).strip()


def test_it_waits_says_why_and_starts_when_there_is_room(program: Program) -> None:
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)
    process = program.start("run", "--ram", "4GiB", "--timeout", "10m", "--", "echo", "ran")

    waiting = next_line(process.stderr)
    assert "echo waits since 20" in waiting
    assert "WAIT (RAM_SHORT): a batch of 1 item needs 4 GiB of RAM, 1 GiB on offer" in waiting
    program.root.memory(total_bytes=16 * GiB, available_bytes=12 * GiB)
    out, _ = process.communicate(timeout=15)

    assert (process.returncode, out) == (0, "ran\n")


def test_not_admitted_in_time_is_124(program: Program) -> None:
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)

    answer = program("run", "--ram", "4GiB", "--timeout", "200ms", "--", "echo", "ran")

    assert (answer.status, answer.out) == (124, "")
    assert "was not admitted within 0.2 s: WAIT (RAM_SHORT)" in answer.err.splitlines()[-1]


def test_a_signal_ends_a_waiting_program(program: Program) -> None:
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)
    process = program.start("run", "--ram", "4GiB", "--", "echo", "ran")
    assert "waits since" in next_line(process.stderr)

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=15)

    assert (process.returncode, out) == (143, "")
    assert err == "lardon: echo was not started: interrupted while it waited\n"


def test_signals_go_on_to_the_command(program: Program) -> None:
    process = program.start("run", *python(LISTENER))
    assert next_line(process.stdout) == "ready"

    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGINT", "SIGTERM"):
        process.send_signal(signal.Signals[name])
        assert next_line(process.stdout) == name

    assert process.wait(timeout=15) == 5


def test_a_command_that_dies_by_a_signal_is_128_and_its_number(program: Program) -> None:
    process = program.start(
        "run", *python("import signal; print('ready', flush=True); signal.pause()")
    )
    assert next_line(process.stdout) == "ready"

    process.send_signal(signal.SIGUSR1)

    assert process.wait(timeout=15) == 128 + signal.SIGUSR1


def test_a_message_that_nobody_reads_changes_no_status(program: Program) -> None:
    """The command's own status counts, also when the standard error output is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)
    try:
        process = program.start(
            "run", "--ram", "4GiB", "--timeout", "0", "--", "true", stderr=writer
        )
        assert process.wait(timeout=15) == 124
        program.root.memory(total_bytes=16 * GiB, available_bytes=12 * GiB)
        process = program.start("run", "--ram", "4GiB", "--", "sh", "-c", "exit 7", stderr=writer)
        assert process.wait(timeout=15) == 7
    finally:
        os.close(writer)


def test_output_that_cannot_be_written_is_said(program: Program) -> None:
    with Path("/dev/full").open("w") as full:
        answer = program("info", stdout=full)

    assert answer.status == 1
    assert answer.err == "lardon: cannot write: No space left on device\n"


class InTerminal:
    """`lardon run` in the foreground of a terminal of its own, as typed into a shell."""

    def __init__(self, program: Program, code: str) -> None:
        self._keyboard, terminal = pty.openpty()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", OWN_TERMINAL, *program.line("run", *python(code))],
                stdin=terminal,
                stdout=subprocess.PIPE,
                stderr=terminal,
                start_new_session=True,
            )
        finally:
            os.close(terminal)

    def type(self, text: bytes) -> None:
        os.write(self._keyboard, text)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._keyboard)


def test_ctrl_c_in_a_terminal_interrupts_the_command_once(program: Program) -> None:
    """
    The terminal sends it to both, so that it is not passed on.

    A SIGUSR1 that comes after it is passed on after it: had there been a second SIGINT,
    it would have been heard in between.
    """
    terminal = InTerminal(program, LISTENER)
    try:
        out = terminal.process.stdout
        assert next_line(out) == "ready"
        terminal.type(b"\x03")
        assert next_line(out) == "SIGINT"
        terminal.process.send_signal(signal.SIGUSR1)
        assert next_line(out) == "SIGUSR1"
        terminal.process.send_signal(signal.SIGTERM)
        assert next_line(out) == "SIGTERM"
        assert terminal.process.wait(timeout=15) == 5
    finally:
        terminal.end()


def test_h81_the_first_ctrl_c_asks_and_the_second_ends_within_two_seconds(
    program: Program,
) -> None:
    """https://github.com/python/cpython/issues/139689: a wait that Ctrl-C does not interrupt."""
    began = time.monotonic()
    terminal = InTerminal(program, STUBBORN)
    try:
        out = terminal.process.stdout
        assert next_line(out) == "ready"
        # A loaded machine takes its time to start and to end two interpreters.
        slowness_s = time.monotonic() - began
        terminal.type(b"\x03")
        assert next_line(out) == "SIGINT"
        assert terminal.process.poll() is None

        # The kernel makes one signal of two that come at once: then a person types again.
        status = None
        for _ in range(3):
            began = time.monotonic()
            terminal.type(b"\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = terminal.process.wait(timeout=2.0 + slowness_s)
                break
        assert status == 128 + signal.SIGKILL
        assert time.monotonic() - began < 2.0 + slowness_s
    finally:
        terminal.end()


def test_h81_one_ctrl_c_ends_a_command_that_listens(program: Program) -> None:
    """What the command makes of it is the status: here Python's own, 128 + SIGINT."""
    code = (
        "import signal, sys\n"
        "try:\n    print('ready', flush=True)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('clean', flush=True)\n    sys.exit(3)\n"
    )
    process = program.start("run", *python(code))
    assert next_line(process.stdout) == "ready"

    process.send_signal(signal.SIGINT)

    assert next_line(process.stdout) == "clean"
    assert process.wait(timeout=15) == 3
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_h81_ctrl_c_while_it_waits(program: Program) -> None:
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)
    process = program.start("run", "--ram", "4GiB", "--", "echo", "ran")
    assert "waits since" in next_line(process.stderr)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_the_file_of_a_command_that_is_not_ours_is_not_touched(
    program: Program, tmp_path: Path
) -> None:
    """Standard input belongs to the command, to the last byte."""
    (tmp_path / "input").write_text("all of it\n")
    with (tmp_path / "input").open() as given:
        answer = program("run", "--", "cat", stdin=given)

    assert (answer.status, answer.out) == (0, "all of it\n")
