"""The table of states: exactly the moves of the design, and one place that makes them."""

from __future__ import annotations

from typing import Final

import pytest

from lardon import InvalidTransition, ResourceEstimate, TaskState
from lardon.queue.signal import Signal
from lardon.queue.states import TERMINAL, TRANSITIONS
from lardon.queue.task import Task
from lardon.testing import ManualClock

# The rows of the design's table, each as (from, to).
MOVES: Final = {
    # A reservation is booked and the worker starts it.
    (TaskState.PENDING, TaskState.RUNNING),
    # Paused before its start, and resumed at its old place.
    (TaskState.PENDING, TaskState.PAUSED),
    (TaskState.PAUSED, TaskState.PENDING),
    # Cancelled or closed before its start.
    (TaskState.PENDING, TaskState.CANCELLED),
    (TaskState.PAUSED, TaskState.CANCELLED),
    # Rejected.
    (TaskState.PENDING, TaskState.FAILED),
    # Parked at a pause point, and resumed.
    (TaskState.RUNNING, TaskState.PAUSED),
    (TaskState.PAUSED, TaskState.RUNNING),
    # The callback ends.
    (TaskState.RUNNING, TaskState.CANCELLED),
    (TaskState.RUNNING, TaskState.FAILED),
    (TaskState.RUNNING, TaskState.COMPLETED),
}
PAIRS: Final = [(source, target) for source in TaskState for target in TaskState]


def task_in(state: TaskState) -> Task:
    task = Task(None, Signal(ManualClock()), None, (), None, ResourceEstimate(), None)
    task._state = state
    return task


def test_the_table_holds_the_moves_of_the_design_and_no_other() -> None:
    table = {(source, target) for source, targets in TRANSITIONS.items() for target in targets}

    assert table == MOVES
    assert set(TRANSITIONS) == set(TaskState)


def test_terminal_states_are_final() -> None:
    assert {TaskState.CANCELLED, TaskState.FAILED, TaskState.COMPLETED} == TERMINAL
    assert {state for state in TaskState if state.terminal} == TERMINAL
    assert all(not TRANSITIONS[state] for state in TERMINAL)


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair in MOVES])
def test_a_move_of_the_table_is_made(source: TaskState, target: TaskState) -> None:
    task = task_in(source)

    assert task._move(target) is source
    assert task.state is target


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair not in MOVES])
def test_any_other_move_is_refused_and_changes_nothing(
    source: TaskState, target: TaskState
) -> None:
    task = task_in(source)

    with pytest.raises(InvalidTransition, match=f"from {source} to {target}") as caught:
        task._move(target)

    assert task.state is source
    assert (caught.value.task_id, caught.value.state, caught.value.target) == (0, source, target)
