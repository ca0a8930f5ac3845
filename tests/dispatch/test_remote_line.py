"""The line of a remote pool: who starts and opens when, and until when each reservation is kept."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from lardon import GiB, ResourceEstimate, TaskState
from lardon.dispatch import Action, Cause, RecoveryPolicy, RecoveryRule
from lardon.dispatch.answering import START_FAULTS
from lardon.dispatch.enums import Shape, State
from lardon.dispatch.memory import answer_lost
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.remote import RemoteFailed
from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import COMMAND, ONE, PATIENCE_S, RemoteCluster

# Who may start, and who opens


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


# Until when a reservation is kept


def test_cancel_is_stop_and_read_back(cluster: RemoteCluster) -> None:
    """The page: "the local waiter returns only when the object is seen ended"."""
    pool = cluster.pool()
    handle = pool.submit(COMMAND, estimate=ONE)
    cluster.rest()
    ref = cluster.run(handle)
    stop = cluster.backend.stop
    cluster.backend.stop = lambda ref: None  # type: ignore[method-assign]  # a stop that is lost

    assert handle.cancel()
    cluster.passes()
    assert not handle.done()
    assert not handle.cancelled()
    assert pool.statistics().reserved_ram_bytes == GiB
    cluster.backend.stop = stop  # type: ignore[method-assign]  # as it was
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
    cluster.backend.start = real  # type: ignore[method-assign]  # as it was
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
    cluster.backend.start = real  # type: ignore[method-assign]  # as it was
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
