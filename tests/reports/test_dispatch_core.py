"""Reports on retries without a pause, and on simulated time that ran in the wrong order."""

from __future__ import annotations

import itertools

import pytest

from lardon.dispatch import Action, Cause, JobSpec, RecoveryPolicy, RecoveryRule
from lardon.dispatch.enums import State
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.records import MemoryRecords
from lardon.dispatch.sim import Agenda, Setting, simulate
from lardon.dispatch.supervisor import Supervisor
from lardon.testing import ManualClock

JOB = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_h108_a_broken_node_does_not_use_up_all_retries_within_a_minute() -> None:
    """Node n1 fails everything at once; the pauses grow, and the reason names the node."""
    clock = ManualClock()
    backend = MemoryBackend(clock=clock, call_bound_s=1)
    env = backend.env()
    operator = Operator(backend, MemoryRecords(), clock, call_timeout_s=1, poll_s=1)
    supervisor = Supervisor("one", operator)
    rule = RecoveryRule(Cause.NON_ZERO_EXIT, Action.RESTART, limit=5, delay_s=10, delay_factor=2)
    operator.submit(JobSpec(id=JOB, command=["work"]), policy=RecoveryPolicy([rule]))
    began: list[float] = []
    outcome = None
    while outcome is None and len(began) < 20:
        supervisor.turn()
        for ref in env.refs():
            truth = env.truth(ref)
            if truth.state is State.PENDING and not truth.gated:
                began.append(clock.monotonic())
                env.run(ref, node="n1")
                env.finish(ref, 1)
        clock.advance(1)
        outcome = operator.observer.get(JOB).record.outcome

    assert len(began) == 6
    pauses = [later - earlier for earlier, later in itertools.pairwise(began)]
    for pause, least in zip(pauses, [10, 20, 40, 80, 160], strict=True):
        assert least <= pause <= least + 5
    assert outcome is not None
    assert outcome.cause is Cause.NON_ZERO_EXIT
    assert outcome.nodes == ("n1",)
    assert "after 5 of 5 recoveries" in outcome.reason
    assert "6 executions ended within 60 s on node n1" in outcome.reason


def test_h108_the_reason_shows_while_it_is_tried_again() -> None:
    """Whoever looks before the last try sees which node it is, and what comes next."""
    clock = ManualClock()
    backend = MemoryBackend(clock=clock, call_bound_s=1)
    env = backend.env()
    operator = Operator(backend, MemoryRecords(), clock, call_timeout_s=1, poll_s=1)
    supervisor = Supervisor("one", operator)
    rule = RecoveryRule(Cause.NON_ZERO_EXIT, Action.RESTART, delay_s=1000)
    operator.submit(JobSpec(id=JOB, command=["work"]), policy=RecoveryPolicy([rule]))
    for _ in range(2):
        supervisor.turn()
        ref = env.refs()[-1]
        env.run(ref, node="n1")
        env.finish(ref, 1)
        clock.advance(1)
        supervisor.turn()
        plan = supervisor.last_plan(JOB)
        clock.advance(1000)

    assert plan is not None
    assert "2 executions ended within 60 s on node n1" in plan.why
    assert plan.record.due is not None


class Timeline:
    """Notes what fires, and when."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.agenda = Agenda(self.clock)
        self.fired: list[tuple[str, float]] = []

    def add(self, after_s: float, name: str) -> None:
        self.agenda.add(after_s, lambda: self.fired.append((name, self.clock.monotonic())), name)

    def all(self) -> list[tuple[str, float]]:
        while self.agenda.fire_next() is not None:
            pass
        return self.fired


def test_h109_timers_fire_by_their_time_and_ties_by_their_registration() -> None:
    line = Timeline()
    line.add(0.100, "late")
    line.add(0.010, "soon")
    line.add(0.010, "soon, too")

    assert line.all() == [("soon", 0.01), ("soon, too", 0.01), ("late", pytest.approx(0.1))]


def test_h109_the_clock_moves_when_something_fires_and_not_when_it_is_added() -> None:
    line = Timeline()
    line.add(5, "a")
    assert line.clock.monotonic() == 0
    assert line.agenda.next_at is not None
    line.agenda.fire_next()
    assert line.clock.monotonic() == 5
    assert line.agenda.next_at is None
    assert line.agenda.fire_next() is None
    assert line.clock.monotonic() == 5


def test_h109_a_timer_that_adds_one_for_now_is_followed_by_it_at_the_same_time() -> None:
    line = Timeline()
    line.agenda.add(1, lambda: line.add(0, "added"))
    line.add(1, "was there")
    line.add(2, "later")

    assert line.all() == [("was there", 1.0), ("added", 1.0), ("later", 2.0)]


def test_h109_a_timer_that_is_cancelled_inside_a_firing_does_not_fire() -> None:
    line = Timeline()
    cancelled = []
    victim = line.agenda.add(1, lambda: line.fired.append(("victim", 0.0)))
    # Registered later and due sooner.
    line.agenda.add(0.5, lambda: cancelled.append(victim.cancel()))

    assert line.all() == []
    assert cancelled == [True]
    assert not victim.cancel()
    assert line.clock.monotonic() == 0.5


def test_h109_two_timers_of_one_name_are_two() -> None:
    line = Timeline()
    line.add(1, "tick")
    line.add(2, "tick")

    assert line.all() == [("tick", 1.0), ("tick", 2.0)]


@pytest.mark.parametrize("after_s", [-1, float("nan")])
def test_h109_nothing_is_due_in_the_past(after_s: float) -> None:
    with pytest.raises(ValueError, match="after_s"):
        Timeline().add(after_s, "never")


def test_h109_a_seed_of_the_simulator_gives_the_same_trace() -> None:
    assert simulate(Setting(seed=3)).trace == simulate(Setting(seed=3)).trace
