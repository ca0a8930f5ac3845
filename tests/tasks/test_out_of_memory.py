"""Out of memory is an answer: the batch is halved, its items are tried again, none is lost."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon import (
    BatchOutOfMemory,
    Governor,
    MiB,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.queue.out_of_memory import is_out_of_memory
from lardon.testing import ScriptedGovernor, ScriptedProbe, start

PATIENCE_S: Final = 10.0
EIGHT: Final = ResourceEstimate(ram_bytes_per_item=MiB, min_batch=1, max_batch=8, kind="oom")


class OutOfMemoryError(RuntimeError):
    """Looks like torch's."""


class ArrayMemoryError(MemoryError):
    """Looks like NumPy's."""


class XlaRuntimeError(RuntimeError):
    """Looks like JAX's."""


class Unprintable(RuntimeError):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ArrayMemoryError("Unable to allocate 1.00 TiB"),
        OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"),
        ExceptionGroup("two workers", [MemoryError(), OutOfMemoryError()]),
    ],
)
def test_what_says_that_memory_ran_out(error: BaseException) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of memory"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("DefaultCPUAllocator: something else"),
        XlaRuntimeError("INVALID_ARGUMENT: shapes"),
        Unprintable(),
        KeyboardInterrupt(),
        ExceptionGroup("mixed", [MemoryError(), ValueError()]),
    ],
)
def test_what_does_not(error: BaseException) -> None:
    assert not is_out_of_memory(error)


class Job:
    """Fails on more than *most* items, and notes what was tried and what was done."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tried: list[int] = []
        self.done: list[int] = []

    def __call__(self, batch: list[int]) -> int:
        self.tried.append(len(batch))
        if len(batch) > self.most:
            raise MemoryError(f"{len(batch)} are too many")
        self.done += batch
        return len(batch)


def run(governor: Any, job: Job, items: Any, estimate: ResourceEstimate = EIGHT) -> Any:
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: context.map_batches(job, items), estimate=estimate)
        assert task.wait(PATIENCE_S)
    return task


def real_governor(**policy: Any) -> Governor:
    snapshot = ResourceSnapshot(
        taken_at=0.0, ram_total_bytes=1024 * MiB, ram_available_bytes=900 * MiB
    )
    return Governor(Policy(**policy), probe=ScriptedProbe(snapshot))


def test_a_batch_is_halved_until_it_fits_and_its_items_come_in_order() -> None:
    job = Job(most=2)

    task = run(ScriptedGovernor([start(batch_size=8)]), job, iter(range(20)))

    assert task.state is TaskState.COMPLETED
    assert job.done == list(range(20))
    assert job.tried == [8, 4, 2, 2, 2, 2, 8, 4, 2, 2, 2, 2, 4, 2, 2]
    assert task.result() == [2] * 10
    assert task.progress.done == 20


def test_what_the_call_took_out_of_its_list_is_tried_again_too() -> None:
    """Whoever frees each item as it goes has an empty list when the memory runs out."""
    done: list[int] = []

    def work(batch: list[int]) -> None:
        size, mine = len(batch), []
        while batch:
            mine.append(batch.pop(0))
            if size == 8 and not batch:
                raise MemoryError
        done.extend(mine)

    with TaskQueue(ScriptedGovernor([start(batch_size=8)])) as queue:
        task = queue.submit(lambda context: context.map_batches(work, range(20)), estimate=EIGHT)
        task.result(PATIENCE_S)

    assert done == list(range(20))
    assert task.progress.done == 20


def test_a_governor_that_learns_does_not_grant_what_failed() -> None:
    governor = real_governor()
    job = Job(most=2)

    task = run(governor, job, list(range(20)))

    assert task.state is TaskState.COMPLETED
    assert job.done == list(range(20))
    assert job.tried == [8, 4, *[2] * 10]
    failed = [(record.items, record.failed) for record in governor.history("oom")[:3]]
    assert failed == [(8, True), (4, True), (2, False)]


@pytest.mark.timeout(60)  # thousands of batches, which a busy machine takes its time for
@given(
    count=st.integers(0, 40),
    most=st.integers(1, 9),
    least=st.integers(1, 4),
    granted=st.lists(st.integers(1, 8), min_size=1, max_size=6),
)
def test_every_item_is_done_once_or_the_task_says_why(
    count: int, most: int, least: int, granted: list[int]
) -> None:
    job = Job(most)
    estimate = EIGHT.evolve(min_batch=least)
    governor = ScriptedGovernor([start(batch_size=max(least, size)) for size in granted])

    task = run(governor, job, range(count), estimate)

    if task.state is TaskState.COMPLETED:
        assert job.done == list(range(count))
    else:
        assert isinstance(task.exception(), BatchOutOfMemory)
        assert task.exception().items <= max(least, 1)
        assert most < least or most < task.exception().items
        assert job.done == list(range(len(job.done)))


def test_the_smallest_batch_fails_with_both_the_error_and_the_figures() -> None:
    governor = real_governor()

    task = run(governor, Job(most=1), range(8), EIGHT.evolve(min_batch=2))

    assert task.state is TaskState.FAILED
    error = task.exception()
    assert isinstance(error, BatchOutOfMemory)
    assert isinstance(error, MemoryError)
    assert (error.task_id, error.items) == (1, 2)
    assert error.contract.batch_size == 2
    assert error.contract.ram_bytes == 2 * MiB
    assert isinstance(error.__cause__, MemoryError)
    assert "2 are too many" in str(error)
    assert "granted were 2 MiB of RAM" in str(error)
    assert error.reason is not None
    assert str(error.reason) in str(error)


def test_gpu_memory_is_in_the_figures_too() -> None:
    decision = start(batch_size=1)
    contract = decision.contract
    assert contract is not None
    contract = attrs.evolve(contract, gpu_bytes=4 * MiB, gpus=("GPU-a", "GPU-b"))
    task = run(ScriptedGovernor([attrs.evolve(decision, contract=contract)]), Job(0), [1])

    assert "and 4 MiB on each of 2 GPUs" in str(task.exception())


def test_the_retry_finds_the_memory_of_the_failed_try_free() -> None:
    """H84: neither the error, its traceback nor the batch holds what the try had."""
    alive: list[weakref.ref[Big]] = []
    seen: list[bool] = []

    def work(batch: list[int]) -> None:
        seen.append(any(ref() is not None for ref in alive))
        big = Big()
        alive.append(weakref.ref(big))
        if len(batch) > 4:
            raise MemoryError

    with TaskQueue(ScriptedGovernor([start(batch_size=8)])) as queue:
        task = queue.submit(lambda context: context.map_batches(work, range(8)), estimate=EIGHT)
        task.result(PATIENCE_S)

    assert seen == [False, False, False]


def test_a_generator_that_hands_an_error_on_is_not_ended_by_the_retry() -> None:
    """Its frame is in the error's traceback; to clear it would lose all items to come."""

    def items() -> Iterator[object]:
        for item in range(20):
            try:
                if item == 5:
                    raise MemoryError("one that could not be loaded")
                yield item
            except MemoryError as error:
                yield error

    done: list[object] = []

    def work(batch: list[object]) -> None:
        if len(batch) > 2:
            for item in batch:
                if isinstance(item, MemoryError):
                    raise item
        done.extend(batch)

    with TaskQueue(ScriptedGovernor([start(batch_size=4)])) as queue:
        task = queue.submit(lambda context: context.map_batches(work, items()), estimate=EIGHT)
        task.result(PATIENCE_S)

    assert len(done) == 20


def test_the_end_of_a_task_ends_no_generator_of_others() -> None:
    def items() -> Iterator[BaseException]:
        while True:
            try:
                raise KeyError("one that could not be loaded")
            except KeyError as error:
                yield error

    source = items()

    def callback(_context: TaskContext) -> None:
        raise next(source)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=EIGHT)
        assert isinstance(task.exception(PATIENCE_S), KeyError)

    assert isinstance(next(source), KeyError)


class Big:
    """Stands for what fills the memory."""


def test_torch_is_asked_to_empty_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = []
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: True, empty_cache=lambda: emptied.append(True)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)

    run(ScriptedGovernor([start(batch_size=8)]), Job(most=4), range(8))

    assert emptied == [True]


def test_torch_that_has_not_started_cuda_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)

    task = run(ScriptedGovernor([start(batch_size=8)]), Job(most=4), range(8))

    assert task.state is TaskState.COMPLETED


def test_a_torch_that_raises_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))

    task = run(ScriptedGovernor([start(batch_size=8)]), Job(most=4), range(8))

    assert task.state is TaskState.COMPLETED
    assert "torch's cache could not be emptied" in caplog.text


def test_any_other_error_ends_the_task_at_once() -> None:
    tried = []

    def work(batch: list[int]) -> None:
        tried.append(len(batch))
        raise ValueError("no")

    with TaskQueue(ScriptedGovernor([start(batch_size=8)])) as queue:
        task = queue.submit(lambda context: context.map_batches(work, range(20)), estimate=EIGHT)
        assert isinstance(task.exception(PATIENCE_S), ValueError)

    assert tried == [8]


def test_a_cancel_between_the_try_and_the_retry_ends_the_task() -> None:
    def work(context: TaskContext, batch: list[int]) -> None:
        queue.cancel(context.task_id)
        raise MemoryError

    with TaskQueue(ScriptedGovernor([start(batch_size=8)])) as queue:
        task = queue.submit(
            lambda context: context.map_batches(lambda b: work(context, b), range(8)),
            estimate=EIGHT,
        )
        assert task.wait(PATIENCE_S)

    assert task.state is TaskState.CANCELLED
