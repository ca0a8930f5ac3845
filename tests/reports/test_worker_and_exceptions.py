"""Reports on the worker thread and exceptions: exits, listeners that raise, silent deaths."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import TYPE_CHECKING, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState, WorkerDied
from lardon.testing import ManualClock, ScriptedGovernor, start

if TYPE_CHECKING:
    from lardon import TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), BaseException("bare")])
def test_h66_an_exit_in_a_callback_fails_its_task_alone(error: BaseException) -> None:
    def callback(_context: TaskContext) -> None:
        if isinstance(error, SystemExit):
            sys.exit(3)
        raise error

    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        after = queue.submit(lambda _: threading.current_thread().name, estimate=ANY)
        assert after.result(PATIENCE_S) == "lardon-worker-lardon"

    assert task.state is TaskState.FAILED
    kept = task.exception(timeout=0)
    assert type(kept) is type(error)
    assert task.reason is not None
    assert type(error).__name__ in task.reason.text
    assert governor.released == 2


@pytest.mark.parametrize("error", [ValueError("bad listener"), SystemExit(3)])
def test_h67_a_listener_that_raises_harms_nobody(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_task: object) -> None:
        raise error

    heard: list[object] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        go_on = threading.Event()
        task = queue.submit(lambda _: go_on.wait(PATIENCE_S), estimate=ANY)
        task.add_done_callback(fail)
        task.add_done_callback(heard.append)
        go_on.set()
        assert queue.submit(lambda _: "alive", estimate=ANY).result(PATIENCE_S) == "alive"

    assert heard == [task]
    assert task.state is TaskState.COMPLETED
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_h68_a_dead_worker_is_said_to_be_dead() -> None:
    class FailingClock(ManualClock):
        failing = False

        def monotonic(self) -> float:
            if self.failing and "lardon-worker" in threading.current_thread().name:
                raise RuntimeError("an injected internal error")
            return super().monotonic()

    clock = FailingClock()
    queue = TaskQueue(ScriptedGovernor([start()], clock=clock))
    clock.failing = True
    task = queue.submit(lambda _: None, estimate=ANY)

    with pytest.raises(WorkerDied, match="an injected internal error"):
        task.wait()
    with pytest.raises(WorkerDied):
        queue.submit(lambda _: None, estimate=ANY)
    with pytest.raises(WorkerDied):
        queue.join()
    assert not queue.statistics().worker_alive
    assert "an injected internal error" in str(queue.statistics().worker_error)
    assert queue.close(PATIENCE_S)


def test_h70_a_stop_iteration_of_a_callback_reaches_every_waiter() -> None:
    async def awaited() -> BaseException | None:
        try:
            await task
        except RuntimeError as error:
            return error.__cause__
        return None

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(lambda _: next(iter(())), estimate=ANY)
        errors: list[BaseException] = []
        waiter = threading.Thread(
            target=lambda: errors.append(task.exception(PATIENCE_S) or Exception("no error"))
        )
        waiter.start()
        waiter.join(PATIENCE_S)
        assert not waiter.is_alive()

        assert type(errors[0]) is StopIteration
        assert task.state is TaskState.FAILED
        with pytest.raises(StopIteration):
            task.result(timeout=0)
        assert type(asyncio.run(asyncio.wait_for(awaited(), PATIENCE_S))) is StopIteration
        wrapped = task.future.exception(timeout=0)
        assert wrapped is not None
        assert wrapped.__cause__ is errors[0]
