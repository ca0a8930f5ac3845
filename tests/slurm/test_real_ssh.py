"""The same over ssh, against a real sshd on loopback."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from lardon.clock import MachineClock
from lardon.dispatch.errors import ExpiredError
from lardon.dispatch.model import CallMeta, Cause, State
from lardon.dispatch.slurm import ClusterUnreachable, SlurmBackend, SshTransport
from lardon.dispatch.slurm.detached import Runner
from lardon.dispatch.slurm.host import Host
from lardon.dispatch.slurm.wrapper import Call
from lardon.testing.slurm_cluster import SlurmCluster
from tests.slurm.jobs import BOUND_S, hold_of, seen, spec, until, utc_now, within
from tests.slurm.sshd import Sshd

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def far(
    shared_cluster: SlurmCluster, ssh_server: Sshd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmBackend]:
    """Return a backend that reaches the shared cluster over ssh; it measures the clock once."""
    transport = ssh_server.transport(**shared_cluster.environment)
    output = str(tmp_path_factory.mktemp("output"))
    one = SlurmBackend(transport, bound_s=BOUND_S, output_folder=output)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _no_job_left(
    shared_cluster: SlurmCluster, end_jobs: Callable[[SlurmCluster], None]
) -> Iterator[None]:
    yield
    end_jobs(shared_cluster)


def test_the_life_of_a_job_over_ssh(far: SlurmBackend, backend: SlurmBackend) -> None:
    ref = far.start(spec("sh", "-c", "cat /dev/stdin; echo 'a  b'"))
    assert seen(far, ref).gated
    far.open(ref)

    until(backend, ref, State.ENDED)
    assert seen(far, ref).cause is Cause.COMPLETED
    assert far.read_output(ref) == b"a  b\n"


def test_the_bound_has_two_more_terms_which_are_measured(far: SlurmBackend) -> None:
    """Seed 002: the offset between the two clocks, and half the round trip."""
    terms = far.landing_terms()

    assert terms.offset_s is not None
    assert terms.rtt_s is not None
    # Both clocks are this machine's.
    assert abs(terms.offset_s) <= terms.rtt_s / 2
    assert 0 < terms.rtt_s < 10
    names = [name for name, _ in terms.parts()]
    assert names == [
        "B", "TTL", "whole second", "skew", "|offset|", "round trip / 2", "apply slack"
    ]  # fmt: skip
    assert far.declarations().call_bound_s == terms.total_s


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command_prints_what_it_measured_over_ssh(
    shared_cluster: SlurmCluster, ssh_server: Sshd, form: list[str]
) -> None:
    """`lardon slurm check --host`, as a user types it."""
    transport = ssh_server.transport()
    options = [word for word in transport.options if "=" in word]
    asked = [part for word in [*options, "SendEnv=SLURM_CONF"] for part in ("--ssh-option", word)]

    answer = subprocess.run(
        [sys.executable, "-m", "lardon", "slurm", "check", "--host", transport.host,
         *asked, "--bound", f"{BOUND_S}s", *form],
        env={**os.environ, **shared_cluster.environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (answer.returncode, answer.stderr) == (0, "")
    if form:
        found = json.loads(answer.stdout)
        assert found["call_bound_s"] == pytest.approx(sum(found["terms"].values()))
        assert abs(found["clock_offset_s"]) <= found["terms"]["round trip / 2"]
    else:
        assert "from ours, read in a round trip of" in answer.stdout


def test_the_deadline_is_checked_by_the_host(far: SlurmBackend) -> None:
    ref = far.start(spec("true"))
    past = hold_of(1, seconds=-1)

    with pytest.raises(ExpiredError):
        far.hold(ref, past)
    with pytest.raises(ExpiredError):
        far.restore_requeue_bit(ref, CallMeta(past.deadline))

    assert seen(far, ref).hold_instance is None


def test_a_banner_and_a_login_script_are_not_read(ssh_server: Sshd) -> None:
    """What a login shell prints before the script is not the answer of a command."""
    host = Host(_Noisy(ssh_server.transport()), bound_s=BOUND_S, clock=MachineClock())

    assert host.ask("echo 7; echo harmless >&2") == "7\n"
    with pytest.raises(ExpiredError):
        host.change([Call(("true",))], within(-1).deadline, within().deadline)
    host.close()


class _Noisy:
    """A transport whose far side prints things before the script runs."""

    def __init__(self, inner: SshTransport) -> None:
        self._inner = inner
        self.environment = inner.environment

    @property
    def remote(self) -> bool:
        return True

    @property
    def setup_s(self) -> float:
        return 20.0

    def command(self, text: str) -> list[str]:
        *ssh, script = self._inner.command(text)
        noise = "echo 'Submitted batch job 12345'; echo 'Last login: 3 times' >&2; "
        return [*ssh, noise + script]


def test_a_host_that_cannot_be_reached_is_no_empty_queue() -> None:
    transport = SshTransport("127.0.0.1", options=("-F", "/dev/null", "-p", "1"))
    backend = SlurmBackend(transport, bound_s=5)

    with pytest.raises(ClusterUnreachable, match="did not begin"):
        backend.find(spec("true").id)
    backend.close()


def test_h105_a_limit_of_ours_bounds_the_caller_and_the_far_side(
    ssh_server: Sshd, shared_cluster: SlurmCluster
) -> None:
    """The far side has its own timer; the caller is back at once, and nothing is concluded."""
    host = Host(ssh_server.transport(), bound_s=1, clock=MachineClock())
    began = time.monotonic()

    with pytest.raises(ClusterUnreachable):
        host.ask("timeout -s KILL 1s sleep 60")

    assert time.monotonic() - began < 10
    host.close()


def test_h105_a_connection_that_hangs_bounds_nobody(ssh_server: Sshd) -> None:
    """What is left open by others (a shared connection) does not keep the caller waiting."""
    runner = Runner()
    began = time.monotonic()

    ended = runner.run(["sh", "-c", "setsid sleep 4 & sleep 60"], 0.5)

    assert time.monotonic() - began < 3.5
    assert (ended.status, ended.began) == (None, True)
    assert "no answer within" in ended.problem
    runner.close()


def test_settles_at_is_the_deadline_and_the_bound(far: SlurmBackend) -> None:
    bound = datetime.timedelta(seconds=far.declarations().call_bound_s)
    deadline = utc_now()

    assert far._actor._settles_at(deadline) == deadline + bound
