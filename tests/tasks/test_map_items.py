"""`map_items`: threads and items in flight keep to the contract, and nothing is lost."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon import (
    BatchOutOfMemory,
    ResourceEstimate,
    Task,
    TaskCancelled,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.queue import items as items_module
from lardon.queue.crew import Crew, Flight
from lardon.queue.feed import Count, Feed
from lardon.queue.items import _Items
from lardon.testing import ManualClock, ScriptedGovernor, start

PATIENCE_S: Final = 10.0
FOUR: Final = ResourceEstimate(max_batch=8, cpus=4, min_cpus=1)


def submit(queue: TaskQueue, fn: Any, items: Any) -> Task:
    return queue.submit(lambda context: context.map_items(fn, items), estimate=FOUR)


def run(fn: Any, items: Any, *, batch: int = 8, cpus: int = 4) -> Task:
    with TaskQueue(ScriptedGovernor([start(batch_size=batch, cpus=cpus)])) as queue:
        task = submit(queue, fn, items)
        assert task.wait(PATIENCE_S)
    return task


@given(
    count=st.integers(0, 60),
    batch=st.integers(1, 9),
    cpus=st.integers(1, 4),
    source=st.sampled_from([list, tuple, iter]),
)
def test_outcomes_come_in_the_order_of_the_items(
    count: int, batch: int, cpus: int, source: Any
) -> None:
    task = run(lambda item: item * 10, source(range(count)), batch=batch, cpus=cpus)

    assert task.result() == [item * 10 for item in range(count)]
    assert task.progress.done == count


class Meter:
    """Counts how many calls run at a time, and how far the items were read ahead."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0
        self.read = 0
        self.finished = 0
        self.ahead = 0
        self.readers: set[threading.Thread] = set()
        self.threads: set[threading.Thread] = set()

    def items(self) -> Iterator[int]:
        for item in range(self._count):
            self.readers.add(threading.current_thread())
            with self._lock:
                self.read += 1
                self.ahead = max(self.ahead, self.read - self.finished)
            yield item

    def __call__(self, _item: int) -> None:
        with self._lock:
            self.threads.add(threading.current_thread())
            self._running += 1
            self.most = max(self.most, self._running)
        barrier_free_work()
        with self._lock:
            self._running -= 1
            self.finished += 1


def stream(count: int) -> Iterator[int]:
    """Return what has no length, and is not there before it is asked for."""
    return iter(range(count))


def barrier_free_work() -> None:
    """Let other threads have a turn."""
    threading.Event().wait(0.0005)


@pytest.mark.parametrize(("batch", "cpus"), [(8, 4), (3, 4), (8, 2), (2, 2), (1, 4), (8, 1)])
def test_the_contract_bounds_calls_and_items_in_flight(batch: int, cpus: int) -> None:
    meter = Meter(60)
    worker: list[threading.Thread] = []

    def callback(context: TaskContext) -> None:
        worker.append(threading.current_thread())
        context.map_items(meter, meter.items())

    with TaskQueue(ScriptedGovernor([start(batch_size=batch, cpus=cpus)])) as queue:
        queue.submit(callback, estimate=FOUR).result(PATIENCE_S)

    assert meter.finished == 60
    assert meter.most <= min(batch, cpus)
    # One more is read before a break, to know whether there is anything to break for.
    assert meter.ahead <= batch + 1
    assert meter.readers == set(worker)


def test_several_threads_really_work_at_the_same_time() -> None:
    together = threading.Barrier(4)

    task = run(lambda _: together.wait(PATIENCE_S), range(8))

    assert task.state is TaskState.COMPLETED


def test_a_small_contract_is_asked_to_grow_at_once_and_a_full_one_after_a_time() -> None:
    clock = ManualClock()
    governor = ScriptedGovernor(
        [start(batch_size=1, cpus=4), start(batch_size=2, cpus=4), start(batch_size=8, cpus=4)],
        clock=clock,
    )
    asked_at: list[int] = []

    def work(item: int) -> int:
        asked_at.append(len(governor.asked))
        return item

    with TaskQueue(governor) as queue:
        result = submit(queue, work, range(50)).result(PATIENCE_S)

    assert result == list(range(50))
    # One item under the first contract, two under the second, and the rest under the third:
    # the manual clock stands still, so that its round does not end.
    assert asked_at == [1, 2, 2, *[3] * 47]
    assert len(governor.asked) == 3


# A round takes what is in flight until four items are done. Of a sequence that is 16 at first,
# and at most three more; one by one it is four, or five where the fourth ends beside a fifth.
@pytest.mark.parametrize(("source", "least", "most"), [(range, 3, 3), (stream, 8, 10)])
def test_a_round_ends_after_its_time(source: Any, least: int, most: int) -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([start(batch_size=2, cpus=2)], clock=clock)
    step = items_module.ROUND_S / 4

    with TaskQueue(governor) as queue:
        # The patience is by the same clock, which the items move by ten seconds.
        submit(queue, lambda _: clock.advance(step), source(40)).result(2 * PATIENCE_S)

    assert least <= len(governor.asked) <= most


def test_the_first_error_in_order_is_raised_and_what_flies_is_awaited() -> None:
    together = threading.Barrier(4)
    ended: list[int] = []

    def work(item: int) -> None:
        if item < 4:
            together.wait(PATIENCE_S)
        ended.append(item)
        if item in {2, 3}:
            raise KeyError(item)

    task = run(work, range(100))

    error = task.exception()
    assert isinstance(error, KeyError)
    assert error.args == (2,)
    assert {0, 1, 2, 3} <= set(ended)
    assert len(ended) < 100


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_in_order_is_raised_whichever_comes_first(first: int) -> None:
    flights: list[Flight[int, int]] = []
    for place in (first, 1 - first):
        flight: Flight[int, int] = Flight(lambda item: [][item], place, place)
        flight.run()
        flights.append(flight)

    def callback(context: TaskContext) -> None:
        work: _Items[int, int] = _Items(context, int, Feed([]), Count(context, []), 1)
        for flight in flights:
            work._landed(flight)
        assert work._error is not None
        assert work._error[0] == 0

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.submit(callback, estimate=FOUR).result(PATIENCE_S)


def test_an_error_of_the_items_is_raised_before_what_waits_is_worked_on() -> None:
    raising = threading.Event()
    ended: list[int] = []

    def items() -> Iterator[int]:
        yield from range(6)
        raising.set()
        raise KeyError("the source")

    def work(item: int) -> None:
        assert raising.wait(PATIENCE_S)
        ended.append(item)

    task = run(work, items(), batch=8, cpus=2)

    assert isinstance(task.exception(), KeyError)
    # What had begun is awaited. A thread may take one more before the others are taken back.
    assert len(ended) <= 4


def test_a_cancel_is_noticed_within_a_moment() -> None:
    entered = threading.Event()

    def work(_item: int) -> None:
        entered.set()
        barrier_free_work()

    with TaskQueue(ScriptedGovernor([start(batch_size=8, cpus=2)])) as queue:
        task = submit(queue, work, iter(int, 1))  # zeros without an end
        assert entered.wait(PATIENCE_S)
        task.cancel()
        with pytest.raises(TaskCancelled):
            task.result(PATIENCE_S)

    assert task.state is TaskState.CANCELLED


def test_a_pause_leaves_nothing_in_flight_and_loses_nothing() -> None:
    running = threading.Semaphore(0)
    lock = threading.Lock()
    inside = 0

    def work(item: int) -> int:
        nonlocal inside
        with lock:
            inside += 1
        running.release()
        barrier_free_work()
        with lock:
            inside -= 1
        return item

    with TaskQueue(ScriptedGovernor([start(batch_size=8, cpus=4)])) as queue:
        paused = threading.Event()
        queue.subscribe(lambda event: event.state is TaskState.PAUSED and paused.set())
        task = submit(queue, work, range(200))
        assert running.acquire(timeout=PATIENCE_S)
        task.pause()
        assert paused.wait(PATIENCE_S)
        assert inside == 0
        task.resume()

        assert task.result(PATIENCE_S) == list(range(200))


class Short:
    """Runs out of memory when more than *most* run at the same time as item *bad*."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.running = 0
        self.lock = threading.Lock()
        self.tried: list[int] = []

    def __call__(self, item: int) -> int:
        with self.lock:
            self.running += 1
            running = self.running
            self.tried.append(item)
        try:
            if running > self.most:
                raise MemoryError(item)
            barrier_free_work()
            return item
        finally:
            with self.lock:
                self.running -= 1


@pytest.mark.parametrize("most", [1, 2, 3])
def test_items_that_run_out_of_memory_are_tried_with_fewer_at_a_time(most: int) -> None:
    work = Short(most)

    task = run(work, range(60))

    assert task.result() == list(range(60))
    assert task.progress.done == 60


def test_an_item_that_is_too_much_alone_fails_the_task() -> None:
    task = run(Short(most=0), range(5))

    error = task.exception()
    assert isinstance(error, BatchOutOfMemory)
    assert error.items == 1
    assert isinstance(error.__cause__, MemoryError)


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize("error", [MemoryError, KeyError])
def test_what_failed_is_not_counted_as_done(cpus: int, error: type[Exception]) -> None:
    def work(_item: int) -> None:
        raise error

    assert run(work, range(1), cpus=cpus).progress.done == 0


def test_what_is_kept_by_thread_lasts_from_round_to_round() -> None:
    """A connection, or a model: nobody makes a new one each second."""
    clock = ManualClock()
    governor = ScriptedGovernor([start(batch_size=2, cpus=2)], clock=clock)
    threads: set[int] = set()

    def work(_item: int) -> None:
        threads.add(threading.get_ident())
        clock.advance(items_module.ROUND_S)

    with TaskQueue(governor) as queue:
        submit(queue, work, stream(12)).result(2 * PATIENCE_S)  # by the clock that they move

    assert len(governor.asked) > 3
    assert len(threads) <= 2


def test_nothing_is_in_flight_in_a_break_that_the_iterable_takes() -> None:
    """As where the items come out of `batches`: they would run while nothing is reserved."""
    governor = ScriptedGovernor([start(batch_size=4, cpus=2)])
    inside: set[int] = set()
    in_breaks: list[int] = []

    def work(item: int) -> int:
        inside.add(item)
        barrier_free_work()
        inside.discard(item)
        return item

    def callback(context: TaskContext) -> list[int]:
        governor.on_answer = lambda: in_breaks.append(len(inside))
        return context.map_items(
            work, (item for batch in context.batches(range(40)) for item in batch)
        )

    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=FOUR)
        assert task.result(PATIENCE_S) == list(range(40))

    assert len(in_breaks) >= 9
    assert set(in_breaks) == {0}


def test_no_thread_keeps_an_item_alive_through_a_break() -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([start(batch_size=2, cpus=2)], clock=clock)
    made: list[weakref.ref[Large]] = []
    alive: list[int] = []

    def items() -> Iterator[Large]:
        for _ in range(12):
            item = Large()
            made.append(weakref.ref(item))
            yield item
            del item

    def look() -> None:
        if made:
            gc.collect()
            alive.append(sum(ref() is not None for ref in made))

    governor.on_answer = look
    with TaskQueue(governor) as queue:
        task = submit(queue, lambda _: clock.advance(items_module.ROUND_S), items())
        task.result(2 * PATIENCE_S)

    # One is read before the break, to know whether there is anything to break for.
    assert set(alive) == {1}


class Large:
    """Stands for what fills the memory."""


def test_context_variables_of_the_callback_are_seen_by_every_item() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    def callback(context: TaskContext) -> list[str]:
        variable.set("the callback's")
        return context.map_items(lambda _: variable.get(), range(20))

    with TaskQueue(ScriptedGovernor([start(batch_size=8, cpus=4)])) as queue:
        seen = queue.submit(callback, estimate=FOUR).result(PATIENCE_S)

    assert seen == ["the callback's"] * 20


def test_threads_that_cannot_be_started_leave_none_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = threading.Thread.start
    started = 0

    def refuse_the_second(self: threading.Thread) -> None:
        nonlocal started
        if self.name.startswith(items_module.THREAD_NAME):
            started += 1
            if started == 2:
                raise RuntimeError("can't start new thread")
        real(self)

    with TaskQueue(ScriptedGovernor([start(batch_size=8, cpus=4)])) as queue:
        monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
        task = submit(queue, lambda item: item, range(20))
        error = task.exception(PATIENCE_S)

    assert isinstance(error, RuntimeError)
    assert "can't start" in str(error)


def test_a_crew_that_lands_while_the_dispatcher_goes_to_sleep_wakes_it() -> None:
    """The event is put right before the sleep: the predicate sees what has landed."""
    crew: Crew[int, int] = Crew(quota=1)
    flight = Flight(lambda item: item, 0, 7)
    crew.start(flight)
    thread = threading.Thread(target=crew.work)
    thread.start()
    crew.dismiss()
    thread.join(PATIENCE_S)

    assert [one.outcome for one in crew.wait(1)] == [7]


def test_a_crew_gives_back_what_nobody_has_begun() -> None:
    crew: Crew[int, int] = Crew(quota=1)
    flights: list[Flight[int, int]] = [
        Flight(lambda item: item, place, place) for place in range(3)
    ]
    for flight in flights:
        crew.start(flight)

    assert crew.take_back() == flights
    assert crew.take_back() == []


def test_a_copy_of_a_thread_in_a_forked_child_ends_with_its_item() -> None:
    crew: Crew[int, int] = Crew()
    flights: list[Flight[int, int]] = [
        Flight(lambda item: item, place, place) for place in range(2)
    ]
    for flight in flights:
        crew.start(flight)
    crew._born = -1

    crew.work()

    assert crew.take_back() == flights[1:]
