"""Pause: a pending task is passed over and keeps its place, a running one keeps what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from lardon import ResourceEstimate, TaskQueue, TaskState
from lardon.testing import ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import TaskContext
    from lardon.queue.views import TaskEvent
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


# Before the start ----------------------------------------------------------------


def test_a_pending_task_is_paused_at_once_and_passed_over(gate: Gate) -> None:
    order: list[int] = []

    def note(context: TaskContext) -> None:
        order.append(context.task_id)

    governor = ScriptedGovernor([start()])
    with TaskQueue(governor) as queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        paused, *others = [queue.submit(note, estimate=ANY) for _ in range(3)]

        assert paused.pause()
        assert paused.state is TaskState.PAUSED

        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        assert order == [task.id for task in others]
        assert paused.state is TaskState.PAUSED
        # It holds nothing, and nobody asked for it.
        assert governor.reservations() == ()
        assert len(governor.asked) == 3

        assert paused.resume()
        assert paused.wait(PATIENCE_S)

    assert order == [others[0].id, others[1].id, paused.id]


@pytest.mark.parametrize("dropped", [False, True], ids=["still in line", "passed over"])
def test_a_resumed_task_has_its_old_place(gate: Gate, dropped: bool) -> None:
    """Not the place of the moment it was resumed: behind it are those submitted later."""
    order: list[int] = []

    def note(context: TaskContext) -> None:
        order.append(context.task_id)

    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        tasks = [queue.submit(note, estimate=ANY) for _ in range(5)]
        # In this order, so that the order of resuming differs from that of submission.
        for task in (tasks[2], tasks[0], tasks[1]):
            task.pause()
        if dropped:
            # The worker looked past them: the head is the fourth.
            assert queue.wait_parked(PATIENCE_S)
            assert tasks[3].reason is not None
        for task in (tasks[1], tasks[2], tasks[0]):
            task.resume()
        governor.script(start())
        queue.resources_changed()

    assert order == [task.id for task in tasks]


def test_pausing_the_waiting_head_needs_no_other_event_for_the_next_to_go() -> None:
    governor = ScriptedGovernor([wait(), start()])
    with TaskQueue(governor) as queue:
        head = queue.submit(lambda _: "head", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        behind = queue.submit(lambda _: "behind", estimate=ANY)
        # The answer after the pause is for the task behind.
        head.pause()
        assert behind.result(PATIENCE_S) == "behind"

        assert head.snapshot().waiting_since is None
        assert head.resume()
        assert head.result(PATIENCE_S) == "head"


def test_a_task_paused_while_the_governor_answers_does_not_start() -> None:
    """What was booked for it goes back."""
    governor = ScriptedGovernor([start()])
    queue = TaskQueue(governor)
    with queue:
        filler = queue.submit(lambda _: None, estimate=ANY)
        assert filler.wait(PATIENCE_S)
        governor.on_answer = lambda: queue.pause(2)
        task = queue.submit(lambda _: "ran", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)

        assert task.state is TaskState.PAUSED
        assert not task.started
        assert governor.reservations() == ()
        assert governor.released == 2

        governor.on_answer = None
        assert task.resume()
        assert task.result(PATIENCE_S) == "ran"


def test_a_rejection_for_a_task_paused_meanwhile_waits_for_its_turn() -> None:
    """A paused task has no way to FAILED: it is asked for again after its resume."""
    governor = ScriptedGovernor([OSError("broken"), start()])
    queue = TaskQueue(governor)
    with queue:
        governor.on_answer = lambda: queue.pause(1)
        task = queue.submit(lambda _: "ran", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        assert task.state is TaskState.PAUSED

        governor.on_answer = None
        task.resume()
        assert task.result(PATIENCE_S) == "ran"


def test_a_wait_for_a_task_paused_meanwhile_is_not_noted() -> None:
    governor = ScriptedGovernor([wait(), start()])
    queue = TaskQueue(governor)
    with queue:
        governor.on_answer = lambda: queue.pause(1)
        task = queue.submit(lambda _: "ran", estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        assert (task.state, task.reason) == (TaskState.PAUSED, None)
        governor.on_answer = None
        task.resume()


# In the callback -------------------------------------------------------------------


def test_a_running_task_parks_at_its_pause_point_and_keeps_its_reservation(gate: Gate) -> None:
    events: list[TaskEvent] = []
    governor = ScriptedGovernor([start(batch_size=3)])
    with TaskQueue(governor) as queue:
        queue.subscribe(events.append)
        task = queue.submit(gate, estimate=ANY)
        behind = queue.submit(lambda _: None, estimate=ANY)
        gate.wait_entered()
        (held,) = governor.reservations()
        contract = task.contract
        assert task.pause()
        # Requested; it runs until it reaches a pause point.
        assert task.state is TaskState.RUNNING
        gate.open()
        assert queue.wait_parked(PATIENCE_S)

        assert task.state is TaskState.PAUSED
        assert governor.reservations() == (held,)
        assert task.contract is contract
        # One worker: what is behind a parked task waits.
        assert behind.state is TaskState.PENDING

        assert task.resume()
        assert task.state is TaskState.RUNNING
        assert task.result(PATIENCE_S) is True

    assert [event.state for event in events if event.task_id == task.id] == [
        TaskState.RUNNING,
        TaskState.PAUSED,
        TaskState.RUNNING,
        TaskState.COMPLETED,
    ]
    assert len(governor.asked) == 2


def test_a_resume_before_the_pause_point_withdraws_the_pause(gate: Gate) -> None:
    states: list[TaskState] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.subscribe(lambda event: states.append(event.state))
        task = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        assert task.pause()
        assert task.resume()
        assert not task.resume()
        gate.open()
        assert task.result(PATIENCE_S) is True

    assert states == [TaskState.RUNNING, TaskState.COMPLETED]


def test_a_pause_that_is_never_reached_does_not_hold_up_the_end() -> None:
    def callback(context: TaskContext) -> str:
        assert queue.pause(context.task_id)
        return "done"

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.result(PATIENCE_S) == "done"

    assert task.state is TaskState.COMPLETED


def test_parked_again_and_again(gate: Gate) -> None:
    def callback(context: TaskContext) -> int:
        gate(context)
        return sum(context.checkpoint() for _ in range(3))

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        gate.wait_entered()
        task.pause()
        gate.open()
        for _ in range(20):
            assert queue.wait_parked(PATIENCE_S)
            assert task.state is TaskState.PAUSED
            # Paused again before the worker can look: it goes on parking.
            with queue._signal.lock:
                assert task.resume()
                assert task.pause()
        assert queue.wait_parked(PATIENCE_S)
        task.resume()

        assert task.result(PATIENCE_S) == 3


def test_a_pause_that_is_withdrawn_on_the_way_to_parking_does_not_park() -> None:
    """The callback saw the pause, and the resume came before it had the lock."""
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(lambda context: context._park(), estimate=ANY)
        assert task.wait(PATIENCE_S)

    assert task.state is TaskState.COMPLETED


# What the calls answer -------------------------------------------------------------


def test_pause_and_resume_are_true_once_and_false_after_the_end(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        running = queue.submit(gate, estimate=ANY)
        pending = queue.submit(lambda _: None, estimate=ANY)
        gate.wait_entered()
        for task in (running, pending):
            assert (task.resume(), task.pause(), task.pause()) == (False, True, False)
            assert (queue.resume(task.id), queue.resume(task.id)) == (True, False)
            assert (queue.pause(task.id), queue.pause(task.id)) == (True, False)
            assert (task.resume(), task.resume()) == (True, False)
        gate.open()

    for task in (running, pending):
        assert (task.pause(), task.resume()) == (False, False)
        assert task.state is TaskState.COMPLETED


def test_pause_all_and_resume_all_count_what_is_new(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        tasks = [queue.submit(gate, estimate=ANY)]
        gate.wait_entered()
        tasks += [queue.submit(lambda _: None, estimate=ANY) for _ in range(3)]
        tasks[1].pause()

        assert queue.pause_all() == 3
        assert queue.pause_all() == 0
        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        assert [task.state for task in tasks] == [TaskState.PAUSED] * 4
        assert queue.statistics().paused == 4

        assert queue.resume_all() == 4
        assert queue.resume_all() == 0

    assert all(task.state is TaskState.COMPLETED for task in tasks)
