"""Plays a real cluster for the suite: what Slurm does by itself is made to happen."""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lardon.dispatch.conformance import Harness, Lacking, Timings
from lardon.dispatch.model import Cause, Ref, State
from lardon.dispatch.slurm import LocalTransport, SlurmBackend
from lardon.dispatch.spi import Backend
from lardon.testing.slurm_cluster import SlurmCluster
from tests.slurm.jobs import eventually, seen, shown, utc_now

# A job that says which execution it is, and then does what it is told over a pipe.
_JOB: Final = """
cd "$0"
env | grep ^DISPATCH_ > "$SLURM_JOB_NAME.$SLURM_JOB_ID.env"
[ -p "$SLURM_JOB_NAME.$SLURM_JOB_ID" ] || mkfifo "$SLURM_JOB_NAME.$SLURM_JOB_ID"
read -r order < "$SLURM_JOB_NAME.$SLURM_JOB_ID"
[ "$order" = oom ] && exec python3 -c 'x = bytearray(400 << 20); import time; time.sleep(600)'
exit "$order"
"""
# In place of the host's own: one shows another time, one dies between the calls of a requeue.
_LATE_DATE: Final = "#!/bin/sh\necho {second}\n"
_CRASHING: Final = (
    '#!/bin/sh\nif [ "$1" = requeue ]; then kill -9 $(ps -o ppid= -p $PPID); exit 1; fi\n'
    'exec /usr/bin/scontrol "$@"\n'
)

# A scheduler's tick is a second.
_TICK_S: Final = 1.5


class _Host:
    """A host whose commands a test can put others before."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._plain = dict(environment)
        self._folder = folder
        self.swapped = False

    @property
    def environment(self) -> Mapping[str, str]:
        path = os.environ.get("PATH", os.defpath)
        return self._plain | ({"PATH": f"{self._folder}:{path}"} if self.swapped else {})

    @property
    def remote(self) -> bool:
        return False

    @property
    def setup_s(self) -> float:
        return 0.0

    def command(self, text: str) -> Sequence[str]:
        return LocalTransport().command(text)

    @contextlib.contextmanager
    def with_command(self, name: str, text: str) -> Iterator[None]:
        file = self._folder / name
        file.write_text(text)
        file.chmod(0o755)
        self.swapped = True
        try:
            yield
        finally:
            self.swapped = False
            file.unlink()


class SlurmHarness(Harness):
    """Plays *cluster*, whose jobs are gone when the next check begins."""

    adapter = "slurm"
    settings: Mapping[str, Any] = {"bound": "5s", "skew": "2s"}
    # `run` gives the scheduler a tick before the suite looks.
    timings = Timings(wait_s=45, quiet_s=0.5, poll_s=0.25)
    watch_buffer = 8

    def __init__(
        self, cluster: SlurmCluster, clean: Callable[[SlurmCluster], None], folder: Path
    ) -> None:
        self._cluster = cluster
        self._clean = clean
        self._folder = folder
        (self._folder / "bin").mkdir()
        self._host = _Host(cluster.environment, self._folder / "bin")
        self._made: SlurmBackend | None = None
        self.command = ("sh", "-c", _JOB, str(self._folder))

    def backend(self) -> Backend:
        self._clean(self._cluster)
        self._nodes("DRAIN")
        self._made = SlurmBackend(
            self._host, bound_s=5, poll_s=0.2, watch_buffer=8, output_folder=str(self._folder)
        )
        return self._made

    @property
    def _backend(self) -> SlurmBackend:
        assert self._made is not None
        return self._made

    def run(self, ref: Ref) -> None:
        """
        Let the nodes take jobs, and none any more once *ref* runs.

        So what was opened waits until the suite lets it run, as on a cluster that is full. What
        something else keeps from running has all the room that it could want.
        """
        self._nodes("RESUME")
        before = seen(self._backend, ref)
        if before.cause is Cause.REQUEUED:
            # Slurm itself puts a requeued job off, here by 6 s.
            self._scontrol("update", f"JobId={ref.id}", "StartTime=now+1")
        end = time.monotonic() + _TICK_S
        pause = threading.Event()
        while time.monotonic() < end:
            if seen(self._backend, ref).state is State.RUNNING:
                self._nodes("DRAIN")
                return
            pause.wait(0.1)

    def finish(self, ref: Ref, exit_code: int) -> None:
        self._tell(ref, str(exit_code))

    def out_of_memory(self, ref: Ref) -> None:
        self._tell(ref, "oom")

    def preempt(self, ref: Ref) -> None:
        (node,) = seen(self._backend, ref).nodes
        self._nodes("RESUME")
        urgent = ("sbatch", "--parsable", "-p", "urgent", "-w", node, "--exclusive", "--mem=0")
        done = self._cluster.client(*urgent, "-o", "/dev/null", "--wrap", "sleep 300")
        assert done.returncode == 0, done.stderr
        eventually(
            lambda: shown(self._cluster, ref)["JobState"],
            lambda state: state not in {"RUNNING", "COMPLETING"},
        )

    def lose_node(self, ref: Ref) -> None:
        (node,) = seen(self._backend, ref).nodes
        self._cluster.kill(node)

    def admin_hold(self, ref: Ref) -> None:
        if os.geteuid() != 0:
            message = "only root holds as an administrator"
            raise Lacking(message)
        self._scontrol("hold", str(ref.id))

    def cancel(self, ref: Ref) -> None:
        assert self._cluster.client("scancel", str(ref.id)).returncode == 0

    def requeue_externally(self, ref: Ref) -> Ref:
        self._scontrol("update", f"JobId={ref.id}", "Requeue=1")
        self._scontrol("requeue", str(ref.id))
        again = eventually(
            lambda: self._backend.find(ref.name),
            lambda one: one is not None and one.restarts > 0 and one.state is State.PENDING,
        )
        assert again is not None
        return again.ref

    def environment(self, ref: Ref) -> Mapping[str, str]:
        file = self._folder / f"{ref.name}.{ref.id}.env"
        wanted = str(seen(self._backend, ref).restarts)

        def said() -> dict[str, str]:
            lines = file.read_text().splitlines() if file.exists() else []
            return dict(line.split("=", 1) for line in lines)

        return eventually(
            said, lambda one: one.get("DISPATCH_ATTEMPT", "").rpartition(".")[2] == wanted
        )

    def late_call(self, started_at: datetime.datetime) -> contextlib.AbstractContextManager[None]:
        second = int(started_at.timestamp())
        return self._host.with_command("date", _LATE_DATE.format(second=second))

    def crash_between_steps(self) -> contextlib.AbstractContextManager[None]:
        return self._host.with_command("scontrol", _CRASHING)

    def read_only(self, backend: Backend) -> Backend:
        assert isinstance(backend, SlurmBackend)
        return backend.view(read_only=True)

    def now(self) -> datetime.datetime:
        return utc_now()

    def _nodes(self, state: str) -> None:
        """Let the nodes take jobs or not; those that are lost, or do so already, say no."""
        for node in self._cluster.nodes:
            change = ("update", f"NodeName={node}", f"State={state}", "Reason=conformance")
            self._cluster.client("scontrol", *change)

    def _scontrol(self, *arguments: str) -> None:
        done = self._cluster.client("scontrol", *arguments)
        assert done.returncode == 0, done.stderr

    def _tell(self, ref: Ref, order: str) -> None:
        """Tell the job's command what to do, once it listens."""
        pipe = self._folder / f"{ref.name}.{ref.id}"

        def opened() -> int | None:
            try:
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return None

        number = eventually(opened, lambda one: one is not None)
        assert number is not None
        os.write(number, f"{order}\n".encode())
        os.close(number)


class ForgetfulHarness(SlurmHarness):
    """Plays a cluster that forgets ended jobs soon and gives their ids again."""

    # MinJobAge is 2 s, and Slurm looks for old records every few seconds.
    timings = Timings(wait_s=9, quiet_s=0.5, poll_s=0.25)
    min_job_age_s = 2
    max_job_id = 20

    def advance(self, seconds: float) -> None:
        """Let time pass; a long time is over when the cluster has forgotten every job."""
        if seconds < self.timings.wait_s:
            super().advance(seconds)
            return
        everything = ("squeue", "-h", "-t", "all", "-o", "%A")
        eventually(
            lambda: self._cluster.client(*everything).stdout, lambda listed: not listed, seconds
        )
