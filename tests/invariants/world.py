"""A governor and its queues, driven by a state machine; what must hold when all stand still."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

from lardon import (
    DecisionKind,
    Governor,
    Policy,
    ReasonCode,
    Reservation,
    ResourceSnapshot,
    TaskCancelled,
    TaskQueue,
    TaskRefused,
    TaskState,
)
from lardon.testing import ManualClock
from tests.invariants import oracle
from tests.invariants.actor import Break, Checkpoint, Raise, Return, SetProgress, Stage
from tests.invariants.model import STATISTICS, Lane, ModelTask
from tests.invariants.recorder import PATIENCE_S, Recorder, RecordingProbe, misfit, total
from tests.invariants.strategies import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.queue.views import TaskEvent

# How long one look lasts that another may follow.
_GLANCE_S: Final = 0.002
_HISTORY: Final = 3


def check_same(heard: list[TaskEvent], expected: list[TaskEvent]) -> None:
    """Check that a listener heard what its neighbour heard; threads may interleave."""
    assert Counter(map(str, heard)) == Counter(map(str, expected))


class Forgetful(Governor):
    """A governor without a past: the oracle answers each question from one reading alone."""

    def _observe(self, *_reading: object) -> None:
        """Take nothing in, so that the pressure zone stays GREEN."""


class World(RuleBasedStateMachine):
    """All but the rules: the parts, the checks after every step, and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.reading: ResourceSnapshot | BaseException = MACHINE
        self.probe = RecordingProbe(MACHINE, self.clock)
        self.policy = Policy.unlimited()
        self.governor = Forgetful(self.policy, probe=self.probe, clock=self.clock)
        self.recorder = Recorder(self.governor, self._room)
        self.governor.subscribe(self._glance)
        self.lanes: list[Lane] = []
        self.foreign: list[Reservation] = []
        self.foreign_again = 0
        self.policy_changes = 0
        self.generation = 0
        self.entries = 0
        self.sound = True
        self.listening: list[tuple[Lane, Callable[[], None], list[TaskEvent], list[TaskEvent]]] = []

    def _room(self) -> dict[str, int]:
        return oracle.capacities(self.policy, self.probe.last())

    def _glance(self) -> None:
        """Look at the book after every change, on the thread that made it (invariant 2)."""
        held = Counter(reservation.holder for reservation in self.governor.reservations())
        several = [holder for holder, count in held.items() if count > 1]
        if several:
            self.recorder.blame(f"several reservations at once: {several}")

    def _open_queue(self) -> None:
        number = len(self.lanes)
        queue = TaskQueue(self.recorder, name=f"machine-{number}", history=_HISTORY)
        lane = Lane(number, queue, Stage(self.recorder))
        queue.subscribe(lane.listen)
        self.lanes.append(lane)

    def _close(self, lane: Lane) -> None:
        runs = lane.running() is not None
        lane.closing = lane.everyone = True
        for task in lane.tasks:
            task.cancelling = task.cancelling or not task.ended
        assert lane.queue.close(timeout=0 if runs else PATIENCE_S) is not runs

    # After every step -----------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        sound, self.sound = self.sound, False
        assert sound
        self._stand_still()
        self._wakes()
        self.recorder.check()
        for lane in self.lanes:
            lane.replay()
            lane.everyone = False
            for task in lane.tasks:
                self._take_answers(task)
                self._check_state(task)
                self._check_contract(task)
                self._check_progress(task)
            self._check_nobody_sleeps_in(lane)
            self._check_lists(lane)
        self._check_book()
        for _, _, heard, expected in self.listening:
            check_same(heard, expected)
        self.sound = True

    def _stand_still(self) -> None:
        """Wait until no thread of lardon has anything to do; a hang fails here."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            before = self._activity()
            for _ in range(2 if len(self.lanes) > 1 else 1):
                for lane in self.lanes:
                    while not self._still(lane):
                        assert time.monotonic() < deadline, self._hang(lane)
            if self._activity() == before:
                return

    def _still(self, lane: Lane) -> bool:
        ready = lane.stage.ready
        if ready.is_set() or lane.queue.wait_parked(0):
            return True
        if lane.closing and lane.running() is None and lane.queue.close(timeout=_GLANCE_S):
            return True
        # Whichever comes first: a callback that waits, or a worker that sleeps.
        return lane.queue.wait_parked(_GLANCE_S) or ready.wait(_GLANCE_S)

    def _activity(self) -> tuple[int, int, int]:
        events = sum(len(lane.events) for lane in self.lanes)
        return self.governor.generation, self.recorder.asked, events

    def _hang(self, lane: Lane) -> str:
        return f"queue {lane.number} goes on for {PATIENCE_S} s: {lane.queue.tasks()}"

    def _wakes(self) -> None:
        """Every move of the generation is news for every queue."""
        generation = self.governor.generation
        if generation != self.generation:
            self.generation = generation
            for lane in self.lanes:
                lane.unheard = False

    def _take_answers(self, task: ModelTask) -> None:
        for command, said in task.actor.answers:
            if isinstance(command, SetProgress):
                continue
            if task.stopped:
                assert said is False, f"{task.name}: {command} said {said} after a False"
            elif said is False:
                self._check_refusal(task, command)
                task.stopped = True
            else:
                # A pause or cancel from before the call was obeyed by it.
                assert not task.cancelling
                assert not task.pausing
                task.granted += isinstance(command, Break)
        task.actor.answers.clear()

    def _check_refusal(self, task: ModelTask, command: Any) -> None:
        if task.cancelling:
            return
        assert isinstance(command, Break), f"{task.name}: a checkpoint said False for no reason"
        task.refused = True
        expected = self._answer(task)
        # What the governor refuses beside few reservations it refuses beside more.
        assert not expected.batch, f"{task.name} was refused, and {expected} is right"
        if expected.kind is DecisionKind.WAIT:
            assert command.timeout is not None
            if not task.delayed:
                assert self.clock.monotonic() >= task.commanded_at + command.timeout

    def _answer(self, task: ModelTask) -> oracle.Answer:
        book = [
            reservation.contract
            for reservation in self.governor.reservations()
            if reservation.holder != task.name
        ]
        return oracle.answer(task.handle.estimate, self.reading, self.policy, book)

    def _check_state(self, task: ModelTask) -> None:
        handle, state = task.handle, task.handle.state
        assert state is task.state, f"{task.name}: {state}, and the events say {task.state}"
        phase, held = task.actor.phase, task.held
        match phase:
            case "new":
                assert held == []
                if task.cancelling:
                    assert state is TaskState.CANCELLED
                elif state is TaskState.FAILED:
                    if not task.end_checked:
                        self._check_never_started(task)
                else:
                    assert state is (TaskState.PAUSED if task.pausing else TaskState.PENDING)
            case "ready":
                # One that was cancelled in its pause shows the pause until its end.
                shown = {TaskState.RUNNING, TaskState.PAUSED if task.cancelling else None}
                assert state in shown
                assert len(held) == (0 if self._gave_back(task) else 1)
            case "busy":
                self._check_blocked(task, held)
            case _:
                assert held == []
                assert state is task.expected_end()
                self._check_end(task)
        task.end_checked = task.ended
        assert task.ends == task.ended
        assert task.done_calls == task.ends
        if task.ended:
            assert handle.wait(0)
            assert handle.future.done()

    def _gave_back(self, task: ModelTask) -> bool:
        """Whether a break of this task failed, so that it holds nothing until its end."""
        if not task.stopped:
            return False
        released = [e for e in self.recorder.entries if e.holder == task.name]
        return released[-1].what == "released"

    def _check_never_started(self, task: ModelTask) -> None:
        late = task.expires is not None and self.clock.monotonic() >= task.expires
        if not late:
            assert self._answer(task).kind is DecisionKind.REJECT
        with pytest.raises(TaskRefused):
            task.handle.result(0)

    def _check_blocked(self, task: ModelTask, held: list[int]) -> None:
        """Check that a callback inside a call of lardon has a reason to be there."""
        assert not task.cancelling, f"{task.name} sleeps through its cancel"
        assert not task.stopped
        assert task.pausing is (task.handle.state is TaskState.PAUSED)
        assert isinstance(task.command, (Checkpoint, Break))
        if isinstance(task.command, Checkpoint):
            assert task.pausing, f"{task.name} sleeps at a checkpoint without a pause"
        if task.pausing:
            # Paused before its break or checkpoint: what it has is kept. In the break: nothing,
            # or what it was granted at the moment of the pause.
            kept = 1 if not task.paused_in_break else len(held)
            assert len(held) == kept <= 1
        else:
            assert held == [], f"{task.name} waits in a break, and holds {held}"

    def _check_end(self, task: ModelTask) -> None:
        handle, command = task.handle, task.command
        assert handle.reason is not None
        match handle.state:
            case TaskState.COMPLETED:
                assert isinstance(command, Return)
                assert handle.result(0) is command.value
            case TaskState.CANCELLED:
                assert handle.reason.code is ReasonCode.CANCELLED
                with pytest.raises(TaskCancelled):
                    handle.result(0)
            case _ if task.refused:
                with pytest.raises(TaskRefused):
                    handle.result(0)
            case _:
                assert isinstance(command, Raise)
                assert handle.reason.code is ReasonCode.CALLBACK_RAISED
                assert handle.exception(0) is command.error

    def _check_contract(self, task: ModelTask) -> None:
        """A reader sees the contract of the last reservation, whole (invariant 4)."""
        grants = [entry.contract for entry in self.recorder.grants(task.name)]
        view, contract = task.handle.snapshot(), task.handle.contract
        assert view.contract == contract
        assert view.state is task.state
        if contract is None:
            assert task.actor.phase == "new"
            return
        assert misfit(task.handle.estimate, contract) is None
        assert view.sequence == contract.sequence
        # One more than what the callback was told: granted, and paused at once.
        ahead = contract.sequence - task.granted
        assert ahead == 0 or (ahead == 1 and (task.stopped or task.actor.phase == "busy"))
        if not task.cancelling:
            # A grant that meets a cancel is given back at once; every other one counts.
            assert attrs.evolve(contract, sequence=0) == grants[-1]

    def _check_progress(self, task: ModelTask) -> None:
        progress = task.handle.progress
        assert (progress.done, progress.total) == (task.done, task.total)
        assert progress.message == task.message
        assert task.handle.snapshot().progress == progress

    def _check_nobody_sleeps_in(self, lane: Lane) -> None:
        """Check that what waits has to wait (no lost wake-up), and that time is kept."""
        running, head, now = lane.running(), lane.head(), self.clock.monotonic()
        if lane.closing:
            assert running is not None or not any(not task.ended for task in lane.tasks)
            return
        waiting = head if running is None else running if running.waits_in_break() else None
        if running is None:
            late = [
                task.name
                for task in lane.tasks
                if task.state is TaskState.PENDING
                and task.expires is not None
                and now >= task.expires
            ]
            assert not late, f"not admitted in time, and still waiting: {late}"
        if waiting is None:
            return
        if waiting is running and isinstance(waiting.command, Break):
            limit = waiting.command.timeout
            if limit is not None and not waiting.delayed:
                assert now < waiting.commanded_at + limit, f"{waiting.name} sleeps too long"
        if lane.unheard:
            return
        expected = self._answer(waiting)
        assert expected.kind is DecisionKind.WAIT, f"{waiting.name} sleeps, and has {expected}"
        reason = waiting.handle.reason
        assert reason is not None
        assert reason.code is expected.code
        assert waiting.handle.snapshot().waiting_since is not None

    def _check_lists(self, lane: Lane) -> None:
        counts = Counter(task.state for task in lane.tasks)
        statistics = lane.queue.statistics()
        shown = {name: getattr(statistics, name) for name in STATISTICS}
        assert shown == {name: counts[TaskState(name.upper())] for name in STATISTICS}
        assert statistics.submitted == len(lane.tasks)
        assert statistics.worker_error is None
        views = lane.queue.tasks()
        ids = [view.id for view in views]
        assert ids == sorted(set(ids))
        unfinished = {task.handle.id for task in lane.tasks if not task.ended}
        assert unfinished <= set(ids)
        assert len(ids) == len(unfinished) + min(_HISTORY, len(lane.tasks) - len(unfinished))
        assert all(view.state is lane.tasks[view.id - 1].state for view in views)
        assert all(lane.queue.get(task.handle.id).state is task.state for task in lane.tasks)

    def _check_book(self) -> None:
        """The totals are the sum of the active reservations, and every figure adds up."""
        entries = self.recorder.entries
        released = {entry.id for entry in entries if entry.what == "released"}
        active = [e for e in entries if e.what == "booked" and e.id not in released]
        reservations = self.governor.reservations()
        assert [reservation.id for reservation in reservations] == sorted(e.id for e in active)
        assert all(reservation.active for reservation in reservations)
        sums, statistics = total(entry.contract for entry in active), self.governor.statistics()
        assert statistics.active == len(active)
        assert statistics.reserved_ram_bytes == sums["ram"]
        assert statistics.reserved_cpus == sums["cpus"]
        assert statistics.reserved_io_slots == sums["io"]
        for uuid in ("GPU-0", "GPU-1"):
            device = statistics.reserved_gpus.get(uuid)
            found = (device.gpu_bytes, device.tasks) if device is not None else (0, 0)
            assert found == (sums[uuid], sums[f"tasks on {uuid}"])
        booked = len(entries) - len(released)
        assert (statistics.booked, statistics.released) == (booked, len(released))
        assert statistics.released_again == 0
        assert statistics.generation == booked + len(released) + self.policy_changes
        self._check_new_bookings()

    def _check_new_bookings(self) -> None:
        """Check the size of a batch that was granted while nothing else was."""
        entries = self.recorder.entries
        new = entries[self.entries :]
        if sum(entry.what == "booked" for entry in new) == 1:
            book: dict[int, Any] = {}
            for entry in entries:
                if entry.what == "released":
                    del book[entry.id]
                    continue
                if entry in new and not entry.holder.startswith("neighbour"):
                    task = next(task for task in self._tasks() if task.name == entry.holder)
                    expected = oracle.answer(
                        task.handle.estimate, self.reading, self.policy, book.values()
                    )
                    assert entry.contract.batch_size == expected.batch
                book[entry.id] = entry.contract
        self.entries = len(entries)

    # The end ------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            # After a failure only the threads matter: a second one would hide the first.
            if self.sound:
                self._end()
        finally:
            for lane in self.lanes:
                self._abandon(lane)
        if not self.sound:
            return
        self.recorder.check_all_released()
        statistics = self.governor.statistics()
        assert statistics.active == statistics.reserved_ram_bytes == statistics.reserved_cpus == 0
        assert statistics.reserved_io_slots == 0
        assert statistics.reserved_gpus == {}

    def _end(self) -> None:
        for lane in self._open_lanes():
            self._close(lane)
            self.holds()
        for lane in self.lanes:
            running = lane.running()
            if running is not None:
                running.tell(Return("at the end"), self.clock.monotonic())
        self.holds()
        for lane in self.lanes:
            assert lane.queue.close(timeout=PATIENCE_S)
            assert all(task.ends == 1 for task in lane.tasks)
        for reservation in self.foreign:
            reservation.release() if reservation.active else None
        self._check_book()

    def _abandon(self, lane: Lane) -> None:
        """Leave no thread behind, also when a check failed half-way."""
        lane.queue.close(timeout=0)
        for actor in lane.actors:
            actor._commands.put(Return(None))
        lane.queue.close(timeout=PATIENCE_S)

    # Choosing -------------------------------------------------------------------------

    def _open_lanes(self) -> list[Lane]:
        return [lane for lane in self.lanes if not lane.closing]

    def _lane(self, at: int) -> Lane:
        """Return one of the queues, mostly an open one; -1 is the newest."""
        lanes = self._open_lanes() if at < 25 else self.lanes
        return lanes[at % len(lanes)] if lanes else self.lanes[-1]

    def _running(self) -> list[ModelTask]:
        return [task for lane in self.lanes if (task := lane.running()) is not None]

    def _tasks(self) -> list[ModelTask]:
        return [task for lane in self.lanes for task in lane.tasks]
