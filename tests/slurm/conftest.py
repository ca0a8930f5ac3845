"""Scripted Slurm commands on PATH, and real clusters in a folder."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from lardon.dispatch.model import Ref
from lardon.dispatch.slurm import LocalTransport, SlurmBackend
from lardon.testing.slurm_cluster import SlurmCluster, missing_packages
from tests.slurm.jobs import BOUND_S, eventually, spec
from tests.slurm.sshd import MISSING as NO_SSHD
from tests.slurm.sshd import Sshd, sshd

PATIENCE_S: Final = 15.0


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
        until the test opens the other pipe; it starts no process that would outlive its shell.
        """
        file = self.bin / name
        file.write_text(
            "#!/bin/sh\n"
            f'printf "%s\\n" "{name} $*" >> {self.log}\n'
            f"meet() {{ echo > {self.entered}; }}\n"
            f"stay() {{ read -r _ < {self.go_on}; }}\n"
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


# Real clusters --------------------------------------------------------------------


def _cluster(name: str, **how: Any) -> SlurmCluster:
    absent = missing_packages()
    if absent:
        pytest.skip(f"packages are not installed: {' '.join(absent)}")
    # pytest's own folders are too deep for the sockets below them.
    folder = tempfile.mkdtemp(prefix=f"lardon-{name}-")
    return SlurmCluster(folder, **how)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[SlurmCluster]:
    """Return a cluster of three nodes that every test may use, and none may break."""
    one = _cluster(
        "slurm",
        nodes=3,
        cpus=4,
        ram_mib=4000,
        settings={"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"},
        lines=["PartitionName=urgent Nodes=ALL PriorityTier=10 State=UP DefMemPerCPU=100"],
    )
    with one:
        yield one
    shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def fragile_cluster() -> Iterator[SlurmCluster]:
    """Return a cluster of two nodes that forgets soon, gives ids again, and may be broken."""
    settings = {"MinJobAge": "2", "SlurmdTimeout": "3", "MaxJobId": "20"}
    one = _cluster("fragile", nodes=2, cpus=4, ram_mib=4000, settings=settings)
    with one:
        yield one
    shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def timing_out() -> Iterator[tuple[SlurmBackend, Ref]]:
    """
    Return a job that reaches its time limit while other tests run, on a cluster of its own.

    A minute is the shortest limit, and Slurm looks at limits every half minute.
    """
    with _cluster("limit", nodes=1) as one:
        transport = LocalTransport(environment=one.environment)
        backend = SlurmBackend(transport, bound_s=BOUND_S, output_folder=str(one.folder))
        ref = backend.start(spec("sleep", "600", time_limit_s=60))
        backend.open(ref)
        yield backend, ref
        backend.close()
    shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture
def make_backend() -> Iterator[Callable[..., SlurmBackend]]:
    """Return a maker of backends whose jobs are cancelled and gone when the test ends."""
    made: list[tuple[SlurmBackend, SlurmCluster]] = []
    # The jobs of the cluster may run as somebody else.
    output = tempfile.mkdtemp(prefix="lardon-out-")

    def make(cluster: SlurmCluster, transport: Any = None, **settings: Any) -> SlurmBackend:
        how: dict[str, Any] = {
            "bound_s": BOUND_S,
            "poll_s": 0.2,
            "output_folder": output,
        } | settings
        backend = SlurmBackend(transport or LocalTransport(environment=cluster.environment), **how)
        made.append((backend, cluster))
        return backend

    yield make
    for backend, cluster in made:
        backend.close()
        _end_jobs(cluster)
    shutil.rmtree(output, ignore_errors=True)


@pytest.fixture(scope="session")
def end_jobs() -> Callable[[SlurmCluster], None]:
    """Return what ends every job of a cluster, and mends what a test has broken."""
    return _end_jobs


def _end_jobs(cluster: SlurmCluster) -> None:
    for name in ("slurmctld", *cluster.nodes):
        cluster.resume(name)
    if not cluster.runs("slurmctld"):
        cluster.start_controller()
    lost = [node for node in cluster.nodes if not cluster.runs(node)]
    for node in lost:
        cluster.start_node(node)
    for node in cluster.nodes:
        cluster.client("scontrol", "update", f"NodeName={node}", "State=RESUME")
    if lost:
        cluster.wait_nodes()
    cluster.client("scancel", "--me")
    listing = ("squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING", "-o", "%A")
    eventually(lambda: cluster.client(*listing), lambda done: not done.stdout.strip())


@pytest.fixture
def backend(
    shared_cluster: SlurmCluster, make_backend: Callable[..., SlurmBackend]
) -> SlurmBackend:
    """Return a backend for the shared cluster."""
    return make_backend(shared_cluster)


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Return an sshd on loopback."""
    if NO_SSHD:
        pytest.skip(f"packages are not installed: {' '.join(NO_SSHD)}")
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server
