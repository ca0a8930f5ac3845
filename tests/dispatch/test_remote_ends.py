"""A handle of a pool always comes to an end, whoever ends the pool, and when."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from lardon import WouldDeadlock
from lardon.dispatch import InvalidError
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.records import FileRecords, MemoryRecords
from lardon.dispatch.remote import PoolClosed, PoolTimings, RemotePool
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster


class ClosedMeanwhile(MemoryRecords):
    """Records whose pool is closed while a job is being stored."""

    pool: RemotePool | None = None

    def save(self, record: JobRecord) -> JobRecord:
        if self.pool is not None:
            self.pool.close(wait=False)
        return super().save(record)


class Exiting(MemoryRecords):
    """Records whose reading ends the thread that reads."""

    armed = False

    def load(self, job: str) -> JobRecord | None:
        if self.armed:
            sys.exit("a store that exits")
        return super().load(job)


def test_a_task_that_the_pool_has_not_looked_at_ends_when_it_is_closed(
    cluster: RemoteCluster,
) -> None:
    """The page: "their handles raise `PoolClosed`", all of them."""
    pool = cluster.pool()
    start, busy, on = cluster.backend.start, threading.Event(), threading.Event()

    def slow(spec: JobSpec) -> Ref:
        busy.set()
        assert on.wait(PATIENCE_S)
        return start(spec)

    cluster.backend.start = slow  # type: ignore[method-assign]  # the pool is busy in a turn
    first = pool.submit(COMMAND, estimate=ONE)
    assert busy.wait(PATIENCE_S)
    second = pool.submit(COMMAND, estimate=ONE)
    closing = threading.Thread(target=lambda: pool.close(wait=False))
    closing.start()
    with pool._waiter.lock:
        pool._waiter._changed.wait_for(lambda: pool._waiter.closing, PATIENCE_S)
    on.set()
    closing.join(PATIENCE_S)

    for handle in (first, second):
        with pytest.raises(PoolClosed):
            handle.result(PATIENCE_S)


def test_a_task_that_is_stored_while_the_pool_is_closed_ends_too(cluster: RemoteCluster) -> None:
    records = ClosedMeanwhile()
    pool = cluster.pool(records=records)
    records.pool = pool
    handle = pool.submit(COMMAND, estimate=ONE)

    with pytest.raises(PoolClosed, match="goes on"):
        handle.result(PATIENCE_S)
    assert pool.handles() == (handle,)
    # It is on record, so a successor has it.
    assert records.jobs() == [handle.id]


@pytest.mark.parametrize("what", [3, None, "a", "a handle of another pool"])
def test_what_is_no_handle_of_the_pool_is_not_cancelled(cluster: RemoteCluster, what: Any) -> None:
    pool, other = cluster.pool(), cluster.pool()
    handle = other.submit(COMMAND, estimate=ONE)
    with pytest.raises(InvalidError, match="a handle of this pool") as caught:
        pool.cancel(handle if what == "a handle of another pool" else what)

    assert caught.value.path == "handle"
    assert handle.record.stop_asked_at is None


def test_a_callback_that_exits_ends_no_pool(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A future catches the exceptions of its callbacks, and not what ends a thread."""
    pool = cluster.pool()
    stopped, run, other = (pool.submit(COMMAND, estimate=ONE) for _ in range(3))
    for handle in (stopped, run, other):
        handle.add_done_callback(lambda _: sys.exit("a callback that exits"))
    cluster.rest()
    with caplog.at_level(logging.ERROR, "lardon.dispatch"):
        stopped.cancel()
        cluster.passes()
        cluster.finish(run)
        pool.close(wait=False)

    assert stopped.cancelled()
    assert run.result(PATIENCE_S).succeeded
    with pytest.raises(PoolClosed):
        other.result(PATIENCE_S)
    assert len([one for one in caplog.records if "exited" in one.message]) == 3


def test_what_ends_the_thread_of_a_pool_ends_its_handles(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and told by the pool from then on."""
    records = Exiting()
    pool = cluster.pool(records=records)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    records.armed = True
    pool._waiter.post(lambda: None)

    with pytest.raises(PoolClosed):
        handle.result(PATIENCE_S)
    with pytest.raises(PoolClosed):
        pool.submit(COMMAND, estimate=ONE)
    pool.close()
    assert pool.statistics().waiter_error == "SystemExit: a store that exits"
    (logged,) = [one for one in caplog.records if one.levelno == logging.CRITICAL]
    assert "ended" in logged.message
    assert logged.exc_info


@pytest.mark.parametrize("how", ["finished", "cancelled", "abandoned"])
@pytest.mark.parametrize("what", ["result", "error", "running"])
def test_a_handle_that_somebody_else_has_settled_ends_no_pool(
    cluster: RemoteCluster, what: str, how: str
) -> None:
    """Those methods are an executor's, and public: every turn of the pool had failed with it."""
    pool = cluster.pool()
    handle, other = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    if what == "result":
        handle.set_result(3)
    elif what == "error":
        handle.set_exception(ValueError("mine"))
    else:
        handle.set_running_or_notify_cancel()
    if how == "finished":
        cluster.finish(handle)
    elif how == "cancelled":
        pool._operator.stop(handle.id)
        cluster.passes()
        cluster.passes()
    else:
        pool.close(wait=False)
    assert handle.done()
    if what == "result":
        assert handle.result(PATIENCE_S) == 3
    if what == "running" and how == "cancelled":
        with pytest.raises(CancelledError):
            handle.result(PATIENCE_S)
    assert pool.statistics().waiter_error is None
    if how != "abandoned":
        cluster.finish(other)
        assert other.result(PATIENCE_S).succeeded
        assert pool.statistics().reserved_ram_bytes == 0


def test_a_callback_cannot_wait_for_its_own_pool(cluster: RemoteCluster) -> None:
    """As with a queue: the thread that calls it is the one that would have to go on."""
    pool = cluster.pool()
    first, second = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    told: list[Any] = []

    def waits(_: object) -> None:
        for wait in (pool.join, pool.wait_parked):
            told.append(wait(0))
            try:
                wait(PATIENCE_S)
            except WouldDeadlock as error:
                told.append(type(error))

    first.add_done_callback(waits)
    cluster.rest()
    first.cancel()
    cluster.passes()

    assert told == [False, WouldDeadlock, False, WouldDeadlock]
    assert not second.done()


@pytest.mark.parametrize("name", ["", 5, ["a"], b"a", "a\0b"])
def test_a_name_is_a_text(cluster: RemoteCluster, name: Any) -> None:
    pool = cluster.pool()
    with pytest.raises(InvalidError) as caught:
        pool.submit(COMMAND, estimate=ONE, name=name)
    assert caught.value.path == "name"


def test_an_argument_may_be_any_name_of_a_file(cluster: RemoteCluster, tmp_path: Any) -> None:
    """`os.fsdecode` makes surrogates of bytes that are no UTF-8."""
    command = ["cat", "caf\udce9"]
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit(command, estimate=ONE)
    cluster.rest()

    read = FileRecords(tmp_path / "jobs").load(handle.id)
    assert read is not None
    assert list(read.spec.command) == command


@pytest.mark.parametrize("name", ["poll_s", "call_timeout_s", "lease_s", "result_patience_s"])
def test_a_time_that_no_calendar_can_tell_is_refused(name: str) -> None:
    """Else the pool's thread would fail with it at every turn, for all its tasks."""
    with pytest.raises(InvalidError) as caught:
        PoolTimings(**{name: 1e300})
    assert caught.value.path == name
