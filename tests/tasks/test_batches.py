"""`batches` and `map_batches`: sizes follow the contract, and memory is free before a break."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import ResourceEstimate, TaskCancelled, TaskQueue, TaskRefused, TaskState
from lardon.testing import ScriptedGovernor, reduce_batch, reject, start, wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon import TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


def run(
    callback: Callable[[TaskContext], Any], governor: ScriptedGovernor
) -> tuple[TaskState, Any, BaseException | None]:
    """Run *callback* to its end; return its state, its own result, and its error."""
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)
    return task.state, task._value, task._error


def listed(context: TaskContext, items: Iterable[int]) -> list[list[int]]:
    return list(context.batches(items))


def mapped(context: TaskContext, items: Iterable[int]) -> list[list[int]]:
    return context.map_batches(lambda batch: batch, items)


WAYS: Final = [listed, mapped]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, []), (1, [1]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (9, [4, 4, 1])],
)
@pytest.mark.parametrize("source", [list, tuple, iter, dict.fromkeys])
def test_items_are_cut_into_batches_with_a_break_between(
    way: Any, count: int, sizes: list[int], source: Any
) -> None:
    governor = ScriptedGovernor([start(batch_size=4)])

    state, batches, _ = run(lambda context: way(context, source(list(range(count)))), governor)

    assert state is TaskState.COMPLETED
    assert [len(batch) for batch in batches] == sizes
    assert [item for batch in batches for item in batch] == list(range(count))
    # The start, and a break between two batches: none after the last, none for no items.
    assert len(governor.asked) == max(1, len(sizes))


@pytest.mark.parametrize("way", WAYS)
def test_each_batch_is_as_large_as_its_own_contract_says(way: Any) -> None:
    governor = ScriptedGovernor([start(batch_size=4), reduce_batch(1), reduce_batch(3)])

    _, batches, _ = run(lambda context: way(context, range(9)), governor)

    assert batches == [[0, 1, 2, 3], [4], [5, 6, 7], [8]]


@pytest.mark.parametrize("way", WAYS)
def test_never_reads_ahead_more_than_one_batch(way: Any) -> None:
    """An endless or expensive source is not drained; at a break one item more is read."""
    read: list[int] = []

    def source() -> Iterator[int]:
        for number in range(10):
            read.append(number)
            yield number

    at_answer: list[int] = []
    governor = ScriptedGovernor([start(batch_size=3)])
    governor.on_answer = lambda: at_answer.append(len(read))

    run(lambda context: way(context, source()), governor)

    assert at_answer == [0, 4, 7, 10]


def test_a_consumer_that_stops_early_costs_no_break() -> None:
    governor = ScriptedGovernor([start(batch_size=2)])

    _, first, _ = run(lambda context: next(context.batches(range(100))), governor)

    assert first == [0, 1]
    assert len(governor.asked) == 1


def test_map_batches_returns_one_result_per_call_in_order() -> None:
    governor = ScriptedGovernor([start(batch_size=2)])

    _, results, _ = run(lambda context: context.map_batches(sum, range(5)), governor)

    assert results == [1, 5, 4]


class Item:
    """Something that can be watched."""


@pytest.mark.parametrize("way", ["map_batches", "batches"])
def test_a_batchs_memory_is_free_before_the_break(way: str) -> None:
    """At the release of the reservation nothing keeps the batch: neither list nor items."""
    seen: list[weakref.ref[Item]] = []
    alive: list[int] = []

    def source() -> Iterator[Item]:
        for _ in range(4):
            item = Item()
            seen.append(weakref.ref(item))
            yield item
            del item

    def callback(context: TaskContext) -> None:
        if way == "map_batches":
            context.map_batches(len, source())
            return
        for batch in context.batches(source()):
            # The consumer's own name is the consumer's to clear.
            batch.clear()

    governor = ScriptedGovernor([start(batch_size=2)])

    def answering() -> None:
        gc.collect()
        # All but the one item that was read to know whether there is more.
        alive.append(sum(ref() is not None for ref in seen[:-1]))

    governor.on_answer = answering
    run(callback, governor)

    assert alive == [0, 0]


# Progress --------------------------------------------------------------------------------


def test_progress_counts_items_as_batches_are_done() -> None:
    seen: list[tuple[float, float | None, str, float]] = []
    governor = ScriptedGovernor([start(batch_size=4)])
    with TaskQueue(governor) as queue:

        def note(context: TaskContext) -> None:
            progress = queue.get(context.task_id).progress
            seen.append((progress.done, progress.total, progress.message, progress.fraction))

        def callback(context: TaskContext) -> None:
            context.set_progress(0, None, "cutting")
            for _ in context.batches(range(10)):
                note(context)
            note(context)

        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)
        assert task.state is TaskState.COMPLETED, task.reason

    assert seen[1:] == [
        (4, 10, "cutting", 0.4),
        (8, 10, "cutting", 0.8),
        (10, 10, "cutting", 1.0),
    ]
    assert seen[0][:2] == (0, 10)


def test_progress_of_an_iterable_without_a_length_has_no_total() -> None:
    governor = ScriptedGovernor([start(batch_size=4)])
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: listed(context, iter(range(6))), estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert (task.progress.done, task.progress.total) == (6, None)
    assert task.progress.fraction == 0.0


def test_progress_of_two_runs_adds_up() -> None:
    governor = ScriptedGovernor([start(batch_size=4)])
    with TaskQueue(governor) as queue:
        task = queue.submit(
            lambda context: (listed(context, range(3)), mapped(context, range(2))), estimate=ANY
        )
        assert task.wait(PATIENCE_S)

    assert (task.progress.done, task.progress.total, task.progress.fraction) == (5, 5, 1.0)


# Ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_break_raises_inside_the_callback(way: Any) -> None:
    governor = ScriptedGovernor([start(batch_size=4), reject("never again")])

    state, _, error = run(lambda context: way(context, range(9)), governor)

    assert state is TaskState.FAILED
    assert isinstance(error, TaskRefused)
    assert "never again" in str(error)


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_break_raises_inside_the_callback(way: Any) -> None:
    governor = ScriptedGovernor([start(batch_size=4)])

    def callback(context: TaskContext) -> None:
        iterator = iter(range(9))
        if way is mapped:
            context.map_batches(lambda _: context._task.cancel(), iterator)
        for _ in context.batches(iterator):
            context._task.cancel()

    state, _, error = run(callback, governor)

    assert state is TaskState.CANCELLED
    assert isinstance(error, TaskCancelled)
    assert len(governor.asked) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_task_cancelled_before_its_first_batch_reads_nothing(way: Any) -> None:
    def callback(context: TaskContext) -> None:
        context._task.cancel()
        way(context, source)

    source = iter(range(3))
    state, _, error = run(callback, ScriptedGovernor([start(batch_size=2)]))

    assert state is TaskState.CANCELLED
    assert isinstance(error, TaskCancelled)
    assert list(source) == [0, 1, 2]


@pytest.mark.parametrize("way", WAYS)
def test_a_break_between_batches_waits_and_parks(way: Any) -> None:
    """It is `sequence_break(timeout=None, on_pause="park")`."""
    governor = ScriptedGovernor([start(batch_size=4), wait()])
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: way(context, range(8)), estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.RUNNING
        assert governor.reservations() == ()
        task.pause()
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PAUSED
        governor.script(start(batch_size=4))
        task.resume()

        assert task.result(PATIENCE_S) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_an_error_of_the_function_comes_through() -> None:
    governor = ScriptedGovernor([start(batch_size=4)])

    def divide(batch: list[int]) -> float:
        return 1 / (batch[0] - 4)

    state, _, error = run(lambda context: context.map_batches(divide, range(9)), governor)

    assert state is TaskState.FAILED
    assert isinstance(error, ZeroDivisionError)
    assert governor.reservations() == ()


@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_the_source_comes_through(way: Any) -> None:
    def source() -> Iterator[int]:
        yield from range(5)
        raise OSError("the disk went away")

    state, _, error = run(
        lambda context: way(context, source()), ScriptedGovernor([start(batch_size=4)])
    )

    assert state is TaskState.FAILED
    assert isinstance(error, OSError)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_iterable_is_a_type_error(way: Any) -> None:
    state, _, error = run(lambda context: way(context, 5), ScriptedGovernor([start()]))

    assert state is TaskState.FAILED
    assert isinstance(error, TypeError)


def test_none_is_an_item_like_any_other() -> None:
    governor = ScriptedGovernor([start(batch_size=1)])

    _, batches, _ = run(lambda context: list(context.batches([None, None])), governor)

    assert batches == [[None], [None]]


@pytest.mark.parametrize("work", [listed, mapped])
def test_an_iterable_that_takes_a_break_makes_no_batch_too_large(
    work: Callable[[TaskContext, Iterable[int]], list[list[int]]],
) -> None:
    def callback(context: TaskContext) -> list[list[int]]:
        def items() -> Iterator[int]:
            for item in range(7):
                if item == 2:
                    assert context.sequence_break(timeout=None)
                yield item

        return work(context, items())

    governor = ScriptedGovernor([start(batch_size=4), start(batch_size=2)])
    _, batches, _ = run(callback, governor)

    assert batches == [[0, 1], [2, 3], [4, 5], [6]]


class Bar:
    """Looks like a progress bar around a generator: its length raises."""

    def __len__(self) -> int:
        raise TypeError("object of type 'generator' has no len()")

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


@pytest.mark.parametrize("method", ["batches", "map_batches", "map_items"])
def test_a_length_that_cannot_be_told_costs_the_total_alone(method: str) -> None:
    def callback(context: TaskContext) -> list[object]:
        if method == "batches":
            return list(context.batches(Bar()))
        work = str if method == "map_items" else list
        return list(getattr(context, method)(work, Bar()))

    with TaskQueue(ScriptedGovernor([start(batch_size=4)])) as queue:
        task = queue.submit(callback, estimate=ResourceEstimate(max_batch=4))
        outcomes = task.result(PATIENCE_S)

    assert outcomes[0] in ([0, 1, 2, 3], "0")
    assert (task.progress.done, task.progress.total) == (10, None)


def test_a_range_longer_than_python_can_count_is_cut_like_any_other() -> None:
    def callback(context: TaskContext) -> list[int]:
        return next(context.batches(range(10**30)))

    with TaskQueue(ScriptedGovernor([start(batch_size=4)])) as queue:
        task = queue.submit(callback, estimate=ResourceEstimate(max_batch=4))

        assert task.result(PATIENCE_S) == [0, 1, 2, 3]


@pytest.mark.parametrize("method", ["map_batches", "map_items"])
def test_a_contract_for_more_than_there_can_be_takes_all(method: str) -> None:
    """An integer of any size is a legal `max_batch`."""

    def callback(context: TaskContext) -> int:
        return len(getattr(context, method)(repr, iter(range(5))))

    with TaskQueue(ScriptedGovernor([start(batch_size=10**30)])) as queue:
        task = queue.submit(callback, estimate=ResourceEstimate(max_batch=10**30))

        assert task.result(PATIENCE_S) == (1 if method == "map_batches" else 5)
