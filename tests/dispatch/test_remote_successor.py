"""A pool that is closed or cannot store, and the next one, which takes its jobs over by name."""

from __future__ import annotations

from typing import Any

import pytest

from lardon import GiB, ResourceEstimate, TaskRefused
from lardon.dispatch import InvalidError
from lardon.dispatch.enums import State
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.records import FileRecords, MemoryRecords
from lardon.dispatch.remote import PoolClosed, PoolTimings
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster


def test_leaving_the_block_waits_and_an_exception_cancels(cluster: RemoteCluster) -> None:
    with pytest.raises(KeyError), cluster.pool() as pool:
        handle = pool.submit(COMMAND, estimate=ONE)
        raise KeyError
    assert handle.cancelled()
    with pytest.raises(PoolClosed):
        pool.submit(COMMAND, estimate=ONE)
    # Nothing was done for it, or its object was stopped.
    assert all(one.ended for one in cluster.objects(handle))


@pytest.mark.parametrize("store", ["in memory", "in a folder"])
def test_a_pool_that_is_closed_without_waiting_lets_its_jobs_go_on(
    cluster: RemoteCluster, tmp_path: Any, store: str
) -> None:
    """The page: "`close(wait=False)` leaves the jobs to such a successor on purpose"."""
    where = {"records": MemoryRecords()} if store == "in memory" else {"folder": tmp_path}
    pool = cluster.pool(**where)
    handle = pool.submit(COMMAND, estimate=ONE, name="run 7")
    cluster.rest()
    ref = cluster.run(handle)
    pool.close(wait=False)

    with pytest.raises(PoolClosed, match="run 7"):
        handle.result(PATIENCE_S)
    assert cluster.env.truth(ref).state is State.RUNNING
    again = cluster.pool(**where)
    adopted = again.adopt("run 7")
    assert adopted is not None
    # What it holds is booked before anything else may be.
    assert again.statistics().reserved_ram_bytes == GiB
    # The lease was given back: the successor acts after the allowance for skewed clocks.
    cluster.passes(6)
    cluster.finish(adopted)
    assert adopted.result(PATIENCE_S).succeeded


class FullRecords(MemoryRecords):
    """A store whose disk is full while `full` is set."""

    full = False

    def save(self, record: JobRecord) -> JobRecord:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().save(record)


def test_a_pool_that_cannot_hand_over_says_so_and_ends(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    records = FullRecords()
    pool = cluster.pool(records=records)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    records.full = True
    pool.close(wait=False)

    assert "could not hand its jobs over" in caplog.text
    with pytest.raises(PoolClosed):
        handle.result(PATIENCE_S)


def test_a_finished_job_is_adopted_with_its_outcome(cluster: RemoteCluster) -> None:
    records = MemoryRecords()
    pool = cluster.pool(records=records)
    handle = pool.submit(COMMAND, estimate=ONE, name="done")
    cluster.rest()
    cluster.finish(handle)
    pool.close()
    again = cluster.pool(records=records)

    adopted = again.adopt("done")
    assert adopted is not None
    assert adopted.result(PATIENCE_S) == handle.outcome
    assert again.adopt("nobody") is None
    with pytest.raises(InvalidError, match="adopt"):
        again.submit(COMMAND, estimate=ONE, name="done")
    again.forget("done")
    assert again.adopt("done") is None
    # A duplicate of it may still come, and is stopped then: its record stays until it cannot.
    kept = records.load(handle.id)
    assert kept is not None
    assert not kept.closed
    assert (kept.label, "lardon.estimate" in kept.notes) == ("", False)
    assert again.submit(COMMAND, estimate=ONE, name="done") is not adopted


def test_the_line_has_its_order_again_after_a_crash(cluster: RemoteCluster) -> None:
    records = MemoryRecords()
    pool = cluster.pool(records=records, jobs=1)
    names = [f"job {place}" for place in range(4)]
    for name in names:
        pool.submit(COMMAND, estimate=ONE, name=name)
    cluster.rest()
    pool.close(wait=False)
    timings = PoolTimings(lease_s=1)
    again = cluster.pool(records=records, jobs=1, timings=timings)
    cluster.passes(200)

    assert [handle.name for handle in again.handles()] == names
    for name in names:
        handle = again.adopt(name)
        assert handle is not None
        cluster.finish(handle)
        assert handle.result(PATIENCE_S).succeeded


def test_limits_that_were_lowered_start_nothing_over_them(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    records = MemoryRecords()
    pool = cluster.pool(records=records)
    pool.submit(COMMAND, estimate=ResourceEstimate(ram_bytes=4 * GiB), name="large")
    pool.submit(COMMAND, estimate=ResourceEstimate(ram_bytes=8 * GiB), name="waits")
    cluster.rest()
    pool.close(wait=False)
    again = cluster.pool(records=records, ram_bytes=2 * GiB)

    assert "large was admitted before and does not fit the limits now" in caplog.text
    waits = again.adopt("waits")
    assert waits is not None
    with pytest.raises(TaskRefused):
        waits.result(PATIENCE_S)
    cluster.passes(200)
    large = again.adopt("large")
    assert large is not None
    cluster.finish(large)
    assert large.result(PATIENCE_S).succeeded


def test_a_store_that_fails_is_tried_again(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    records = FullRecords()
    pool = cluster.pool(records=records)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.env.run(cluster.ref(handle))
    records.full = True
    cluster.passes()
    assert "No space left" in (pool.statistics().waiter_error or "")
    assert "tries again" in caplog.text
    records.full = False
    cluster.passes()
    assert pool.statistics().waiter_error is None
    cluster.finish(handle)
    assert handle.result(PATIENCE_S).succeeded


def test_a_submit_that_cannot_be_stored_leaves_its_name_free(cluster: RemoteCluster) -> None:
    class Full(MemoryRecords):
        def save(self, record: Any) -> Any:
            raise OSError(28, "No space left on device")

    pool = cluster.pool(records=Full())
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            pool.submit(COMMAND, estimate=ONE, name="x")


def test_the_records_of_a_folder_are_files(cluster: RemoteCluster, tmp_path: Any) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()

    stored = FileRecords(tmp_path / "jobs").load(handle.id)
    assert stored is not None
    assert stored.spec.command == tuple(COMMAND)
