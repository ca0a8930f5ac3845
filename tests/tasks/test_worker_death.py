"""A worker that dies is said to be dead: nobody waits for it, and nothing stays booked."""

from __future__ import annotations

import asyncio
import datetime
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import Policy, ResourceEstimate, TaskQueue, TaskState, WorkerDied
from lardon.testing import ManualClock, ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()


class FailingClock(ManualClock):
    """A clock that fails on the worker's thread once the test says so: an internal error."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_monotonic_after: int | None = None
        self.fail_wall = False
        self.fail_wait = False

    def _on_worker(self) -> bool:
        return "lardon-worker" in threading.current_thread().name

    def monotonic(self) -> float:
        if self.fail_monotonic_after is not None and self._on_worker():
            if self.fail_monotonic_after == 0:
                raise OSError("the clock broke")
            self.fail_monotonic_after -= 1
        return super().monotonic()

    def wall(self) -> datetime.datetime:
        if self.fail_wall and self._on_worker():
            raise OSError("the clock broke")
        return super().wall()

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        if self.fail_wait and self._on_worker():
            raise OSError("the clock broke")
        return super().wait_for(condition, predicate, timeout)


class BrokenPolicy(ScriptedGovernor):
    """A governor whose policy cannot be read once the test says so."""

    broken = False

    @property
    def policy(self) -> Policy:
        if self.broken:
            raise OSError("the policy broke")
        return Policy()

    @policy.setter
    def policy(self, value: Policy) -> None:
        pass


@pytest.fixture
def clock() -> FailingClock:
    return FailingClock()


@pytest.fixture
def queue(clock: FailingClock) -> Iterator[TaskQueue]:
    one = TaskQueue(ScriptedGovernor([start()], clock=clock), name="mortal")
    yield one
    assert one.close(PATIENCE_S)


def kill(queue: TaskQueue, clock: FailingClock) -> None:
    """Let the idle worker die."""
    clock.fail_wait = True
    queue.resources_changed()
    queue._thread.join(PATIENCE_S)
    assert not queue._thread.is_alive()


def test_submit_says_that_the_worker_died_and_of_what(
    queue: TaskQueue, clock: FailingClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert queue.statistics().worker_alive
    kill(queue, clock)

    for submit in (queue.submit, queue.submit_nowait):
        with pytest.raises(WorkerDied, match="the clock broke") as caught:
            submit(lambda _: None, estimate=ANY)
        assert isinstance(caught.value.__cause__, OSError)
    statistics = queue.statistics()
    assert not statistics.worker_alive
    assert "the clock broke" in str(statistics.worker_error)
    (record,) = [one for one in caplog.records if one.levelno == logging.CRITICAL]
    assert "mortal" in record.getMessage()


def test_whoever_waits_is_told_at_once(gate: Gate, queue: TaskQueue, clock: FailingClock) -> None:
    """Waiters in `wait`, `result`, `exception`, `join`, the future, and in a full queue."""
    queue._capacity = 1
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: None, estimate=ANY)
    watched = threading.Event()
    future = pending.future
    future.add_done_callback(lambda _: watched.set())
    calls: list[Callable[[], object]] = [
        pending.wait,
        pending.result,
        pending.exception,
        queue.join,
        future.result,
        future.exception,
        lambda: queue.submit(lambda _: None, estimate=ANY),
    ]
    answers: list[Any] = []
    ready = threading.Barrier(len(calls) + 1)

    def call_it(call: Callable[[], object]) -> None:
        ready.wait(PATIENCE_S)
        try:
            answers.append(call())
        except WorkerDied as error:
            answers.append(type(error))

    threads = [threading.Thread(target=call_it, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_S)
    clock.fail_monotonic_after = 0
    gate.open()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    # The future of concurrent.futures *returns* the error when asked for it.
    assert len(answers) == len(calls)
    assert all(one is WorkerDied or isinstance(one, WorkerDied) for one in answers)
    assert watched.wait(PATIENCE_S)


def test_whoever_comes_later_is_told_at_once(
    gate: Gate, queue: TaskQueue, clock: FailingClock
) -> None:
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: None, estimate=ANY)
    clock.fail_monotonic_after = 0
    gate.open()
    queue._thread.join(PATIENCE_S)

    for call in (pending.wait, pending.result, pending.exception, queue.join, queue.wait_parked):
        with pytest.raises(WorkerDied):
            call()
    future = pending.future
    first = future.exception(PATIENCE_S)
    assert isinstance(first, WorkerDied)
    # Given up once, whoever comes first.
    future.abandon(queue._signal.death())
    assert future.exception(timeout=0) is first

    async def awaited() -> None:
        with pytest.raises(WorkerDied):
            await asyncio.wait_for(pending, PATIENCE_S)

    asyncio.run(awaited())


def test_the_same_holds_on_a_thread_with_the_dead_workers_identifier(
    gate: Gate, queue: TaskQueue, clock: FailingClock
) -> None:
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: None, estimate=ANY)
    clock.fail_monotonic_after = 0
    gate.open()
    queue._thread.join(PATIENCE_S)
    errors: list[type[BaseException]] = []

    def wait_for_it() -> None:
        try:
            pending.wait(PATIENCE_S)
        except Exception as error:  # noqa: BLE001  any error is the material here
            errors.append(type(error))

    for _ in range(20):
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        thread.join(PATIENCE_S)

    assert errors == [WorkerDied] * 20


@pytest.mark.parametrize("readings", range(4))
def test_nothing_stays_booked_wherever_it_dies(
    queue: TaskQueue, clock: FailingClock, readings: int
) -> None:
    """Before the start, in the middle of it, or at the end."""
    governor = queue._life.governor
    assert isinstance(governor, ScriptedGovernor)
    clock.fail_monotonic_after = readings
    for _ in range(2):
        queue.submit(lambda _: None, estimate=ANY)
    queue._thread.join(PATIENCE_S)
    assert not queue._thread.is_alive()

    assert governor.reservations() == ()
    assert not queue.statistics().worker_alive


def test_nothing_stays_booked_when_telling_the_start_fails(
    queue: TaskQueue, clock: FailingClock
) -> None:
    governor = queue._life.governor
    assert isinstance(governor, ScriptedGovernor)
    queue.subscribe(lambda _: None)
    clock.fail_wall = True
    task = queue.submit(lambda _: None, estimate=ANY)
    queue._thread.join(PATIENCE_S)

    with pytest.raises(WorkerDied):
        task.wait(PATIENCE_S)
    assert governor.reservations() == ()
    assert governor.released == 1


def test_a_governor_whose_policy_cannot_be_read_ends_the_worker() -> None:
    governor = BrokenPolicy([wait()])
    queue = TaskQueue(governor)
    governor.broken = True
    task = queue.submit(lambda _: None, estimate=ANY)

    with pytest.raises(WorkerDied, match="the policy broke"):
        task.wait(PATIENCE_S)
    assert queue.close(PATIENCE_S)
    assert task.state is TaskState.CANCELLED


def test_what_ended_before_stays_as_it_was(queue: TaskQueue, clock: FailingClock) -> None:
    done = queue.submit(lambda _: "kept", estimate=ANY)
    assert done.wait(PATIENCE_S)
    assert queue.wait_parked(PATIENCE_S)
    kill(queue, clock)

    assert done.result() == "kept"
    assert done.future.result(timeout=0) == "kept"


def test_a_queue_with_a_dead_worker_can_be_closed(
    gate: Gate, queue: TaskQueue, clock: FailingClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The pending tasks end, and a future that was given up is left as it is."""
    queue.submit(gate, estimate=ANY)
    gate.wait_entered()
    pending = queue.submit(lambda _: None, estimate=ANY)
    future = pending.future
    clock.fail_monotonic_after = 0
    gate.open()
    queue._thread.join(PATIENCE_S)
    caplog.clear()

    assert queue.close(PATIENCE_S)
    assert pending.state is TaskState.CANCELLED
    assert isinstance(future.exception(timeout=0), WorkerDied)
    assert not caplog.records


def test_leaving_the_with_block_of_a_dead_worker_says_so(clock: FailingClock, gate: Gate) -> None:
    queue = TaskQueue(ScriptedGovernor([start()], clock=clock))
    with pytest.raises(WorkerDied), queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        pending = queue.submit(lambda _: None, estimate=ANY)
        clock.fail_monotonic_after = 0
        gate.open()

    assert pending.state is TaskState.CANCELLED


class FailingSleep(ManualClock):
    """A clock whose sleep ends with an error, once the test says so."""

    failing = False

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        answer = super().wait_for(condition, predicate, timeout)
        if self.failing:
            raise OSError("the clock broke")
        return answer


def test_a_worker_that_dies_after_its_queue_was_dropped_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FailingSleep()
    queue = TaskQueue(ScriptedGovernor([start()], clock=clock))
    assert queue.wait_parked(PATIENCE_S)
    thread = queue._thread
    clock.failing = True
    del queue
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert "dropped" in record.getMessage()
