"""
A real Slurm cluster in one folder, to test against: its daemons, and no system-wide file.

    python -m lardon.testing.slurm_cluster -- sbatch --wrap hostname

starts a cluster, runs the command on it and ends both. On Debian and Ubuntu the daemons are
in the packages slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from lardon.testing.slurm_conf import configuration

PROGRAMS: Final[Mapping[str, str]] = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
}
"""What is needed, and the Debian package it is in."""
LONGEST_FOLDER: Final = 70
"""Characters of the folder's path: a job step's socket lies below it, in at most 107."""
PATIENCE_S: Final = 60.0
"""How long a start or a stop may take; an unhurried machine needs one or two seconds."""

_LOOK_S: Final = 0.05
_STOP_S: Final = 5.0
_FIRST_PORT: Final = 16_000
_LAST_PORT: Final = 32_000
# Where Debian keeps daemons, which is not on every PATH.
_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class ClusterError(RuntimeError):
    """The cluster did not come up, or a part of it ended: the message has its last words."""


def missing_packages() -> list[str]:
    """Return the Debian packages that have to be installed first; empty when all is there."""
    return sorted({package for name, package in PROGRAMS.items() if _found(name) is None})


class SlurmCluster:
    """
    Daemons in *folder*: munged, one slurmctld, and a slurmd for each node.

    Use it in a ``with`` block, from the thread that made it: the daemons end with that thread,
    also when the process is killed. `environment` is what a client needs.

    Args:
        folder: An empty folder, at most 70 characters long; it is made if need be.
        nodes: How many nodes, named n1, n2, ….
        cpus: CPUs that each node claims; the machine may have fewer.
        ram_mib: MiB of memory that each node claims.
        settings: Lines of slurm.conf that replace the ones chosen here, by their key.
        lines: Further lines, such as partitions beside ``main``.

    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        nodes: int = 2,
        cpus: int = 2,
        ram_mib: int = 2000,
        settings: Mapping[str, str] | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder).resolve()
        if len(str(self.folder)) > LONGEST_FOLDER:
            message = f"{self.folder} is longer than {LONGEST_FOLDER} characters"
            raise ValueError(message)
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self._size = (cpus, ram_mib)
        self._settings = dict(settings or {})
        self._lines = tuple(lines)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make Slurm's commands speak to this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> Self:
        """Start it; see `start`."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it; see `stop`."""
        self.stop()

    # The whole ---------------------------------------------------------------------

    def start(self) -> None:
        """
        Start every daemon, and return when all nodes can take jobs.

        Raises:
            ClusterError: a package is missing, or a daemon ended or took too long.

        """
        if absent := missing_packages():
            message = f"packages are missing: {' '.join(absent)}"
            raise ClusterError(message)
        try:
            self._write()
            self._start_munged()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait_nodes()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cancel every job and end every daemon; harmless when none runs."""
        for name in list(self._daemons):
            self.resume(name)
        if self.runs("slurmctld"):
            self._cancel_all()
        for name in [*self.nodes, "slurmctld", "munged"]:
            self.end(name)
        self._end_steps()

    def client(
        self, *command: str, timeout: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands on this cluster, and return what it said."""
        return subprocess.run(  # noqa: S603  the caller's own command
            command,
            env=os.environ | {"PATH": _PATH} | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    # Its parts ---------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start slurmctld, with the state that it left; return when it answers."""
        config = self.folder / "slurm.conf"
        self._start("slurmctld", "slurmctld", "-D", "-f", str(config))
        self._wait("slurmctld to answer", lambda: self.client("scontrol", "ping").returncode == 0)

    def start_node(self, node: str) -> None:
        """Start the slurmd of *node*; `wait_nodes` returns when it can take jobs."""
        (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
        self._start(node, "slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node)

    def wait_nodes(self) -> None:
        """Return when every node can take jobs."""
        wanted = {*self.nodes}

        def ready() -> bool:
            listed = self.client("sinfo", "-h", "-N", "-o", "%N %t").stdout.split()
            states = dict(zip(listed[::2], listed[1::2], strict=True))
            return wanted <= {
                node for node, state in states.items() if state in {"idle", "mix", "alloc", "comp"}
            }

        self._wait(f"the nodes {' '.join(sorted(wanted))}", ready)

    def runs(self, name: str) -> bool:
        """Return whether the daemon *name* runs: ``slurmctld``, ``munged`` or a node."""
        daemon = self._daemons.get(name)
        return daemon is not None and daemon.poll() is None

    def freeze(self, name: str) -> None:
        """Let a daemon do nothing until `resume`: what is sent to it waits in its socket."""
        self._daemons[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a frozen daemon go on."""
        if self.runs(name):
            self._daemons[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """End a daemon as a crash would; a killed slurmctld forgets its last seconds."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait(_STOP_S)

    def end(self, name: str) -> None:
        """End a daemon in order; harmless when it does not run."""
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.terminate()
        try:
            daemon.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(_STOP_S)

    # Details -----------------------------------------------------------------------

    def _write(self) -> None:
        for name in ("run", "log", "state", "spool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # Other users' clients read the configuration and reach munge's socket.
        self.folder.chmod(0o755)
        (self.folder / "plugstack.conf").touch()
        key = self.folder / "munge.key"
        if not key.exists():
            key.touch(0o600)
            key.write_bytes(secrets.token_bytes(128))
        config = self.folder / "slurm.conf"
        if not config.exists():
            cpus, ram_mib = self._size
            config.write_text(
                configuration(
                    self.folder,
                    nodes=self.nodes,
                    cpus=cpus,
                    ram_mib=ram_mib,
                    ports=free_ports(1 + len(self.nodes)),
                    settings=self._settings,
                    lines=self._lines,
                )
            )

    def _start_munged(self) -> None:
        run = self.folder / "run"
        # --force: that a parent folder is closed to others (pytest's are) is a warning then.
        self._start(
            "munged", "munged", "--foreground", "--force",
            f"--key-file={self.folder / 'munge.key'}",
            f"--socket={run / 'munge.socket'}",
            f"--pid-file={run / 'munged.pid'}",
            f"--log-file={self.folder / 'log' / 'munged.log'}",
            f"--seed-file={run / 'munged.seed'}",
        )  # fmt: skip
        socket_option = f"--socket={run / 'munge.socket'}"
        self._wait(
            "munged", lambda: self.client("munge", "--no-input", socket_option).returncode == 0
        )

    def _start(self, name: str, program: str, *arguments: str) -> None:
        """Start a daemon in the foreground, as a child that ends with us."""
        if self.runs(name):
            message = f"{name} runs already"
            raise ClusterError(message)
        command = [str(_found(program)), *arguments]
        if (setpriv := shutil.which("setpriv")) is not None:
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(  # noqa: S603  programs of the packages
                command,
                env=os.environ | {"PATH": _PATH} | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not ready():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if dead or time.monotonic() > end:
                message = f"waited for {what}; {self._last_words(dead or list(self._daemons))}"
                raise ClusterError(message)
            time.sleep(_LOOK_S)

    def _last_words(self, names: list[str]) -> str:
        said = []
        for name in names:
            with contextlib.suppress(OSError):
                text = (self.folder / "log" / f"{name}.out").read_text(errors="replace")
                said.append(f"{name}: {' / '.join(text.splitlines()[-3:])}")
        return "; ".join(said)

    def _cancel_all(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            listed = self.client("squeue", "-h", "-o", "%A", timeout=_STOP_S).stdout.split()
            if listed:
                self.client("scancel", *listed, timeout=_STOP_S)
                end = time.monotonic() + _STOP_S
                while time.monotonic() < end and self._active():
                    time.sleep(_LOOK_S)

    def _active(self) -> bool:
        states = "RUNNING,COMPLETING,SUSPENDED"
        return bool(self.client("squeue", "-h", "-t", states, "-o", "%A", timeout=_STOP_S).stdout)

    def _end_steps(self) -> None:
        """End what jobs have left: their managers belong to no daemon once these are gone."""
        ours = self.environment["SLURM_CONF"]
        for process in psutil.process_iter(["name"]):
            with contextlib.suppress(psutil.Error):
                if process.name().startswith("slurmstepd") and ours in {
                    process.environ().get("SLURM_CONF"), *process.cmdline()
                }:  # fmt: skip
                    for child in process.children(recursive=True):
                        child.kill()
                    process.kill()


def free_ports(count: int) -> tuple[int, ...]:
    """Return *count* ports of loopback in a row that nobody listens on now."""
    for first in range(_FIRST_PORT + os.getpid() % 400 * 40, _LAST_PORT, 40):
        ports = tuple(range(first, first + count))
        if all(_is_free(port) for port in ports):
            return ports
    message = f"no {count} free ports in a row below {_LAST_PORT}"
    raise ClusterError(message)


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _found(program: str) -> str | None:
    return shutil.which(program, path=_PATH)


@contextlib.contextmanager
def temporary_cluster(nodes: int = 2) -> Iterator[SlurmCluster]:
    """Start a cluster in a new folder; stop it and remove the folder at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder,
        SlurmCluster(folder, nodes=nodes) as cluster,
    ):
        yield cluster


def main(arguments: Sequence[str]) -> int:
    """Run the command in *arguments* on a new cluster, and return its exit status."""
    command = [*arguments[1:]] if arguments[:1] == ["--"] else [*arguments]
    if not command:
        print("usage: python -m lardon.testing.slurm_cluster -- COMMAND...", file=sys.stderr)  # noqa: T201
        return 2
    try:
        with temporary_cluster() as cluster:
            environment = os.environ | {"PATH": _PATH} | cluster.environment
            return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603
    except (ClusterError, OSError) as error:
        print(f"slurm_cluster: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
