"""What is known of tasks that have ended: held ones wholly, the newest lightly, others not."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import ResourceEstimate, TaskCancelled, TaskQueue, TaskRefused, TaskState, UnknownTask
from lardon.queue.table import _SWEEP_FROM
from lardon.testing import ScriptedGovernor, reject, start

if TYPE_CHECKING:
    from lardon import TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


def run(queue: TaskQueue, count: int) -> None:
    """Run tasks whose handles nobody keeps."""
    for number in range(count):
        queue.submit(lambda _, number=number: number, estimate=ANY)
    assert queue.join(PATIENCE_S)
    assert queue.wait_parked(PATIENCE_S)
    gc.collect()


def test_the_newest_are_listed_in_order_of_submission() -> None:
    with TaskQueue(ScriptedGovernor([start()]), history=3) as queue:
        run(queue, 10)
        unfinished = queue.submit(lambda _: None, estimate=ANY)
        unfinished.pause()

        views = queue.tasks()
        assert isinstance(views, tuple)
        assert [view.id for view in views][:3] == [8, 9, 10]
        assert [view.id for view in views][-1] == unfinished.id
        unfinished.resume()


def test_order_of_submission_not_of_the_end() -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        first = queue.submit(lambda _: None, estimate=ANY)
        assert first.wait(PATIENCE_S)
        paused = queue.submit(lambda _: None, estimate=ANY)
        paused.pause()
        run_last = queue.submit(lambda _: None, estimate=ANY)
        assert run_last.wait(PATIENCE_S)
        paused.resume()
        assert paused.wait(PATIENCE_S)

        assert [view.id for view in queue.tasks()] == [1, 2, 3]


def test_an_unknown_or_forgotten_id_is_told() -> None:
    with TaskQueue(ScriptedGovernor([start()]), history=2) as queue:
        run(queue, 5)
        for number in (0, -1, 99, 3):
            for call in (queue.get, queue.pause, queue.resume, queue.cancel):
                with pytest.raises(UnknownTask) as caught:
                    call(number)
                assert isinstance(caught.value, KeyError)
                assert caught.value.task_id == number
                assert str(caught.value).startswith(f"no task {number} ")
        assert queue.get(5).state is TaskState.COMPLETED


def test_a_handle_that_somebody_holds_is_known_for_ever() -> None:
    with TaskQueue(ScriptedGovernor([start()]), history=1) as queue:
        held = queue.submit(lambda _: "kept", estimate=ANY)
        run(queue, 50)

        assert queue.get(held.id) is held
        assert held.result(timeout=0) == "kept"
        del held
        gc.collect()
        with pytest.raises(UnknownTask):
            queue.get(1)


def test_without_a_history_nothing_is_listed() -> None:
    with TaskQueue(ScriptedGovernor([start()]), history=0) as queue:
        held = queue.submit(lambda _: "kept", estimate=ANY)
        run(queue, 5)

        assert queue.tasks() == ()
        assert queue.get(held.id) is held


def test_the_history_keeps_facts_and_no_result() -> None:
    class Big:
        pass

    def callback(context: TaskContext, how: str, payload: Big) -> Big:
        context.set_progress(1, 2, "half")
        if how == "raises":
            raise OSError(how)
        if how == "cancels":
            queue.cancel(context.task_id)
        return payload

    seen: list[weakref.ref[Big]] = []
    with TaskQueue(ScriptedGovernor([start(), start(), start(), reject("too big")])) as queue:
        for how in ("returns", "raises", "cancels", "rejected"):
            payload = Big()
            seen.append(weakref.ref(payload))
            queue.submit(callback, how, payload, estimate=ANY, name=how)
            del payload
        assert queue.join(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        gc.collect()
        assert [ref() for ref in seen] == [None] * 4

        views = queue.tasks()
        assert [(view.name, view.state) for view in views] == [
            ("returns", TaskState.COMPLETED),
            ("raises", TaskState.FAILED),
            ("cancels", TaskState.CANCELLED),
            ("rejected", TaskState.FAILED),
        ]
        assert views[0].progress.message == "half"
        tasks = [queue.get(number) for number in (1, 2, 3, 4)]
        assert [task.snapshot() for task in tasks] == list(views)
        assert [task.estimate for task in tasks] == [ANY] * 4
        # A handle from the history is of an ended task, and its result went with the last one.
        errors: list[type[Any]] = [UnknownTask, UnknownTask, TaskCancelled, TaskRefused]
        for task, error in zip(tasks, errors, strict=True):
            assert task.wait()
            assert (task.cancel(), task.pause(), task.resume()) == (False, False, False)
            with pytest.raises(error):
                task.result(timeout=0)
            assert task.future.done()
        assert "dropped" in str(tasks[0].exception(timeout=0))


@pytest.mark.slow
def test_the_tables_stay_small() -> None:
    """However many tasks were run: dead references are swept."""
    with TaskQueue(ScriptedGovernor([start()]), history=4) as queue:
        held = [queue.submit(lambda _: None, estimate=ANY) for _ in range(100)]
        run(queue, 5 * _SWEEP_FROM)

        assert len(queue._life.table._finished) <= 2 * _SWEEP_FROM
        assert queue.statistics().completed == 5 * _SWEEP_FROM + 100
        assert [queue.get(task.id) for task in held] == held
        assert len(queue._life.line) == 0


@pytest.mark.parametrize("history", [-1, True])
def test_a_history_is_at_least_zero(history: int) -> None:
    with pytest.raises(ValueError, match="history must be an integer of at least 0"):
        TaskQueue(ScriptedGovernor([start()]), history=history)
