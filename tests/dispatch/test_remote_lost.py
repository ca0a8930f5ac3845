"""A record that somebody else removed: its handle ends, and what its job may hold is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from lardon import GiB, TaskState
from lardon.dispatch import NotFoundError
from lardon.dispatch.enums import Shape, State
from lardon.dispatch.errors import RefusedError
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.memory import answer_lost
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.records import MemoryRecords
from lardon.dispatch.remote import RecordLost, RemoteHandle, RemotePool
from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster


def removed(pool: RemotePool, handle: RemoteHandle) -> None:
    """Do what somebody does who deletes the file of a job."""
    pool._records.forget(handle.id)


def held(pool: RemotePool) -> int:
    return pool.statistics().reserved_ram_bytes


def test_a_handle_without_a_record_ends_with_an_error(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """Also the only one of its folder."""
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit(COMMAND, estimate=ONE, name="a")
    cluster.rest()
    cluster.run(handle)
    (tmp_path / "jobs" / f"{handle.id}.json").unlink()
    cluster.passes()

    with pytest.raises(RecordLost, match="record of a was removed by somebody else") as caught:
        handle.result(PATIENCE_S)
    assert (caught.value.name, caught.value.job) == ("a", handle.id)
    assert handle.state is TaskState.FAILED
    assert pool.join(PATIENCE_S)
    assert pool.statistics().done == 1


def test_the_reservation_is_kept_until_nothing_of_the_job_can_run(cluster: RemoteCluster) -> None:
    """The page: "then it is given back, once"; and the job is left alone."""
    pool = cluster.pool(records=MemoryRecords())
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    ref = cluster.run(handle)
    removed(pool, handle)
    for _ in range(20):
        cluster.passes()
        assert handle.done()
        assert held(pool) == GiB
        assert cluster.env.truth(ref).state is State.RUNNING
    cluster.env.finish(ref)
    cluster.passes()

    assert held(pool) == 0
    cluster.passes(100)
    statistics = pool.governor.statistics()
    assert (statistics.booked, statistics.released, statistics.released_again) == (1, 1, 0)
    assert pool._line.turn() is None, "it has nothing to come again for"


def test_a_lost_job_counts_among_the_jobs_until_then(cluster: RemoteCluster) -> None:
    pool = cluster.pool(records=MemoryRecords(), jobs=1)
    first, second = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    ref = cluster.run(first)
    removed(pool, first)
    cluster.passes(15)
    cluster.passes(60)
    assert first.done()
    assert not cluster.objects(second)
    cluster.env.finish(ref)
    cluster.passes()

    assert cluster.objects(second)
    cluster.finish(second)
    assert second.result(PATIENCE_S).succeeded


def test_a_start_that_may_still_come_keeps_the_reservation(clock: ManualClock) -> None:
    """Its answer is lost, and so is the record; it lands at the last moment, and is seen."""
    cluster = RemoteCluster(clock, Shape.KUBEFLOW, call_bound_s=100)
    real = cluster.backend.start

    def late(spec: JobSpec) -> Ref:
        with answer_lost(99):
            return real(spec)

    cluster.backend.start = late  # type: ignore[method-assign]  # the place for the fault
    pool = cluster.pool(records=MemoryRecords())
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    removed(pool, handle)
    cluster.passes(15)
    assert handle.done()
    for _ in range(5):
        assert held(pool) == GiB
        cluster.passes()
    cluster.passes(60)
    (one,) = cluster.objects(handle)
    cluster.env.run(one.ref)
    cluster.passes(60)
    assert held(pool) == GiB
    cluster.env.finish(one.ref)
    cluster.passes()
    assert held(pool) == 0
    cluster.close()


def test_a_gated_object_that_nobody_can_open_holds_nothing(cluster: RemoteCluster) -> None:
    pool = cluster.pool(records=MemoryRecords())
    real = cluster.backend.open

    def refuses(ref: Ref) -> None:
        message = "not today"
        raise RefusedError(message)

    cluster.backend.open = refuses  # type: ignore[method-assign]  # it stays gated
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    ref = cluster.ref(handle)
    removed(pool, handle)
    cluster.passes(15)
    assert held(pool) == GiB, "an opening may still land"
    cluster.passes(60)
    cluster.passes()
    cluster.backend.open = real  # type: ignore[method-assign]  # as it was

    assert held(pool) == 0
    # It is left alone: who removed the record may have it elsewhere.
    assert cluster.env.truth(ref).gated


def test_a_lost_node_keeps_the_reservation_until_it_is_back(clock: ManualClock) -> None:
    cluster = RemoteCluster(clock, Shape.KUBEFLOW)
    pool = cluster.pool(records=MemoryRecords())
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    ref = cluster.run(handle)
    node = cluster.env.truth(ref).nodes[0]
    cluster.env.lose_node(ref)
    cluster.env.cancel(ref)
    removed(pool, handle)
    cluster.passes(15)
    cluster.passes(600)
    assert handle.done()
    assert held(pool) == GiB
    cluster.env.recover_node(node)
    cluster.passes()
    assert held(pool) == 0
    cluster.close()


def test_a_task_in_line_is_lost_alone(cluster: RemoteCluster) -> None:
    """Those behind it go on, and the pool does not fail with it at every turn."""
    pool = cluster.pool(records=MemoryRecords(), jobs=1)
    first, second, third = (pool.submit(COMMAND, estimate=ONE) for _ in range(3))
    cluster.rest()
    removed(pool, second)
    cluster.finish(first)
    cluster.rest()

    with pytest.raises(RecordLost):
        second.result(PATIENCE_S)
    assert pool.statistics().waiter_error is None
    cluster.finish(third)
    assert third.result(PATIENCE_S).succeeded
    assert held(pool) == 0


class Vanishing(MemoryRecords):
    """Records of which one is removed as soon as it is stored."""

    def save(self, record: JobRecord) -> JobRecord:
        stored = super().save(record)
        if record.label == "vanishes":
            self.forget(record.id)
        return stored


def test_a_task_that_is_lost_at_the_head_of_the_line_keeps_nobody_back(
    cluster: RemoteCluster,
) -> None:
    pool = cluster.pool(records=Vanishing())
    lost = pool.submit(COMMAND, estimate=ONE, name="vanishes")
    behind = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()

    assert isinstance(lost.exception(PATIENCE_S), RecordLost)
    assert pool.statistics().waiter_error is None
    assert cluster.objects(behind)
    assert not cluster.objects(lost)


def test_a_job_that_is_over_needs_no_record_for_its_result(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """What it came to was seen, and only the file of its function is waited for."""
    from lardon.dispatch.call import main

    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(lambda: 5, estimate=ONE)
    cluster.rest()
    command = handle.record.spec.command
    cluster.finish(handle)
    assert not handle.done()
    (tmp_path / "jobs" / f"{handle.id}.json").unlink()
    cluster.passes()
    assert not handle.done()
    main(command[3:])
    cluster.passes()

    assert handle.result(PATIENCE_S) == 5


def test_the_waiter_sleeps_though_a_record_is_gone(cluster: RemoteCluster) -> None:
    """The supervisor had meant to look at the job again, and never will."""
    pool = cluster.pool(records=MemoryRecords())
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    removed(pool, handle)
    turns: list[int] = []
    real = pool._waiter._turn

    def counted() -> object:
        turns.append(1)
        return real()

    pool._waiter._turn = counted  # type: ignore[assignment]  # to count
    cluster.passes(15)
    cluster.passes(15)

    assert handle.done()
    assert len(turns) <= 4


def test_what_is_lost_can_be_cancelled_closed_and_forgotten(cluster: RemoteCluster) -> None:
    """None of these fails because the record is not there, nor leaves the others undone."""
    pool = cluster.pool(records=MemoryRecords())
    lost, other = (pool.submit(COMMAND, estimate=ONE, name=name) for name in ("lost", "other"))
    cluster.rest()
    removed(pool, lost)
    assert lost.cancel() is False
    cluster.rest()
    assert isinstance(lost.exception(PATIENCE_S), RecordLost)
    pool.forget("lost")
    assert pool.adopt("lost") is None
    with pytest.raises(NotFoundError):
        pool.forget("lost")
    again = pool.submit(COMMAND, estimate=ONE, name="lost")
    cluster.rest()
    removed(pool, again)
    pool.close(wait=False, cancel=True)
    assert other.record.outcome is not None or pool._records.load(other.id) is not None
    stored = pool._records.load(other.id)
    assert stored is not None
    assert stored.stop_asked_at is not None


def test_a_scheduler_that_does_not_answer_is_asked_again(
    cluster: RemoteCluster, caplog: pytest.LogCaptureFixture
) -> None:
    pool = cluster.pool(records=MemoryRecords())
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.env.finish(cluster.run(handle))
    removed(pool, handle)

    def silent(_name: str) -> object:
        message = "no answer"
        raise RefusedError(message)

    with pytest.MonkeyPatch.context() as fault:
        fault.setattr(cluster.backend, "find_all", silent)
        cluster.passes(15)
        cluster.passes(120)
        assert "did not answer" in caplog.text
        assert held(pool) == GiB
    cluster.passes()
    assert held(pool) == 0


def test_a_lost_record_that_comes_back_is_left_alone(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """The handle is over: its name is free, and the job is the next pool's."""
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(print, estimate=ONE, name="a")
    cluster.rest()
    path = tmp_path / "jobs" / f"{handle.id}.json"
    content = path.read_bytes()
    path.unlink()
    cluster.passes()
    assert isinstance(handle.exception(PATIENCE_S), RecordLost)
    path.write_bytes(content)
    cluster.passes()
    assert handle.cancel() is False
    assert pool.cancel(handle) is False
    pool.forget("a")
    stored = pool._records.load(handle.id)
    assert stored is not None
    assert stored.stop_asked_at is None
    assert (tmp_path / "calls" / f"{handle.id}.call").exists()
    again = pool.submit(COMMAND, estimate=ONE, name="a")
    assert pool.adopt("a") is again
    assert pool.cancel(handle) is False, "after it was forgotten, too"
    path.write_bytes(b"torn")
    pool.close(wait=False)
    path.write_bytes(content)
    adopted = cluster.pool(folder=tmp_path).adopt("a")
    assert adopted is not None
    assert adopted.id == handle.id


def test_a_lost_record_that_comes_back_torn_is_left_alone(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(print, estimate=ONE, name="a")
    cluster.rest()
    path = tmp_path / "jobs" / f"{handle.id}.json"
    path.unlink()
    cluster.passes()
    path.write_bytes(b"torn")
    pool.forget("a")

    assert pool.adopt("a") is None
    assert (tmp_path / "calls" / f"{handle.id}.call").exists()


@pytest.mark.parametrize("apart", [True, False])
def test_the_files_of_a_lost_function_go_when_it_is_forgotten(
    cluster: RemoteCluster, tmp_path: Path, *, apart: bool
) -> None:
    records = MemoryRecords() if apart else None
    pool = cluster.pool(folder=tmp_path, records=records)
    handle = pool.submit_function(print, estimate=ONE, name="a")
    cluster.rest()
    removed(pool, handle)
    cluster.passes()
    folder = tmp_path / ("calls-apart" if apart else "calls")
    assert [path.name for path in folder.iterdir()] == [f"{handle.id}.call"]
    pool.forget("a")

    assert list(folder.iterdir()) == []
