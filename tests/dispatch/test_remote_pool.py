"""
The queue's side: "a remote task is an ordinary governed task whose executor is a backend".

The quotations are dispatch.md's, section 5, and the issue's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from lardon import GiB, InvalidEstimate, ResourceEstimate, TaskRefused, TaskState, WouldDeadlock
from lardon.dispatch import (
    Action,
    Cause,
    InvalidError,
    NotFoundError,
    RecoveryPolicy,
    RecoveryRule,
    UnsupportedError,
)
from lardon.dispatch.answering import START_FAULTS
from lardon.dispatch.enums import Shape, State
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.memory import answer_lost
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.records import FileRecords, MemoryRecords
from lardon.dispatch.remote import PoolClosed, PoolTimings, RemoteFailed, RemoteHandle
from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster


def test_a_command_runs_and_its_outcome_is_the_result(cluster: RemoteCluster) -> None:
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE)
    assert handle.state is TaskState.PENDING
    cluster.rest()
    cluster.run(handle)
    assert handle.running()
    assert handle.state is TaskState.RUNNING
    cluster.finish(handle)

    outcome = handle.result(PATIENCE_S)
    assert outcome.succeeded
    assert outcome.exit_code == 0
    assert handle.outcome == outcome
    assert handle.state is TaskState.COMPLETED
    assert pool.statistics().done == 1


def test_the_contract_maps_to_cpus_memory_gpus_time_limit_and_nodes(
    cluster: RemoteCluster,
) -> None:
    """The page: "The contract maps to cpus, mem, gpus, time, nodes", each node's share."""
    pool = cluster.pool(cpus=16, gpus=4, ram_bytes=64 * GiB)
    specs: list[JobSpec] = []
    start = cluster.backend.start

    def seen(spec: JobSpec) -> Ref:
        specs.append(spec)
        return start(spec)

    cluster.backend.start = seen  # type: ignore[method-assign]  # to look at what is asked
    estimate = ResourceEstimate(ram_bytes=8 * GiB, cpus=4, gpu_bytes=10 * GiB, gpus=2)
    handle = pool.submit(COMMAND, estimate=estimate, nodes=2, time_limit_s=60, directory="/data")
    cluster.rest()

    (spec,) = specs
    assert (spec.nodes, spec.cpus, spec.gpus, spec.ram_bytes) == (2, 4, 2, 8 * GiB)
    assert (spec.time_limit_s, spec.directory) == (60, "/data")
    assert spec.environment["LARDON_CPUS"] == "4"
    assert spec.environment["OMP_NUM_THREADS"] == "4"
    assert spec.environment["LARDON_RAM_BYTES"] == str(8 * GiB)
    assert "CUDA_VISIBLE_DEVICES" not in spec.environment
    contract = handle.contract
    assert contract is not None
    assert (contract.cpus, contract.ram_bytes, len(contract.gpus)) == (8, 16 * GiB, 4)


def test_a_batch_that_does_not_fit_is_reduced_before_the_start(cluster: RemoteCluster) -> None:
    """The page: "WAIT / REDUCE_BATCH / REJECT are decided before Start"."""
    pool = cluster.pool(ram_bytes=4 * GiB)
    estimate = ResourceEstimate(ram_bytes_per_item=GiB, max_batch=10)
    handle = pool.submit(COMMAND, estimate=estimate)
    cluster.rest()

    assert handle.contract is not None
    assert handle.contract.batch_size == 4
    assert handle.record.spec.environment["LARDON_BATCH_SIZE"] == "4"
    assert handle.record.spec.ram_bytes == 4 * GiB


def test_what_can_never_fit_is_refused_and_nothing_is_started(cluster: RemoteCluster) -> None:
    pool = cluster.pool(ram_bytes=4 * GiB)
    handle = pool.submit(COMMAND, estimate=ResourceEstimate(ram_bytes=5 * GiB))
    behind = pool.submit(COMMAND, estimate=ONE)

    with pytest.raises(TaskRefused, match="5 GiB"):
        handle.result(PATIENCE_S)
    cluster.rest()
    assert not cluster.objects(handle)
    assert cluster.objects(behind)


BEYOND: Final = {
    "ram": (ResourceEstimate(ram_bytes=5 * GiB), "5 GiB of RAM, more than the 4 GiB"),
    "cpus": (ResourceEstimate(cpus=9, min_cpus=9), "9 CPUs, more than the 8"),
    "gpus": (ResourceEstimate(gpus=3), "3 GPUs, more than the 2"),
}


@pytest.mark.parametrize("what", BEYOND)
def test_a_refusal_speaks_of_the_limits_of_the_pool(cluster: RemoteCluster, what: str) -> None:
    """What this machine has, or the policy of a queue says, does not matter there."""
    pool = cluster.pool(ram_bytes=4 * GiB, gpus=2)
    estimate, says = BEYOND[what]
    handle = pool.submit(COMMAND, estimate=estimate)

    with pytest.raises(TaskRefused, match=says) as caught:
        handle.result(PATIENCE_S)
    explained = pool.governor.explain(estimate)
    for text in (str(caught.value), str(caught.value.reason), *explained.to_start):
        assert "the limits of this pool" in text
        assert "machine" not in text
        assert "policy" not in text
    assert handle.outcome is not None
    assert says in handle.outcome.reason


def test_a_pool_without_gpus_says_that_it_gives_none(cluster: RemoteCluster) -> None:
    handle = cluster.pool(gpus=0).submit(COMMAND, estimate=ResourceEstimate(gpus=1))

    with pytest.raises(TaskRefused, match="1 GPUs, more than the 0 that the limits of this pool"):
        handle.result(PATIENCE_S)


@pytest.mark.parametrize(
    "limits",
    [{"jobs": 1}, {"cpus": 1}, {"ram_bytes": GiB}, {"gpus": 1}],
    ids=lambda limits: next(iter(limits)),
)
def test_each_limit_makes_the_next_one_wait_until_the_first_is_over(
    cluster: RemoteCluster, limits: dict[str, int]
) -> None:
    pool = cluster.pool(**limits)
    estimate = ResourceEstimate(ram_bytes=GiB, gpus=limits.get("gpus", 0))
    first, second = (pool.submit(COMMAND, estimate=estimate) for _ in range(2))
    cluster.rest()

    assert len(cluster.objects(first)) == 1
    assert not cluster.objects(second)
    assert pool.statistics().waiting == 1
    cluster.finish(first)
    assert len(cluster.objects(second)) == 1
    assert pool.statistics().waiting == 0


def test_a_small_task_does_not_pass_a_large_one(cluster: RemoteCluster) -> None:
    pool = cluster.pool(ram_bytes=4 * GiB)
    first = pool.submit(COMMAND, estimate=ResourceEstimate(ram_bytes=3 * GiB))
    large = pool.submit(COMMAND, estimate=ResourceEstimate(ram_bytes=2 * GiB))
    small = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()

    assert cluster.objects(first)
    assert not cluster.objects(large)
    assert not cluster.objects(small)
    assert large.decision is not None
    assert "2 GiB" in str(large.decision.reason)


@pytest.mark.parametrize("shape", list(Shape))
def test_the_opening_order_is_the_queue_order(clock: ManualClock, shape: Shape) -> None:
    """The page: "FIFO: opening order = queue order; Start may run ahead (gated), Open follows"."""
    cluster = RemoteCluster(clock, shape)
    opened: list[str] = []
    inner = cluster.backend.open if shape is Shape.SLURM else cluster.backend.start

    def noting(what: Any) -> Any:
        opened.append(what.id if isinstance(what, JobSpec) else what.name.removeprefix("dj-"))
        return inner(what)

    setattr(cluster.backend, "open" if shape is Shape.SLURM else "start", noting)
    pool = cluster.pool()
    handles = [pool.submit(COMMAND, estimate=ONE) for _ in range(4)]
    cluster.rest()
    cluster.passes()

    assert opened == [handle.id for handle in handles]
    cluster.close()


@pytest.mark.parametrize("lands_after_s", [None, 0.0, 20.0])
def test_the_others_wait_for_an_opening_whose_answer_is_lost(
    cluster: RemoteCluster, lands_after_s: float | None
) -> None:
    """The page: tasks are "opened in the order in which they were submitted"."""
    inner = cluster.backend.open
    opened: list[str] = []

    def losing(ref: Ref) -> None:
        lost = not opened
        opened.append(ref.name.removeprefix("dj-"))
        with answer_lost(lands_after_s) if lost else contextlib.nullcontext():
            inner(ref)

    cluster.backend.open = losing  # type: ignore[method-assign]  # to lose the first answer
    pool = cluster.pool()
    first, *others = (pool.submit(COMMAND, estimate=ONE) for _ in range(3))
    cluster.rest()
    for _ in range(6):
        gated = [cluster.objects(handle)[0].gated for handle in (first, *others)]
        assert gated == sorted(gated)
        cluster.passes()

    assert not any(cluster.objects(handle)[0].gated for handle in (first, *others))
    assert list(dict.fromkeys(opened)) == [first.id, *(one.id for one in others)]


def test_an_object_that_an_administrator_holds_keeps_nobody_else_back(
    cluster: RemoteCluster,
) -> None:
    pool = cluster.pool()
    real = cluster.backend.start

    def held(spec: JobSpec) -> Ref:
        ref = real(spec)
        if not opened:
            cluster.env.admin_hold(ref)
        opened.append(ref)
        return ref

    opened: list[Ref] = []
    cluster.backend.start = held  # type: ignore[method-assign]  # the place for the hold
    first, second = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()

    assert cluster.env.truth(cluster.ref(first)).gated
    assert not cluster.env.truth(cluster.ref(second)).gated
    cluster.env.admin_release(cluster.ref(first))
    cluster.passes()
    assert not cluster.env.truth(cluster.ref(first)).gated


def test_a_typed_cause_lets_the_estimate_be_raised(cluster: RemoteCluster) -> None:
    """The page: "outcome.cause is Cause.OUT_OF_MEMORY so the estimate can be raised"."""
    pool = cluster.pool()
    estimate = ONE
    handle = pool.submit(COMMAND, estimate=estimate)
    cluster.rest()
    cluster.env.out_of_memory(cluster.run(handle))
    cluster.passes()

    with pytest.raises(RemoteFailed) as failed:
        handle.result(PATIENCE_S)
    assert failed.value.cause is Cause.OUT_OF_MEMORY
    assert failed.value.name == handle.name
    estimate = estimate.evolve(ram_bytes=2 * GiB)
    again = pool.submit(COMMAND, estimate=estimate)
    cluster.rest()
    assert again.record.spec.ram_bytes == 2 * GiB


def test_cancel_is_stop_and_read_back(cluster: RemoteCluster) -> None:
    """The page: "the local waiter returns only when the object is seen ended"."""
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    ref = cluster.run(handle)
    stop, cluster.backend.stop = cluster.backend.stop, lambda ref: None  # type: ignore[method-assign]

    assert handle.cancel()
    cluster.passes()
    assert not handle.done()
    assert not handle.cancelled()
    assert pool.statistics().reserved_ram_bytes == GiB
    cluster.backend.stop = stop  # type: ignore[method-assign]
    cluster.passes(60)
    cluster.passes()

    assert handle.cancelled()
    assert handle.state is TaskState.CANCELLED
    assert cluster.env.truth(ref).state is State.ENDED
    assert pool.statistics().reserved_ram_bytes == 0
    with pytest.raises(concurrent.futures.CancelledError):
        handle.result(PATIENCE_S)
    assert handle.cancel()


def test_a_task_that_waits_in_line_is_cancelled_without_a_start(cluster: RemoteCluster) -> None:
    pool = cluster.pool(jobs=1)
    first, second, third = (pool.submit(COMMAND, estimate=ONE) for _ in range(3))
    cluster.rest()
    assert second.cancel()
    cluster.rest()

    assert second.cancelled()
    assert not cluster.objects(second)
    cluster.finish(first)
    assert cluster.objects(third)


def test_a_job_that_completed_before_its_stop_has_its_result(cluster: RemoteCluster) -> None:
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.env.finish(cluster.run(handle), 0)
    assert handle.cancel()
    cluster.rest()

    assert handle.result(PATIENCE_S).succeeded
    assert not handle.cancel()


def test_the_reservation_is_not_given_back_on_a_time_out_of_ours(cluster: RemoteCluster) -> None:
    """The page: "Never on a time-out of ours: this is where the bound earns its place"."""
    pool = cluster.pool(jobs=1)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.run(handle)

    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    assert not pool.join(timeout=0)
    assert pool.statistics().reserved_ram_bytes == GiB
    assert len(cluster.backend.find_all(handle.id)) == 1


def test_a_lost_answer_keeps_the_reservation_until_the_start_has_settled(
    clock: ManualClock,
) -> None:
    """The page: "or an unknown submit past its bound with no object found"; it is started again."""
    cluster = RemoteCluster(clock, call_bound_s=100)
    pool = cluster.pool()
    real = cluster.backend.start

    def lost(spec: JobSpec) -> Ref:
        with answer_lost(None):
            return real(spec)

    cluster.backend.start = lost  # type: ignore[method-assign]  # the place for the fault
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.backend.start = real  # type: ignore[method-assign]
    for _ in range(8):
        cluster.passes()
        assert not cluster.objects(handle)
        assert pool.statistics().reserved_ram_bytes == GiB
        assert len(handle.record.calls) <= 1
    cluster.passes(30)
    assert len(cluster.objects(handle)) == 1
    cluster.finish(handle)
    assert handle.result(PATIENCE_S).succeeded
    assert pool.statistics().reserved_ram_bytes == 0
    cluster.close()


def raises() -> Any:
    raise AttributeError("'NoneType' object has no attribute 'partition'")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (raises, "has no attribute 'partition'"),
        (lambda: None, "start of the backend returned None, which is no Ref"),
        (lambda: "17", "start of the backend returned '17', which is no Ref"),
    ],
)
@pytest.mark.parametrize("shape", list(Shape))
def test_a_broken_backend_is_not_retried_in_silence_for_ever(
    clock: ManualClock, shape: Shape, answer: Callable[[], Any], named: str
) -> None:
    """A bug in an adapter: the task fails, names it, and gives its reservation back once."""
    cluster = RemoteCluster(clock, shape)
    pool = cluster.pool(jobs=1)
    asked: list[str] = []
    real = cluster.backend.start

    def broken(spec: JobSpec) -> Ref:
        asked.append(spec.id)
        assert len(asked) <= START_FAULTS, "it is asked in a storm"
        told: Ref = answer()
        return told

    cluster.backend.start = broken  # type: ignore[method-assign]  # the place for the fault
    first, second = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    cluster.rest()
    while len(asked) < START_FAULTS:
        cluster.passes()
        assert not first.done()
        assert pool.statistics().reserved_ram_bytes == GiB
    cluster.backend.start = real  # type: ignore[method-assign]
    for _ in range(5):
        cluster.passes()

    with pytest.raises(RemoteFailed, match=named) as caught:
        first.result(PATIENCE_S)
    assert caught.value.cause is Cause.UNKNOWN
    assert asked == [first.id] * START_FAULTS
    assert not cluster.objects(first)
    cluster.finish(second)
    assert second.result(PATIENCE_S).succeeded
    statistics = pool.governor.statistics()
    assert (statistics.booked, statistics.released, statistics.released_again) == (2, 2, 0)
    cluster.close()


def test_a_cancelled_start_that_may_still_come_keeps_the_reservation(clock: ManualClock) -> None:
    cluster = RemoteCluster(clock, call_bound_s=100)
    pool = cluster.pool()
    real = cluster.backend.start

    def late(spec: JobSpec) -> Ref:
        with answer_lost(90):
            return real(spec)

    cluster.backend.start = late  # type: ignore[method-assign]  # the place for the fault
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    handle.cancel()
    for _ in range(5):
        cluster.passes()
        assert not handle.done()
        assert pool.statistics().reserved_ram_bytes == GiB
    for _ in range(5):
        cluster.passes()
    assert handle.cancelled()
    assert [one.state for one in cluster.objects(handle)] == [State.ENDED]
    cluster.close()


def test_an_object_that_vanished_keeps_the_reservation_until_it_has_certainly_ceased(
    clock: ManualClock,
) -> None:
    """The page: "Release … when an Observation is final: ended, or absent and certainly ceased"."""
    cluster = RemoteCluster(clock, Shape.KUBEFLOW)
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    ref = cluster.run(handle)
    node = cluster.env.truth(ref).nodes[0]
    cluster.env.lose_node(ref)
    cluster.env.cancel(ref)
    cluster.passes(600)

    assert not cluster.objects(handle)
    assert not handle.done()
    assert pool.statistics().reserved_ram_bytes == GiB
    cluster.env.recover_node(node)
    cluster.passes()
    assert handle.done()
    assert pool.statistics().reserved_ram_bytes == 0
    cluster.close()


def test_each_reservation_is_released_exactly_once(cluster: RemoteCluster) -> None:
    pool = cluster.pool(jobs=2)
    handles = [pool.submit(COMMAND, estimate=ONE) for _ in range(6)]
    cluster.rest()
    for place, handle in enumerate(handles):
        if place % 3 == 1:
            handle.cancel()
        else:
            cluster.finish(handle, exit_code=place % 2)
        cluster.passes(20)
    statistics = pool.governor.statistics()

    assert all(handle.done() for handle in handles)
    assert statistics.active == 0
    assert statistics.released == statistics.booked == 6
    assert statistics.released_again == 0


def test_a_policy_recovers_under_the_same_reservation(cluster: RemoteCluster) -> None:
    rule = RecoveryRule(Cause.PREEMPTED, Action.RESTART, delay_s=0)
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE, policy=RecoveryPolicy([rule]))
    cluster.rest()
    cluster.env.preempt(cluster.run(handle))
    # The next start waits until no duplicate of the first can come any more.
    cluster.passes(60)
    assert pool.governor.statistics().booked == 1
    cluster.finish(handle)

    outcome = handle.result(PATIENCE_S)
    assert (outcome.executions, outcome.submissions) == (2, 2)
    assert pool.governor.statistics().released == 1


def test_a_policy_that_asks_for_more_memory_is_refused(cluster: RemoteCluster) -> None:
    rule = RecoveryRule(Cause.OUT_OF_MEMORY, Action.RESTART, ram_factor=2)
    with pytest.raises(InvalidError, match="raise the estimate and submit again"):
        cluster.pool().submit(COMMAND, estimate=ONE, policy=RecoveryPolicy([rule]))


def test_a_sequence_break_is_refused_clearly(cluster: RemoteCluster) -> None:
    """The page: "sequence_break has no remote meaning in v1: refuse it clearly"."""
    handle = cluster.pool().submit(COMMAND, estimate=ONE)

    with pytest.raises(UnsupportedError, match="no sequence break") as caught:
        handle.sequence_break()
    assert caught.value.operation == "sequence_break"


def test_users_of_concurrent_futures_find_what_they_expect(cluster: RemoteCluster) -> None:
    pool = cluster.pool()
    handles = [pool.submit(COMMAND, estimate=ONE) for _ in range(3)]
    told: list[RemoteHandle] = []
    for handle in handles:
        handle.add_done_callback(told.append)  # type: ignore[arg-type]  # it is a future
    cluster.rest()
    cluster.finish(handles[1])
    done, waiting = concurrent.futures.wait(
        handles, PATIENCE_S, return_when=concurrent.futures.FIRST_COMPLETED
    )
    assert done == {handles[1]}
    assert len(waiting) == 2
    cluster.finish(handles[0], exit_code=3)
    handles[2].cancel()

    ended = list(concurrent.futures.as_completed(handles, PATIENCE_S))
    assert set(ended) == set(handles)
    error = handles[0].exception(PATIENCE_S)
    assert isinstance(error, RemoteFailed)
    assert error.outcome.exit_code == 3
    assert told[0] is handles[1]
    assert set(told) == set(handles)


def test_a_handle_can_be_awaited(cluster: RemoteCluster) -> None:
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.finish(handle)

    async def waits() -> object:
        return await asyncio.wrap_future(handle)

    assert asyncio.run(waits()) == handle.outcome


def test_the_pools_own_thread_does_not_wait_for_a_task(cluster: RemoteCluster) -> None:
    pool = cluster.pool()
    first, second = (pool.submit(COMMAND, estimate=ONE) for _ in range(2))
    caught: list[BaseException] = []

    def callback(_: object) -> None:
        try:
            second.result()
        except WouldDeadlock as error:
            caught.append(error)

    first.add_done_callback(callback)
    cluster.rest()
    cluster.finish(first)
    assert len(caught) == 1


def test_one_thread_waits_for_all_jobs(cluster: RemoteCluster) -> None:
    before = threading.active_count()
    pool = cluster.pool(jobs=50, cpus=50, ram_bytes=50 * GiB)
    for _ in range(20):
        pool.submit(COMMAND, estimate=ONE)
    cluster.rest()

    assert threading.active_count() == before + 1


def test_the_scheduler_is_asked_once_a_poll_for_all_jobs(cluster: RemoteCluster) -> None:
    """The page: "Polling: one call for all jobs"."""
    pool = cluster.pool(jobs=10, cpus=10)
    handles = [pool.submit(COMMAND, estimate=ONE) for _ in range(5)]
    cluster.rest()
    for handle in handles:
        cluster.env.run(cluster.ref(handle))
    for _ in range(10):
        cluster.passes()
    asked: list[int] = []
    real = cluster.backend.observe_many

    def counting(refs: Any) -> Any:
        found = list(refs)
        asked.append(len(found))
        return real(found)

    cluster.backend.observe_many = counting  # type: ignore[method-assign]  # to count
    cluster.backend.find_all = lambda name: pytest.fail(f"asked for {name}")  # type: ignore[method-assign]
    cluster.passes()
    del cluster.backend.find_all

    assert asked == [5]


def test_leaving_the_block_waits_and_an_exception_cancels(cluster: RemoteCluster) -> None:
    with pytest.raises(KeyError), cluster.pool() as pool:
        handle = pool.submit(COMMAND, estimate=ONE)
        raise KeyError
    assert handle.cancelled()
    with pytest.raises(PoolClosed):
        pool.submit(COMMAND, estimate=ONE)
    # Nothing was done for it, or its object was stopped.
    assert all(one.ended for one in cluster.objects(handle))


def test_a_pool_that_is_closed_without_waiting_lets_its_jobs_go_on(
    cluster: RemoteCluster,
) -> None:
    records = MemoryRecords()
    pool = cluster.pool(records=records)
    handle = pool.submit(COMMAND, estimate=ONE, name="run 7")
    cluster.rest()
    ref = cluster.run(handle)
    pool.close(wait=False)

    with pytest.raises(PoolClosed, match="run 7"):
        handle.result(PATIENCE_S)
    assert cluster.env.truth(ref).state is State.RUNNING
    again = cluster.pool(records=records)
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


def test_a_result_that_is_to_appear_keeps_no_other_task_back(
    cluster: RemoteCluster, tmp_path: Any
) -> None:
    pool = cluster.pool(jobs=1, folder=tmp_path)
    first = pool.submit_function(print, estimate=ONE)
    second = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    cluster.finish(first)

    assert not first.done()
    assert cluster.objects(second)


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


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"jobs": 0}, "jobs"),
        ({"cpus": 0}, "cpus"),
        ({"gpus": -1}, "gpus"),
        ({"ram_bytes": 1.5}, "ram_bytes"),
    ],
)
def test_a_wrong_limit_is_refused_by_name(
    cluster: RemoteCluster, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        cluster.pool(**arguments)

    assert caught.value.path == field


def test_a_wrong_task_is_refused_by_name(cluster: RemoteCluster) -> None:
    pool = cluster.pool()

    with pytest.raises(InvalidEstimate):
        pool.submit(COMMAND, estimate=3)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidError, match="cpus must be one of the options nodes"):
        pool.submit(COMMAND, estimate=ONE, cpus=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidError, match="nodes"):
        pool.submit(COMMAND, estimate=ONE, nodes=0)
    with pytest.raises(InvalidError, match="command"):
        pool.submit([], estimate=ONE)
    with pytest.raises(InvalidError, match="policy must be a RecoveryPolicy"):
        pool.submit(COMMAND, estimate=ONE, policy="restart")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="folder"):
        pool.submit_function(print, estimate=ONE)
    with pytest.raises(NotFoundError):
        pool.forget("nobody")
    handle = pool.submit(COMMAND, estimate=ONE, name="runs")
    with pytest.raises(InvalidError, match="over"):
        pool.forget(handle.name)


def test_the_records_of_a_folder_are_files(cluster: RemoteCluster, tmp_path: Any) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()

    stored = FileRecords(tmp_path / "jobs").load(handle.id)
    assert stored is not None
    assert stored.spec.command == tuple(COMMAND)
