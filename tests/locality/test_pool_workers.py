"""The workers of a pool: what the governor lets them take, and when they are paused or die."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import lardon.queue.worker
from lardon import (
    GiB,
    Governor,
    Policy,
    ResourceEstimate,
    TaskCancelled,
    TaskContext,
    TaskRefused,
    TaskState,
    WorkerDied,
)
from lardon.locality import InvalidOption, UnknownWorker, WorkerPool, WorkerSpec, current_worker
from lardon.testing import ScriptedProbe
from tests.locality.pools import ANY, BIG, PATIENCE_S, Pools, machine, where

# Which there are -------------------------------------------------------------------------


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


def test_a_worker_that_is_lost_with_a_job_that_nobody_wants(pools: Pools) -> None:
    pool = pools.make("a")
    gate = pools.gate()
    task = pool.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert task.cancel()

    pool._worker_lost(pool._slots["a"])

    assert task.state is TaskState.CANCELLED
    assert pool.statistics().locality.waiting == 0
