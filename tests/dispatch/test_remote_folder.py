"""One pool at a time in a folder, and in a store: the lock, who keeps it, and until when."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from lardon import GiB
from lardon.dispatch import (
    Declarations,
    FileRecords,
    InvalidError,
    JobSpec,
    MemoryRecords,
    Operator,
    Ref,
    Supervisor,
    UnmatchedPolicy,
    UnsupportedError,
)
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import FolderInUse, PoolClosed, RemoteHandle, RemotePool
from lardon.dispatch.remote.tenancy import FolderLock
from lardon.testing import ManualClock
from tests.dispatch.jobs import spec
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster

ROOT: Final = Path(__file__).parents[2]

# Python 3.12 warns of a fork beside threads, which is what some of these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def pool_in(folder: Path, clock: ManualClock, **arguments: Any) -> RemotePool:
    limits = {"jobs": 1, "cpus": 1, "ram_bytes": GiB, "backend": MemoryBackend(clock=clock)}
    return RemotePool(folder=folder, clock=clock, **{**limits, **arguments})


def test_a_second_pool_in_a_folder_is_told_who_has_it(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    first = cluster.pool(folder=tmp_path)
    handle = first.submit(COMMAND, estimate=ONE, name="a")
    cluster.rest()
    threads = threading.active_count()

    with pytest.raises(FolderInUse) as caught:
        cluster.pool(folder=tmp_path)

    assert threading.active_count() == threads
    error = caught.value
    here = (str(tmp_path), os.getpid(), socket.gethostname())
    assert (error.folder, error.pid, error.host) == here
    assert all(str(fact) in str(error) for fact in here)
    # It holds nothing afterwards, and the first goes on.
    cluster.finish(handle)
    assert handle.result(PATIENCE_S).succeeded
    first.close()
    again = cluster.pool(folder=tmp_path)
    assert again.adopt("a") is not None


def test_another_way_to_the_same_folder_is_the_same_folder(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    cluster.pool(folder=folder)
    (tmp_path / "link").symlink_to(folder)

    with pytest.raises(FolderInUse):
        cluster.pool(folder=tmp_path / "link")
    with pytest.raises(FolderInUse):
        cluster.pool(records=FileRecords(folder / "jobs"))
    with pytest.raises(FolderInUse):
        cluster.pool(folder=folder, records=MemoryRecords())
    cluster.pool(folder=tmp_path / "other")


def test_a_store_with_a_folder_is_locked_like_the_pools_own(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    first = cluster.pool(records=FileRecords(tmp_path))

    with pytest.raises(FolderInUse) as caught:
        cluster.pool(records=FileRecords(tmp_path))
    assert caught.value.folder == str(tmp_path)
    first.close()
    cluster.pool(records=FileRecords(tmp_path))


def test_a_store_in_memory_serves_one_pool_at_a_time(cluster: RemoteCluster) -> None:
    records = MemoryRecords()
    first = cluster.pool(records=records)

    with pytest.raises(InvalidError, match="no other pool of this process uses") as caught:
        cluster.pool(records=records)
    assert caught.value.path == "records"
    first.close()
    cluster.pool(records=records)


def test_what_is_asked_of_a_pool_that_has_left_does_not_make_its_successor_leave(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    records = MemoryRecords()
    first = cluster.pool(records=records, folder=tmp_path)
    first.close()
    cluster.pool(records=records, folder=tmp_path)
    with pytest.raises(PoolClosed):
        first.submit(COMMAND, estimate=ONE)
    with pytest.raises(PoolClosed):
        first.submit_function(print, estimate=ONE)
    first.close()

    with pytest.raises(InvalidError, match="no other pool"):
        cluster.pool(records=records)
    with pytest.raises(FolderInUse):
        cluster.pool(folder=tmp_path)
    assert not (tmp_path / "calls-apart").exists()


def test_supervisors_may_serve_the_store_of_a_pool(cluster: RemoteCluster, tmp_path: Path) -> None:
    """The page: as many as you like may share a store."""
    pool = cluster.pool(folder=tmp_path)
    operator = Operator(cluster.backend, FileRecords(tmp_path / "jobs"), cluster.clock)
    other = Supervisor("beside", operator)
    job = operator.submit(spec()).id
    handle = pool.submit(COMMAND, estimate=ONE)
    other.turn()
    cluster.passes()
    other.turn()

    assert operator.observer.get(job).record.objects
    assert cluster.objects(handle)


def test_a_pool_that_gets_one_of_two_locks_keeps_neither(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    first = cluster.pool(records=FileRecords(tmp_path / "jobs"))
    with pytest.raises(FolderInUse) as caught:
        cluster.pool(folder=tmp_path)
    assert caught.value.folder == str(tmp_path / "jobs")
    first.close()

    cluster.pool(folder=tmp_path)


# What ends a pool


HOLDER: Final = """
import os, sys, threading
from lardon import GiB
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import RemotePool

pool = RemotePool(MemoryBackend(), jobs=1, cpus=1, ram_bytes=GiB, folder=sys.argv[1])
# The child says when it is there: until then it has not closed its copy.
if sys.argv[2] == "alone" or os.fork() == 0:
    print(os.getpid(), flush=True)
threading.Event().wait(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["alone", "forks"])
def test_a_killed_process_holds_nothing(tmp_path: Path, clock: ManualClock, how: str) -> None:
    """Also while a child lives on that it forked."""
    holder = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLDER, tmp_path, how],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    child = holder.stdout.readline().strip()
    try:
        with pytest.raises(FolderInUse) as caught:
            pool_in(tmp_path, clock)
        assert caught.value.pid == holder.pid
        assert f"process {holder.pid} on {socket.gethostname()}" in str(caught.value)
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        if how == "forks":
            os.kill(int(child), 0)  # it is there
        pool_in(tmp_path, clock).close()
    finally:
        holder.kill()
        holder.wait(10)
        if how == "forks":
            os.kill(int(child), signal.SIGKILL)
        holder.stdout.close()


def test_a_forked_child_and_a_started_program_do_not_keep_the_lock(
    tmp_path: Path, clock: ManualClock
) -> None:
    pool = pool_in(tmp_path, clock)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    program = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
    )
    try:
        # The child's own end does not release what is the parent's.
        with pytest.raises(FolderInUse):
            pool_in(tmp_path, clock)
        pool.close()
        pool_in(tmp_path, clock).close()
    finally:
        os.close(write)
        os.waitpid(child, 0)
        program.communicate(b"\n", timeout=10)


def test_the_end_of_a_child_releases_nothing(tmp_path: Path, clock: ManualClock) -> None:
    pool = pool_in(tmp_path, clock)
    child = os.fork()
    if child == 0:
        pool._tenancy.leave()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)

    with pytest.raises(FolderInUse):
        pool_in(tmp_path, clock)
    pool.close()


class Exiting(FileRecords):
    """Records whose reading ends the thread that reads."""

    armed = False

    def load(self, job: str) -> JobRecord | None:
        if self.armed:
            sys.exit("a store that exits")
        return super().load(job)


def test_what_ends_the_thread_of_a_pool_frees_its_folder(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    records = Exiting(tmp_path / "jobs")
    pool = cluster.pool(records=records, folder=tmp_path)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    records.armed = True
    pool._waiter.post(lambda: None)
    with pytest.raises(PoolClosed):
        handle.result(PATIENCE_S)
    pool._waiter.stop()

    cluster.pool(folder=tmp_path)


def test_a_pool_that_could_not_be_made_frees_its_folder(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: FileRecords) -> list[str]:
        raise OSError(errno.EIO, "the disk is gone")

    records = FileRecords(tmp_path / "jobs")
    with monkeypatch.context() as patched:
        patched.setattr(FileRecords, "jobs", fails)
        for arguments in ({}, {"records": records}):
            with pytest.raises(OSError, match="the disk is gone"):
                pool_in(tmp_path, clock, **arguments)

    for arguments in ({}, {"records": records}):
        pool_in(tmp_path, clock, **arguments).close()


class Slow(FileRecords):
    """Records that let a test in while a job is being stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stores, self.go_on = threading.Event(), threading.Event()

    def save(self, record: JobRecord) -> JobRecord:
        if self.waits_for(record):
            self.stores.set()
            assert self.go_on.wait(PATIENCE_S)
        return super().save(record)

    def waits_for(self, record: JobRecord) -> bool:
        return not record.version


@pytest.mark.parametrize("what", ["command", "function"])
def test_a_pool_keeps_its_folder_until_what_is_being_submitted_is_stored(
    cluster: RemoteCluster, tmp_path: Path, what: str
) -> None:
    """Else a successor that looked a moment too soon would not know of it."""
    records = Slow(tmp_path / "jobs")
    pool = cluster.pool(records=records, folder=tmp_path)

    def submit() -> None:
        if what == "command":
            pool.submit(COMMAND, estimate=ONE, name="late")
        else:
            pool.submit_function(print, estimate=ONE, name="late")

    submitting = threading.Thread(target=submit)
    submitting.start()
    assert records.stores.wait(PATIENCE_S)
    pool.close(wait=False)
    with pytest.raises(FolderInUse):
        cluster.pool(folder=tmp_path)
    records.go_on.set()
    submitting.join(PATIENCE_S)

    assert cluster.pool(folder=tmp_path).adopt("late") is not None


# What a pool that has left may still do


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


WRITES: Final[dict[str, Callable[[RemotePool, RemoteHandle, RemoteHandle], object]]] = {
    "submit": lambda pool, _over, _runs: pool.submit(COMMAND, estimate=ONE, name="new"),
    "submit_function": lambda pool, _over, _runs: pool.submit_function(print, estimate=ONE),
    "forget": lambda pool, over, _runs: pool.forget(over.name),
    # Its handle is done only because of the pool.
    "forget what runs": lambda pool, _over, runs: pool.forget(runs.name),
    "cancel": lambda pool, _over, runs: pool.cancel(runs),
    "cancel what is over": lambda pool, over, _runs: pool.cancel(over),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_pool_that_has_left_writes_nothing_where_its_successor_is(
    cluster: RemoteCluster, tmp_path: Path, what: str
) -> None:
    pool = cluster.pool(folder=tmp_path)
    over, runs = (pool.submit_function(print, estimate=ONE, name=name) for name in ("a", "b"))
    cluster.rest()
    cluster.finish(over, 1)
    cluster.run(runs)
    pool.close(wait=False)
    successor = cluster.pool(folder=tmp_path)
    cluster.passes(6)
    before = all_files(tmp_path)

    with pytest.raises(PoolClosed, match="was closed"):
        WRITES[what](pool, over, runs)
    # These have always been harmless.
    pool.close(cancel=True)
    assert runs.cancel() is False
    assert over.cancel() is False
    cluster.rest()
    assert all_files(tmp_path) == before
    adopted = successor.adopt("b")
    assert adopted is not None
    assert adopted.running()


class Writing(Slow):
    """Records that let a test in while one is replaced."""

    armed = False

    def waits_for(self, record: JobRecord) -> bool:
        return self.armed and threading.current_thread().name == "asks"


@pytest.mark.parametrize("what", ["forget", "cancel"])
def test_a_pool_keeps_its_folder_until_what_is_being_asked_for_is_stored(
    cluster: RemoteCluster, tmp_path: Path, what: str
) -> None:
    records = Writing(tmp_path / "jobs")
    pool = cluster.pool(records=records, folder=tmp_path)
    over, runs = (pool.submit(COMMAND, estimate=ONE, name=name) for name in ("a", "b"))
    cluster.rest()
    cluster.finish(over)
    records.armed = True
    asking = threading.Thread(target=WRITES[what], args=(pool, over, runs), name="asks")
    asking.start()
    assert records.stores.wait(PATIENCE_S)
    pool.close(wait=False)
    with pytest.raises(FolderInUse):
        cluster.pool(folder=tmp_path)
    records.go_on.set()
    asking.join(PATIENCE_S)

    successor = cluster.pool(records=FileRecords(tmp_path / "jobs"), folder=tmp_path)
    if what == "forget":
        assert successor.adopt("a") is None
    else:
        adopted = successor.adopt("b")
        assert adopted is not None
        assert adopted.record.stop_asked_at is not None


# One folder, two names


@pytest.mark.parametrize("other", ["same", "relative", "link", "dots"])
def test_a_pool_is_not_refused_by_its_own_lock(
    cluster: RemoteCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, str | Path]
    names = {"same": folder, "relative": "runs", "link": "link", "dots": folder / ".." / "runs"}
    pool = cluster.pool(folder=folder, records=FileRecords(names[other]))
    with pytest.raises(FolderInUse):
        cluster.pool(folder="link", records=FileRecords("runs"))
    pool.close()
    cluster.pool(folder=names[other], records=FileRecords(folder))


# What no pool can be made of


@pytest.mark.parametrize("below", ["", "runs"])
def test_a_file_is_no_folder_for_a_pool(tmp_path: Path, clock: ManualClock, below: str) -> None:
    (tmp_path / "file").write_text("")
    for arguments in ({}, {"records": MemoryRecords()}):
        with pytest.raises(InvalidError, match="may be a file") as caught:
            pool_in(tmp_path / "file" / below, clock, **arguments)
        assert caught.value.path == "folder"


class Plain:
    """A backend that shows no objects, and may not even be safe to start with."""

    def __init__(self, backend: MemoryBackend, *, safe: bool) -> None:
        self._backend, self._safe = backend, safe

    def declarations(self) -> Declarations:
        promises = self._backend.declarations()
        return promises if self._safe else attrs.evolve(promises, gated=False, unique_names=False)

    def start(self, spec: JobSpec) -> Ref:
        return self._backend.start(spec)

    def open(self, ref: Ref) -> None:
        self._backend.open(ref)

    def stop(self, ref: Ref) -> None:
        self._backend.stop(ref)

    def observe_many(self, refs: Any) -> Any:
        return self._backend.observe_many(refs)

    def find(self, job: str) -> Any:
        return self._backend.find(job)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("safe", [True, False])
def test_what_no_pool_can_be_made_of_makes_no_folder(
    tmp_path: Path, clock: ManualClock, *, safe: bool
) -> None:
    backend = Plain(MemoryBackend(clock=clock), safe=safe)
    with pytest.raises(UnsupportedError):
        pool_in(tmp_path / "runs", clock, backend=backend, unmatched=UnmatchedPolicy.STOP)

    assert list(tmp_path.iterdir()) == []


# Where there are no locks


def open_files() -> int:
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_without_locks_is_told_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def refuses(_file: object, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuses)
    files = open_files()
    lock = FolderLock(tmp_path)

    assert not lock.held
    assert f"{tmp_path} cannot be locked" in caplog.text
    assert os.strerror(number) in caplog.text
    assert open_files() == files
    FolderLock(tmp_path).release()
    lock.release()


def test_a_platform_without_fcntl_is_told_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)

    assert not FolderLock(tmp_path).held
    assert "no fcntl" in caplog.text


def test_another_trouble_with_the_lock_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_file: object, _how: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        FolderLock(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"one two three\n"])
def test_a_holder_that_left_no_name_is_another_pool(tmp_path: Path, content: bytes) -> None:
    lock = FolderLock(tmp_path)
    (tmp_path / ".pool").write_bytes(content)

    with pytest.raises(FolderInUse, match="in use by another pool") as caught:
        FolderLock(tmp_path)
    assert (caught.value.pid, caught.value.host) == (None, None)
    lock.release()
    lock.release()
    FolderLock(tmp_path).release()


def test_a_release_counts_also_where_a_copy_of_the_file_is_open(tmp_path: Path) -> None:
    """Of a child that was forked by something that tells nobody."""
    lock = FolderLock(tmp_path)
    assert lock._file is not None
    copy = os.dup(lock._file)
    lock.release()

    FolderLock(tmp_path).release()
    os.close(copy)


# The lock of the store


def test_a_child_that_is_forked_while_a_record_is_stored_does_not_keep_the_store(
    tmp_path: Path, clock: ManualClock
) -> None:
    """It has a copy of the open lock file, and may live for days."""
    records = FileRecords(tmp_path)
    read, write = os.pipe()
    with records._locked():
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    os.close(read)
    stored = threading.Event()

    def store() -> None:
        operator = Operator(MemoryBackend(clock=clock), FileRecords(tmp_path), clock)
        operator.submit(spec())
        stored.set()

    thread = threading.Thread(target=store, daemon=True)
    thread.start()
    try:
        assert stored.wait(PATIENCE_S)
    finally:
        os.close(write)
        os.waitpid(child, 0)
        thread.join(PATIENCE_S)
