"""The scripts under two shells, with a scripted `scontrol`: what runs, and what is reported."""

from __future__ import annotations

import datetime
import shutil
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.dispatch.errors import DispatchError
from lardon.dispatch.slurm.reader import Outcome, read
from lardon.dispatch.slurm.wrapper import Call, build, requeue_calls

NONCE: Final = "0123456789abcdef0123456789abcdef"
HOLD: Final = [Call(("scontrol", "update", "JobId=42", "StartTime=2036-10-11T20:00:07"))]
SHELLS: Final = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name}"))
    for name in ("dash", "bash")
]
# Everything the script needs but a clock.
TOOLS: Final = ("sh", "timeout", "cat", "sleep")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("shell", SHELLS),
    pytest.mark.skipif(shutil.which("timeout") is None, reason="no GNU timeout"),
]


def later(seconds: float = 3600) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


def outcome(answer: tuple[int, str], calls: Any = HOLD) -> str:
    status, stderr = answer
    try:
        found: Outcome | DispatchError = read(stderr, status, NONCE, calls)
    except DispatchError as error:
        found = error
    return type(found).__name__


def test_a_call_in_time_runs_once_with_its_arguments(scripted: Any, shell: str) -> None:
    scripted.command("scontrol", 'printf "%s|%s\\n" "$TZ" "$(cat)" >> "$0.seen"')

    answer = scripted.run(build(HOLD, later(), 25, NONCE), shell)

    assert outcome(answer) == "Outcome"
    assert scripted.calls() == ["scontrol update JobId=42 StartTime=2036-10-11T20:00:07"]
    # UTC, and nothing on stdin.
    assert (scripted.bin / "scontrol.seen").read_text() == "UTC0|\n"


def test_arguments_reach_the_command_as_they_are(scripted: Any, shell: str) -> None:
    scripted.command("sbatch", 'printf "%s\\n" "$@" > "$0.seen"')
    odd = ["-J", "a b", "--wrap", "echo \"$HOME\" '$x'\n# `date` \\ \x1e é"]

    answer = scripted.run(build([Call(("sbatch", *odd))], later(), 25, NONCE), shell)

    assert outcome(answer) == "Outcome"
    assert (scripted.bin / "sbatch.seen").read_text() == "\n".join(odd) + "\n"


def test_a_call_after_its_deadline_does_not_run(scripted: Any, shell: str) -> None:
    answer = scripted.run(build(HOLD, later(-1), 25, NONCE), shell)

    assert answer[0] == 75
    assert outcome(answer) == "ExpiredError"
    assert scripted.calls() == []


@pytest.mark.parametrize(("shown", "runs"), [(-1, True), (0, False), (1, False)])
def test_the_hosts_clock_decides_strictly_before_the_deadline(
    scripted: Any, shell: str, shown: int, runs: bool
) -> None:
    """Seed 002, step 3; ours says nothing: the host is the machine that begins the call."""
    deadline = later()
    second = int(deadline.timestamp()) + shown
    scripted.command("date", f"echo {second}")

    answer = scripted.run(build(HOLD, deadline, 25, NONCE), shell)

    assert outcome(answer) == ("Outcome" if runs else "ExpiredError")
    assert ("scontrol update JobId=42 StartTime=2036-10-11T20:00:07" in scripted.calls()) is runs


def test_without_a_clock_nothing_runs(scripted: Any, shell: str) -> None:
    """Dispatch design, 4.2: if `date` is missing the test fails, and 75 is reported."""
    for name in TOOLS:
        (scripted.bin / name).symlink_to(str(shutil.which(name)))
    scripted.path = str(scripted.bin)

    status, stderr = scripted.run(build(HOLD, later(), 25, NONCE), str(shutil.which(shell)))

    assert status == 75
    assert stderr.endswith(f"\x1eDSL {NONCE} call 1 75\n")
    assert outcome((status, stderr)) == "OutcomeUnknown"
    assert scripted.calls() == []


def test_without_the_command_the_outcome_is_unknown(scripted: Any, shell: str) -> None:
    """Dispatch design, 4.4: 127 was sent nowhere, and is unknown all the same."""
    (scripted.bin / "scontrol").unlink()
    scripted.path = f"{scripted.bin}:/bin"
    calls = [Call(("no-such-scontrol", "update", "JobId=42"))]

    answer = scripted.run(build(calls, later(), 25, NONCE), shell)

    assert answer[0] == 127
    assert outcome(answer, calls) == "OutcomeUnknown"


def test_a_call_that_hangs_is_killed_at_the_bound(scripted: Any, shell: str) -> None:
    scripted.command("scontrol", "exec sleep 300")

    answer = scripted.run(build(HOLD, later(), 1, NONCE), shell)

    assert answer[0] == 137
    assert outcome(answer) == "OutcomeUnknown"


def test_a_refusal_is_read_as_one(scripted: Any, shell: str) -> None:
    scripted.command("scontrol", "echo 'Job has already finished for job 42' >&2; exit 1")

    answer = scripted.run(build(HOLD, later(), 25, NONCE), shell)

    assert outcome(answer) == "RefusedError"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGPIPE])
def test_a_signal_of_a_lost_session_to_every_process_changes_nothing(
    scripted: Any, shell: str, number: signal.Signals
) -> None:
    """
    Seed 002, step 1: a call in flight completes.

    The call itself runs behind `timeout`, which resets an ignored HUP.
    """
    scripted.command("scontrol", "meet; stay")
    running = scripted.start(build(HOLD, later(), 25, NONCE), shell)
    running.wait_entered()

    # The shell, timeout, the call, and what the call waits with.
    assert running.signal_everyone(number) >= 3
    scripted.go_on.write_bytes(b"go\n")

    assert outcome(running.end()) == "Outcome"


def test_a_reader_that_goes_away_stops_no_call(scripted: Any, shell: str, tmp_path: Path) -> None:
    """Seed 002, step 1: or a requeue's last step would never run."""
    scripted.command(
        "scontrol",
        'case "$*" in *Requeue=1) meet; stay;; *Requeue=0) meet;; esac; echo x >&2; exit 0',
    )
    running = scripted.start(build(requeue_calls(42), later(), 25, NONCE), shell)
    running.wait_entered()
    running.process.stderr.close()
    running.process.stdout.close()
    scripted.go_on.write_bytes(b"go\n")
    running.wait_entered()

    assert running.process.wait(15) == 0
    assert scripted.calls() == [
        "scontrol update JobId=42 Requeue=1",
        "scontrol requeue 42",
        "scontrol update JobId=42 Requeue=0",
    ]


@pytest.mark.parametrize(
    ("statuses", "ran", "expected"),
    [
        ((0, 0, 0), 3, "Outcome"),
        ((1, 0, 0), 2, "RefusedError"),
        ((0, 1, 0), 3, "RefusedError"),
        ((9, 0, 0), 2, "RequeueBitMaybeSet"),
        ((0, 9, 0), 3, "OutcomeUnknown"),
        ((0, 0, 9), 3, "RequeueBitMaybeSet"),
        # scontrol's own 75 is no deadline: the third call runs, and the reader does not guess.
        ((75, 0, 0), 2, "RequeueBitMaybeSet"),
    ],
)
def test_the_three_calls_of_a_requeue(
    scripted: Any, shell: str, statuses: tuple[int, ...], ran: int, expected: str
) -> None:
    """Seed 002: 2 only if 1 succeeded, 3 whenever 1 was attempted at all."""
    cases = ["*Requeue=1", "requeue*", "*Requeue=0"]
    said = "[ $s = 1 ] && echo 'Job has already finished for job 42' >&2; exit $s"
    arms = "".join(f"{case}) s={s};; " for case, s in zip(cases, statuses, strict=True))
    scripted.command("scontrol", f'case "$*" in {arms}esac; {said}')

    answer = scripted.run(build(requeue_calls(42), later(), 25, NONCE), shell)

    assert outcome(answer, requeue_calls(42)) == expected
    assert len(scripted.calls()) == ran
    assert scripted.calls()[-1] == "scontrol update JobId=42 Requeue=0"


def test_a_requeue_after_its_deadline_touches_no_bit(scripted: Any, shell: str) -> None:
    answer = scripted.run(build(requeue_calls(42), later(-1), 25, NONCE), shell)

    assert outcome(answer, requeue_calls(42)) == "ExpiredError"
    assert scripted.calls() == []


def test_a_deadline_that_passes_between_two_calls_leaves_the_bit(scripted: Any, shell: str) -> None:
    """Each call stands behind the check, the one that clears the bit too."""
    deadline = later()
    before, after = int(deadline.timestamp()) - 5, int(deadline.timestamp()) + 5
    scripted.command("date", f'[ -e "$0.late" ] && echo {after} || echo {before}')
    scripted.command("scontrol", f"touch {scripted.bin}/date.late")

    answer = scripted.run(build(requeue_calls(42), deadline, 25, NONCE), shell)

    assert outcome(answer, requeue_calls(42)) == "RequeueBitMaybeSet"
    assert [call for call in scripted.calls() if call.startswith("scontrol")] == [
        "scontrol update JobId=42 Requeue=1"
    ]


def test_a_script_that_is_cut_off_after_its_first_call(scripted: Any, shell: str) -> None:
    """Seed 002: as a crash would; the bit may be left set, and the error says so."""
    scripted.command("scontrol", 'case "$*" in requeue*) meet; stay;; esac')
    running = scripted.start(build(requeue_calls(42), later(), 25, NONCE), shell)
    running.wait_entered()

    running.signal_everyone(signal.SIGKILL)

    assert outcome(running.end(), requeue_calls(42)) == "RequeueBitMaybeSet"
    assert scripted.calls()[-1] == "scontrol requeue 42"
