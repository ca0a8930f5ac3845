"""
What another thread does to a task, between any two lines of the worker.

A trace function stops the worker at its first, second, third ... line of lardon that runs
without the queue's lock, and has another thread act there. So each interleaving of one call
with the life of a task is tried, not hoped for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lardon
from lardon import Contract, ResourceEstimate, Task, TaskContext, TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, start, wait
from tests.invariants.model import TERMINAL
from tests.invariants.recorder import PATIENCE_S, Recorder

if TYPE_CHECKING:
    from types import FrameType

    from lardon.queue.context import OnPause
    from lardon.queue.views import TaskEvent

PACKAGE: Final = str(Path(lardon.__file__).parent)
ESTIMATE: Final = ResourceEstimate()
GLANCE_S: Final = 0.001
# More lines than a life has; a bound for a loop that should end by itself.
MANY: Final = 2000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Stepper:
    """A queue whose worker can be stopped at its n-th line."""

    def __init__(self) -> None:
        self.governor = ScriptedGovernor([start()])
        self.recorder = Recorder(self.governor)
        self.every_line: Callable[[], object] = lambda: None
        """Called at each line, with or without the lock."""
        self.on_pause: OnPause = "park"
        self.said: object = None
        self.in_callback = False
        self.finished = False
        self.ends = 0
        self.closed = False
        self._acted = threading.Event()
        self._left = 0
        self._action: Callable[[], object] = lambda: None
        self._other = ThreadPoolExecutor(1)
        self.queue = self.new_queue()

    def new_queue(self) -> TaskQueue:
        before = threading.gettrace()
        threading.settrace(self._enter)
        try:
            queue = TaskQueue(self.recorder, history=2)
        finally:
            threading.settrace(before)
        queue.subscribe(self._listen)
        return queue

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._step if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _step(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self.every_line()
            # Under the lock no other thread can act; here it can, and does.
            if self._left and not self.queue._signal.held_by_caller():
                self._left -= 1
                if not self._left:
                    self.said = self._other.submit(self._action).result(PATIENCE_S)
                    self._acted.set()
        return self._step

    def _listen(self, event: TaskEvent) -> None:
        self.ends += event.state in TERMINAL

    def run(self, line: int, action: Callable[[Task], object]) -> Task | None:
        """Run a task, and *action* at that line; None when it slept or ended before."""
        self.said, self.in_callback, self.finished, self.ends = None, False, False, 0
        self._acted.clear()
        number = self.queue.statistics().submitted + 1
        self._action = lambda: action(self.queue.get(number))
        self._left = line
        task = self.queue.submit(self._work, estimate=ESTIMATE)
        deadline = time.monotonic() + PATIENCE_S
        while not (self._acted.is_set() or self.queue.wait_parked(GLANCE_S)):
            assert time.monotonic() < deadline, "neither acts nor rests"
        reached, self._left = self._acted.is_set(), 0
        assert self.closed or self.queue.wait_parked(PATIENCE_S)
        return task if reached else None

    def _work(self, context: TaskContext) -> str:
        self.in_callback = True
        context.set_progress(1)
        if context.checkpoint():
            context.sequence_break(None, on_pause=self.on_pause)
        self.finished = True
        return "done"

    def check_over(self, task: Task) -> None:
        assert task.wait(PATIENCE_S)
        assert self.closed or self.queue.wait_parked(PATIENCE_S)
        assert self.ends == 1
        assert task.started is self.in_callback is self.finished
        assert task.progress.done == int(self.in_callback)
        assert self.governor.reservations() == ()
        self.recorder.check()

    def stop(self) -> None:
        self._left = 0
        assert self.queue.close(PATIENCE_S)
        self._other.shutdown()
        self.recorder.check_all_released()


@pytest.fixture
def stepper() -> Iterator[Stepper]:
    one = Stepper()
    yield one
    one.stop()


def lines() -> Iterator[int]:
    """Yield 1, 2, 3 … until the loop is left."""
    yield from range(1, MANY)
    pytest.fail("the worker never comes to rest")


@pytest.mark.parametrize("waits", [False, True])
def test_a_cancel_between_any_two_lines(stepper: Stepper, waits: bool) -> None:
    for line in lines():
        stepper.governor.script(*([start(), wait(), start()] if waits else [start()]))
        task = stepper.run(line, lambda task: task.cancel())
        if task is None:
            assert line > 50
            break
        stepper.check_over(task)
        assert task.state is (TaskState.CANCELLED if stepper.said else TaskState.COMPLETED)
        assert stepper.said or stepper.finished
    stepper.queue.cancel_all()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("on_pause", ["park", "cancel"])
def test_a_pause_between_any_two_lines(stepper: Stepper, waits: bool, on_pause: OnPause) -> None:
    stepper.on_pause = on_pause
    finished_before: list[bool] = []

    def pause(task: Task) -> bool:
        finished_before.append(stepper.finished)
        return task.pause()

    outcomes: set[object] = set()
    for line in lines():
        stepper.governor.script(*([start(), wait(), start()] if waits else [start()]))
        finished_before.clear()
        task = stepper.run(line, pause)
        if task is None:
            assert line > 50
            break
        if task.state is TaskState.PAUSED:
            held = len(stepper.governor.reservations())
            # A break with nothing in hand parks only if it was told to.
            assert held or not task.started or on_pause == "park"
            outcomes.add(("paused", task.started, held))
            stepper.governor.script(start())
            assert task.resume()
        elif task.state not in TERMINAL:
            # Paused and cancelled in the break, or at rest in it: news ends that.
            pytest.fail(f"the pause was not obeyed: {task}")
        stepper.check_over(task)
        if task.state is TaskState.CANCELLED:
            assert on_pause == "cancel"
            assert task.started
            outcomes.add("cancelled")
        elif outcomes and not stepper.said:
            outcomes.add("too late")
    assert ("paused", False, 0) in outcomes
    assert ("paused", True, 1) in outcomes
    assert ("cancelled" in outcomes) is (on_pause == "cancel")
    stepper.queue.cancel_all()


def test_a_pause_that_is_withdrawn_between_any_two_lines(stepper: Stepper) -> None:
    for line in lines():
        task = stepper.run(line, lambda task: (task.pause(), task.resume()))
        if task is None:
            assert line > 50
            break
        stepper.check_over(task)
        assert task.state is TaskState.COMPLETED
        assert stepper.said in {(True, True), (False, False)}


def test_a_close_between_any_two_lines(stepper: Stepper) -> None:
    def close(_task: Task) -> None:
        stepper.closed = True
        assert not stepper.queue.close(timeout=0)

    for line in lines():
        stepper.closed = False
        task = stepper.run(line, close)
        if task is None:
            assert line > 50
            break
        assert stepper.queue.close(PATIENCE_S)
        stepper.check_over(task)
        assert task.state in {TaskState.CANCELLED, TaskState.COMPLETED}
        assert task.state is TaskState.CANCELLED or stepper.finished
        stepper.queue = stepper.new_queue()


@pytest.mark.parametrize("place", ["start", "break"])
def test_news_between_any_two_lines(stepper: Stepper, place: str) -> None:
    """Whatever comes after the answer is heard, and wakes the worker from no other."""
    answers = [wait(), start()] if place == "start" else [start(), wait(), start()]
    asked_before: list[int] = []

    def tell(_task: Task) -> None:
        asked_before.append(len(stepper.governor.asked))
        stepper.queue.resources_changed()

    heard = 0
    for line in lines():
        stepper.governor.script(*answers)
        stepper.governor.asked.clear()
        asked_before.clear()
        task = stepper.run(line, tell)
        if task is None:
            assert line > 20
            break
        if asked_before[0] >= len(answers) - 1:
            heard += 1
            assert task.state is TaskState.COMPLETED, "a wake-up was lost"
        elif task.state not in TERMINAL:
            stepper.queue.resources_changed()
        stepper.check_over(task)
        assert task.state is TaskState.COMPLETED
    assert heard > 5
    stepper.queue.cancel_all()


def test_a_contract_is_the_old_or_the_new_one_at_every_line(stepper: Stepper) -> None:
    seen: set[Contract | None] = set()
    granted = [start(4, ram_bytes=40, cpus=2), start(7, ram_bytes=70, cpus=3)]
    stepper.governor.script(*granted)
    stepper.every_line = lambda: seen.update(
        task.contract for task in stepper.queue._life.table.live.values()
    )
    estimate = ResourceEstimate(ram_bytes_per_item=10, max_batch=9, cpus=3, min_cpus=1)
    task = stepper.queue.submit(stepper._work, estimate=estimate)

    assert task.wait(PATIENCE_S)
    assert stepper.queue.wait_parked(PATIENCE_S)
    first, second = (decision.contract for decision in granted)
    assert first is not None
    assert second is not None
    assert seen == {None, first, task.contract}
    assert task.contract is not None
    assert (task.contract.batch_size, task.contract.ram_bytes) == (7, 70)
    assert (task.contract.cpus, task.contract.sequence) == (3, 1)
