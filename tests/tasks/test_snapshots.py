"""What is seen of a task: whole, consistent, and with times that never run backwards."""

from __future__ import annotations

import datetime
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon import ReasonCode, ResourceEstimate, TaskQueue, TaskState
from lardon.queue.progress import NO_PROGRESS
from lardon.testing import ManualClock, ScriptedGovernor, reduce_batch, start, wait

if TYPE_CHECKING:
    from lardon import TaskContext
    from tests.conftest import Gate

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4, kind="photos")
NOON: Final = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)


def after(seconds: float) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=seconds)


def test_a_task_is_shown_from_submission_to_end(gate: Gate) -> None:
    clock = ManualClock(start=100.0, wall=NOON)
    governor = ScriptedGovernor([wait("not yet")], clock=clock)
    with TaskQueue(governor) as queue:
        blocked = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(1.0)
        task = queue.submit(gate, estimate=ANY, name="crops")
        view = task.snapshot()
        assert (view.id, view.name, view.kind) == (2, "crops", "photos")
        assert (view.state, view.reason, view.contract) == (TaskState.PENDING, None, None)
        assert (view.sequence, view.progress) == (0, NO_PROGRESS)
        assert (view.submitted_at, view.started_at, view.finished_at) == (after(1.0), None, None)
        assert view.waiting_since is None

        clock.advance(1.0)
        blocked.cancel()
        assert queue.wait_parked(PATIENCE_S)
        view = task.snapshot()
        assert (str(view.reason), view.waiting_since) == ("not yet", 102.0)
        clock.advance(1.0)
        queue.resources_changed()
        assert queue.wait_parked(PATIENCE_S)
        # Asked again, and still waiting since the first time.
        assert task.snapshot().waiting_since == 102.0

        clock.advance(1.0)
        governor.script(reduce_batch(batch_size=3))
        queue.resources_changed()
        gate.wait_entered()
        view = task.snapshot()
        assert (view.state, view.started_at, view.waiting_since) == (
            TaskState.RUNNING,
            after(4.0),
            None,
        )
        assert view.contract is not None
        assert view.contract.batch_size == 3
        assert view.contract == task.contract
        assert view.reason is not None
        assert view.reason.code is ReasonCode.RAM_SHORT

        clock.advance(1.0)
        gate.open()
        assert task.wait(PATIENCE_S)
        view = task.snapshot()
        assert (view.state, view.finished_at) == (TaskState.COMPLETED, after(5.0))
        assert view == task.snapshot()
        assert queue.tasks()[-1] == view


@pytest.mark.parametrize("jump", [datetime.timedelta(days=1), -datetime.timedelta(days=1)])
def test_a_jump_of_the_wall_clock_shows_no_negative_duration(
    gate: Gate, jump: datetime.timedelta
) -> None:
    clock = ManualClock(wall=NOON)
    with TaskQueue(ScriptedGovernor([start()], clock=clock)) as queue:
        queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        task = queue.submit(lambda _: None, estimate=ANY)
        clock.advance(2.0)
        clock.set_wall(NOON + jump)
        gate.open()
        assert task.wait(PATIENCE_S)
        later = queue.submit(lambda _: None, estimate=ANY)

    view = task.snapshot()
    assert (view.submitted_at, view.started_at, view.finished_at) == (
        NOON,
        after(2.0),
        after(2.0),
    )
    # The next submission takes the new time.
    assert later.snapshot().submitted_at == NOON + jump


def test_a_pause_ends_the_waiting_and_a_resume_begins_it_anew() -> None:
    clock = ManualClock()
    with TaskQueue(ScriptedGovernor([wait()], clock=clock)) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(5.0)
        task.pause()
        assert task.snapshot().waiting_since is None
        clock.advance(5.0)
        task.resume()
        assert queue.wait_parked(PATIENCE_S)
        assert task.snapshot().waiting_since == 10.0
        task.cancel()


def test_the_times_of_what_never_started() -> None:
    clock = ManualClock(wall=NOON)
    with TaskQueue(ScriptedGovernor([wait()], clock=clock)) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        clock.advance(3.0)
        task.cancel()

    view = task.snapshot()
    assert (view.submitted_at, view.started_at, view.finished_at) == (NOON, None, after(3.0))
    assert view.waiting_since is None


def test_a_snapshot_is_frozen() -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(lambda context: context.contract, estimate=ANY)
        contract = task.result(PATIENCE_S)
        for value, field in ((task.snapshot(), "state"), (contract, "batch_size")):
            with pytest.raises(AttributeError):
                setattr(value, field, 99)
        assert task.contract == contract


def test_a_task_says_what_it_is() -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        named = queue.submit(lambda _: None, estimate=ANY, name="réduction-π")
        unnamed = queue.submit(lambda context: (context.name, context.task_id), estimate=ANY)
        assert unnamed.result(PATIENCE_S) == ("task-2", 2)
        assert named.wait(PATIENCE_S)

    assert repr(named) == "<Task 1 'réduction-π' COMPLETED>"
    assert (unnamed.name, unnamed.kind, unnamed.estimate) == ("task-2", "photos", ANY)
    assert unnamed.started


# Progress ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([(3,)], (3, None, "", 0.0)),
        ([(3, 12)], (3, 12, "", 0.25)),
        ([(3, 12, "a"), (6, None, "b")], (6, 12, "b", 0.5)),
        ([(6, 12), (3, 12)], (6, 12, "", 0.5)),
        ([(6, 12), (6, 24)], (6, 24, "", 0.5)),
        ([(15, 12)], (15, 12, "", 1.0)),
        ([(0, 0)], (0, 0, "", 1.0)),
        ([(0.5, 2.0)], (0.5, 2.0, "", 0.25)),
    ],
)
def test_progress_never_goes_back(reports: list[Any], expected: tuple[Any, ...]) -> None:
    def callback(context: TaskContext) -> None:
        for report in reports:
            context.set_progress(*report)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.wait(PATIENCE_S)

    progress = task.progress
    assert (progress.done, progress.total, progress.message, progress.fraction) == expected


@pytest.mark.parametrize(
    "report", [(-1,), (float("nan"),), (float("inf"),), (1, -1), ("1",), (True,), (1, "2")], ids=str
)
def test_nonsense_progress_is_refused_and_changes_nothing(report: Any) -> None:
    def callback(context: TaskContext) -> None:
        context.set_progress(1, 2)
        with pytest.raises((TypeError, ValueError), match="must be"):
            context.set_progress(*report)

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        task = queue.submit(callback, estimate=ANY)
        assert task.result(PATIENCE_S) is None

    assert (task.progress.done, task.progress.total) == (1, 2)


# Counts --------------------------------------------------------------------------------------


def test_statistics_count_every_state(gate: Gate) -> None:
    with TaskQueue(ScriptedGovernor([start()])) as queue:

        def counts() -> tuple[int, ...]:
            one = queue.statistics()
            return (
                one.pending,
                one.running,
                one.paused,
                one.completed,
                one.failed,
                one.cancelled,
                one.submitted,
            )

        assert counts() == (0,) * 7
        running = queue.submit(gate, estimate=ANY)
        gate.wait_entered()
        failing = queue.submit(lambda _: int("no number"), estimate=ANY)
        others = [queue.submit(lambda _: None, estimate=ANY) for _ in range(4)]
        assert counts() == (5, 1, 0, 0, 0, 0, 6)
        others[0].pause()
        others[1].cancel()
        assert counts() == (3, 1, 1, 0, 0, 1, 6)
        running.pause()
        gate.open()
        assert queue.wait_parked(PATIENCE_S)
        assert counts() == (3, 0, 2, 0, 0, 1, 6)
        running.resume()
        assert failing.wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        assert counts() == (0, 0, 1, 3, 1, 1, 6)
        others[0].cancel()
        assert counts() == (0, 0, 0, 3, 1, 2, 6)
        assert queue.statistics().worker_alive
        assert queue.statistics().worker_error is None


@pytest.mark.slow
def test_an_observer_sees_only_whole_views() -> None:
    """While tasks break and end, each view is of one moment: contract and sequence agree."""
    wrong: list[object] = []
    stop = threading.Event()

    def callback(context: TaskContext) -> None:
        for number in range(20):
            context.set_progress(number, 20)
            context.sequence_break()

    def observe() -> None:
        while not stop.is_set():
            for view in queue.tasks():
                contract = view.contract
                if contract is not None and contract.sequence != view.sequence:
                    wrong.append(view)
                if view.state is TaskState.PENDING and contract is not None:
                    wrong.append(view)
            counts = queue.statistics()
            ended = counts.completed + counts.failed + counts.cancelled
            if counts.pending + counts.running + counts.paused + ended != counts.submitted:
                wrong.append(counts)

    with TaskQueue(ScriptedGovernor([start(batch_size=2)]), history=8) as queue:
        observer = threading.Thread(target=observe)
        observer.start()
        try:
            for _ in range(50):
                queue.submit(callback, estimate=ANY)
            assert queue.join(PATIENCE_S)
        finally:
            stop.set()
            observer.join(PATIENCE_S)

    assert not wrong
