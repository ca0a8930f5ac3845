"""What the end of a task keeps alive of its callback, its arguments, its result and its error."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from lardon import TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, reject, start
from tests.tasks.callbacks import ANY, PATIENCE_S, raising

if TYPE_CHECKING:
    from lardon import Task, TaskContext
    from tests.conftest import Gate


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
