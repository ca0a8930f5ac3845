"""The parts of the adapter that need no cluster: delivery, transports, settings, facts, polls."""

from __future__ import annotations

import datetime
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from lardon import MiB
from lardon.clock import MachineClock
from lardon.dispatch.errors import (
    BackendClosed,
    DispatchError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    OutcomeUnknown,
    RefusedError,
)
from lardon.dispatch.model import Cause, HoldMeta, JobSpec, Observation, Ref, State
from lardon.dispatch.registry import create
from lardon.dispatch.slurm import (
    ClusterUnreachable,
    LocalTransport,
    SlurmBackend,
    SshTransport,
    UnreadableAnswer,
)
from lardon.dispatch.slurm.accounting import named_at
from lardon.dispatch.slurm.delivery import (
    MOST_BYTES,
    as_remote_command,
    behind_mark,
    marked,
)
from lardon.dispatch.slurm.detached import Runner
from lardon.dispatch.slurm.facts import facts_of
from lardon.dispatch.slurm.host import Host
from lardon.dispatch.slurm.output import out_of_memory_in, read_part
from lardon.dispatch.slurm.submission import job_script, read_note, submit_call
from lardon.dispatch.slurm.watching import SLOWEST, Poller
from lardon.dispatch.slurm.wrapper import Call
from lardon.testing import ManualClock, slurm_cluster
from tests.slurm.recorded import SUBMITTED, Scripted, job

ULID: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
NAME: Final = f"dj-{ULID}"
AT: Final = datetime.datetime.fromtimestamp(SUBMITTED, datetime.UTC)
REF: Final = Ref(NAME, 7, AT)
TOKEN: Final = "f" * 32
NONCE: Final = "a" * 32
PATIENCE_S: Final = 10.0


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Scripted]:
    one = Scripted(tmp_path)
    yield one
    one.backend.close()


def soon() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)


# Delivery -------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["dash", "bash", "csh", "fish", "zsh"])
def test_any_login_shell_hands_the_script_on_whole(shell: str, tmp_path: Path) -> None:
    """Dispatch design, 4.1: one argument, decoded in a command substitution."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    text = marked("echo \"it's $X\"; echo '!' >&2; exit 7", TOKEN, {"X": "a 'b'\nc"})

    done = subprocess.run(
        [shell, "-c", as_remote_command(text)], cwd=tmp_path, capture_output=True, text=True,
        timeout=20, check=False,
    )  # fmt: skip

    assert done.returncode == 7
    assert behind_mark(done.stdout, TOKEN) == "it's a 'b'\nc\n"
    assert behind_mark(done.stderr, TOKEN) == "!\n"


def test_half_a_script_runs_nothing() -> None:
    """Seed 002: a connection that drops partway cannot run half of it."""
    text = marked("echo one\necho two", TOKEN, {})

    for kept in range(len(text) - 2):
        done = subprocess.run(
            ["sh", "-c", text[:kept]], capture_output=True, text=True, timeout=20, check=False
        )
        assert (done.stdout, kept) == ("", kept)


def test_what_is_not_behind_the_mark_is_not_read() -> None:
    mark = f"\x1ebegin {TOKEN}\n"

    assert behind_mark(f"banner\n{mark}rest", TOKEN) == "rest"
    assert behind_mark("banner\nrest", TOKEN) is None
    assert behind_mark(f"\x1ebegin {'0' * 32}\nrest", TOKEN) is None


def test_a_script_that_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(InvalidError, match="script"):
        marked("x" * MOST_BYTES, TOKEN, {})


@pytest.mark.parametrize("name", ["", "A-B", "1X", "A B", "A;B"])
def test_only_a_shells_names_are_exported(name: str) -> None:
    with pytest.raises(InvalidError, match="named as a shell"):
        LocalTransport(environment={name: "x"})
    with pytest.raises(InvalidError, match="named as a shell"):
        job_script(JobSpec(id=ULID, command=["true"], environment={name or "-": "x"}), NONCE)


# Transports -----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a b", "a\nb", None, 7])
def test_a_host_is_no_option_of_ssh(host: Any) -> None:
    with pytest.raises(InvalidError, match="host"):
        SshTransport(host)


def test_what_the_user_says_to_ssh_wins() -> None:
    command = SshTransport("me@there", options=["-o", "ConnectTimeout=3"]).command("true")

    assert command[:4] == ("ssh", "-T", "-o", "ConnectTimeout=3")
    assert command.index("ConnectTimeout=3") < command.index("ConnectTimeout=10")
    assert command[-3:-1] == ("--", "me@there")
    with pytest.raises(InvalidError, match="options"):
        SshTransport("there", options="-p 22")


def test_a_program_that_cannot_be_started_has_certainly_done_nothing() -> None:
    host = Host(
        SshTransport("there", program="no-such-ssh"), bound_s=5, clock=MachineClock()
    )  # fmt: skip

    with pytest.raises(ClusterUnreachable, match="could not be started"):
        host.change([Call(("true",))], soon(), soon())
    host.close()


def test_an_interrupt_leaves_the_call_running(
    slurm: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dispatch design, 4.7: an abandoned call may have landed, so it is let run to its end."""
    slurm.queue(job("22.05.8", states=["PENDING"], reason="JobHeldUser"))
    done = tmp_path / "done"
    slurm.command("scontrol", f'[ "$1" = show ] && cat {slurm.bin}/config || echo > {done}')
    slurm.backend.declarations()
    inner = Runner.run

    def interrupted(self: Runner, command: Any, limit_s: float) -> Any:
        ended = inner(self, command, limit_s)
        if "release" in command[-1]:
            raise KeyboardInterrupt
        return ended

    monkeypatch.setattr(Runner, "run", interrupted)

    with pytest.raises(KeyboardInterrupt) as stopped:
        slurm.backend.open(REF)

    assert "may still land until" in stopped.value.__notes__[0]
    assert done.exists()


def test_closing_lets_everybody_go_at_once(tmp_path: Path) -> None:
    runner = Runner()
    started = tmp_path / "started"
    os.mkfifo(started)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(runner.run, ["sh", "-c", f"echo > {started}; sleep 2"], 60)
        started.read_text()
        began = time.monotonic()
        runner.close()
        ended = waiting.result(PATIENCE_S)

    assert (ended.status, ended.began) == (None, True)
    assert time.monotonic() - began < 1.5
    assert not runner.run(["true"], 5).began


# Settings -------------------------------------------------------------------------


def test_settings_are_the_documents_own_words() -> None:
    made = create(
        "slurm",
        '{"host": "login", "sshOptions": ["-p", "2222"], "bound": "30s", "ttl": "1m", '
        '"applySlack": "5s", "options": {"partition": "gpu"}, "outputFolder": "/scratch/me/"}',
    )

    assert isinstance(made, SlurmBackend)
    settings = made.settings
    assert (settings.bound_s, settings.ttl_s, settings.apply_slack_s) == (30, 60, 5)
    assert (dict(settings.options), settings.output_folder) == ({"partition": "gpu"}, "/scratch/me")
    assert made._host.transport == SshTransport("login", options=("-p", "2222"))
    made.close()


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("bound", {"bound": "0s"}),
        ("bound", {"bound": 25}),
        ("ttl", {"ttl": "2h"}),
        ("options.array", {"options": {"array": "0-3"}}),
        ("options.requeue", {"options": {"requeue": ""}}),
        ("outputFolder", {"outputFolder": "out"}),
        ("outputFolder", {"outputFolder": "/x/%j"}),
        ("sshOptions", {"sshOptions": ["-p"]}),
        ("environment.A-B", {"environment": {"A-B": "x"}}),
        ("watchBuffer", {"watchBuffer": 0}),
        ("poll", {"poll": "0s"}),
        ("nonsense", {"nonsense": 1}),
    ],
)
def test_a_wrong_setting_is_named(path: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidError) as refused:
        create("slurm", settings)

    assert refused.value.path.startswith(path.split(".", maxsplit=1)[0])


def test_an_unknown_setting_of_the_constructor_is_named() -> None:
    with pytest.raises(InvalidError, match="boundS"):
        SlurmBackend(boundS=25)


# What the cluster says of itself ----------------------------------------------------

CONFIG: Final = "uid=5\nsacct=/usr/bin/sacct\nSLURM_VERSION = 24.05.4\nAuthType = auth/munge\n"


@pytest.mark.parametrize(
    ("lines", "ttl_s"),
    [
        ("AuthInfo = (null)", 300),
        ("AuthInfo = socket=/run/munge,cred_expire=5,ttl=8", 8),
        ("AuthInfo = ttl=0", 300),
        ("AuthInfo = ttl=9999", 3600),
        ("AuthType = auth/slurm", 60),
        ("AuthType = auth/slurm\nAuthInfo = ttl=20", 20),
        ("AuthType = auth/jwt", None),
    ],
)
def test_the_life_of_a_credential(lines: str, ttl_s: float | None) -> None:
    """Dispatch design, 4.6: munge 300 s, auth/slurm 60 s, ttl= overrides, munge caps at 3600."""
    assert facts_of(f"{CONFIG}{lines}\n").ttl_s == ttl_s


@pytest.mark.parametrize(
    ("lines", "accounting"),
    [
        ("AccountingStorageType = accounting_storage/slurmdbd", True),
        ("AccountingStorageType = accounting_storage/none", False),
        ("", False),
        ("AccountingStorageType = accounting_storage/slurmdbd\nsacct=", False),
    ],
)
def test_accounting_is_there_or_not(lines: str, accounting: bool) -> None:
    assert facts_of(f"{CONFIG}{lines}\n").accounting is accounting


@pytest.mark.parametrize("text", ["", "uid=5\n", "SLURM_VERSION = 1\n", "uid=x\nSLURM_VERSION=1"])
def test_no_configuration_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        facts_of(text)


def test_a_bound_that_slurm_itself_exceeds_is_refused(slurm: Scripted) -> None:
    """Dispatch design: B must exceed MessageTimeout, or slowness is an unknown outcome."""
    backend = slurm.new_backend(bound_s=10)

    with pytest.raises(InvalidError, match="MessageTimeout, which is 10 s"):
        backend.declarations()
    backend.close()


def test_a_credential_of_an_unknown_kind_needs_its_life(slurm: Scripted) -> None:
    slurm.command("scontrol", f"sed s=auth/munge=auth/jwt= {slurm.bin}/config")

    with pytest.raises(InvalidError, match="auth/jwt"):
        slurm.backend.declarations()
    known = slurm.new_backend(ttl_s=90)
    assert known.landing_terms().ttl_s == 90
    known.close()


# Submissions ------------------------------------------------------------------------


def test_the_contract_is_what_the_scheduler_is_asked_for() -> None:
    spec = JobSpec(
        id=ULID, command=["x"], nodes=2, cpus=3, gpus=4, ram_bytes=5 * MiB + 1, time_limit_s=3661.2
    )

    argv = submit_call(spec, attempt=NONCE, defaults={"qos": "low"}, output_folder="/o").argv

    assert {
        "--hold", "--no-requeue", "--parsable", "--nodes=2", "--cpus-per-task=3", "--gres=gpu:4",
        "--mem=6M", "--time=1:01:02", "--qos=low", f"--output=/o/{NAME}.%j.out",
    } <= set(argv)  # fmt: skip
    note = read_note(next(one for one in argv if "comment" in one).partition("=")[2])
    assert note is not None
    assert (note.submission, note.attempt) == (1, NONCE)


@pytest.mark.parametrize("option", ["requeue", "hold", "array", "wrap", "job-name", "begin", "H"])
def test_an_option_that_would_undo_a_promise_is_refused(option: str) -> None:
    spec = JobSpec(id=ULID, command=["x"], extensions={"slurm": {option: "1"}})

    with pytest.raises(InvalidError, match=rf"extensions\.slurm\.{option}"):
        submit_call(spec, attempt=NONCE, defaults={}, output_folder=None)


def test_a_name_says_when_it_was_given() -> None:
    now = datetime.datetime.now(datetime.UTC)

    assert named_at(NAME, now).year == 2016
    assert now - named_at("dj-nonsense", now) == datetime.timedelta(days=7)


# Output -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "slurmstepd: error: Job 7 exceeded memory limit (9 > 5), being killed",
        "slurmstepd-n1: error: StepId=7.batch exceeded memory limit (9 > 5), being killed",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch.",
        "slurmstepd: error: Detected 2 oom_kill events in StepId=7.batch. Some of the step",
    ],
)
def test_the_step_manager_says_that_memory_ran_out(said: str) -> None:
    assert out_of_memory_in(f"\x1d7\nhello\n{said}\n\x1d8\nbye\n") == {7}


def test_a_program_that_says_so_itself_proves_nothing() -> None:
    assert out_of_memory_in("\x1d7\nMemoryError: out of memory\noom-kill\n") == frozenset()


def test_output_is_read_in_whole_bytes() -> None:
    assert read_part("absent\n") is None
    assert read_part("there\n") == b""
    assert read_part("there\nAP8=\n") == b"\x00\xff"
    for printed in ("", "there\n!!", "Last login\n"):
        with pytest.raises(UnreadableAnswer):
            read_part(printed)


def test_output_of_a_job_that_is_gone_or_wrote_none(slurm: Scripted, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="gone"):
        slurm.backend.read_output(REF)
    kept = slurm.new_backend(output_folder=str(tmp_path))
    with pytest.raises(NotFoundError, match="no file"):
        kept.read_output(REF)
    (tmp_path / f"{NAME}.7.out").write_bytes(b"kept")
    assert kept.read_output(REF) == b"kept"
    slurm.queue(job("22.05.8", states=["PENDING"]))
    assert kept.read_output(REF, name="stderr") == b""
    kept.close()


# Watching ---------------------------------------------------------------------------


class Sky:
    """What a poller looks at; it says when it was looked at."""

    def __init__(self) -> None:
        self.now: dict[Ref, Observation] = {}
        self.fails = False
        self.looks: queue.Queue[float] = queue.Queue()
        self.clock = ManualClock()

    def __call__(self, before: frozenset[Ref]) -> dict[Ref, Observation]:
        self.looks.put(self.clock.monotonic())
        if self.fails:
            message = "no answer"
            raise ClusterUnreachable(message)
        gone = {ref: Observation(ref=ref, state=State.UNKNOWN) for ref in before}
        return gone | self.now


def _waiting(clock: ManualClock) -> bool:
    return bool(clock._waiters)


def _advance(sky: Sky, seconds: float) -> None:
    """Move the clock once the poller waits for it."""
    end = time.monotonic() + PATIENCE_S
    while not _waiting(sky.clock):
        assert time.monotonic() < end
        threading.Event().wait(0.005)
    sky.clock.advance(seconds)


def test_h96_a_cluster_that_does_not_answer_is_asked_ever_less() -> None:
    """And at the usual pace again as soon as it does; the stream lives through it."""
    from lardon.dispatch.stream import BufferedStream

    sky = Sky()
    running = Observation(ref=REF, state=State.RUNNING)
    sky.now = {REF: running}
    poller = Poller(sky, 15, sky.clock)
    stream = poller.add(lambda first: BufferedStream(first, room=9, clock=sky.clock, cancel=None))
    assert stream.get(PATIENCE_S) == running
    assert sky.looks.get(timeout=PATIENCE_S) == 0
    sky.fails = True
    waits = []
    for delay_s in (15, 30, 60, 120, 240, 300, 300):
        _advance(sky, delay_s - 1)
        with pytest.raises(queue.Empty):
            sky.looks.get(timeout=0.02)
        _advance(sky, 1)
        sky.looks.get(timeout=PATIENCE_S)
        waits.append(delay_s)
    assert waits[-1] == SLOWEST * 15
    sky.fails = False
    ended = Observation(ref=REF, state=State.ENDED, cause=Cause.COMPLETED)
    _advance(sky, 300)
    sky.looks.get(timeout=PATIENCE_S)
    sky.now = {}
    _advance(sky, 15)

    poller.heard(2, [ended])
    poller.heard(1, [running])

    told = {stream.get(PATIENCE_S).state for _ in range(2)}
    assert told == {State.ENDED, State.UNKNOWN}
    poller.close()
    assert stream.closed


# The backend ------------------------------------------------------------------------


def test_a_closed_backend_says_so(slurm: Scripted) -> None:
    slurm.backend.close()
    slurm.backend.close()

    for call in (
        lambda: slurm.backend.start(JobSpec(id=ULID, command=["true"])),
        lambda: slurm.backend.observe_many([REF]),
        slurm.backend.declarations,
        slurm.backend.watch,
    ):
        with pytest.raises(BackendClosed):
            call()


def test_the_sluid_is_part_of_what_is_confirmed(tmp_path: Path) -> None:
    slurm = Scripted(tmp_path, "25.11.1")
    slurm.queue(job("25.11.1"))
    shown = slurm.backend.observe_many([REF])[REF].ref

    assert shown.sluid == "s0123456789ABCDE"
    assert slurm.backend.weakened(shown) == frozenset()
    slurm.queue(job("24.05.4"))
    assert slurm.backend.weakened(shown) == {"sluid"}
    assert slurm.backend.weakened(REF) == frozenset()
    slurm.backend.close()


def test_a_call_late_on_the_hosts_clock_expires_before_anything_is_decided(
    slurm: Scripted,
) -> None:
    slurm.queue(job("22.05.8", states=["PENDING"]))
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)

    with pytest.raises(ExpiredError):
        slurm.backend.hold(REF, HoldMeta(instance=1, deadline=past))

    assert [call for call in slurm.calls("scontrol") if "show" not in call] == []


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        ("Job has already finished for job 7", 1, "FinishedError"),
        ("Invalid job id specified for job 7", 1, "NotFoundError"),
        ("Access/permission denied for job 7", 1, "RefusedError"),
        ("Unexpected message received for job 7", 1, "OutcomeUnknown"),
    ],
)
def test_what_the_controller_says_is_an_error_of_that_name(
    slurm: Scripted, said: str, status: int, error: str
) -> None:
    slurm.queue(job("22.05.8", states=["PENDING"]))
    body = f'[ "$1" = show ] && cat {slurm.bin}/config && exit; echo "{said}" >&2; exit {status}'
    slurm.command("scontrol", body)
    deadline = soon()

    with pytest.raises(DispatchError) as raised:
        slurm.backend.hold(REF, HoldMeta(instance=1, deadline=deadline))

    assert type(raised.value).__name__ == error
    if isinstance(raised.value, OutcomeUnknown):
        bound = datetime.timedelta(seconds=slurm.backend.declarations().call_bound_s)
        assert raised.value.settles_at == deadline + bound


def test_a_node_that_is_silent_may_run_its_job_still(slurm: Scripted) -> None:
    lost = job("22.05.8", states=["NODE_FAIL"], nodes="n[1-2]")
    slurm.queue(lost)
    for shown, ceased in (
        ("n1 idle\nn2 down*\n", False),
        ("n1 idle\nn2 idle\n", True),
        ("", False),
    ):
        (slurm.bin / "nodes").write_text(shown)
        slurm.command("sinfo", f"cat {slurm.bin}/nodes")
        assert slurm.backend.ceased(REF).ceased is ceased
    slurm.queue(job("22.05.8", states=["NODE_FAIL"], nodes=""))
    assert not slurm.backend.ceased(REF).ceased


def test_a_read_only_view_refuses(slurm: Scripted) -> None:
    slurm.queue(job("22.05.8"))
    view = slurm.backend.view(read_only=True)

    assert view.observe_many([REF])[REF].state is State.RUNNING
    with pytest.raises(RefusedError, match="read-only"):
        view.stop(REF)
    view.close()


# The test cluster ---------------------------------------------------------------------


def test_a_cluster_names_the_packages_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm_cluster, "_PATH", str(tmp_path))

    assert slurm_cluster.missing_packages() == ["munge", "slurm-client", "slurmctld", "slurmd"]
    assert slurm_cluster.main(["--", "true"]) == 1
    assert "packages are missing: munge slurm-client slurmctld slurmd" in capsys.readouterr().err
    assert slurm_cluster.main([]) == 2


def test_a_folder_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="longer than 70 characters"):
        slurm_cluster.SlurmCluster(tmp_path / ("x" * 70))
