"""The files of functions go with their records, whatever happens between."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.dispatch import FileRecords, InvalidError, MemoryRecords, Operator
from lardon.dispatch.call import main
from lardon.dispatch.enums import Shape
from lardon.dispatch.errors import RefusedError
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.remote import RecordLost, RemoteHandle, RemotePool
from lardon.dispatch.remote.calls import Calls
from lardon.dispatch.remote.tenancy import Tenancy
from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import ONE, PATIENCE_S, RemoteCluster

ROOT: Final = Path(__file__).parents[2]
ORPHAN: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def files(folder: Path, inside: str = "calls") -> list[str]:
    return sorted(path.name for path in (folder / inside).iterdir())


def done(cluster: RemoteCluster, pool: RemotePool, name: str, value: Any = 5) -> RemoteHandle:
    """Return the handle of a function that is over, with its two files."""
    handle = pool.submit_function(lambda: value, estimate=ONE, name=name)
    cluster.rest()
    main(handle.record.spec.command[3:])
    cluster.finish(handle)
    assert handle.result(PATIENCE_S) == value
    # No duplicate of its start can come any more.
    cluster.passes(100)
    cluster.passes()
    return handle


def test_forget_removes_the_record_and_the_files(cluster: RemoteCluster, tmp_path: Path) -> None:
    pool = cluster.pool(folder=tmp_path)
    first, second = (done(cluster, pool, name) for name in ("first", "second"))
    assert len(files(tmp_path)) == 4
    pool.forget("first")

    assert files(tmp_path) == [f"{second.id}.call", f"{second.id}.result"]
    assert FileRecords(tmp_path / "jobs").jobs() == [second.id]
    assert not (tmp_path / "jobs" / f"{first.id}.json").exists()
    # The other is whole, also for a successor.
    pool.close()
    adopted = cluster.pool(folder=tmp_path).adopt("second")
    assert adopted is not None
    assert adopted.result(PATIENCE_S) == 5


def test_the_files_of_one_that_may_come_twice_go_and_its_record_goes_later(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(lambda: 5, estimate=ONE, name="a")
    cluster.rest()
    main(handle.record.spec.command[3:])
    cluster.finish(handle)
    records = FileRecords(tmp_path / "jobs")
    pool.forget("a")
    kept = records.load(handle.id)
    assert kept is not None
    assert not kept.closed
    assert files(tmp_path) == []
    pool.close(wait=False)
    # A duplicate may still come: the next pool keeps the record, and has no such handle.
    again = cluster.pool(folder=tmp_path)
    assert again.adopt("a") is None
    assert records.jobs() == [handle.id]
    cluster.passes(200)
    cluster.passes(200)
    again.close()

    assert cluster.pool(folder=tmp_path).handles() == ()
    assert records.jobs() == []


class Killed(BaseException):
    """Stands for the end of the process."""


def test_a_crash_between_the_record_and_its_files_is_cleared_up(
    cluster: RemoteCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record goes first: one that is left has its files."""
    pool = cluster.pool(folder=tmp_path)
    handle = done(cluster, pool, "a")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Calls, "discard", killed)
        with pytest.raises(Killed):
            pool.forget("a")
    assert FileRecords(tmp_path / "jobs").jobs() == []
    assert len(files(tmp_path)) == 2
    pool.close()
    cluster.pool(folder=tmp_path)

    assert files(tmp_path) == []
    assert cluster.pools[-1].adopt(handle.name) is None


def test_a_crash_between_the_two_steps_of_forget_is_cleared_up(
    cluster: RemoteCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = cluster.pool(folder=tmp_path)
    done(cluster, pool, "a")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(FileRecords, "forget", killed)
        with pytest.raises(Killed):
            pool.forget("a")
    pool.close()
    assert len(files(tmp_path)) == 2
    cluster.pool(folder=tmp_path)

    assert files(tmp_path) == []
    assert FileRecords(tmp_path / "jobs").jobs() == []


def test_what_no_record_names_is_swept_and_nothing_else(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    pool = cluster.pool(folder=tmp_path)
    over = done(cluster, pool, "over")
    waits = pool.submit_function(print, estimate=ONE)
    cluster.rest()
    pool.close(wait=False)
    folder = tmp_path / "calls"
    kept = [
        *files(tmp_path),
        f"{waits.id}.result.77.new",  # a node is writing it
        "notes.txt",
        f"{ORPHAN}.json",
        f"{ORPHAN}.call.bak",
        f"x{ORPHAN}.call",
        f"{ORPHAN.lower()}.call",
        f"{'U' * 26}.call",
    ]
    swept = [f"{ORPHAN}.call", f"{ORPHAN}.result", f"{ORPHAN}.result.12.new"]
    for name in (*kept, *swept):
        if not (folder / name).exists():
            (folder / name).write_bytes(b"")
    again = cluster.pool(folder=tmp_path)

    assert files(tmp_path) == sorted(kept)
    adopted = again.adopt("over")
    assert adopted is not None
    assert adopted.result(PATIENCE_S) == over.result(PATIENCE_S)


def test_a_record_that_a_listing_does_not_show_yet_keeps_its_files(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """A network file system lists what it remembers, and looks up what it is asked for."""

    class Behind(FileRecords):
        def jobs(self) -> list[str]:
            return []

    pool = cluster.pool(folder=tmp_path)
    done(cluster, pool, "a")
    pool.close()
    operator = Operator(cluster.backend, Behind(tmp_path / "jobs"), cluster.clock)
    Calls(tmp_path / "calls").sweep(operator)

    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("when", ["while a pool has it", "after that"])
def test_a_job_without_a_record_keeps_its_files_while_it_may_run(
    clock: ManualClock, tmp_path: Path, shape: Shape, when: str
) -> None:
    """Its record was removed, and the cluster may still start it: the call has to be there."""
    cluster = RemoteCluster(clock, shape)
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(lambda: 5, estimate=ONE)
    cluster.rest()
    ref = cluster.ref(handle)
    if when == "after that":
        pool.close(wait=False)
    (tmp_path / "jobs" / f"{handle.id}.json").unlink()
    cluster.passes(15)
    if when != "after that":
        assert isinstance(handle.exception(PATIENCE_S), RecordLost)
        pool.close()
    again = cluster.pool(folder=tmp_path)
    assert files(tmp_path) == [f"{handle.id}.call"]
    cluster.env.run(ref)
    main(handle.record.spec.command[3:])
    cluster.env.finish(ref)
    again.close()
    cluster.pool(folder=tmp_path)

    assert files(tmp_path) == []
    cluster.close()


def test_files_stay_while_nobody_knows_whether_their_job_may_run(
    cluster: RemoteCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / f"{ORPHAN}.call").write_bytes(b"")

    def silent(_job: str) -> Any:
        message = "no answer"
        raise RefusedError(message)

    with pytest.MonkeyPatch.context() as fault:
        fault.setattr(cluster.backend, "find_all", silent)
        cluster.pool(folder=tmp_path).close()
        assert files(tmp_path) == [f"{ORPHAN}.call"]
        assert "no answer" in caplog.text
    cluster.pool(folder=tmp_path)

    assert files(tmp_path) == []


def test_nothing_is_swept_where_somebody_may_be_submitting(
    cluster: RemoteCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / f"{ORPHAN}.call").write_bytes(b"")
    with monkeypatch.context() as patched:
        patched.setattr(Tenancy, "exclusive", False)
        cluster.pool(folder=tmp_path).close()
    assert files(tmp_path) == [f"{ORPHAN}.call"]
    cluster.pool(folder=tmp_path)
    assert files(tmp_path) == []


def test_jobs_of_another_store_have_a_folder_that_is_not_swept(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """The pool whose records are in the folder knows nothing of them."""
    records = MemoryRecords()
    pool = cluster.pool(folder=tmp_path, records=records)
    done(cluster, pool, "a")
    assert len(files(tmp_path, "calls-apart")) == 2
    pool.close()
    for other in ({}, {"records": MemoryRecords()}):
        cluster.pool(folder=tmp_path, **other).close()
    again = cluster.pool(folder=tmp_path, records=records)
    adopted = again.adopt("a")
    assert adopted is not None
    assert adopted.result(PATIENCE_S) == 5
    again.forget("a")

    assert files(tmp_path, "calls-apart") == []


def test_a_file_that_cannot_be_removed_is_told_and_goes_later(
    cluster: RemoteCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = cluster.pool(folder=tmp_path)
    done(cluster, pool, "a")
    real = Path.unlink

    def refuses(path: Path, *args: Any, **kwargs: Any) -> Any:
        if "calls" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "lardon.dispatch"):
        patched.setattr(Path, "unlink", refuses)
        pool.forget("a")
        pool.close()
        again = cluster.pool(folder=tmp_path)
    assert "Permission denied" in caplog.text
    assert again.adopt("a") is None
    assert len(files(tmp_path)) == 2
    again.close()
    cluster.pool(folder=tmp_path)

    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_listed_keeps_no_pool_from_opening(
    cluster: RemoteCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "calls").write_bytes(b"no folder")
    cluster.pool(folder=tmp_path)

    assert "cannot be listed" in caplog.text


def test_a_submission_that_is_refused_leaves_no_file(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    pool = cluster.pool(folder=tmp_path)
    first = pool.submit_function(print, estimate=ONE, name="a")
    for wrong in ({"name": "a"}, {"name": ""}, {"options": {"nodes": 0}}, {"policy": 5}):
        with pytest.raises(InvalidError):
            pool.submit_function(print, estimate=ONE, **wrong)

    assert files(tmp_path) == [f"{first.id}.call"]


class Half(FileRecords):
    """Records that are stored, and say that they are not: a disk that fills up at the end."""

    def save(self, record: JobRecord) -> JobRecord:
        super().save(record)
        raise OSError(28, "No space left on device")


class Silent(FileRecords):
    """Records that fail altogether, from the first that is stored on."""

    broken = False

    def save(self, record: JobRecord) -> JobRecord:
        self.broken = True
        raise OSError(28, "No space left on device")

    def load(self, job: str) -> JobRecord | None:
        if self.broken:
            raise OSError(5, "Input/output error")
        return super().load(job)


@pytest.mark.parametrize("kind", [Half, Silent])
def test_a_submission_that_may_be_on_record_keeps_its_file(
    cluster: RemoteCluster, tmp_path: Path, kind: type[FileRecords]
) -> None:
    pool = cluster.pool(folder=tmp_path, records=kind(tmp_path / "jobs"))
    with pytest.raises(OSError, match="No space left"):
        pool.submit_function(print, estimate=ONE)

    assert len(files(tmp_path, "calls-apart")) == 1


SUBMITTER: Final = """
import os, signal, sys
from lardon import GiB, ResourceEstimate
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.records import FileRecords
from lardon.dispatch.remote import RemotePool

pool = RemotePool(MemoryBackend(), jobs=1, cpus=1, ram_bytes=GiB, folder=sys.argv[1])
FileRecords.save = lambda self, record: os.kill(os.getpid(), signal.SIGKILL)
pool.submit_function(print, estimate=ResourceEstimate())
"""


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(Shape))
def test_a_process_that_is_killed_between_call_and_record(tmp_path: Path, shape: Shape) -> None:
    """A real kill; what is left is no job, and is gone after the next opening."""
    ended = subprocess.run(
        [sys.executable, "-c", SUBMITTER, tmp_path], cwd=ROOT, timeout=15, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(files(tmp_path)) == 1
    cluster = RemoteCluster(ManualClock(), shape)
    assert cluster.pool(folder=tmp_path).handles() == ()
    assert files(tmp_path) == []
    cluster.close()
