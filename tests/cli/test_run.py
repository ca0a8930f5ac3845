"""`lardon run` in this process: what it returns, says and leaves behind."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from lardon import GiB, Governor, ResourceEstimate
from lardon.cli import running
from lardon.cli.child import FORWARDED, SignalRelay
from lardon.cli.running import run_governed
from lardon.cli.statuses import ExitStatus, status_of_child
from lardon.cli.waiting import wait_for_admission
from lardon.testing import ScriptedProbe
from tests.cli.conftest import MACHINE

if TYPE_CHECKING:
    from pathlib import Path

ASKED: Final = ResourceEstimate(ram_bytes=GiB, cpus=2)


class Run:
    """`run_governed` on a machine of its own."""

    def __init__(self) -> None:
        self.probe = ScriptedProbe(MACHINE)
        self.governor = Governor(probe=self.probe)
        self.messages = io.StringIO()

    def __call__(
        self,
        *command: str,
        estimate: ResourceEstimate = ASKED,
        timeout_s: float | None = None,
    ) -> int:
        handlers = {number: signal.getsignal(number) for number in FORWARDED}
        try:
            return run_governed(
                command, estimate, self.governor, timeout_s=timeout_s, messages=self.messages
            )
        finally:
            assert self.governor.reservations() == ()
            assert {number: signal.getsignal(number) for number in FORWARDED} == handlers


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -9 $$", 137)],
)
def test_the_commands_status_is_passed_on(run: Run, script: str, status: int) -> None:
    assert run("sh", "-c", script) == status
    assert run.governor.statistics().released == 1
    assert run.messages.getvalue() == ""


def test_the_contract_is_in_the_environment(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    estimate = ResourceEstimate(
        ram_bytes=4 * GiB, ram_bytes_per_item=GiB, max_batch=64, cpus=3, min_cpus=1
    )

    assert run("sh", "-c", "echo $LARDON_BATCH_SIZE $LARDON_RAM_BYTES $OMP_NUM_THREADS;"
               "echo [$CUDA_VISIBLE_DEVICES]", estimate=estimate) == 0  # fmt: skip

    assert capfd.readouterr().out == f"5 {9 * GiB} 3\n[]\n"


def test_a_command_that_is_not_there_is_said_before_anything_is_asked(run: Run) -> None:
    assert run("no-such-command") == ExitStatus.NOT_FOUND == 127
    assert run.messages.getvalue() == "lardon: no-such-command: command not found\n"
    assert run.probe.calls == 0


def test_what_cannot_be_executed(run: Run, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo no\n")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x00 not a program")
    broken.chmod(0o755)
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)

    assert run(str(plain)) == ExitStatus.NOT_EXECUTABLE == 126
    assert run(str(tmp_path)) == 126
    assert run(str(broken)) == 126
    assert run(str(tmp_path / "missing")) == 127
    assert run(str(orphan)) == 127
    assert run("") == 127
    said = run.messages.getvalue().splitlines()
    assert len(said) == 6
    assert said[2] == f"lardon: {broken}: Exec format error"
    assert run.governor.statistics().booked == run.governor.statistics().released == 2


def test_a_reject_is_12_and_says_why(run: Run) -> None:
    assert run("true", estimate=ResourceEstimate(ram_bytes=20 * GiB)) == 12
    assert run.messages.getvalue() == (
        "lardon: true is refused: REJECT (RAM_CAPACITY): a batch of 1 item needs 20 GiB of RAM, "
        "more than the 14 GiB that this machine and policy can ever give\n"
    )


def test_a_time_out_is_124_and_says_why(run: Run) -> None:
    run.probe.set(attrs.evolve(MACHINE, ram_available_bytes=2 * GiB))

    assert run("true", timeout_s=0.0) == 124
    assert run.messages.getvalue().startswith(
        "lardon: true was not admitted within 0 s: WAIT (RAM_SHORT): a batch of 1 item needs 1 GiB"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_and_nothing_is_started(
    run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    run.probe.set(attrs.evolve(MACHINE, ram_available_bytes=2 * GiB))
    run.probe.on_snapshot = lambda: os.kill(os.getpid(), number)
    made = tmp_path / "made"

    assert run("touch", str(made)) == 128 + number

    assert not made.exists()
    assert run.messages.getvalue().endswith(
        "lardon: touch was not started: interrupted while it waited\n"
    )


def test_a_signal_between_admission_and_start_starts_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_late(*arguments: object, **named: object) -> object:
        admission = wait_for_admission(*arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        return admission

    started: list[object] = []
    monkeypatch.setattr(running, "wait_for_admission", interrupted_late)
    monkeypatch.setattr(running, "start", lambda *arguments: started.append(arguments))

    assert run("true") == 143
    assert started == []
    assert run.governor.statistics().booked == 1


def test_a_command_that_waited_is_announced(run: Run) -> None:
    """With since when, why, and what it got in the end."""
    full = attrs.evolve(MACHINE, ram_available_bytes=2 * GiB)
    run.probe = ScriptedProbe(full, full, full, MACHINE)
    run.governor = Governor(probe=run.probe)

    assert run("true") == 0

    waiting, starting = run.messages.getvalue().splitlines()
    assert waiting.startswith("lardon: true waits since 20")
    assert ": WAIT (RAM_SHORT): a batch of 1 item needs 1 GiB of RAM, 0 B on offer" in waiting
    assert starting == "lardon: true starts after 2 s: batch size 1, 1 GiB of RAM, 2 CPUs"


def test_what_was_ignored_stays_ignored() -> None:
    """As under `nohup`: who ignores a hang-up does not pass it on either."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalRelay() as relay:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert relay.received == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_descriptors_that_were_inherited_are_passed_on(run: Run) -> None:
    """A wrapper is not in the way of what a program and its caller share, such as make's jobs."""
    reader, writer = os.pipe()
    try:
        os.set_inheritable(writer, True)
        assert run("sh", "-c", f"echo through > /dev/fd/{writer}") == 0
        assert os.read(reader, 100) == b"through\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_statuses_of_children() -> None:
    assert [status_of_child(code) for code in (0, 1, 255, -2, -9)] == [0, 1, 255, 130, 137]
    assert sys.platform != "win32" or FORWARDED
