"""How a task ended: its result, its own error, or the error that says why there is none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import pickle
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import (
    ReasonCode,
    ResourceEstimate,
    TaskCancelled,
    TaskNotFinished,
    TaskQueue,
    TaskRefused,
    TaskState,
    WouldDeadlock,
)
from lardon.testing import ScriptedGovernor, reject, start, wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lardon import Task, TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


@pytest.fixture(name="queue")
def one_queue() -> Iterator[TaskQueue]:
    with TaskQueue(ScriptedGovernor([start()])) as one:
        yield one


def raising(error: BaseException) -> Callable[[TaskContext], None]:
    def callback(_context: TaskContext) -> None:
        raise error

    return callback


# Results ---------------------------------------------------------------------------------


def test_the_result_is_what_the_callback_returned(queue: TaskQueue) -> None:
    value = object()
    task = queue.submit(
        lambda _context, *args, **kwargs: (value, args, kwargs), 1, 2, estimate=ANY, key="word"
    )

    assert task.result(PATIENCE_S) == (value, (1, 2), {"key": "word"})
    assert task.exception(timeout=0) is None
    assert task.state is TaskState.COMPLETED
    assert task.wait(timeout=0)


def test_names_of_the_signature_may_be_keyword_arguments_of_the_callback(queue: TaskQueue) -> None:
    """Only `estimate`, `name` and `start_timeout_s` are the queue's own."""
    task = queue.submit(
        lambda _context, **kwargs: kwargs, estimate=ANY, fn=1, self=2, args=3, kwargs=4
    )

    assert task.result(PATIENCE_S) == {"fn": 1, "self": 2, "args": 3, "kwargs": 4}


def test_the_callbacks_own_error_is_raised_again(queue: TaskQueue) -> None:
    error = OSError("its own")
    task = queue.submit(raising(error), estimate=ANY)

    with pytest.raises(OSError, match="its own") as caught:
        task.result(PATIENCE_S)
    assert caught.value is error
    assert task.exception(timeout=0) is error
    assert task.state is TaskState.FAILED
    assert task.reason is not None
    assert task.reason.code is ReasonCode.CALLBACK_RAISED
    assert task.reason.text == "the callback raised OSError: its own"
    # Where it was raised can still be read.
    assert "raise error" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("bare"), StopIteration(5)],
    ids=repr,
)
def test_any_error_is_a_failure_and_the_worker_lives(
    queue: TaskQueue, error: BaseException
) -> None:
    task = queue.submit(raising(error), estimate=ANY)
    after = queue.submit(lambda _: "ran", estimate=ANY)

    assert after.result(PATIENCE_S) == "ran"
    assert task.state is TaskState.FAILED
    assert task.exception(timeout=0) is error
    with pytest.raises(type(error)):
        task.result(timeout=0)


class Hostile(BaseException):
    """Not even an Exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise Hostile

    __repr__ = __str__


def test_an_error_that_cannot_be_printed_leaves_a_reason(queue: TaskQueue) -> None:
    task = queue.submit(raising(Unprintable()), estimate=ANY)

    assert task.wait(PATIENCE_S)
    assert task.reason is not None
    assert "Unprintable" in task.reason.text
    assert isinstance(task.exception(timeout=0), Unprintable)


def test_a_governors_error_that_cannot_be_printed_leaves_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    governor = ScriptedGovernor([Unprintable(), start(), Unprintable()])
    with TaskQueue(governor) as queue:
        first = queue.submit(lambda _: None, estimate=ANY)
        second = queue.submit(lambda context: context.sequence_break(), estimate=ANY)
        assert first.wait(PATIENCE_S)
        assert second.wait(PATIENCE_S)

    for task in (first, second):
        assert task.state is TaskState.FAILED
        assert task.reason is not None
        assert task.reason.code is ReasonCode.GOVERNOR_FAILED
        assert "Unprintable" in task.reason.text


def test_the_reason_of_a_long_error_is_bounded(queue: TaskQueue) -> None:
    long, short = OSError("x" * 1_000_000), OSError()
    tasks = [queue.submit(raising(error), estimate=ANY) for error in (long, short)]

    assert all(task.wait(PATIENCE_S) for task in tasks)
    texts = [task.reason.text for task in tasks if task.reason is not None]
    assert len(texts[0]) < 1_000
    assert texts[0].endswith("…")
    assert texts[1] == "the callback raised OSError"
    # The error itself is whole.
    assert tasks[0].exception(timeout=0) is long


def test_a_callable_that_takes_no_context_fails_its_task(queue: TaskQueue) -> None:
    task = queue.submit(lambda: None, estimate=ANY)

    assert isinstance(task.exception(PATIENCE_S), TypeError)


@pytest.mark.parametrize("fn", [None, "text", 5])
def test_what_cannot_be_called_is_refused_at_submit(queue: TaskQueue, fn: Any) -> None:
    with pytest.raises(TypeError, match="callable"):
        queue.submit(fn, estimate=ANY)


@pytest.mark.parametrize("estimate", [None, 5, {"ram_bytes": 1}])
def test_what_is_no_estimate_is_refused_at_submit(queue: TaskQueue, estimate: Any) -> None:
    with pytest.raises(ValueError, match="estimate"):
        queue.submit(lambda _: None, estimate=estimate)
    assert queue.statistics().submitted == 0


# No result ---------------------------------------------------------------------------------


def test_a_rejected_task_raises_the_governors_refusal() -> None:
    answer = reject("never on this machine")
    with TaskQueue(ScriptedGovernor([answer])) as queue:
        task = queue.submit(lambda _: pytest.fail("it was rejected"), estimate=ANY, name="big")
        with pytest.raises(TaskRefused, match="never on this machine") as caught:
            task.result(PATIENCE_S)

    assert caught.value.task_id == task.id
    assert caught.value.decision == answer
    assert caught.value.reason == answer.reason == task.reason
    assert "big" in str(caught.value)
    assert isinstance(task.exception(timeout=0), TaskRefused)
    assert task.contract is None


def test_a_cancelled_task_raises_in_result_and_exception() -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        task.cancel()

    for call in (task.result, task.exception):
        with pytest.raises(TaskCancelled) as caught:
            call(timeout=0)
        assert isinstance(caught.value, concurrent.futures.CancelledError)
        assert caught.value.task_id == task.id
        assert pickle.loads(pickle.dumps(caught.value)).task_id == task.id  # noqa: S301


@pytest.mark.parametrize("timeout", [0, 0.0, 0.01])
def test_what_is_not_finished_in_time_raises_its_own_error(timeout: float) -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert not task.wait(timeout)
        for call in (task.result, task.exception):
            with pytest.raises(TaskNotFinished) as caught:
                call(timeout)
            assert isinstance(caught.value, TimeoutError)
            assert (caught.value.task_id, caught.value.timeout) == (task.id, timeout)
        task.cancel()


def test_a_callbacks_own_timeout_error_is_not_mistaken(queue: TaskQueue) -> None:
    task = queue.submit(raising(TimeoutError("its own")), estimate=ANY)

    with pytest.raises(TimeoutError) as caught:
        task.result(PATIENCE_S)
    assert not isinstance(caught.value, TaskNotFinished)


# Waiting -----------------------------------------------------------------------------------


def test_many_may_wait_for_one_task(gate: Gate, queue: TaskQueue) -> None:
    task = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(task.result(PATIENCE_S))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert answers == [True] * 8


def test_join_waits_for_all_and_a_paused_task_has_not_ended(gate: Gate, queue: TaskQueue) -> None:
    assert queue.join(timeout=0)
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    assert not queue.join(timeout=0)
    paused = queue.submit(lambda _: None, estimate=ANY)
    paused.pause()
    gate.open()
    assert queue.wait_parked(PATIENCE_S)
    assert not queue.join(timeout=0.01)
    joined: list[bool] = []
    thread = threading.Thread(target=lambda: joined.append(queue.join()))
    thread.start()
    paused.resume()
    thread.join(PATIENCE_S)

    assert joined == [True]


WAITS: Final[dict[str, Callable[[TaskQueue, Task], object]]] = {
    "wait": lambda _queue, task: task.wait(),
    "wait in time": lambda _queue, task: task.wait(PATIENCE_S),
    "result": lambda _queue, task: task.result(),
    "exception": lambda _queue, task: task.exception(PATIENCE_S),
    "future.result": lambda _queue, task: task.future.result(),
    "future.exception": lambda _queue, task: task.future.exception(PATIENCE_S),
    "join": lambda queue, _task: queue.join(),
}


@pytest.mark.parametrize("way", sorted(WAITS))
@pytest.mark.parametrize("whom", ["another", "itself"])
def test_a_callback_that_waits_for_its_own_queue_is_told(way: str, whom: str) -> None:
    def callback(context: TaskContext) -> None:
        task = queue.get(context.task_id if whom == "itself" else 2)
        with pytest.raises(WouldDeadlock):
            WAITS[way](queue, task)
        # Looking costs nothing.
        assert not task.wait(timeout=0)
        assert not queue.join(timeout=0)

    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        queue.submit(lambda _: None, estimate=ANY)
        governor.script(start())
        queue.resources_changed()

        assert task.result(PATIENCE_S) is None


def test_a_callback_may_read_a_task_that_has_ended(queue: TaskQueue) -> None:
    first = queue.submit(lambda _: "first", estimate=ANY)
    second = queue.submit(
        lambda _: (first.result(), first.wait(), first.future.result(), first.exception()),
        estimate=ANY,
    )

    assert second.result(PATIENCE_S) == ("first", True, "first", None)


def test_a_callback_may_wait_for_a_task_of_another_queue(queue: TaskQueue) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as other:
        task = queue.submit(
            lambda _: other.submit(lambda _: "theirs", estimate=ANY).result(PATIENCE_S),
            estimate=ANY,
        )

        assert task.result(PATIENCE_S) == "theirs"


def test_a_task_that_ends_between_two_looks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait` looks without the lock first, and again with it."""
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)

        def end_it() -> int:
            monkeypatch.undo()
            task.cancel()
            return 0

        monkeypatch.setattr("lardon.queue.signal.forks", end_it)
        queue._signal._born = 0
        assert task.wait()


def test_wait_parked_says_no_when_the_worker_is_busy(gate: Gate, queue: TaskQueue) -> None:
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()

    assert not queue.wait_parked(timeout=0.01)
    gate.open()
    assert queue.wait_parked(PATIENCE_S)


# Futures -----------------------------------------------------------------------------------


def test_the_future_is_a_real_one_and_always_the_same(gate: Gate, queue: TaskQueue) -> None:
    running = queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: "value", estimate=ANY)
    early = pending.future
    assert isinstance(early, concurrent.futures.Future)
    assert (early.running(), early.done()) == (False, False)
    assert running.future.running()
    gate.open()

    done, not_done = concurrent.futures.wait([running.future, early], PATIENCE_S)
    assert done == {running.future, early}
    assert not not_done
    assert early is pending.future
    assert early.result(timeout=0) == "value"


@pytest.mark.parametrize("early", [True, False])
def test_the_future_mirrors_every_end(early: bool) -> None:
    def cancel_itself(context: TaskContext) -> None:
        queue.cancel(context.task_id)

    error = OSError("its own")
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        tasks = [
            queue.submit(lambda _: "value", estimate=ANY),
            queue.submit(raising(error), estimate=ANY),
            queue.submit(cancel_itself, estimate=ANY),
            queue.submit(lambda context: context.sequence_break(), estimate=ANY),
            queue.submit(lambda _: None, estimate=ANY),
        ]
        futures = [task.future for task in tasks] if early else []
        tasks[4].cancel()
        governor.script(start(), start(), start(), start(), reject("no more"))
        queue.resources_changed()
        assert queue.join(PATIENCE_S)

    value, failed, cancelled, refused, unstarted = futures or [task.future for task in tasks]
    assert value.result(timeout=0) == "value"
    assert failed.exception(timeout=0) is error
    assert isinstance(cancelled.exception(timeout=0), TaskCancelled)
    assert isinstance(refused.exception(timeout=0), TaskRefused)
    assert unstarted.cancelled()
    assert not cancelled.cancelled()
    finished = list(concurrent.futures.as_completed([task.future for task in tasks], timeout=0))
    assert len(finished) == 5


def test_the_future_runs_when_the_task_does(gate: Gate) -> None:
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        task = queue.submit(gate, estimate=ANY)
        future = task.future
        assert queue.wait_parked(PATIENCE_S)
        assert not future.running()
        governor.script(start())
        queue.resources_changed()
        gate.wait_entered()
        assert future.running()
        gate.open()


def test_a_listener_that_makes_the_future_of_an_ending_task(
    queue: TaskQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The end is taken over once, whoever comes first."""
    futures: list[concurrent.futures.Future[Any]] = []
    queue.subscribe(
        lambda event: (
            futures.append(queue.get(event.task_id).future) if event.state.terminal else None
        )
    )
    told = threading.Event()
    task = queue.submit(lambda _: "value", estimate=ANY)
    task.add_done_callback(lambda _: told.set())

    assert told.wait(PATIENCE_S)
    assert futures[0].result(timeout=0) == "value"
    assert futures[0] is task.future
    assert not caplog.records


# asyncio -----------------------------------------------------------------------------------


def test_a_task_can_be_awaited(queue: TaskQueue) -> None:
    async def main() -> list[Any]:
        tasks = [queue.submit(lambda _, n=number: n * n, estimate=ANY) for number in range(5)]
        wrapped = asyncio.wrap_future(queue.submit(lambda _: "wrapped", estimate=ANY).future)
        return [*await asyncio.gather(*tasks), await wrapped]

    assert asyncio.run(main()) == [0, 1, 4, 9, 16, "wrapped"]


def test_awaiting_raises_what_result_raises(queue: TaskQueue) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="its own"):
            await queue.submit(raising(OSError("its own")), estimate=ANY)
        with pytest.raises(RuntimeError) as caught:
            await queue.submit(raising(StopIteration(7)), estimate=ANY)
        assert isinstance(caught.value.__cause__, StopIteration)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_cancelling_the_awaiting_side_cancels_what_has_not_started(
    gate: Gate, queue: TaskQueue
) -> None:
    async def await_it(task: Task) -> Any:
        return await task

    async def main() -> None:
        waiting = asyncio.ensure_future(await_it(pending))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: None, estimate=ANY)
    asyncio.run(main())
    gate.open()

    assert pending.wait(PATIENCE_S)
    assert pending.state is TaskState.CANCELLED


# Memory ------------------------------------------------------------------------------------


class Big:
    """Something that can be watched."""


def fail_first(seen: list[weakref.ref[Big]]) -> None:
    big = Big()
    seen.append(weakref.ref(big))
    raise KeyError("the first")


def fail_with_locals(_context: TaskContext, seen: list[weakref.ref[Big]], way: str) -> None:
    big = Big()
    seen.append(weakref.ref(big))
    try:
        fail_first(seen)
    except KeyError as first:
        if way == "cause":
            raise OSError("the second") from first
        if way == "group":
            message = "several"
            raise BaseExceptionGroup(message, [first, SystemExit(1)]) from None
        raise


@pytest.mark.parametrize("way", ["plain", "cause", "group"])
def test_the_error_kept_does_not_keep_the_callbacks_locals(queue: TaskQueue, way: str) -> None:
    seen: list[weakref.ref[Big]] = []
    task = queue.submit(fail_with_locals, seen, way, estimate=ANY)
    assert task.wait(PATIENCE_S)
    gc.collect()

    assert [ref() for ref in seen] == [None, None]
    error = task.exception(timeout=0)
    assert error is not None
    text = "".join(traceback.format_exception(error))
    assert "fail_with_locals" in text
    assert "the first" in text


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_the_end_does_not_keep_the_arguments(queue: TaskQueue, how: str) -> None:
    """They are gone when it is told, and no error of the callback leads back to them."""

    def callback(_context: TaskContext, *arguments: Big, **more: Big) -> None:
        assert len(arguments) == len(more) == 1
        if how == "raises":
            raise OSError("its own")

    ready, told = threading.Event(), threading.Event()
    alive: list[Big | None] = []
    queue.submit(lambda _: ready.wait(PATIENCE_S), estimate=ANY)
    big, more = Big(), Big()
    seen = [weakref.ref(big), weakref.ref(more)]
    task = queue.submit(callback, big, estimate=ANY, more=more)
    del big, more

    def look(_task: Task) -> None:
        gc.collect()
        alive.extend(ref() for ref in seen)
        told.set()

    task.add_done_callback(look)
    ready.set()
    assert told.wait(PATIENCE_S)

    assert alive == [None, None]
    assert task.state is (TaskState.FAILED if how == "raises" else TaskState.COMPLETED)


def test_a_circle_of_causes_ends(queue: TaskQueue) -> None:
    first, second = OSError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    task = queue.submit(raising(first), estimate=ANY)

    assert task.exception(PATIENCE_S) is first


def test_the_handle_keeps_its_own_result_and_the_worker_does_not(queue: TaskQueue) -> None:
    task = queue.submit(lambda _: Big(), estimate=ANY)
    assert task.wait(PATIENCE_S)
    assert queue.wait_parked(PATIENCE_S)
    seen = weakref.ref(task.result())
    gc.collect()
    assert seen() is not None

    del task
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled", "times out", "is refused"])
def test_the_idle_worker_keeps_nothing_of_the_last_task(how: str) -> None:
    """Neither callback, arguments, context, result nor error."""

    def callback(context: TaskContext, *arguments: Big) -> Big:
        kept.append(weakref.ref(arguments[0]))
        big = Big()
        kept.append(weakref.ref(big))
        if how == "raises":
            error = OSError("with a payload")
            error.payload = big  # type: ignore[attr-defined]
            raise error
        if how == "is cancelled":
            queue.cancel(context.task_id)
        if how == "is refused":
            context.sequence_break()
        return big

    kept: list[weakref.ref[Any]] = []
    with TaskQueue(ScriptedGovernor([start(), reject()])) as queue:
        task = queue.submit(
            callback, Big(), estimate=ANY, start_timeout_s=1e6 if how == "times out" else None
        )
        kept.append(weakref.ref(task))
        assert task.wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        del task
        gc.collect()

        assert [ref() for ref in kept] == [None] * 3


def test_a_started_task_is_not_kept_until_its_start_timeout(gate: Gate) -> None:
    """Even though another one, with less time, is still in line."""
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(lambda _: Big(), estimate=ANY, start_timeout_s=1e6)
        queue.submit(gate, estimate=ANY)
        hurried = queue.submit(lambda _: None, estimate=ANY, start_timeout_s=1e3)
        gate.wait_entered()
        kept = [weakref.ref(task), weakref.ref(task.result(timeout=0))]
        del task
        gc.collect()

        assert [ref() for ref in kept] == [None, None]
        gate.open()
        assert hurried.wait(PATIENCE_S)


def test_progress_after_the_end_changes_nothing() -> None:
    kept: list[TaskContext] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(kept.append, estimate=ResourceEstimate())
        assert task.wait(timeout=10)
    ended = task.snapshot()

    kept[0].set_progress(99, 100, "late")

    assert task.snapshot() == ended
