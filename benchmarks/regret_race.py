"""Running one policy under a real limit, and telling what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.child import ROOT, environment
from benchmarks.regret_workloads import LIMIT_BYTES, Workload
from tests.real.cgroups import Group, NoGroupError, Place, find_place

if TYPE_CHECKING:
    from pathlib import Path

# NumPy's own threads would make a policy with two workers use four.
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
# A supervisor gives up here: something else is wrong then.
ATTEMPTS: Final = 12


@attrs.frozen(kw_only=True)
class Run:
    """One policy on one workload, once."""

    done: int
    seconds: float
    kills: int
    """Processes that the kernel killed for want of memory."""
    status: int | str
    """The exit status; negative for a signal; ``timeout``."""
    sizes: tuple[int, ...]
    busy_s: float | None = None
    """How long the items took, None where they were not done one after the other."""
    error: str = ""

    def finished(self, workload: Workload) -> bool:
        """Return whether every item was processed."""
        return self.status == 0 and self.done == workload.items


class Limit:
    """A fresh cgroup for each run where one can be made, else RLIMIT_AS for each process."""

    def __init__(self) -> None:
        self._place: Place | None = None
        try:
            self._place = find_place("memory")
            Group(self._place).remove()
            self.kind = f"memory cgroup v{self._place.version}"
        except NoGroupError as error:
            self._place = None
            self.kind = f"RLIMIT_AS ({error})"

    @contextlib.contextmanager
    def group(self) -> Iterator[Group | None]:
        """Yield a cgroup with the limit; everything in it is killed in the end."""
        if self._place is None:
            yield None
            return
        group = Group(self._place)
        try:
            group.limit(LIMIT_BYTES)
            group.forbid_swap()
            yield group
        finally:
            for pid in group.pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            group.remove()


def _start(arguments: Mapping[str, Any], cgroup: Path | None) -> subprocess.Popen[str]:
    told = {
        **arguments,
        "cgroup": None if cgroup is None else str(cgroup),
        "limit_bytes": LIMIT_BYTES,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.regret_child", json.dumps(told)],
        cwd=ROOT,
        env={**environment(), **ONE_THREAD},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _attempt(arguments: Mapping[str, Any], cgroup: Path | None, timeout_s: float) -> Run:
    before = time.monotonic()
    process = _start(arguments, cgroup)
    status: int | str
    try:
        out, err = process.communicate(timeout=timeout_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status = "timeout"
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return Run(
        done=max((line["done"] for line in lines), default=0),
        seconds=time.monotonic() - before,
        kills=0,
        status=status,
        sizes=tuple(line["size"] for line in lines),
        busy_s=lines[-1].get("busy_s") if lines else None,
        error=(err.strip().splitlines() or [""])[-1][:200],
    )


def race(limit: Limit, workload: Workload, arguments: Mapping[str, Any], timeout_s: float) -> Run:
    """Run one policy on *workload*, with its neighbour, under a fresh limit."""
    arguments = {**arguments, "workload": workload.name}
    with limit.group() as group:
        path = None if group is None else group.path
        other = None
        if workload.neighbour_bytes:
            other = _start({"neighbour_bytes": workload.neighbour_bytes}, path)
        try:
            if arguments["policy"] == "supervisor":
                run = _supervised(arguments, path, timeout_s)
            else:
                run = _attempt(arguments, path, timeout_s)
            return attrs.evolve(run, kills=0 if group is None else group.oom_kills)
        finally:
            if other is not None:
                other.kill()
                other.communicate()


def _supervised(arguments: Mapping[str, Any], cgroup: Path | None, timeout_s: float) -> Run:
    """Start again with half the batch where the last finished batch ended, after every death."""
    size, done, seconds = arguments["size"], 0, 0.0
    sizes: tuple[int, ...] = ()
    for _ in range(ATTEMPTS):
        told = {**arguments, "policy": "fixed", "size": size, "done": done}
        run = _attempt(told, cgroup, timeout_s)
        done, seconds, sizes = max(done, run.done), seconds + run.seconds, sizes + run.sizes
        # What a killed process did of its last batch is not known.
        run = attrs.evolve(run, done=done, seconds=seconds, sizes=sizes, busy_s=None)
        if run.status == 0:
            break
        size = max(1, size // 2)
    return run
