"""Every reservation is released exactly once, whatever ends the task."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

from lardon import Governor, Policy, ResourceEstimate, ResourceSnapshot, TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, ScriptedProbe, reject, start, wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon import Task, TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)
SNAPSHOT: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1 << 34, ram_available_bytes=1 << 34, cpus=4
)


def raise_it(error: BaseException) -> None:
    raise error


ENDS: Final[dict[str, Callable[[TaskContext], object]]] = {
    "returns": lambda _: "value",
    "raises": lambda _: raise_it(OSError("its own")),
    "exits": lambda _: raise_it(SystemExit(3)),
    "breaks": lambda context: context.sequence_break(),
    "breaks twice": lambda context: (context.sequence_break(), context.sequence_break()),
    "breaks and raises": lambda context: raise_it(OSError(str(context.sequence_break()))),
    "cancels itself": lambda context: context._task.cancel(),
    "cancels itself and breaks": lambda context: (
        context._task.cancel(),
        context.sequence_break(),
        context.sequence_break(),
    ),
    "runs batches": lambda context: context.map_batches(len, range(9)),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_once_with_the_governors_own_count(end: str) -> None:
    governor = Governor(Policy(recheck_s=None), probe=ScriptedProbe(SNAPSHOT))
    with TaskQueue(governor) as queue:
        task = queue.submit(ENDS[end], estimate=ANY)
        assert task.wait(PATIENCE_S)
        # Terminal is published after the release, never before it.
        assert governor.reservations() == ()

    statistics = governor.statistics()
    assert statistics.active == 0
    assert statistics.booked == statistics.released >= 1
    assert statistics.released_again == 0
    assert statistics.reserved_ram_bytes == statistics.reserved_cpus == 0


@pytest.mark.parametrize("answer", [wait("no"), reject("never"), OSError("broke")], ids=repr)
@pytest.mark.parametrize("then", ["returns", "raises", "breaks", "cancels itself"])
def test_once_after_a_refused_break(answer: Any, then: str) -> None:
    def callback(context: TaskContext) -> object:
        assert not context.sequence_break()
        return ENDS[then](context)

    governor = ScriptedGovernor([start(), answer])
    with TaskQueue(governor) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert task.state is TaskState.FAILED
    assert governor.released == 1
    assert governor.reservations() == ()


def test_nothing_is_held_when_the_end_is_told(gate: Gate) -> None:
    """In listeners, done-callbacks and waiters alike."""
    held: dict[str, int] = {}
    governor = ScriptedGovernor([start()])

    def note(who: str) -> None:
        held[who] = len(governor.reservations())

    with TaskQueue(governor) as queue:
        queue.subscribe(lambda event: note("listener") if event.state.terminal else None)
        task = queue.submit(gate, estimate=ANY)
        task.add_done_callback(lambda _: note("done-callback"))
        task.future.add_done_callback(lambda _: note("future"))
        waiter = threading.Thread(target=lambda: (task.wait(PATIENCE_S), note("waiter")))
        waiter.start()
        gate.wait_entered()
        note("callback")
        gate.open()
        waiter.join(PATIENCE_S)

    assert held == {"callback": 1, "listener": 0, "done-callback": 0, "future": 0, "waiter": 0}


def test_no_callback_starts_without_an_active_reservation() -> None:
    governor = ScriptedGovernor([start(batch_size=2)])
    seen: list[tuple[int, str, object]] = []

    def callback(context: TaskContext) -> None:
        (held,) = governor.reservations()
        seen.append((held.contract.batch_size, held.holder, context.contract == held.contract))

    with TaskQueue(governor) as queue:
        queue.submit(callback, estimate=ANY, name="by name")
        queue.submit(callback, estimate=ANY)

    assert seen == [(2, "by name", True), (2, "task-2", True)]


def test_a_release_wakes_the_queue_that_it_belongs_to() -> None:
    """With capacity for one, a second queue's task runs as soon as the first one's is over."""
    governor = Governor(Policy(recheck_s=None), probe=ScriptedProbe(attrs.evolve(SNAPSHOT, cpus=1)))
    tasks: list[Task] = []
    with TaskQueue(governor) as first, TaskQueue(governor) as second:
        for _ in range(50):
            tasks.append(first.submit(lambda context: context.sequence_break(None), estimate=ANY))
            tasks.append(second.submit(lambda context: context.sequence_break(None), estimate=ANY))
        for task in tasks:
            assert task.result(PATIENCE_S) is True

    assert governor.statistics().booked == governor.statistics().released
    assert governor.statistics().active == 0
