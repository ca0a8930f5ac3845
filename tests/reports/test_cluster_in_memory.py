"""Reports on simulated time: the order of what is due on a cluster in memory."""

from __future__ import annotations

import datetime
import queue
import random
from typing import Final

import pytest

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import DispatchError, OutcomeUnknown
from lardon.dispatch.memory import MemoryBackend, answer_lost
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref
from lardon.dispatch.stream import BufferedStream
from lardon.testing import ManualClock

JOB: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def begun(clock: ManualClock) -> tuple[MemoryBackend, Ref]:
    backend = MemoryBackend(clock=clock)
    return backend, backend.start(JobSpec(id=JOB, command=["true"]))


def held_later(backend: MemoryBackend, ref: Ref, instance: int, after_s: float) -> None:
    deadline = backend._world.clock.wall() + datetime.timedelta(seconds=60)
    with answer_lost(after_s), pytest.raises(OutcomeUnknown):
        backend.hold(ref, HoldMeta(instance, deadline))


def test_h109_what_is_due_first_happens_first_whoever_was_asked_first() -> None:
    """H109 (kaeawc/auto-mobile#4188, ably/ably-java#1209): by deadline, not by registration."""
    clock = ManualClock()
    backend, ref = begun(clock)
    held_later(backend, ref, 1, 0.1)
    held_later(backend, ref, 2, 0.01)
    assert clock.monotonic() == 0, "arranging something moves no clock"

    clock.advance(0.05)
    assert backend.observe_many([ref])[ref].hold_instance == 2
    clock.advance(10)

    # The one that was asked for first came last, and stands.
    assert backend.observe_many([ref])[ref].hold_instance == 1


def test_h109_of_two_at_one_instant_the_first_that_was_asked_for_comes_first() -> None:
    """H109: ties go by registration, and neither replaces the other."""
    clock = ManualClock()
    backend, ref = begun(clock)
    stream = backend.watch()
    for instance in (3, 1, 2):
        held_later(backend, ref, instance, 5)

    clock.advance(5)
    backend.find(JOB)

    told = [stream.get_nowait().hold_instance for _ in range(4)]
    assert told == [None, 3, 1, 2]


def test_h109_what_happens_can_make_something_due_at_once_or_take_it_away() -> None:
    """H109: an end that is caught up with is dated back, so what follows from it is due too."""
    clock = ManualClock()
    backend, ref = begun(clock)
    backend.open(ref)
    backend.env().run(ref)
    backend.env().lose_node(ref)
    stop_at = CallMeta(clock.wall() + datetime.timedelta(seconds=290))
    with answer_lost(300), pytest.raises(OutcomeUnknown):
        backend.requeue(ref, stop_at)
    stream = backend.watch()

    clock.advance(10_000)
    backend.find(JOB)

    # Both were due at 300, and the node was lost before the requeue was asked for. The end
    # that came of it made a purge due at 600, which the requeue took away again.
    assert [(one.state, one.cause) for one in all_of(stream) if not one.requeue_bit] == [
        (State.RUNNING, None),
        (State.ENDED, Cause.NODE_LOST),
        (State.PENDING, Cause.REQUEUED),
    ]


def all_of(stream: BufferedStream) -> list[Observation]:
    found = []
    try:
        while True:
            found.append(stream.get_nowait())
    except queue.Empty:
        return found


def trace(seed: int) -> list[str]:
    """Return what one night looks like that only the seed decides."""
    chance, clock = random.Random(seed), ManualClock()
    backend, ref = begun(clock)
    backend.open(ref)
    stream, env = backend.watch(), backend.env()
    verbs = [env.run, env.preempt, env.lose_node, env.requeue_externally, env.finish]
    for _ in range(200):
        clock.advance(chance.choice([0, 0.1, 30, 400]))
        try:
            chance.choice(verbs)(ref)
        except DispatchError:
            continue
    return [repr(one) for one in all_of(stream)]


def test_h109_a_seed_gives_the_same_trace_again() -> None:
    """H109: nothing but the clock and the calls decides, so a run can be replayed."""
    assert trace(7) == trace(7)
    assert trace(7) != trace(8)
