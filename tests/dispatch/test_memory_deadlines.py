"""Deadlines and lost answers of the backend in memory: what happens when, and by which clock."""

from __future__ import annotations

import datetime
import threading

import pytest

from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import ExpiredError, InvalidError, OutcomeUnknown
from lardon.dispatch.memory import MemoryBackend, answer_lost, call_started_at
from lardon.dispatch.model import HOLD_BASE, CallMeta, HoldMeta, Ref
from lardon.testing import ManualClock
from tests.dispatch.jobs import (
    JOB,
    OTHER,
    SHAPES,
    call,
    drained,
    holding,
    kubeflow,
    running,
    see,
    slurm,
    spec,
)

SECOND = datetime.timedelta(seconds=1)
CALLS = ["hold", "release", "requeue", "restore_requeue_bit"]


def made(backend: MemoryBackend, verb: str, ref: Ref, deadline: datetime.datetime) -> object:
    call = getattr(backend, verb)
    holds = verb in {"hold", "release"}
    return call(ref, HoldMeta(instance=1, deadline=deadline) if holds else CallMeta(deadline))


def ready_for(backend: MemoryBackend, verb: str, clock: ManualClock) -> Ref:
    """Return an object on which *verb* would do something."""
    if verb in {"hold", "release"}:
        ref = backend.start(spec())
        backend.open(ref)
        if verb == "release":
            backend.hold(ref, holding(clock))
        return ref
    ref = running(backend)
    if verb == "restore_requeue_bit":
        backend.env().requeue_externally(ref)
    return ref


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_after_its_deadline_does_nothing(clock: ManualClock, verb: str) -> None:
    """Seed 000, D1: each of the four; the error says deadline and start."""
    backend = slurm(clock)
    ref = ready_for(backend, verb, clock)
    deadline = clock.wall()
    clock.advance(0.001)
    before = backend.env().truth(ref)

    with pytest.raises(ExpiredError) as caught:
        made(backend, verb, ref, deadline)

    assert (caught.value.deadline, caught.value.started_at) == (deadline, clock.wall())
    assert backend.env().truth(ref) == before
    clock.advance(1000)
    assert backend.env().truth(ref) == before


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_exactly_at_its_deadline_acts(clock: ManualClock, verb: str) -> None:
    """Seed 000, D1: late is after the deadline, not at it."""
    backend = slurm(clock)
    ref = ready_for(backend, verb, clock)
    before = backend.env().truth(ref)

    made(backend, verb, ref, clock.wall())

    assert backend.env().truth(ref) != before


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_holds_on_kubeflow_have_deadlines_too(clock: ManualClock, verb: str) -> None:
    """Seed 000, D1: every hold and release, in both shapes."""
    backend = kubeflow(clock)
    ref = ready_for(backend, verb, clock)
    before = backend.env().truth(ref)

    with pytest.raises(ExpiredError):
        made(backend, verb, ref, clock.wall() - SECOND)

    assert backend.env().truth(ref) == before


def test_the_context_says_when_a_call_starts(clock: ManualClock) -> None:
    """Seed 000, D2 and F2: later than the clock, or earlier; and only inside."""
    backend = slurm(clock)
    ref = backend.start(spec())
    meta = holding(clock)

    with call_started_at(meta.deadline + 25 * SECOND + SECOND), pytest.raises(ExpiredError):
        backend.hold(ref, meta)
    backend.hold(ref, meta)
    clock.advance(100)
    with pytest.raises(ExpiredError):
        backend.release(ref, meta)
    with call_started_at(meta.deadline):
        backend.release(ref, meta)


def test_the_context_belongs_to_one_thread(clock: ManualClock) -> None:
    """Seed 000, D2: what one caller plays does not reach another one."""
    backend = slurm(clock)
    ref = backend.start(spec())
    meta = holding(clock)

    with call_started_at(meta.deadline + SECOND):
        other = threading.Thread(target=backend.hold, args=(ref, meta))
        other.start()
        other.join(10)

    assert see(backend, ref).hold_instance == 1


def test_start_open_and_stop_have_no_deadline(clock: ManualClock) -> None:
    """Seed 000, D1: the four, and no other call."""
    backend = slurm(clock)

    with call_started_at(clock.wall() + datetime.timedelta(days=1)):
        ref = backend.start(spec())
        backend.open(ref)
        backend.stop(ref)

    assert see(backend, ref).state is State.ENDED


def test_a_start_time_must_be_aware() -> None:
    naive = datetime.datetime(2026, 1, 1)  # noqa: DTZ001  that is what is refused

    with pytest.raises(InvalidError, match="started_at must be an aware datetime"):
        call_started_at(naive).__enter__()


@SHAPES
def test_it_starts_no_thread_and_the_clock_drives_everything(
    clock: ManualClock, shape: Shape
) -> None:
    """Seed 000, D5: purges, lost nodes and evidence, by nothing but the clock."""
    before = threading.active_count()
    backend = MemoryBackend(shape=shape, clock=clock, evidence_window_s=100)
    ref, env = running(backend), backend.env()
    env.lose_node(ref)
    stream = backend.watch()
    other = backend.start(spec(OTHER))
    backend.stop(other)

    clock.advance(10_000)

    assert threading.active_count() == before
    seen = drained(stream, backend)
    if shape is Shape.SLURM:
        # Lost at 0, ended at 300 and purged at 600; the other purged at 300.
        assert [(one.ref, one.state) for one in seen][-4:] == [
            (other, State.ENDED),
            (ref, State.ENDED),
            (other, State.UNKNOWN),
            (ref, State.UNKNOWN),
        ]
    else:
        assert (seen[-1].state, seen[-1].cause) == (State.RUNNING, Cause.UNKNOWN)


def test_a_jump_of_the_wall_clock_purges_nothing(clock: ManualClock) -> None:
    """Seed 000, D5: durations come from the clock that does not jump."""
    backend = slurm(clock)
    ref = running(backend)
    backend.env().finish(ref)

    clock.set_wall(clock.wall() + datetime.timedelta(days=365))

    assert see(backend, ref).state is State.ENDED


def test_ten_years_pass_in_one_step(clock: ManualClock) -> None:
    """Seed 000, D5: a hold, a purge and a new object, ten Julian years later."""
    backend = slurm(clock)
    held, done = backend.start(spec()), running(backend, OTHER)
    backend.hold(held, holding(clock))
    backend.env().finish(done)

    clock.advance(HOLD_BASE + 1)

    assert see(backend, held).hold_instance == 1
    assert not see(backend, done).known
    assert backend.start(spec()).submitted_at == clock.wall()


# Answers that are lost


@pytest.mark.parametrize("lands_after_s", [None, 0.0, 30.0, 85.0])
def test_a_call_without_an_answer_lands_in_its_time_or_never(
    clock: ManualClock, lands_after_s: float | None
) -> None:
    """dispatch.md, check 14: unknown until the deadline plus the bound, and certain from then."""
    backend = slurm(clock)
    ref, meta = backend.start(spec()), holding(clock)

    with answer_lost(lands_after_s), pytest.raises(OutcomeUnknown) as caught:
        backend.hold(ref, meta)

    assert caught.value.settles_at == meta.deadline + 25 * SECOND
    if lands_after_s:
        clock.advance(lands_after_s - 0.5)
        assert see(backend, ref).hold_instance is None
        clock.advance(0.5)
    assert see(backend, ref).hold_instance == (None if lands_after_s is None else 1)


def test_a_call_cannot_land_after_its_bound(clock: ManualClock) -> None:
    """dispatch.md, 4.6: that is what the bound promises, so a test may not play it."""
    backend = slurm(clock)
    ref = backend.start(spec())

    with answer_lost(85.5), pytest.raises(InvalidError, match="at most 85, the deadline plus"):
        backend.hold(ref, holding(clock))

    clock.advance(100)
    assert see(backend, ref).hold_instance is None


def test_a_submission_without_an_answer_is_found_by_name(clock: ManualClock) -> None:
    """dispatch.md, 4.8.13: it may be there later, gated, so that a second one does no harm."""
    backend = slurm(clock)
    with answer_lost(20), pytest.raises(OutcomeUnknown) as caught:
        backend.start(spec())
    assert caught.value.settles_at == clock.wall() + 25 * SECOND
    assert backend.find(JOB) is None
    second = backend.start(spec())

    clock.advance(24)

    found = backend.find_all(JOB)
    assert [one.ref.id for one in found] == [second.id, 2]
    assert all(one.gated for one in found)
    # It was submitted when it landed, not when somebody looked.
    assert found[1].ref.submitted_at == clock.wall() - 4 * SECOND


def test_a_call_that_lands_is_judged_by_what_it_meets(clock: ManualClock) -> None:
    """dispatch.md, 4.6: a hold that lands on an object which runs by then is refused unheard."""
    backend = slurm(clock)
    ref = backend.start(spec())
    backend.open(ref)
    with answer_lost(10), pytest.raises(OutcomeUnknown):
        backend.hold(ref, holding(clock))
    backend.env().run(ref)

    clock.advance(20)

    assert see(backend, ref).state is State.RUNNING
    assert see(backend, ref).hold_instance is None


def test_what_was_due_first_happens_first(clock: ManualClock) -> None:
    """dispatch.md, rule 4: a hold that lands before the node is given up meets a running job."""
    backend = slurm(clock, slurmd_timeout_s=30)
    early, late = running(backend), running(backend, OTHER)
    for ref, lands_after_s in ((early, 20), (late, 40)):
        with answer_lost(lands_after_s), pytest.raises(OutcomeUnknown):
            backend.requeue(ref, call(clock))
        backend.env().lose_node(ref)

    clock.advance(50)

    # One was requeued while it ran, the other revived after its end: both are back once.
    assert [see(backend, ref).restarts for ref in (early, late)] == [1, 1]
    assert backend.env().truth(late).adrift
