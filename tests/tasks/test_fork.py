"""In a forked child the queue is the parent's: every call says so, none hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import (
    Contract,
    Governor,
    Policy,
    QueueClosed,
    ResourceEstimate,
    SystemProbe,
    TaskContext,
    TaskQueue,
    environment,
)
from lardon.environment import VISIBLE_DEVICES, gpus_for_children, outer_environ
from lardon.forks import forks
from lardon.queue.applied import _turn
from lardon.queue.views import TaskEvent
from lardon.testing import FakeGpu, FakeNvml, ScriptedGovernor, ScriptedProbe, start, wait
from tests.forking import FORKS, PATIENCE_S, held_elsewhere, in_child

if TYPE_CHECKING:
    from lardon import TaskContext

ANY: Final = ResourceEstimate()

pytestmark = [*FORKS]


def nothing(_context: TaskContext) -> None:
    """Do nothing."""


CALLS: Final[dict[str, Callable[[TaskQueue], object]]] = {
    "submit": lambda queue: queue.submit(nothing, estimate=ANY),
    "submit_nowait": lambda queue: queue.submit_nowait(nothing, estimate=ANY),
    "get": lambda queue: queue.get(1),
    "tasks": lambda queue: queue.tasks(),
    "statistics": lambda queue: queue.statistics(),
    "subscribe": lambda queue: queue.subscribe(print),
    "pause": lambda queue: queue.pause(1),
    "resume": lambda queue: queue.resume(1),
    "cancel": lambda queue: queue.cancel(1),
    "pause_all": lambda queue: queue.pause_all(),
    "resume_all": lambda queue: queue.resume_all(),
    "cancel_all": lambda queue: queue.cancel_all(),
    "resources_changed": lambda queue: queue.resources_changed(),
    "join": lambda queue: queue.join(1.0),
    "wait_parked": lambda queue: queue.wait_parked(1.0),
    "close": lambda queue: queue.close(1.0),
    "with": lambda queue: queue.__exit__(None, None, None),
}
TASK_CALLS: Final = [
    "pause", "resume", "cancel", "wait", "result", "exception", "snapshot", "future",
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_call_of_the_queue_names_the_owner(name: str) -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(nothing, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        error = held_elsewhere(queue._signal.lock, lambda: in_child(lambda: CALLS[name](queue)))

        assert isinstance(error, QueueClosed)
        assert error.owner_pid == os.getpid()
        assert str(os.getpid()) in str(error)
        # The parent is not affected.
        assert task.cancel()
        assert queue.submit(nothing, estimate=ANY).cancel()


@pytest.mark.parametrize("name", TASK_CALLS)
def test_every_call_of_an_unfinished_task_does_too(name: str) -> None:
    with TaskQueue(ScriptedGovernor([wait()])) as queue:
        task = queue.submit(nothing, estimate=ANY)

        def call() -> object:
            attribute = getattr(task, name)
            return attribute() if callable(attribute) else attribute

        error = held_elsewhere(queue._signal.lock, lambda: in_child(call))

        assert isinstance(error, QueueClosed)
        assert error.owner_pid == os.getpid()
        task.cancel()


def test_the_refusal_in_a_child_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above see from afar, on this side of the fork."""
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        with monkeypatch.context() as patched:
            patched.setattr("lardon.queue.signal.forks", lambda: -1)
            for call in CALLS.values():
                with pytest.raises(QueueClosed, match=f"process {os.getpid()}"):
                    call(queue)
            assert not queue._signal.owned_here()
        assert queue.submit(nothing, estimate=ANY).wait(PATIENCE_S)


def test_a_callback_that_forks_leaves_the_queue_to_its_parent() -> None:
    """The child has a copy of the worker's thread; the context refuses it too."""

    def callback(context: TaskContext) -> list[object]:
        calls: list[Callable[[], object]] = [
            context.checkpoint,
            context.sequence_break,
            lambda: context.set_progress(1),
            lambda: next(context.batches([1])),
        ]
        return [
            held_elsewhere(context._task._signal.lock, lambda: in_child(call))  # noqa: B023
            for call in calls
        ]

    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        errors = queue.submit(callback, estimate=ANY).result(PATIENCE_S)

    assert [type(error) for error in errors] == [QueueClosed] * 4
    assert governor.released == 1


def test_a_child_may_have_a_queue_of_its_own() -> None:
    governor = Governor(Policy.unlimited(), probe=ScriptedProbe(_snapshot()))

    def use_it() -> object:
        with TaskQueue(governor) as own:
            return own.submit(lambda _: "the child's", estimate=ANY).result(PATIENCE_S)

    with TaskQueue(governor) as queue:
        assert queue.submit(nothing, estimate=ANY).wait(PATIENCE_S)
        assert in_child(use_it) == "the child's"


def test_the_childs_exit_is_silent() -> None:
    """Dropping the copy of the queue neither waits nor warns."""

    def drop() -> list[str]:
        seen: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sys.unraisablehook = lambda args: seen.append(str(args))
            holder.clear()
            import gc

            gc.collect()
        from lardon.queue import worker

        worker._close_all()
        return seen

    holder = [TaskQueue(ScriptedGovernor([wait()]))]
    queue = holder[0]
    queue.submit(nothing, estimate=ANY)
    assert queue.wait_parked(PATIENCE_S)
    ref = holder
    del queue
    assert in_child(drop) == []
    assert ref[0].close(PATIENCE_S)


def _snapshot() -> Any:
    from lardon import ResourceSnapshot

    return ResourceSnapshot(taken_at=0.0, ram_total_bytes=1 << 34, ram_available_bytes=1 << 34)


ON_ONE_GPU: Final = Contract(batch_size=1, ram_bytes=0, cpus=1, gpus=("GPU-a",))


def test_a_child_that_is_forked_under_a_contract_has_its_gpus_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that is started anew; its own probe would else see what the contract hides."""
    monkeypatch.setenv(VISIBLE_DEVICES, "GPU-a,GPU-b")
    probe = SystemProbe(nvml=FakeNvml([FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")]))

    with gpus_for_children(ON_ONE_GPU):
        seen = in_child(lambda: [gpu.uuid for gpu in probe.snapshot().gpus])

    assert seen == ["GPU-a"]
    assert os.environ[VISIBLE_DEVICES] == "GPU-a,GPU-b"


def test_a_child_that_leaves_the_contract_keeps_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE_DEVICES, "GPU-a,GPU-b")
    contract = gpus_for_children(ON_ONE_GPU)
    contract.__enter__()

    def leave() -> str:
        contract.__exit__(None, None, None)
        return os.environ[VISIBLE_DEVICES]

    assert in_child(leave) == "GPU-a"
    contract.__exit__(None, None, None)
    assert os.environ[VISIBLE_DEVICES] == "GPU-a,GPU-b"


def taken() -> bool:
    """Return whether the turn of this process was free."""
    with _turn.taken() as mine:
        return mine


def test_a_child_may_limit_pools_that_another_thread_of_its_parent_limits() -> None:
    with ThreadPoolExecutor(1) as other:
        turn = _turn.taken()
        assert other.submit(turn.__enter__).result(PATIENCE_S)
        try:
            assert (taken(), in_child(taken)) == (False, True)
        finally:
            other.submit(turn.__exit__, None, None, None).result(PATIENCE_S)
    assert taken()


def test_a_child_that_leaves_its_parents_limit_has_the_turn_to_give_again() -> None:
    def left() -> tuple[bool, bool]:
        turn.__exit__(None, None, None)
        with ThreadPoolExecutor(1) as other:
            with _turn.taken():
                during = other.submit(taken).result(PATIENCE_S)
            return during, other.submit(taken).result(PATIENCE_S)

    turn = _turn.taken()
    assert turn.__enter__()
    try:
        assert in_child(left) == (False, True)
    finally:
        turn.__exit__(None, None, None)


def test_a_child_waits_for_no_lock_of_its_parents_environment() -> None:
    def look() -> bool:
        return VISIBLE_DEVICES in outer_environ

    lock = environment._overrides._lock
    assert held_elsewhere(lock, lambda: in_child(look)) is (VISIBLE_DEVICES in os.environ)


FORKER = """
import os, sys
from lardon import Governor, Policy, ResourceEstimate, TaskQueue

main = os.getpid()
queue = TaskQueue(Governor(Policy.unlimited()))
queue.subscribe(lambda event: os.getpid() == main or os.write(1, b"event in child "))

def fork(context):
    return os.fork() or "child"

task = queue.submit(fork, estimate=ResourceEstimate())
more = queue.submit(
    lambda context: os.getpid() == main or os.write(1, b"task in child "),
    estimate=ResourceEstimate(),
)
child = task.result(timeout=10)
more.result(timeout=10)
assert os.waitpid(child, 0) == (child, 0)
queue.close()
os.write(1, b"done")
"""


def test_a_child_that_returns_from_a_callback_is_no_second_worker() -> None:
    """It has a copy of the worker's thread, and of every task that waits."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKER],
        capture_output=True,
        timeout=15,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, b"done"), ended.stderr


ITEM_FORKER = """
import os
from lardon import ResourceEstimate, TaskQueue
from lardon.testing import ScriptedGovernor, start

queue = TaskQueue(ScriptedGovernor([start(batch_size=8, cpus=2)]))
estimate = ResourceEstimate(max_batch=8, cpus=2)
task = queue.submit(lambda task: task.map_items(lambda _: os.fork(), range(2)), estimate=estimate)
for child in task.result(timeout=10):
    assert os.waitpid(child, 0) == (child, 0)
queue.close()
os.write(1, b"done")
"""


def test_a_child_that_returns_from_an_item_ends_with_it() -> None:
    """It has a copy of one thread of the crew, to which nobody will ever give another item."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ITEM_FORKER],
        capture_output=True,
        timeout=15,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, b"done"), ended.stderr


def test_a_copied_worker_ends_without_a_word() -> None:
    """The same within one process: the callback makes its queue look like a parent's."""
    governor = ScriptedGovernor([start()])
    queue = TaskQueue(governor)
    told: list[TaskEvent] = []

    def fork_in_effect(context: TaskContext) -> None:
        queue.subscribe(told.append)
        context._task._signal._born = -1

    queue.submit(fork_in_effect, estimate=ResourceEstimate())
    queue._thread.join(10)

    assert not queue._thread.is_alive()
    assert told == []
    assert len(governor.reservations()) == 1, "it is the parent's to release"
    queue._signal._born = forks()
    assert queue.close(timeout=10)
