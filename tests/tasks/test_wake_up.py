"""No change is slept through, nothing wakes without one, and many at once are one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from lardon import (
    Governor,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
    TaskQueue,
    TaskState,
)
from lardon.testing import ManualClock, ScriptedGovernor, ScriptedProbe, start, wait

if TYPE_CHECKING:
    from lardon import Task

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
SNAPSHOT: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1 << 34, ram_available_bytes=1 << 34, cpus=4
)
SLOTS: Final = [ReasonCode.CPUS_BUSY, ReasonCode.GPUS_BUSY, ReasonCode.IO_SLOTS_BUSY]
LIVE: Final = [
    ReasonCode.INVALID_SNAPSHOT,
    ReasonCode.STALE_SNAPSHOT,
    ReasonCode.RAM_SHORT,
    ReasonCode.GPU_MEMORY_SHORT,
    ReasonCode.GPU_MEMORY_UNKNOWN,
    ReasonCode.MEMORY_PRESSURE,
    ReasonCode.CPU_PRESSURE,
    ReasonCode.IO_PRESSURE,
    ReasonCode.LOAD,
    ReasonCode.PROBE_FAILED,
]


def once(call: Callable[[], object]) -> Callable[[], None]:
    """Return a function that does *call* the first time only."""
    todo = [call]

    def run() -> None:
        if todo:
            todo.pop()()

    return run


# Between the answer and the sleep ----------------------------------------------


def test_news_between_the_answer_and_the_sleep_are_not_lost() -> None:
    governor = ScriptedGovernor([wait(), start()])
    with TaskQueue(governor) as queue:
        governor.on_answer = once(queue.resources_changed)
        task = queue.submit(lambda _: "ran", estimate=ANY)

        assert task.result(PATIENCE_S) == "ran"

    assert len(governor.asked) == 2


def test_a_release_between_the_answer_and_the_sleep_is_not_lost() -> None:
    """Somebody else's release, of the same governor, while this queue's head is told to wait."""
    governor = ScriptedGovernor([start(), wait(), start()])
    _, held = governor.reserve(ANY, holder="somebody else")
    assert held is not None
    with TaskQueue(governor) as queue:
        governor.on_answer = once(held.release)
        task = queue.submit(lambda _: "ran", estimate=ANY)

        assert task.result(PATIENCE_S) == "ran"


def test_a_submit_between_the_answer_and_the_sleep_is_not_lost() -> None:
    governor = ScriptedGovernor([wait(), start()])
    with TaskQueue(governor) as queue:
        governor.on_answer = once(lambda: queue.submit(lambda _: None, estimate=ANY))
        task = queue.submit(lambda _: "ran", estimate=ANY)

        assert task.result(PATIENCE_S) == "ran"


@pytest.mark.parametrize("call", ["cancel", "pause"])
def test_a_head_that_leaves_between_the_answer_and_the_sleep_lets_the_next_go(call: str) -> None:
    governor = ScriptedGovernor([wait(), start()])
    with TaskQueue(governor) as queue:
        blocker = ScriptedCall()
        governor.on_answer = once(blocker)
        head = queue.submit(lambda _: "head", estimate=ANY)
        behind = queue.submit(lambda _: "behind", estimate=ANY)
        blocker.become(getattr(head, call))

        assert behind.result(PATIENCE_S) == "behind"
        head.cancel()


class ScriptedCall:
    """A call that the worker makes once the test has said which."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self._call: Callable[[], object] = lambda: None

    def become(self, call: Callable[[], object]) -> None:
        self._call = call
        self._known.set()

    def __call__(self) -> None:
        assert self._known.wait(PATIENCE_S)
        self._call()


def test_a_resume_between_the_answer_and_the_sleep_is_not_lost() -> None:
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        older = queue.submit(lambda _: "older", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        older.pause()
        assert queue.wait_parked(PATIENCE_S)
        governor.on_answer = once(older.resume)
        governor.script(wait(), start())
        younger = queue.submit(lambda _: "younger", estimate=ANY)

        assert younger.result(PATIENCE_S) == "younger"
        assert older.result(0) == "older"


def test_a_close_between_the_answer_and_the_sleep_is_not_lost() -> None:
    governor = ScriptedGovernor([wait()])
    queue = TaskQueue(governor)
    governor.on_answer = once(lambda: closer.start())
    closer = threading.Thread(target=lambda: queue.close(PATIENCE_S))
    task = queue.submit(lambda _: None, estimate=ANY)

    assert task.wait(PATIENCE_S)
    closer.join(PATIENCE_S)
    assert not closer.is_alive()
    assert task.state is TaskState.CANCELLED


def test_a_policy_between_the_answer_and_the_sleep_is_not_lost() -> None:
    """With the real governor: the policy that lets the head in is set while it is told to wait."""
    probe = ScriptedProbe(attrs.evolve(SNAPSHOT, memory_pressure=50.0))
    governor = Governor(Policy(recheck_s=None), probe=probe)
    with TaskQueue(governor) as queue:
        relaxed = Policy(recheck_s=None, max_memory_pressure=None)
        probe.on_snapshot = once(lambda: waits.start())
        waits = threading.Thread(target=governor.set_policy, args=(relaxed,))
        task = queue.submit(lambda _: "ran", estimate=ANY)

        assert task.result(PATIENCE_S) == "ran"
        waits.join(PATIENCE_S)


# While it sleeps ---------------------------------------------------------------


def test_everything_that_could_help_wakes_a_waiting_head() -> None:
    governor = ScriptedGovernor([start(), wait()])
    _, held = governor.reserve(ANY, holder="somebody else")
    assert held is not None
    with TaskQueue(governor) as queue:
        head = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        other = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        events: list[Callable[[], object]] = [
            queue.resources_changed,
            held.release,
            other.pause,
            other.resume,
            other.cancel,
        ]
        for event in events:
            asked = len(governor.asked)
            event()
            assert queue.wait_parked(PATIENCE_S)
            assert len(governor.asked) == asked + 1, event
        head.cancel()


def test_an_accepted_policy_wakes_a_waiting_head() -> None:
    probe = ScriptedProbe(SNAPSHOT)
    governor = Governor(Policy(recheck_s=None, max_load_ratio=0.1), probe=probe)
    probe.set(attrs.evolve(SNAPSHOT, load1=4.0))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: "ran", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        assert task.reason is not None
        assert task.reason.code is ReasonCode.LOAD

        governor.set_policy(Policy(recheck_s=None))

        assert task.result(PATIENCE_S) == "ran"


def test_the_end_of_a_task_of_another_queue_wakes_a_waiting_head() -> None:
    """Two queues share a governor; the second runs when the first one's task is over."""
    governor = Governor(Policy(recheck_s=None), probe=ScriptedProbe(SNAPSHOT))
    whole = ResourceEstimate(cpus=4)
    go_on = threading.Event()
    with TaskQueue(governor) as first, TaskQueue(governor) as second:
        one = first.submit(lambda _: go_on.wait(PATIENCE_S), estimate=whole)
        assert wait_running(one)
        other = second.submit(lambda _: "ran", estimate=whole)
        assert second.wait_parked(PATIENCE_S)
        assert other.state is TaskState.PENDING
        go_on.set()

        assert other.result(PATIENCE_S) == "ran"


def wait_running(task: Task) -> bool:
    """Return whether *task* runs, once its queue has told so."""
    running = threading.Event()
    assert task._queue is not None
    unsubscribe = task._queue.subscribe(
        lambda event: running.set() if event.state is TaskState.RUNNING else None
    )
    try:
        return task.state is TaskState.RUNNING or running.wait(PATIENCE_S)
    finally:
        unsubscribe()


def test_many_changes_at_once_are_one() -> None:
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:

        def many() -> None:
            for _ in range(1_000):
                queue.resources_changed()

        governor.on_answer = once(many)
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)

        assert len(governor.asked) == 2
        task.cancel()


# Timers ------------------------------------------------------------------------


@pytest.mark.parametrize("code", SLOTS)
def test_a_wait_for_slots_sleeps_without_a_timer(code: ReasonCode) -> None:
    """Only lardon's own releases end it, and they are told."""
    clock = ManualClock()
    governor = ScriptedGovernor([wait(code=code)], clock=clock, policy=Policy(recheck_s=0.5))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        for _ in range(5):
            clock.advance(1e6)
            assert queue.wait_parked(PATIENCE_S)

        assert len(governor.asked) == 1
        task.cancel()


@pytest.mark.parametrize("code", LIVE)
def test_a_wait_on_live_readings_is_examined_every_recheck(code: ReasonCode) -> None:
    """Nobody reports what another process gives back."""
    clock = ManualClock()
    governor = ScriptedGovernor([wait(code=code)], clock=clock, policy=Policy(recheck_s=0.5))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        asked = []
        for seconds in (0.25, 0.25, 0.25, 0.25, 0.75, 0.25):
            clock.advance(seconds)
            assert queue.wait_parked(PATIENCE_S)
            asked.append(len(governor.asked))

        assert asked == [1, 2, 2, 3, 4, 4]
        task.cancel()


@pytest.mark.parametrize("code", [*SLOTS, *LIVE])
def test_recheck_none_means_explicit_notification_only(code: ReasonCode) -> None:
    clock = ManualClock()
    governor = ScriptedGovernor([wait(code=code)], clock=clock, policy=Policy(recheck_s=None))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1e6)
        assert queue.wait_parked(PATIENCE_S)
        assert len(governor.asked) == 1

        queue.resources_changed()
        assert queue.wait_parked(PATIENCE_S)
        assert len(governor.asked) == 2
        task.cancel()


class CountingClock(ManualClock):
    """Notes every sleep: how long it may take, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[float | None] = []
        self.woken = 0

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
    ) -> bool:
        self.timeouts.append(timeout)
        try:
            return super().wait_for(condition, predicate, timeout)
        finally:
            self.woken += 1


def test_an_idle_queue_never_wakes() -> None:
    clock = CountingClock()
    governor = ScriptedGovernor([start()], clock=clock, policy=Policy(recheck_s=0.5))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.COMPLETED
        woken = clock.woken
        for _ in range(10):
            clock.advance(1e6)
            assert queue.wait_parked(PATIENCE_S)

        assert clock.woken == woken
        assert set(clock.timeouts) == {None}


def test_the_recheck_of_the_policy_in_force_counts() -> None:
    clock = ManualClock()
    probe = ScriptedProbe(attrs.evolve(SNAPSHOT, ram_total_bytes=0), clock=clock)
    governor = Governor(Policy(recheck_s=None), probe=probe, clock=clock)
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: "ran", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        governor.set_policy(Policy(recheck_s=2.0))
        assert queue.wait_parked(PATIENCE_S)
        probe.set(SNAPSHOT)
        clock.advance(1.5)
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PENDING

        clock.advance(0.5)

        assert task.result(PATIENCE_S) == "ran"
