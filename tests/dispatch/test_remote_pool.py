"""
The queue's side: "a remote task is an ordinary governed task whose executor is a backend".

The quotations are dispatch.md's, section 5, and the issue's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
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
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.remote import RemoteFailed, RemoteHandle
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
