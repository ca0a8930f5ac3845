"""A store that is away for a while, and records that cannot be read: the other tasks go on."""

from __future__ import annotations

import datetime
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from lardon import GiB, TaskState
from lardon.dispatch import (
    FileRecords,
    InvalidError,
    MemoryRecords,
    Operator,
    RecordConflict,
    StoreAway,
    Supervisor,
    UnmatchedPolicy,
)
from lardon.dispatch.enums import Shape, State
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.model import JobSpec
from lardon.dispatch.remote import RecordLost, RemoteHandle, RemotePool
from lardon.dispatch.remote.waiter import Waiter
from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster

JOB: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER: Final = "01BX5ZZKBKACTAV9WEVGEMMVRZ"


def held(pool: RemotePool) -> int:
    return pool.statistics().reserved_ram_bytes


def file_of(folder: Path, job: str) -> Path:
    return folder / "jobs" / f"{job}.json"


# A record that cannot be read


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\x00\xfe" * 50)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    """Who opens one to read waits for somebody who writes."""
    path.unlink()
    os.mkfifo(path)


def of_another_job(path: Path) -> None:
    other = max(one for one in path.parent.glob("*.json") if one != path)
    path.write_bytes(other.read_bytes())


SPOILS: Final = [truncated, binary, empty, a_folder, a_pipe, of_another_job]


def cleared(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()


def restored(path: Path, content: bytes) -> None:
    cleared(path)
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("shape", list(Shape))
def test_a_record_that_cannot_be_read_keeps_nobody_else_waiting(
    clock: ManualClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    shape: Shape,
) -> None:
    cluster = RemoteCluster(clock, shape)
    pool = cluster.pool(folder=tmp_path, jobs=2)
    bad, other, behind = (
        pool.submit(COMMAND, estimate=ONE, name=name) for name in ("bad", "other", "behind")
    )
    cluster.rest()
    path = file_of(tmp_path, bad.id)
    content = path.read_bytes()
    spoil(path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cluster.passes()
        cluster.finish(other)
        assert other.result(PATIENCE_S).succeeded
        cluster.finish(behind)
        assert behind.result(PATIENCE_S).succeeded
    # It is pending, keeps what it holds, and is told by its name: in the log once.
    assert bad.record.id == bad.id
    assert bad.state is TaskState.PENDING
    assert held(pool) == GiB
    assert path.name in str(pool.statistics().waiter_error)
    assert caplog.text.count(path.name) == 1
    if path.is_file():
        restored(path, content)
        cluster.passes()
        cluster.finish(bad)
        assert bad.result(PATIENCE_S).succeeded
    else:
        cleared(path)
        cluster.passes()
        assert isinstance(bad.exception(PATIENCE_S), RecordLost)
    assert pool.statistics().waiter_error is None
    cluster.close()


def test_the_wish_for_the_end_of_a_job_without_a_readable_record_is_refused(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """Nothing could be written down; those that can be cancelled are, also when a pool ends."""
    pool = cluster.pool(folder=tmp_path)
    bad, other = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    truncated(file_of(tmp_path, bad.id))
    cluster.passes()
    with pytest.raises(InvalidError, match=f"{bad.id}.json"):
        bad.cancel()
    with pytest.raises(InvalidError, match=f"{bad.id}.json"):
        pool.close(cancel=True)
    cluster.rest()
    cluster.passes()
    assert other.cancelled()
    pool.close(wait=False)


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_pool_that_leaves_gives_the_other_leases_back(
    cluster: RemoteCluster, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    pool = cluster.pool(folder=tmp_path)
    bad, other = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    spoil(file_of(tmp_path, bad.id))
    pool.close(wait=False)

    left = FileRecords(tmp_path / "jobs").load(other.id)
    assert left is not None
    assert left.lease is not None
    assert left.lease.expires_at < cluster.clock.wall()


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_folder_with_such_a_record_is_opened_without_its_job(
    cluster: RemoteCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
) -> None:
    pool = cluster.pool(folder=tmp_path)
    bad, other = (pool.submit_function(print, estimate=ONE, name=name) for name in ("bad", "other"))
    cluster.rest()
    pool.close(wait=False)
    path = file_of(tmp_path, bad.id)
    content = path.read_bytes()
    spoil(path)
    with caplog.at_level(logging.WARNING):
        again = cluster.pool(folder=tmp_path)
    assert [one.id for one in again.handles()] == [other.id]
    assert path.name in caplog.text
    # It takes no name, and its files stay.
    taken = again.submit(COMMAND, estimate=ONE, name="bad")
    assert (tmp_path / "calls" / f"{bad.id}.call").exists()
    again.forget(cancelled(cluster, taken).name)
    again.close(wait=False)
    restored(path, content)
    third = cluster.pool(folder=tmp_path)
    assert [one.name for one in third.handles()] == ["bad", "other"]


def cancelled(cluster: RemoteCluster, handle: RemoteHandle) -> RemoteHandle:
    handle.cancel()
    cluster.rest()
    cluster.passes()
    assert handle.cancelled()
    return handle


@pytest.mark.parametrize(
    ("note", "text"),
    [
        ("lardon.estimate", "no estimate"),
        ("lardon.estimate", "[1]"),
        ("lardon.estimate", '{"ram_bytes": -1}'),
        ("lardon.batch", "many"),
    ],
)
def test_a_note_that_tells_nonsense_keeps_no_pool_from_opening(
    cluster: RemoteCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, note: str, text: str
) -> None:
    pool = cluster.pool(folder=tmp_path)
    bad, other = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    pool.close(wait=False)
    records = FileRecords(tmp_path / "jobs")
    record = records.load(bad.id)
    assert record is not None
    records.save(attrs.evolve(record, notes={**record.notes, note: text}))
    again = cluster.pool(folder=tmp_path)

    assert [one.id for one in again.handles()] == [other.id]
    assert f"{bad.id}.notes.{note}" in caplog.text
    assert again.statistics().waiter_error is None


def test_a_supervisor_without_a_pool_serves_the_others(
    cluster: RemoteCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = FileRecords(tmp_path)
    operator = Operator(cluster.backend, records, cluster.clock)
    supervisor = Supervisor("one", operator, unmatched=UnmatchedPolicy.STOP, unmatched_grace_s=20)
    for job in (JOB, OTHER):
        operator.submit(JobSpec(id=job, command=COMMAND))
    supervisor.turn()
    path = tmp_path / f"{JOB}.json"
    content = path.read_bytes()
    path.write_bytes(b"{")
    ref = cluster.backend.find(OTHER)
    assert ref is not None
    cluster.env.run(ref.ref)
    cluster.env.finish(ref.ref)
    for _ in range(5):
        cluster.clock.advance(15)
        again = supervisor.turn()
        assert again is not None
        assert again > cluster.clock.wall()
    assert caplog.text.count(path.name) == 1
    stored = records.load(OTHER)
    assert stored is not None
    assert stored.outcome is not None
    # Its object is on record, though nobody can read that.
    (kept,) = cluster.backend.find_all(JOB)
    assert not kept.ended
    supervisor.hand_over()
    path.write_bytes(content)
    supervisor.turn()
    assert supervisor.last_plan(JOB) is not None


class Spoiled(MemoryRecords):
    """Records of which one cannot be read any more from a certain moment on."""

    bad: str | None = None

    def load(self, job: str) -> JobRecord | None:
        if job == self.bad:
            message = "the record is torn"
            raise InvalidError(message)
        return super().load(job)


@pytest.mark.parametrize("when", ["saved", "called"])
def test_a_record_that_is_spoiled_in_the_middle_of_a_step(
    cluster: RemoteCluster, when: str
) -> None:
    """What came of the call is seen once it is mended; the others are served meanwhile."""
    records = Spoiled()
    real_save, real_start = records.save, cluster.backend.start

    def save(record: JobRecord) -> JobRecord:
        if when == "saved" and record.id == JOB and record.lease:
            records.bad = JOB
            records.load(JOB)
        return real_save(record)

    def start(spec: JobSpec) -> Any:
        records.bad = JOB if spec.id == JOB else records.bad
        return real_start(spec)

    operator = Operator(cluster.backend, records, cluster.clock)
    supervisor = Supervisor("one", operator)
    for job in (JOB, OTHER):
        operator.submit(JobSpec(id=job, command=COMMAND))
    records.save = save  # type: ignore[method-assign]  # the place for the fault
    if when == "called":
        cluster.backend.start = start  # type: ignore[method-assign]  # the place for the fault
    supervisor.turn()
    assert [one.gated for one in cluster.backend.find_all(OTHER)] == [False]
    records.save = real_save  # type: ignore[method-assign]
    cluster.backend.start = real_start  # type: ignore[method-assign]  # as it was
    records.bad = None
    for _ in range(4):
        cluster.clock.advance(15)
        supervisor.turn()
    assert [one.gated for one in cluster.backend.find_all(JOB)] == [False]


# A store that is away


class Leaving(MemoryRecords):
    """Records that can be away."""

    away = False

    def _check(self) -> None:
        if self.away:
            message = "the data base does not answer"
            raise StoreAway(message)

    def load(self, job: str) -> JobRecord | None:
        self._check()
        return super().load(job)

    def save(self, record: JobRecord) -> JobRecord:
        self._check()
        return super().save(record)

    def jobs(self) -> Sequence[str]:
        self._check()
        return super().jobs()


@pytest.mark.parametrize("place", ["none", "empty"])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_folder_that_is_away_for_a_while_loses_no_task(
    cluster: RemoteCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    place: str,
    names: list[str],
) -> None:
    pool = cluster.pool(folder=tmp_path)
    handles = [pool.submit(COMMAND, estimate=ONE, name=name) for name in names]
    cluster.rest()
    ref = cluster.run(handles[0])
    jobs, away = tmp_path / "jobs", tmp_path / "away"
    jobs.rename(away)
    if place == "empty":
        jobs.mkdir()
    cluster.env.finish(ref)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            cluster.passes()
    assert not any(handle.done() for handle in handles)
    assert held(pool) == len(names) * GiB
    assert "cannot be reached now" in str(pool.statistics().waiter_error)
    assert caplog.text.count("cannot be reached now") == 1
    with pytest.raises(StoreAway):
        pool.submit(COMMAND, estimate=ONE, name="new")
    with pytest.raises(StoreAway):
        pool.submit_function(print, estimate=ONE)
    assert not (tmp_path / "calls").exists()
    with pytest.raises(StoreAway):
        handles[0].cancel()
    cluster.rest()
    assert not jobs.exists() or list(jobs.iterdir()) == []
    if place == "empty":
        jobs.rmdir()
    away.rename(jobs)
    cluster.passes()
    assert handles[0].result(PATIENCE_S).succeeded
    assert pool.statistics().waiter_error is None
    for handle in handles[1:]:
        cluster.finish(handle)
        assert handle.result(PATIENCE_S).succeeded
    pool.submit(COMMAND, estimate=ONE, name="new")


def test_a_store_of_somebody_else_may_be_away_too(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Here the line notices it before its supervisor does: one of the two tells it."""
    records = Leaving()
    pool = cluster.pool(records=records, jobs=1)
    first, second = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    records.away = True
    for _ in range(5):
        cluster.passes()
    assert not first.done()
    assert caplog.text.count("does not answer") == 1
    records.away = False
    cluster.finish(first)
    cluster.passes()
    assert first.result(PATIENCE_S).succeeded
    cluster.finish(second)
    assert second.result(PATIENCE_S).succeeded


@pytest.mark.parametrize("away", ["before", "between", "at the stop"])
def test_no_object_is_judged_while_the_store_is_away(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture, away: str
) -> None:
    records = Leaving()
    operator = Operator(cluster.backend, records, cluster.clock)
    supervisor = Supervisor("one", operator, unmatched=UnmatchedPolicy.STOP, unmatched_grace_s=40)
    operator.submit(JobSpec(id=OTHER, command=COMMAND))
    supervisor.turn()
    lost = cluster.backend.start(JobSpec(id=JOB, command=COMMAND))
    steps = supervisor.sweep()
    for _ in range(8):
        cluster.clock.advance(15)
        if away == "before":
            records.away = True
            supervisor.turn()
            continue
        for step in steps:
            records.away = step == ("match" if away == "between" else "stop")
        steps = supervisor.sweep()
    assert cluster.env.truth(lost).state is State.PENDING
    assert caplog.text.count("the data base does not answer") >= 1
    records.away = False
    for _ in range(6):
        cluster.clock.advance(15)
        supervisor.turn()
    assert cluster.env.truth(lost).ended


def test_an_object_waits_anew_once_the_store_is_back(cluster: RemoteCluster) -> None:
    """As with one that has no job any more: nothing of what was seen before counts."""
    records = Leaving()
    operator = Operator(cluster.backend, records, cluster.clock)
    supervisor = Supervisor("one", operator, unmatched=UnmatchedPolicy.STOP, unmatched_grace_s=40)
    operator.submit(JobSpec(id=OTHER, command=COMMAND))
    lost = cluster.backend.start(JobSpec(id=JOB, command=COMMAND))
    for _ in range(3):
        list(supervisor.sweep())
        cluster.clock.advance(15)
    assert [one.ref for one in supervisor.unmatched()] == [lost]
    records.away = True
    list(supervisor.sweep())
    assert supervisor.unmatched() == ()
    records.away = False
    for _ in range(3):
        cluster.clock.advance(15)
        list(supervisor.sweep())
        assert cluster.env.truth(lost).state is State.PENDING
    cluster.clock.advance(15)
    list(supervisor.sweep())
    assert cluster.env.truth(lost).ended


def test_an_object_whose_record_cannot_be_read_is_claimed_by_it(cluster: RemoteCluster) -> None:
    """Also where a listing does not show the record yet."""
    records = Spoiled()
    operator = Operator(cluster.backend, records, cluster.clock)
    supervisor = Supervisor("one", operator, unmatched=UnmatchedPolicy.STOP, unmatched_grace_s=0)
    operator.submit(JobSpec(id=OTHER, command=COMMAND))
    lost = cluster.backend.start(JobSpec(id=JOB, command=COMMAND))
    records.bad = JOB
    for _ in range(4):
        supervisor.turn()
        cluster.clock.advance(15)
    assert supervisor.unmatched() == ()
    assert cluster.env.truth(lost).state is State.PENDING


# A store that contradicts itself


class Conflicting(MemoryRecords):
    """Records that are never replaced."""

    armed = False

    def save(self, record: JobRecord) -> JobRecord:
        if self.armed:
            message = "somebody else was faster"
            raise RecordConflict(message, job=record.id, expected=0, found=0)
        return super().save(record)


class Forgetful(MemoryRecords):
    """Records that are stored, and stay what they were at first."""

    armed = False

    def save(self, record: JobRecord) -> JobRecord:
        if record.version:
            return attrs.evolve(record, version=record.version + 1)
        return super().save(record)


class Ghosts(MemoryRecords):
    """Records that are listed, and are not there."""

    def jobs(self) -> Sequence[str]:
        return [JOB]

    def load(self, job: str) -> JobRecord | None:
        return None


def test_a_wish_is_not_tried_for_ever_on_a_store_that_always_conflicts(
    cluster: RemoteCluster,
) -> None:
    records = Conflicting()
    operator = Operator(cluster.backend, records, cluster.clock)
    operator.submit(JobSpec(id=JOB, command=COMMAND))
    records.armed = True
    with pytest.raises(RecordConflict, match="somebody else was faster"):
        operator.stop(JOB)


@pytest.mark.parametrize("kind", [Conflicting, Forgetful])
def test_a_supervisor_is_not_kept_busy_by_such_a_store(
    cluster: RemoteCluster, kind: type[Conflicting | Forgetful]
) -> None:
    records = kind()
    operator = Operator(cluster.backend, records, cluster.clock)
    supervisor = Supervisor("one", operator)
    operator.submit(JobSpec(id=JOB, command=COMMAND))
    records.armed = True
    again = supervisor.turn()

    assert again is not None
    assert (again - cluster.clock.wall()).total_seconds() == 15


def test_a_job_that_is_listed_and_not_there_is_not_due_for_ever(cluster: RemoteCluster) -> None:
    operator = Operator(cluster.backend, Ghosts(), cluster.clock)
    supervisor = Supervisor("one", operator)
    supervisor.wake(JOB)

    assert supervisor.turn() is None


def closes(pool: RemotePool) -> bool:
    closing = threading.Thread(target=lambda: pool.close(wait=False), daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    return not closing.is_alive()


def test_a_pool_sleeps_though_nothing_is_stored(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    pool = cluster.pool(records=Forgetful())
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()

    assert "does not show" in caplog.text
    assert not handle.done()
    assert closes(pool)


def test_a_waiter_whose_turns_are_never_through_sleeps_between_them(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever keeps a job due: no processor is burnt for it, and the end is not missed."""
    turns: list[int] = []

    def turn() -> datetime.datetime:
        turns.append(1)
        return clock.wall()

    waiter = Waiter(turn, lambda: None, clock, 15)
    waiter.start()
    assert waiter.wait_parked(PATIENCE_S)
    first = len(turns)
    assert first < 1000
    clock.advance(15)
    assert waiter.wait_parked(PATIENCE_S)
    assert len(turns) == 2 * first
    assert caplog.text.count("asks for another at once") == 1
    waiter.stop()
