"""The pool: each task on its worker, one governor, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

import lardon.locality.executions
import lardon.queue.worker
from lardon import (
    GiB,
    Governor,
    InvalidEstimate,
    Policy,
    QueueClosed,
    ResourceEstimate,
    TaskCancelled,
    TaskContext,
    TaskNotFinished,
    TaskRefused,
    TaskState,
    WorkerDied,
    WouldDeadlock,
)
from lardon.locality import (
    InvalidOption,
    PoolTask,
    UnknownWorker,
    WorkerPool,
    WorkerSpec,
    current_worker,
)
from lardon.testing import ScriptedProbe
from tests.locality.pools import ANY, BIG, PATIENCE_S, Gate, Pools, machine, where

# A task, its worker and its end ----------------------------------------------------------


def test_a_task_runs_on_a_worker_and_its_result_comes_back(pools: Pools) -> None:
    pool = pools.make("a", "b")
    word = contextvars.ContextVar("word", default="none")
    word.set("the submitter's")

    def work(context: TaskContext, one: int, *, other: int) -> tuple[Any, ...]:
        return context.contract.batch_size, one, other, word.get(), where(context)

    task = pool.submit(work, 1, other=2, estimate=ANY, name="work")

    assert task.result(PATIENCE_S) == (1, 1, 2, "the submitter's", task.worker)
    assert (task.state, task.done(), task.name) == (TaskState.COMPLETED, True, "work")
    assert task.contract is not None
    assert task.reason is not None
    assert task.wait()
    assert not task.cancel()
    assert current_worker() is None


def test_a_task_goes_to_the_worker_that_holds_what_it_needs(pools: Pools) -> None:
    pool = pools.make("a", "b", "c")
    pool.add_artifacts("c", ["model"])

    tasks = [pool.submit(where, estimate=ANY, deps=["model"]) for _ in range(5)]

    assert [task.result(PATIENCE_S) for task in tasks] == ["c"] * 5
    assert pool.statistics().locality.picks_deps == 5


def test_a_worker_holds_what_its_finished_tasks_used_and_made(pools: Pools) -> None:
    pool = pools.make("a", "b")
    first = pool.submit(where, estimate=ANY, key="first", deps=["model"]).result(PATIENCE_S)

    assert pool.scheduler.locate_artifact("model") == first
    assert pool.scheduler.locate_artifact("first") == first
    later = [
        pool.submit(where, estimate=ANY, deps=["model"]),
        pool.submit(where, estimate=ANY, deps=["first"]),
        pool.submit(where, estimate=ANY, key="first"),
    ]
    assert [task.result(PATIENCE_S) for task in later] == [first] * 3
    views = {view.name: set(view.artifacts) for view in pool.workers()}
    assert views.pop(first) == {"model", "first"}
    assert list(views.values()) == [set()]


def test_a_task_without_a_key_leaves_no_artifact_of_its_own(pools: Pools) -> None:
    pool = pools.make("a")
    for _ in range(3):
        pool.submit(where, estimate=ANY).result(PATIENCE_S)

    assert pool.statistics().locality.artifacts == 0


def test_a_failed_task_leaves_nothing(pools: Pools) -> None:
    pool = pools.make("a")

    def fail(_context: TaskContext) -> None:
        raise ZeroDivisionError

    task = pool.submit(fail, estimate=ANY, key="k", deps=["model"])

    with pytest.raises(ZeroDivisionError):
        task.result(PATIENCE_S)
    assert task.state is TaskState.FAILED
    assert pool.scheduler.locate_artifact("model") is None
    assert pool.scheduler.locate_artifact("k") is None
    assert pool.statistics().failed == 1


def test_what_stays_on_a_worker_is_evicted_with_its_artifact(pools: Pools) -> None:
    pool = pools.make("a", max_artifacts=2)

    def use(_context: TaskContext, model: str) -> list[str]:
        worker = current_worker()
        assert worker is not None
        worker.state.setdefault(model, object())
        return sorted(map(str, worker.state))

    seen = [
        pool.submit(use, model, estimate=ANY, deps=[model]).result(PATIENCE_S)
        for model in ("x", "y", "x", "z", "x")
    ]

    assert seen == [["x"], ["x", "y"], ["x", "y"], ["x", "y", "z"], ["x", "z"]]
    assert pool.scheduler.locate_artifact("y") is None
    assert set(pool.workers()[0].artifacts) == {"x", "z"}


def test_a_callback_may_say_what_its_worker_holds(pools: Pools) -> None:
    pool = pools.make("a", "b")

    def load(_context: TaskContext) -> str:
        worker = current_worker()
        assert worker is not None
        assert worker.device is None
        worker.add_artifacts(["m1", "m2"])
        worker.add_artifacts(["m1"])
        worker.remove_artifacts(["m2", "m3"])
        worker.remove_artifacts(["m2"])
        return worker.name

    name = pool.submit(load, estimate=ANY).result(PATIENCE_S)

    assert pool.scheduler.locate_artifact("m1") == name
    assert pool.scheduler.locate_artifact("m2") is None
    pool.remove_artifacts(name, ["m1"])
    assert pool.scheduler.locate_artifact("m1") is None


def test_more_artifacts_at_once_than_a_worker_keeps(pools: Pools) -> None:
    """The first are dropped before anybody is told of them."""
    pool = pools.make("a", max_artifacts=2)

    pool.submit(where, estimate=ANY, key="k", deps=["m1", "m2", "m3"]).result(PATIENCE_S)

    assert pool.workers()[0].artifacts == ("m3", "k")
    pool.submit(where, estimate=ANY, key="k", deps=["m1"]).result(PATIENCE_S)
    assert set(pool.workers()[0].artifacts) == {"m1", "k"}


def test_the_order_in_one_worker_is_first_in_first_out(pools: Pools) -> None:
    pool = pools.make("a")
    gate, order = pools.gate(), list[int]()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    tasks = [
        pool.submit(lambda _, number=number: order.append(number), estimate=ANY)
        for number in range(5)
    ]
    gate.opened.set()
    assert all(task.wait(PATIENCE_S) for task in tasks)

    assert order == list(range(5))


# The governor ----------------------------------------------------------------------------


def test_a_task_that_does_not_fit_is_passed_over_until_it_fits(pools: Pools) -> None:
    pool = pools.make("a", "b")
    gate = pools.gate()
    first = pool.submit(gate, estimate=BIG)
    gate.wait_entered()

    second = pool.submit(where, estimate=BIG)
    small = pool.submit(where, estimate=ANY)

    assert small.result(PATIENCE_S) in {"a", "b"}
    assert pools.asleep(pool, 1)
    assert (second.state, second.worker, second.reason) == (TaskState.PENDING, None, None)
    gate.opened.set()
    assert second.result(PATIENCE_S)
    assert first.result(PATIENCE_S)


def test_a_release_during_the_question_is_not_lost(pools: Pools) -> None:
    """It lands between the governor's WAIT and the note that somebody waits."""
    pool = pools.make("a")
    governor = pool.governor
    assert isinstance(governor, Governor)
    _, held = governor.reserve(BIG)
    assert held is not None
    decide = governor.decide

    def decide_and_release(*args: Any, **options: Any) -> Any:
        decision = decide(*args, **options)
        held.release()
        return decision

    governor.decide = decide_and_release  # type: ignore[method-assign]  # the place of the race
    assert pool.submit(where, estimate=BIG).result(PATIENCE_S) == "a"


def test_a_task_that_waits_for_a_slot_needs_no_timer(pools: Pools) -> None:
    """Only a release can free a slot; and a question is asked once for tasks of one kind."""
    pool = pools.make("a", "b", policy=Policy.unlimited(recheck_s=0.5))
    disk = ResourceEstimate(io_slots=1)
    gate = pools.gate()
    pool.submit(gate, estimate=disk)
    gate.wait_entered()
    calls = pools.probe.calls
    tasks = [pool.submit(where, estimate=disk) for _ in range(3)]
    assert pools.asleep(pool, 1)
    assert pools.probe.calls == calls + 1
    (sleeper,) = pool.scheduler._wakeups.idle
    assert sleeper.deadline is None

    gate.opened.set()

    assert all(task.wait(PATIENCE_S) for task in tasks)


def test_a_done_callback_runs_without_the_pools_lock(pools: Pools) -> None:
    """Also where a cancel ends the task."""
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    seen: list[bool] = []

    def other_thread_may(_task: PoolTask) -> None:
        thread = threading.Thread(target=lambda: seen.append(bool(pool.workers())))
        thread.start()
        thread.join(PATIENCE_S)

    for key in (None, "shared", "shared"):
        task = pool.submit(where, estimate=ANY, key=key)
        task.add_done_callback(other_thread_may)
    assert task.cancel()
    gate.opened.set()
    assert pool.join(PATIENCE_S)

    assert seen == [True] * 3


def test_memory_of_another_process_is_looked_at_again(pools: Pools) -> None:
    """By the injected clock, every `recheck_s`, and only while something waits for it."""
    pools.probe.set(machine(ram_available_bytes=GiB))
    pool = pools.make("a", policy=Policy.unlimited(recheck_s=0.5))
    task = pool.submit(where, estimate=BIG)
    assert pools.asleep(pool)
    pools.probe.set(machine())
    assert not task.done()

    pools.clock.advance(0.5)

    assert task.result(PATIENCE_S) == "a"


def test_it_stays_where_it_is_until_there_is_room(pools: Pools) -> None:
    pools.probe.set(machine(ram_available_bytes=GiB))
    pool = pools.make("a", policy=Policy.unlimited(recheck_s=0.5))
    task = pool.submit(where, estimate=BIG)
    for _ in range(3):
        assert pools.asleep(pool)
        pools.clock.advance(0.5)
    assert pools.asleep(pool)
    assert not task.done()

    pools.probe.set(machine())
    pool.resources_changed()

    assert task.result(PATIENCE_S) == "a"


def test_what_can_never_run_is_refused(pools: Pools) -> None:
    pool = pools.make("a", "b")

    task = pool.submit(where, estimate=ResourceEstimate(ram_bytes=100 * GiB))

    with pytest.raises(TaskRefused, match="100 GiB"):
        task.result(PATIENCE_S)


def test_workers_are_pinned_to_their_gpus(pools: Pools) -> None:
    """One worker for each card; a task goes where its memory is."""
    pools.probe.set(machine(gpus=2))
    pool = pools.make()
    assert [(view.name, view.device) for view in pool.workers()] == [
        ("gpu-0", "GPU-0"),
        ("gpu-1", "GPU-1"),
    ]

    def device(context: TaskContext) -> tuple[Any, ...]:
        worker = current_worker()
        return context.contract.gpus, worker and worker.device

    small, large = ResourceEstimate(gpu_bytes=GiB), ResourceEstimate(gpu_bytes=15 * GiB)
    pool.add_artifacts("gpu-0", ["model"])
    task = pool.submit(device, estimate=small, deps=["model"])
    assert task.result(PATIENCE_S) == (("GPU-0",), "GPU-0")
    # It holds the model, and the card is too small: the other one takes it when it may.
    task = pool.submit(device, estimate=large, deps=["model"])
    assert pools.asleep(pool)
    pools.clock.advance(1)
    assert task.result(PATIENCE_S) == (("GPU-1",), "GPU-1")


def test_without_a_gpu_there_is_a_worker_for_each_cpu(pools: Pools) -> None:
    pools.probe.set(machine(cpus=3))

    assert [view.name for view in pools.make().workers()] == ["worker-0", "worker-1", "worker-2"]


# Keys that are shared --------------------------------------------------------------------


def test_submissions_of_one_key_share_one_job(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    first = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    second = pool.submit(gate, estimate=ANY, key="k")
    assert second is not first
    assert second.future.running()

    gate.opened.set()

    assert first.result(PATIENCE_S) == second.result(PATIENCE_S) == "a"
    seen = pool.statistics()
    assert (seen.submitted, seen.completed, seen.locality.scheduled) == (2, 2, 1)
    assert pool.submit(where, estimate=ANY, key="k").result(PATIENCE_S) == "a"


def test_who_cancels_leaves_the_others_their_result(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    owner = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    waiter = pool.submit(gate, estimate=ANY, key="k")

    assert owner.cancel()
    assert not owner.cancel()
    assert owner.state is TaskState.CANCELLED
    gate.opened.set()

    assert waiter.result(PATIENCE_S) == "a"
    with pytest.raises(TaskCancelled):
        owner.result()


def test_who_comes_after_the_last_has_cancelled_gets_a_run_of_its_own(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    owner = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    assert owner.cancel()
    late = pool.submit(where, estimate=ANY, key="k")
    later = pool.submit(where, estimate=ANY, key="k")

    gate.opened.set()

    assert late.result(PATIENCE_S) == later.result(PATIENCE_S) == "a"
    with pytest.raises(TaskCancelled):
        owner.result(PATIENCE_S)
    seen = pool.statistics()
    assert (seen.completed, seen.cancelled, seen.unfinished) == (2, 1, 0)


def test_the_first_of_two_may_cancel_after_the_second_has_asked_for_the_end(
    pools: Pools,
) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    first = pool.submit(gate, estimate=ANY, key="k")
    gate.wait_entered()
    assert first.cancel()
    second = pool.submit(gate, estimate=ANY, key="k")
    assert second.cancel(), "it is one of two, and ends at once"
    assert second.state is TaskState.CANCELLED
    gate.opened.set()
    with pytest.raises(TaskCancelled):
        first.result(PATIENCE_S)
    assert pool.statistics().cancelled == 2


# Cancelling ------------------------------------------------------------------------------


def test_a_waiting_task_is_cancelled_at_once(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    task = pool.submit(where, estimate=ANY)
    other = pool.submit(where, estimate=ANY)

    assert task.cancel()
    assert other.future.cancel()

    assert task.state is other.state is TaskState.CANCELLED
    with pytest.raises(TaskCancelled, match="#2"):
        task.result()
    with pytest.raises(TaskCancelled):
        other.exception()
    assert pool.statistics().locality.waiting == 0


def test_a_running_task_sees_it(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert task.state is TaskState.RUNNING
    assert not task.future.cancel(), "it runs"
    assert task.cancel()
    assert not task.cancel()
    assert gate.context is not None
    assert gate.context.cancel_requested
    gate.opened.set()

    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)
    assert task.state is TaskState.CANCELLED


def test_a_cancel_between_the_claim_and_the_queue(pools: Pools) -> None:
    pool = pools.make("a")
    ran = []
    pick = pool.scheduler.pick_job

    def cancelled_at_once(*args: Any, **options: Any) -> Any:
        handle = pick(*args, **options)
        if handle is not None:
            assert handle.job.payload.views[0].cancel()
        return handle

    pool.scheduler.pick_job = cancelled_at_once  # type: ignore[method-assign]  # the race
    pool.pause_worker("a")
    pool.resume_worker("a")
    # The call that slept was the old one; from now on it is the new one.
    task = pool.submit(lambda _: ran.append(1), estimate=ANY)
    assert task.wait(PATIENCE_S) or True
    late = pool.submit(lambda _: ran.append(2), estimate=ANY)

    assert late.wait(PATIENCE_S)
    assert late.state is TaskState.CANCELLED
    assert 2 not in ran


# Workers that are paused -----------------------------------------------------------------


def test_a_paused_worker_takes_nothing_and_draws_nothing(pools: Pools) -> None:
    pool = pools.make("a", "b")
    pool.add_artifacts("a", ["model"])
    assert pool.pause_worker("a")
    assert not pool.pause_worker("a")
    pool.add_artifacts("a", ["more"])

    assert pool.submit(where, estimate=ANY, deps=["model"]).result(PATIENCE_S) == "b"
    assert pool.workers()[0].paused

    assert pool.resume_worker("a")
    assert not pool.resume_worker("a")
    pool.remove_artifacts("b", ["model"])
    assert pool.submit(where, estimate=ANY, deps=["model"]).result(PATIENCE_S) == "a"
    assert pool.submit(where, estimate=ANY, deps=["more"]).result(PATIENCE_S) == "a"


def test_what_runs_on_a_paused_worker_goes_on(pools: Pools) -> None:
    pool = pools.make("a", "b")
    pool.add_artifacts("a", ["model"])
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY, key="k", deps=["model"])
    gate.wait_entered()

    pool.pause_worker("a")
    gate.opened.set()

    assert task.result(PATIENCE_S) == "a"
    assert pool.scheduler.locate_artifact("k") is None
    pool.resume_worker("a")
    assert pool.scheduler.locate_artifact("k") == "a"


def test_what_has_not_started_goes_back(pools: Pools) -> None:
    """It fitted when it was claimed; somebody else was faster; the worker is paused."""
    pool = pools.make("a", "b", policy=Policy.unlimited(recheck_s=None, io_slots=1))
    disk = ResourceEstimate(io_slots=1)
    pool.pause_worker("b")
    slot = pool._slots["a"]
    held: list[Any] = []
    place = slot._place

    def somebody_is_faster(execution: Any) -> Any:
        held.append(pool.governor.reserve(disk)[1])
        return place(execution)

    slot._place = somebody_is_faster  # type: ignore[method-assign]  # the race
    task = pool.submit(where, estimate=disk)
    assert pools.asleep(pool, 0)
    wait_until_waiting(pool, "a")

    pool.pause_worker("a")
    pool.resume_worker("b")
    held[0].release()

    assert task.result(PATIENCE_S) == "b"
    assert pool.statistics().locality.offered_again == 0


def test_a_task_that_waits_in_the_queue_of_its_worker_is_cancelled(pools: Pools) -> None:
    pool = pools.make("a", policy=Policy.unlimited(recheck_s=None, io_slots=1))
    disk = ResourceEstimate(io_slots=1)
    slot = pool._slots["a"]
    place = slot._place

    def somebody_is_faster(execution: Any) -> Any:
        pool.governor.reserve(disk)
        return place(execution)

    slot._place = somebody_is_faster  # type: ignore[method-assign]  # the race
    task = pool.submit(where, estimate=disk)
    assert pools.asleep(pool, 0)
    wait_until_waiting(pool, "a")
    assert task.reason is not None

    assert task.cancel()

    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)


def wait_until_waiting(pool: WorkerPool, worker: str) -> None:
    """Wait until the head of the worker's queue was told to wait."""
    slot = pool._slots[worker]
    told = threading.Event()
    stop = slot.queue.subscribe(lambda event: told.set())
    while True:
        assert slot.queue.wait_parked(PATIENCE_S)
        tasks = slot.queue.tasks()
        if tasks and tasks[0].reason is not None:
            break
    stop()


def test_a_worker_that_is_paused_as_it_claims_gives_the_job_back(pools: Pools) -> None:
    pool = pools.make("a", "b")
    pool.pause_worker("b")
    slot = pool._slots["a"]
    place = slot._place

    def paused_now(execution: Any) -> Any:
        pool.pause_worker("a")
        pool.resume_worker("b")
        return place(execution)

    slot._place = paused_now  # type: ignore[method-assign]  # the race

    assert pool.submit(where, estimate=ANY).result(PATIENCE_S) == "b"


# Workers that die ------------------------------------------------------------------------


def test_a_worker_whose_thread_dies_frees_its_job(
    pools: Pools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queue's worker dies of an internal error; the other one does the job."""
    pool = pools.make("a", "b")
    pool.add_artifacts("a", ["model"])
    kill_queue(monkeypatch)

    task = pool.submit(where, estimate=ANY, deps=["model"])

    assert task.result(PATIENCE_S) == "b"
    (gone, _) = pool.workers()
    assert "ArithmeticError" in str(gone.gone)
    assert pool.statistics().workers == 1
    with pytest.raises(UnknownWorker, match="any more: an internal error"):
        pool.pause_worker("a")


def test_when_the_last_worker_dies_everything_ends(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pools.make("a")
    kill_queue(monkeypatch)
    tasks = [pool.submit(where, estimate=ANY) for _ in range(3)]

    for task in tasks:
        with pytest.raises(WorkerDied, match="no worker left"):
            task.result(PATIENCE_S)
    with pytest.raises(WorkerDied, match="ArithmeticError"):
        pool.submit(where, estimate=ANY)
    assert pool.join(PATIENCE_S)


def kill_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the queue of worker "a" die of the next task."""
    admit = lardon.queue.worker._admit

    def broken(life: Any, *rest: Any) -> Any:
        if life.name == "pool-a":
            raise ArithmeticError
        return admit(life, *rest)

    monkeypatch.setattr(lardon.queue.worker, "_admit", broken)


# Ending ----------------------------------------------------------------------------------


def test_leaving_the_block_waits_for_the_tasks(pools: Pools) -> None:
    done: list[int] = []
    with pools.make("a", "b") as pool:
        for number in range(20):
            pool.submit(lambda _, number=number: done.append(number), estimate=ANY)

    assert sorted(done) == list(range(20))
    with pytest.raises(QueueClosed, match="is closed"):
        pool.submit(where, estimate=ANY)
    with pool:
        pass


def test_leaving_it_by_an_error_cancels(pools: Pools) -> None:
    gate = pools.gate()
    tasks: list[PoolTask] = []
    with pytest.raises(ZeroDivisionError), pools.make("a") as pool:
        tasks.append(pool.submit(waits_for_cancel, gate, estimate=ANY))
        gate.wait_entered()
        tasks += [pool.submit(where, estimate=ANY) for _ in range(3)]
        raise ZeroDivisionError

    assert [task.state for task in tasks] == [TaskState.CANCELLED] * 4


def waits_for_cancel(context: TaskContext, gate: Gate) -> None:
    gate.entered.set()
    while context.checkpoint():
        threading.Event().wait(0.001)


def test_close_has_a_timeout(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    gate.wait_entered()

    assert not pool.close(0)
    gate.opened.set()
    assert pool.close(PATIENCE_S)

    assert task.state is TaskState.CANCELLED


def test_closing_from_a_callback_requests_it(pools: Pools) -> None:
    pool = pools.make("a")
    task = pool.submit(lambda _: pool.close(), estimate=ANY)

    assert task.wait(PATIENCE_S)
    assert task.state is TaskState.CANCELLED
    assert pool.close(PATIENCE_S)


def test_a_callback_must_not_wait_for_its_own_pool(pools: Pools) -> None:
    pool = pools.make("a", "b")
    other = pool.submit(where, estimate=ANY)
    assert other.wait(PATIENCE_S)
    waiting = ResourceEstimate(ram_bytes=9 * GiB)
    _, held = pool.governor.reserve(waiting)
    assert held is not None
    later = pool.submit(where, estimate=waiting)

    def wait_inside(_context: TaskContext) -> list[Any]:
        assert not later.wait(0)
        assert not pool.join(0)
        errors: list[Any] = [other.result()]
        for call in (later.wait, later.result, pool.join):
            try:
                call()
            except WouldDeadlock as error:
                errors.append(type(error))
        return errors

    found = pool.submit(wait_inside, estimate=ANY).result(PATIENCE_S)

    assert found == [other.result(), WouldDeadlock, WouldDeadlock, WouldDeadlock]
    held.release()
    assert later.wait(PATIENCE_S)


def test_join_is_by_the_governors_clock(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert not pool.join(0)
    ended: list[bool] = []
    waits, wait_for = threading.Event(), pools.clock.wait_for

    def told(*args: Any) -> bool:
        waits.set()
        return wait_for(*args)

    monkeypatch.setattr(pools.clock, "wait_for", told)
    thread = threading.Thread(target=lambda: ended.append(pool.join(5)))
    thread.start()
    assert waits.wait(PATIENCE_S)
    with pool._lock:
        pass
    pools.clock.advance(5)
    thread.join(PATIENCE_S)

    assert ended == [False]


# Handles ---------------------------------------------------------------------------------


def test_the_handle_is_a_future_and_can_be_awaited(pools: Pools) -> None:
    pool = pools.make("a")
    told: list[PoolTask] = []

    async def use() -> Any:
        return await pool.submit(where, estimate=ANY)

    assert asyncio.run(use()) == "a"
    task = pool.submit(where, estimate=ANY)
    task.add_done_callback(told.append)
    assert task.future.result(PATIENCE_S) == "a"
    assert task.exception() is None
    task.add_done_callback(told.append)
    assert pool.join(PATIENCE_S)
    assert told == [task, task]
    assert repr(task) == "<PoolTask #2 COMPLETED>"


def test_a_task_that_is_not_over_in_time(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY, key="k")

    with pytest.raises(TaskNotFinished, match="task 'k' did not finish within 0"):
        task.result(0)
    with pytest.raises(ValueError, match="timeout"):
        task.wait(-1)


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (TypeError, "must be callable", lambda p: p.submit(3, estimate=ANY)),
        (InvalidEstimate, "estimate", lambda p: p.submit(where, estimate=3)),
        (TypeError, "deps", lambda p: p.submit(where, estimate=ANY, deps="model")),
        (TypeError, "hashable", lambda p: p.submit(where, estimate=ANY, key=[])),
        (TypeError, "name", lambda p: p.submit(where, estimate=ANY, name=3)),
        (TypeError, "ids", lambda p: p.add_artifacts("a", "model")),
        (TypeError, "ids", lambda p: p.remove_artifacts("a", "model")),
        (UnknownWorker, "no worker 'z'", lambda p: p.add_artifacts("z", [])),
        (UnknownWorker, "no worker 'z'", lambda p: p.pause_worker("z")),
    ],
)
def test_bad_arguments(
    pools: Pools, error: type[Exception], words: str, call: Callable[[Any], object]
) -> None:
    pool = pools.make("a")
    with pytest.raises(error, match=words):
        call(pool)
    assert pool.statistics().unfinished == 0
    assert pool.submit(where, estimate=ANY).result(PATIENCE_S) == "a"


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": "ab"},
        {"workers": 1.5},
        {"workers": []},
        {"workers": ["a", "a"]},
        {"workers": ["a", ""]},
        {"workers": 1, "max_artifacts": 0},
        {"workers": 1, "cache_timeout_s": 2},
    ],
)
def test_bad_options(options: dict[str, Any]) -> None:
    governor = Governor(probe=ScriptedProbe(machine()))
    before = threading.active_count()
    with pytest.raises(InvalidOption):
        WorkerPool(governor, **options)
    assert threading.active_count() == before


def test_a_number_of_workers_and_their_specs(pools: Pools) -> None:
    governor = Governor(probe=ScriptedProbe(machine()))
    with WorkerPool(governor, workers=2) as pool:
        assert [view.name for view in pool.workers()] == ["worker-0", "worker-1"]
    spec = WorkerSpec("left", "GPU-1")
    pool = pools.make(spec, "right")
    assert [view.device for view in pool.workers()] == ["GPU-1", None]
    with pytest.raises(InvalidOption, match="device"):
        WorkerSpec("a", "")


def test_in_a_forked_child_the_pool_is_the_parents(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the scheduler's own tests see it with a real fork."""
    pool = pools.make("a")
    with monkeypatch.context() as patched:
        patched.setattr("lardon.locality.pool.forks", lambda: -1)
        for call in (
            lambda: pool.submit(where, estimate=ANY),
            pool.statistics,
            pool.workers,
            pool.join,
            pool.close,
            pool.resources_changed,
            lambda: pool.pause_worker("a"),
        ):
            with pytest.raises(QueueClosed, match="belongs to process"):
                call()
        from lardon.locality.pool import _close_all

        _close_all()
    assert pool.submit(where, estimate=ANY).result(PATIENCE_S) == "a"


def test_a_done_callback_may_close_but_not_wait(pools: Pools) -> None:
    pool = pools.make("a")
    seen: list[Any] = []

    def closing(_task: PoolTask) -> None:
        try:
            pool.join()
        except WouldDeadlock as error:
            seen.append(type(error))
        seen.append(pool.close())

    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    task.add_done_callback(closing)
    gate.opened.set()
    assert pool.join(PATIENCE_S)

    assert seen == [WouldDeadlock, False]


def test_a_worker_that_is_lost_with_a_job_that_nobody_wants(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert task.cancel()

    pool._worker_lost(pool._slots["a"])

    assert task.state is TaskState.CANCELLED
    assert pool.statistics().locality.waiting == 0


def test_a_job_ends_once(pools: Pools) -> None:
    pool = pools.make("a")
    task = pool.submit(where, estimate=ANY)
    assert task.result(PATIENCE_S) == "a"

    pool.executions.end(task._execution, "other", None)

    assert (task.result(), pool.statistics().completed) == ("a", 1)


def test_the_end_of_the_interpreter_closes_what_is_open(pools: Pools) -> None:
    from lardon.locality.pool import _close_all

    pool = pools.make("a")
    _close_all()

    assert pool.closing
    assert lardon.locality.executions.Unnamed(3) != lardon.locality.executions.Unnamed(3)
