"""
Races put at the exact instant, or let loose from a barrier; never hoped for by a sleep.

LARDON_SOAK=20 runs twenty times as many rounds.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue as stdlib_queue
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, cast

import pytest

from lardon import (
    Contract,
    Governor,
    Policy,
    QueueClosed,
    ResourceEstimate,
    ResourceSnapshot,
    Task,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.queue.context import OnPause
from lardon.queue.views import TaskEvent
from lardon.testing import ScriptedGovernor, ScriptedProbe, reduce_batch, start, wait
from tests.invariants.model import TERMINAL
from tests.invariants.recorder import PATIENCE_S, Recorder, misfit

SOAK: Final = max(1, int(os.environ.get("LARDON_SOAK", "1")))
ROUNDS: Final = 1000 * SOAK
# A queue of its own costs a thread per round.
CLOSINGS: Final = 100 * SOAK
ESTIMATE: Final = ResourceEstimate(ram_bytes=30, ram_bytes_per_item=1, max_batch=8)
MACHINE: Final = ResourceSnapshot(taken_at=0, ram_total_bytes=50, ram_available_bytes=50, cpus=2)

INSTANTS: Final = (
    "asked", "booked", "started", "break released", "break asked", "break booked",
    "end released", "ended",
)  # fmt: skip
"""The life of a task with one break, in order."""
BEFORE_START: Final = {"asked", "booked"}
IN_BREAK: Final = {"break released", "break asked", "break booked"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * SOAK)]


@pytest.fixture(autouse=True)
def _no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A legal race is nothing to complain about."""
    yield
    errors = [record.getMessage() for record in caplog.get_records("call")
              if record.levelno >= logging.ERROR]  # fmt: skip
    assert not errors, errors[:3]


@pytest.fixture
def _restless() -> Iterator[None]:
    """Have the interpreter change threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class Other:
    """A second thread that does one thing after the other."""

    def __init__(self) -> None:
        self._jobs: stdlib_queue.SimpleQueue[Callable[[], object] | None] = (
            stdlib_queue.SimpleQueue()
        )
        self._results: stdlib_queue.SimpleQueue[object] = stdlib_queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._results.put(job())
            except BaseException as error:  # noqa: BLE001  shown by the test itself
                self._results.put(error)

    def begin(self, job: Callable[[], object]) -> None:
        self._jobs.put(job)

    def result(self) -> object:
        result = self._results.get(timeout=PATIENCE_S)
        if isinstance(result, BaseException):
            raise result
        return result

    def do(self, job: Callable[[], object]) -> object:
        """Have it done there, and wait for it."""
        self.begin(job)
        return self.result()

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def other() -> Iterator[Other]:
    one = Other()
    yield one
    one.stop()


class Life:
    """Tasks with one break, and a hook at every instant of their lives."""

    def __init__(self) -> None:
        self.probe = ScriptedProbe(MACHINE)
        self.probe.on_snapshot = lambda: self._reach("asked", "break asked")
        self.governor = Governor(Policy.unlimited(), probe=self.probe)
        self.recorder = Recorder(self.governor)
        self.governor.subscribe(
            lambda: self._reach("booked", "break released", "break booked", "end released")
        )
        self.at: Callable[[str], object] = lambda _instant: None
        """Called at each instant, on the thread where it happens, until it has acted."""
        self._passed: list[str] = []
        self.ran = 0
        self.finished = 0
        self.on_pause: OnPause = "park"
        self.queue = self.new_queue()

    def new_queue(self) -> TaskQueue:
        queue = TaskQueue(self.recorder, history=2)
        queue.subscribe(self._listen)
        self.ends = 0
        return queue

    def submit(self) -> Task:
        self._passed.clear()
        self.ran = self.finished = self.ends = 0
        return self.queue.submit(self._work, estimate=ESTIMATE)

    def _work(self, context: TaskContext) -> str:
        self.ran += 1
        held = self.recorder.held(context.name)
        if len(held) != 1:
            self.recorder.blame(f"{context.name} started with {held}")
        context.set_progress(3)
        if context.checkpoint():
            context.sequence_break(None, on_pause=self.on_pause)
        if context._task.progress.done != 3:
            self.recorder.blame("the break cost the progress")
        self.finished += 1
        return "done"

    def _listen(self, event: TaskEvent) -> None:
        if event.state in TERMINAL:
            self.ends += 1
            self._reach("ended")
        elif event.previous is TaskState.PENDING and event.state is TaskState.RUNNING:
            self._reach("started")

    def _reach(self, *instants: str) -> None:
        """Tell the first of *instants* that this task has not passed."""
        for instant in instants:
            if instant not in self._passed:
                self._passed.append(instant)
                self.at(instant)
                return

    def act_once(self, instant: str, action: Callable[[], object]) -> Acted:
        acted = Acted()

        def act(reached: str) -> None:
            if reached == instant and not acted.event.is_set():
                try:
                    acted.said = action()
                finally:
                    acted.event.set()

        self.at = act
        return acted

    def check_over(self, task: Task) -> None:
        """Check what holds at every end."""
        self.recorder.check()
        assert self.ends == 1
        assert self.ran == self.finished == int(task.started)
        assert self.recorder.held(task.name) == []
        assert task.snapshot().state is task.state
        if task.state is TaskState.COMPLETED:
            assert task.result(0) == "done"

    def check_books(self) -> None:
        self.recorder.check_all_released()
        statistics = self.governor.statistics()
        assert statistics.active == statistics.reserved_ram_bytes == statistics.reserved_cpus == 0
        assert statistics.released_again == 0


class Acted:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.said: object = None


@pytest.fixture
def life() -> Iterator[Life]:
    one = Life()
    yield one
    one.at = lambda _instant: None
    assert one.queue.close(PATIENCE_S)
    one.check_books()


def by_turns(other: Other, number: int, action: Callable[[], object]) -> Callable[[], object]:
    """Return *action*, on the thread that gets there or on another one that it waits for."""
    return action if number % 2 else lambda: other.do(action)


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_cancel_at_any_instant_means_cancelled_or_comes_too_late(
    life: Life, other: Other, instant: str
) -> None:
    for number in range(1, ROUNDS + 1):
        action = partial(life.queue.cancel, number)
        acted = life.act_once(instant, by_turns(other, number, action))
        task = life.submit()

        assert acted.event.wait(PATIENCE_S)
        assert task.wait(PATIENCE_S)
        assert life.queue.wait_parked(PATIENCE_S)
        assert acted.said is (instant != "ended")
        assert task.state is (TaskState.CANCELLED if acted.said else TaskState.COMPLETED)
        assert life.ran == (instant not in BEFORE_START)
        life.check_over(task)


@pytest.mark.parametrize("on_pause", ["park", "cancel"])
@pytest.mark.parametrize("instant", INSTANTS)
def test_a_pause_at_any_instant_is_obeyed_at_the_next_pause_point(
    life: Life, other: Other, instant: str, on_pause: OnPause
) -> None:
    life.on_pause = on_pause
    for number in range(1, ROUNDS // 2 + 1):
        action = partial(life.queue.pause, number)
        acted = life.act_once(instant, by_turns(other, number, action))
        task = life.submit()

        assert acted.event.wait(PATIENCE_S)
        assert life.queue.wait_parked(PATIENCE_S)
        assert acted.said is (instant != "ended")
        cancels = instant in IN_BREAK and on_pause == "cancel"
        pauses = instant not in {"end released", "ended"} and not cancels
        if pauses:
            assert task.state is TaskState.PAUSED
            # Before its start it holds nothing; in its callback it keeps what it has.
            assert len(life.recorder.held(task.name)) == (instant not in BEFORE_START)
            assert task.resume()
        assert task.wait(PATIENCE_S)
        assert life.queue.wait_parked(PATIENCE_S)
        assert task.state is (TaskState.CANCELLED if cancels else TaskState.COMPLETED)
        life.check_over(task)


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_pause_that_is_withdrawn_at_once_changes_nothing(
    life: Life, other: Other, instant: str
) -> None:
    for number in range(1, ROUNDS + 1):

        def flicker(number: int = number) -> tuple[bool, bool]:
            return life.queue.pause(number), life.queue.resume(number)

        acted = life.act_once(instant, by_turns(other, number, flicker))
        task = life.submit()

        assert acted.event.wait(PATIENCE_S)
        assert task.wait(PATIENCE_S)
        assert life.queue.wait_parked(PATIENCE_S)
        assert acted.said == ((False, False) if instant == "ended" else (True, True))
        assert task.state is TaskState.COMPLETED
        life.check_over(task)


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_close_at_any_instant_ends_every_task_once(
    life: Life, other: Other, instant: str
) -> None:
    for number in range(CLOSINGS):
        action = partial(life.queue.close, timeout=0)
        acted = life.act_once(instant, by_turns(other, number, action))
        task = life.submit()

        assert acted.event.wait(PATIENCE_S)
        assert life.queue.close(PATIENCE_S)
        assert acted.said is False
        assert task.state is (TaskState.COMPLETED if instant == "ended" else TaskState.CANCELLED)
        assert life.ran == (instant not in BEFORE_START)
        life.check_over(task)
        with pytest.raises(QueueClosed):
            life.submit()
        life.queue = life.new_queue()


@pytest.mark.parametrize("instant", sorted(BEFORE_START))
def test_a_task_resumed_while_the_next_is_admitted_goes_first(
    life: Life, other: Other, instant: str
) -> None:
    order: list[int] = []
    for number in range(1, ROUNDS, 2):
        order.clear()
        life.at = lambda _instant: None
        gate = threading.Event()
        life.queue.submit(lambda _c, gate=gate: gate.wait(PATIENCE_S), estimate=ESTIMATE)
        first = life.queue.submit(lambda c: order.append(c.task_id), estimate=ESTIMATE)
        assert first.pause()
        gate.set()
        assert life.queue.wait_parked(PATIENCE_S)
        life._passed.clear()
        acted = life.act_once(instant, by_turns(other, number // 2, first.resume))
        second = life.queue.submit(lambda c: order.append(c.task_id), estimate=ESTIMATE)

        assert first.wait(PATIENCE_S)
        assert second.wait(PATIENCE_S)
        assert acted.said is True
        assert order == [first.id, second.id]


@pytest.mark.usefixtures("_restless")
def test_a_pause_during_a_waiting_break_cancels_wherever_it_lands(other: Other) -> None:
    """Between an answer and the sleep on it, or in the sleep: never a park."""
    governor = ScriptedGovernor([start()])
    entered = threading.Event()

    def work(context: TaskContext) -> bool:
        entered.set()
        return context.sequence_break(None, on_pause="cancel")

    def knock_and_pause(task: Task, times: int) -> bool:
        for _ in range(times):
            queue.resources_changed()
        return task.pause()

    with TaskQueue(governor) as queue:
        for number in range(ROUNDS):
            governor.script(start(), wait())
            entered.clear()
            task = queue.submit(work, estimate=ESTIMATE)
            assert entered.wait(PATIENCE_S)
            assert other.do(partial(knock_and_pause, task, number % 20)) is True
            # It may have come just before the break: then it parked there, by rights.
            assert queue.wait_parked(PATIENCE_S)
            if task.state is TaskState.PAUSED and governor.reservations():
                assert task.cancel()
                assert task.wait(PATIENCE_S)
            assert task.state is TaskState.CANCELLED
    assert governor.reservations() == ()


@pytest.mark.usefixtures("_restless")
def test_a_reader_beside_the_breaks_sees_the_old_contract_or_the_new_one(other: Other) -> None:
    estimate = ResourceEstimate(ram_bytes_per_item=7, max_batch=9)
    sizes = [1 + number % 7 for number in range(ROUNDS + 1)]
    governor = ScriptedGovernor([reduce_batch(size, ram_bytes=7 * size) for size in sizes])
    over = threading.Event()
    seen: set[Contract] = set()

    def work(context: TaskContext) -> int:
        return sum(context.sequence_break() for _ in range(ROUNDS))

    def read(task: Task) -> None:
        while not over.is_set():
            contract, view = task.contract, task.snapshot()
            if contract is not None and view.contract is not None:
                assert contract.sequence <= view.sequence == view.contract.sequence
                seen.update((contract, view.contract))

    with TaskQueue(governor) as queue:
        task = queue.submit(work, estimate=estimate)
        other.begin(partial(read, task))
        assert task.wait(PATIENCE_S)
        over.set()
        other.result()

    assert task.result(0) == ROUNDS
    assert all(misfit(estimate, contract) is None for contract in seen)
    assert all(contract.batch_size == sizes[contract.sequence] for contract in seen)


# Lost wake-ups ---------------------------------------------------------------------------


@pytest.mark.parametrize("news", ["resources_changed", "release", "submit"])
@pytest.mark.parametrize("place", ["start", "break"])
def test_news_between_the_answer_and_the_sleep_is_heard(
    other: Other, news: str, place: str
) -> None:
    governor = ScriptedGovernor([start()])
    small = ResourceEstimate()
    with TaskQueue(governor) as queue:
        for number in range(ROUNDS):
            _, neighbour = governor.reserve(small, holder="neighbour")
            assert neighbour is not None
            # The first answer to the task at its start, or at its break.
            script = [wait(), start()] if place == "start" else [start(), wait(), start()]
            countdown = itertools.count(len(script) - 1, -1)
            later: list[Task] = []

            def tell(queue: TaskQueue = queue, release: Callable[[], bool] = neighbour.release,
                     later: list[Task] = later) -> None:  # fmt: skip
                match news:
                    case "resources_changed":
                        queue.resources_changed()
                    case "release":
                        release()
                    case _:
                        later.append(queue.submit(lambda _c: None, estimate=small))

            act = by_turns(other, number, tell)

            def on_answer(
                act: Callable[[], object] = act, countdown: Iterator[int] = countdown
            ) -> None:
                if next(countdown) == 1:
                    act()

            governor.script(*script)
            governor.on_answer = on_answer
            task = queue.submit(
                lambda c: c.sequence_break(None) if place == "break" else True, estimate=small
            )

            assert task.wait(PATIENCE_S), "a wake-up was lost"
            assert task.result(0) is True
            governor.on_answer = None
            assert all(one.wait(PATIENCE_S) for one in later)
            neighbour.release()
        assert queue.join(PATIENCE_S)
    assert governor.reservations() == ()


# Let loose from a barrier ------------------------------------------------------------------


def test_ten_thousand_cancels_meet_their_tasks_at_every_instant(life: Life, other: Other) -> None:
    """H74: a cancel that says True ends CANCELLED; one that says False came after the end."""
    outcomes = set()
    instants = itertools.cycle((*INSTANTS, "submitted"))
    barrier = threading.Barrier(2)

    def meet() -> None:
        barrier.wait(PATIENCE_S)

    for number in range(1, 10 * ROUNDS + 1):
        instant = next(instants)
        acted = life.act_once(instant, meet)

        def cancel(number: int = number) -> bool:
            meet()
            return life.queue.cancel(number)

        other.begin(cancel)
        task = life.submit()
        if instant == "submitted":
            meet()
        else:
            assert acted.event.wait(PATIENCE_S)
        said = other.result()

        assert task.wait(PATIENCE_S)
        assert life.queue.wait_parked(PATIENCE_S)
        assert task.state is (TaskState.CANCELLED if said else TaskState.COMPLETED)
        assert life.ran or said
        life.check_over(task)
        outcomes.add((said, bool(life.ran)))
    # Too late; in time; and before the start.
    assert outcomes == {(False, True), (True, True), (True, False)}


Operation = tuple[str, bool]
"""What was asked of a task, and what it said."""


def explained(
    histories: tuple[list[Operation], list[Operation]], final: TaskState, *, started: bool
) -> bool:
    """Return whether some order of the calls, one after the other, gives what was seen."""
    for picks in set(itertools.permutations([0] * len(histories[0]) + [1] * len(histories[1]))):
        rest = (iter(histories[0]), iter(histories[1]))
        pausing = cancelling = False
        for pick in picks:
            what, said = next(rest[pick])
            ended = cancelling and not started
            match what:
                case "pause":
                    new = not ended and not pausing
                    pausing = pausing or new
                case "resume":
                    new = not ended and pausing
                    pausing = pausing and not new
                case _:
                    new = not cancelling
                    cancelling = True
            if new is not said:
                break
        else:
            if cancelling:
                expected = TaskState.CANCELLED
            elif pausing:
                expected = TaskState.PAUSED
            else:
                expected = TaskState.COMPLETED
            if final is expected:
                return True
    return False


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("started", [False, True])
def test_concurrent_calls_behave_as_if_one_came_after_the_other(
    life: Life, other: Other, started: bool
) -> None:
    calls = ("pause", "resume", "pause", "cancel", "resume")
    programs = itertools.cycle(itertools.product(itertools.permutations(calls, 2), repeat=2))
    barrier = threading.Barrier(2)
    for _ in range(ROUNDS):
        gates = [threading.Event(), threading.Event()]
        entered = [threading.Event(), threading.Event()]

        def work(
            context: TaskContext, which: int,
            gates: list[threading.Event] = gates, entered: list[threading.Event] = entered,
        ) -> bool:  # fmt: skip
            entered[which].set()
            assert gates[which].wait(PATIENCE_S)
            return context.checkpoint()

        blocker = life.queue.submit(work, 0, estimate=ESTIMATE)
        task = life.queue.submit(work, 1, estimate=ESTIMATE)
        assert entered[0].wait(PATIENCE_S)
        if started:
            gates[0].set()
            assert entered[1].wait(PATIENCE_S)
        mine, theirs = next(programs)

        def play(program: tuple[str, ...], task: Task = task) -> list[Operation]:
            barrier.wait(PATIENCE_S)
            return [(what, getattr(task, what)()) for what in program]

        other.begin(lambda: play(theirs))  # noqa: B023  done before the next round
        histories = (play(mine), cast(list[Operation], other.result()))
        for gate in gates:
            gate.set()
        assert blocker.wait(PATIENCE_S)
        assert life.queue.wait_parked(PATIENCE_S)

        assert explained(histories, task.state, started=started), (histories, task.state)
        task.cancel()
        assert task.wait(PATIENCE_S)
