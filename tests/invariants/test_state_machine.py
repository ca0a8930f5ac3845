"""
Any sequence of calls keeps the eight invariants of the core design, section 10.

A real governor and one or two real queues are driven call by call; the callbacks too do
only what they are told. After every step all threads stand still, and everything that can
be seen is compared with plain flags (`model`) and naive arithmetic (`oracle`).

LARDON_SOAK=20 runs twenty times as many cases, new ones each time.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

import attrs
import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from lardon import InvalidPolicy, Policy, QueueClosed, ResourceEstimate, ResourceSnapshot
from tests.invariants import oracle
from tests.invariants.actor import Actor, Break, Return
from tests.invariants.model import Lane, ModelTask
from tests.invariants.strategies import (
    MACHINE,
    SMALL,
    Exit,
    Submission,
    acts,
    endings,
    estimates,
    pick,
    policies,
    readings,
    steering,
    submissions,
)
from tests.invariants.world import World, check_same

if TYPE_CHECKING:
    from lardon.queue.views import TaskEvent
    from tests.invariants.actor import Command

_SOAK: Final = int(os.environ.get("LARDON_SOAK", "0"))


class LardonMachine(World):
    # Submitting and steering ------------------------------------------------------

    @initialize(
        policy=policies,
        first=st.lists(submissions, min_size=1, max_size=4),
        second=st.none() | st.lists(submissions, min_size=1, max_size=4),
    )
    def open(
        self,
        policy: Policy,
        first: list[Submission],
        second: list[Submission] | None,
    ) -> None:
        self.governor.set_policy(policy)
        self.policy, self.policy_changes = policy, 1
        for some in (first, second):
            if some is not None:
                self._open_queue()
                self.submit(-1, some)

    @rule(at=pick, submissions=st.lists(submissions, min_size=1, max_size=3))
    def submit(self, at: int, submissions: list[Submission]) -> None:
        for submission in submissions:
            self._submit(self._lane(at), submission)
            self.holds()

    def _submit(self, lane: Lane, submission: Submission) -> None:
        estimate, limit = submission.estimate, submission.start_timeout_s
        name = f"task-{lane.number}-{len(lane.tasks)}"
        actor = Actor(lane.stage, name)
        if lane.closing:
            with pytest.raises(QueueClosed):
                lane.queue.submit(actor, estimate=estimate, name=name)
            return
        lane.actors.append(actor)
        handle = lane.queue.submit(actor, estimate=estimate, name=name, start_timeout_s=limit)
        expires = None if limit is None else self.clock.monotonic() + limit
        task = ModelTask(lane, handle, actor, expires=expires)
        assert handle.id == len(lane.tasks) + 1
        lane.tasks.append(task)
        lane.unheard = False

        def count(ended: object) -> None:
            assert ended is handle
            task.done_calls += 1

        handle.add_done_callback(count)
        if submission.watched:
            assert handle.future is handle.future

    @rule(at=pick, what=steering)
    def steer(self, at: int, what: str) -> None:
        tasks = self._tasks()
        # Mostly one where it makes a difference.
        chosen = [task for task in tasks if not task.ended and task.pausing is (what == "resume")]
        if not chosen or at > 25:
            chosen = tasks
        self._steer(chosen[at % len(chosen)], what)

    def _steer(self, task: ModelTask, what: str) -> None:
        queue, number = task.lane.queue, task.handle.id
        match what:
            case "pause":
                new = not task.ended and not task.pausing
                assert queue.pause(number) is new
                self._paused(task, new)
            case "resume":
                new = not task.ended and task.pausing
                assert queue.resume(number) is new
                task.pausing = task.pausing and not new
            case _:
                new = not task.ended and not task.cancelling
                assert queue.cancel(number) is new
                assert queue.cancel(number) is False
                task.cancelling = task.cancelling or new
        if new:
            task.lane.unheard = False

    @rule(at=pick, what=steering)
    def steer_all(self, at: int, what: str) -> None:
        lane = self._lane(at)
        lane.everyone = True
        unfinished = [task for task in lane.tasks if not task.ended]
        match what:
            case "pause":
                expected = sum(not task.pausing for task in unfinished)
                assert lane.queue.pause_all() == expected
                for task in unfinished:
                    self._paused(task, not task.pausing)
            case "resume":
                expected = sum(task.pausing for task in unfinished)
                assert lane.queue.resume_all() == expected
                for task in unfinished:
                    task.pausing = False
            case _:
                expected = sum(not task.cancelling for task in unfinished)
                assert lane.queue.cancel_all() == expected
                for task in unfinished:
                    task.cancelling = True
        if expected:
            lane.unheard = False

    def _paused(self, task: ModelTask, new: bool) -> None:
        if not new:
            return
        if task.waits_in_break() and isinstance(task.command, Break):
            task.paused_in_break = task.delayed = True
            if task.command.on_pause == "cancel":
                task.cancelling = True
        task.pausing = True

    # What the callbacks do ----------------------------------------------------------

    @rule(at=pick, acts=st.lists(acts(), min_size=1, max_size=5))
    def work(self, at: int, acts: list[Command | str]) -> None:
        """One running task works, and is steered in between."""
        running = self._running()
        if not running:
            self.submit(at, [SMALL])
            running = self._running()
        if not running:
            return
        task = running[at % len(running)]
        for act in acts:
            task = task.lane.running() or task
            if isinstance(act, str):
                self._happen(task, act)
            elif task.actor.phase == "ready":
                task.lane.unheard = False
                task.tell(act, self.clock.monotonic())
            self.holds()

    def _happen(self, task: ModelTask, event: str) -> None:
        lane = task.lane
        match event:
            case "memory goes":
                self._say(attrs.evolve(MACHINE, ram_available_bytes=0))
            case "memory comes back, and the queue is told":
                self._say(MACHINE)
                lane.queue.resources_changed()
                lane.unheard = False
            case "memory comes back, and time passes":
                self._say(MACHINE)
                self.advance(2.0)
            case "pause the next" | "resume the next":
                what, paused = event.split(maxsplit=1)[0], event.startswith("resume")
                for other in lane.tasks:
                    if other.actor.phase == "new" and not other.ended and other.pausing is paused:
                        self._steer(other, what)
                        break
            case _:
                self._steer(task, event)

    @rule(at=pick)
    def stop_and_go(self, at: int) -> None:
        """All tasks of an idle queue are paused, and come back from behind."""
        lane = self._lane(at)
        self.steer_all(at, "pause")
        self.holds()
        running = lane.running()
        if running is not None:
            self._steer(running, "resume")
            self.holds()
            if running.actor.phase == "ready":
                running.tell(Return("for others"), self.clock.monotonic())
                self.holds()
        for task in reversed(lane.tasks):
            if task.pausing and not task.ended:
                self._steer(task, "resume")
                self.holds()

    @rule(at=pick)
    def short_of_memory(self, at: int) -> None:
        """Memory goes, in the middle of what runs, and comes back without a word."""
        lane = self._lane(at)
        self._say(attrs.evolve(MACHINE, ram_available_bytes=0))
        self.submit(at, [SMALL])
        running = lane.running()
        if running is not None and running.actor.phase == "ready":
            running.tell(Break(None, "park"), self.clock.monotonic())
            self.holds()
        self._say(MACHINE)
        self.holds()
        self.advance(2.0)

    # Hypothesis leaves out some rules in each case: what matters most stands here thrice.

    @rule(at=pick, acts=st.lists(acts(), min_size=4, max_size=8))
    def work_on(self, at: int, acts: list[Command | str]) -> None:
        self.work(at, acts)

    @rule(at=pick, acts=st.lists(acts(steered=False), min_size=2, max_size=6))
    def work_undisturbed(self, at: int, acts: list[Command | str]) -> None:
        self.work(at, acts)

    @rule(at=pick, end=endings())
    def finish(self, at: int, end: Command) -> None:
        self.work(at, ["resume", end])

    @rule(end=endings())
    def finish_all(self, end: Command) -> None:
        for at in range(len(self.lanes)):
            self.work(at, ["resume", end])

    # What the world does ------------------------------------------------------------

    @rule(reading=readings(), told=st.none() | pick)
    def change_the_machine(
        self, reading: ResourceSnapshot | BaseException, told: int | None
    ) -> None:
        """Memory appears or disappears, and one queue or none is told."""
        self._say(reading)
        if told is not None:
            self.resources_changed(told)

    def _say(self, reading: ResourceSnapshot | BaseException) -> None:
        self.reading = reading
        self.probe.set(reading)
        for lane in self.lanes:
            lane.unheard = True

    def resources_changed(self, at: int) -> None:
        lane = self._lane(at)
        lane.queue.resources_changed()
        lane.unheard = False

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0]))
    def advance(self, seconds: float) -> None:
        for lane in self.lanes:
            waiting = lane.running() or lane.head()
            recheck = self.policy.recheck_s
            if waiting is None or recheck is None or seconds < recheck:
                continue
            reason = waiting.handle.reason
            if reason is not None and reason.code not in oracle.SLOTS_ONLY:
                lane.unheard = False
        self.clock.advance(seconds)

    @rule(policy=policies)
    def set_policy(self, policy: Policy) -> None:
        contracts = [reservation.contract for reservation in self.governor.reservations()]
        if oracle.policy_fits(policy, self.reading, contracts):
            # Before the call: a worker that it wakes is judged by the new capacities.
            self.policy = policy
            self.governor.set_policy(policy)
            self.policy_changes += 1
        else:
            with pytest.raises(InvalidPolicy) as refused:
                self.governor.set_policy(policy)
            assert refused.value.reserved is not None
            assert refused.value.capacity is not None
            assert refused.value.reserved > refused.value.capacity
            assert self.governor.policy is self.policy

    @rule(at=pick, estimate=estimates())
    def take_directly(self, at: int, estimate: ResourceEstimate) -> None:
        """A neighbour reserves at the same governor, and never keeps more than two."""
        if sum(reservation.active for reservation in self.foreign) > 1:
            self.give_back_directly(at)
            self.holds()
        book = [reservation.contract for reservation in self.governor.reservations()]
        expected = oracle.answer(estimate, self.reading, self.policy, book)
        generation = self.governor.generation
        assert self._as_expected(self.governor.decide(estimate), expected)
        assert self.governor.generation == generation
        decision, reservation = self.recorder.reserve(
            estimate, holder=f"neighbour-{len(self.foreign)}"
        )
        assert self._as_expected(decision, expected)
        assert (reservation is not None) == bool(expected.batch)
        if reservation is not None:
            assert decision.contract == reservation.contract
            self.foreign.append(reservation)

    @staticmethod
    def _as_expected(decision: Any, expected: oracle.Answer) -> bool:
        batch = decision.contract.batch_size if decision.contract is not None else 0
        return oracle.Answer(decision.kind, decision.reason.code, batch) == expected

    @rule(at=pick)
    def give_back_directly(self, at: int) -> None:
        active = [reservation for reservation in self.foreign if reservation.active]
        if active:
            reservation = active[at % len(active)]
            assert reservation.release() is True
            assert not reservation.active

    @rule(at=pick, raises=st.booleans(), ends=st.booleans())
    def subscribe(self, at: int, raises: bool, ends: bool) -> None:
        if ends and self.listening:
            _, unsubscribe, *events = self.listening.pop(at % len(self.listening))
            unsubscribe()
            unsubscribe()
            check_same(*events)
            return
        lane = self._lane(at)
        heard: list[TaskEvent] = []
        expected: list[TaskEvent] = []

        def listen(event: TaskEvent) -> None:
            heard.append(event)
            if raises:
                message = "a listener that raises harms nothing"
                raise Exit(message)

        stop_listening = lane.queue.subscribe(listen)
        stop_noting = lane.queue.subscribe(expected.append)

        def stop() -> None:
            stop_listening()
            stop_noting()

        self.listening.append((lane, stop, heard, expected))

    @rule(at=pick)
    def close_or_open(self, at: int) -> None:
        lanes = self._open_lanes()
        if len(lanes) < 2:
            self._open_queue()
        elif len(self._tasks()) > 6:
            # Not too early: an example is to have something to close.
            self._close(lanes[at % len(lanes)])


@pytest.mark.slow
@pytest.mark.timeout(180 + 60 * _SOAK)
def test_every_sequence_of_calls_keeps_the_invariants(caplog: pytest.LogCaptureFixture) -> None:
    # Probes and listeners that raise are logged as they should, by the thousand.
    caplog.set_level(logging.CRITICAL, logger="lardon")
    run_state_machine_as_test(
        LardonMachine,
        settings=hypothesis.settings(
            derandomize=not _SOAK,
            max_examples=30 * max(1, _SOAK),
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
