"""A cancelled `pick_job` returns promptly and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from lardon.locality import Job, LocalityScheduler, PendingJob
from lardon.locality.cancelling import on_set

if TYPE_CHECKING:
    from tests.locality.conftest import World

PATIENCE_S: Final = 10.0
HAND_OVERS: Final = 1000


def test_a_cancelled_call_returns_although_no_time_passes(world: World) -> None:
    cancel = threading.Event()
    picking = world.picking("w0", cancel=cancel)

    cancel.set()

    assert picking.result() is None


def test_it_consumes_nothing(world: World) -> None:
    cancel = threading.Event()
    cancel.set()
    world.scheduler.add_artifacts("w0", ["a"])
    world.scheduler.schedule_job(Job("a"))

    assert world.take("w0", cancel=cancel) is None
    assert world.take("w0") == "a"


def test_one_event_cancels_many_calls_and_no_others(world: World) -> None:
    shared, own = threading.Event(), threading.Event()
    cancelled = [world.picking(worker, cancel=shared) for worker in ("w0", "w1", "w1")]
    others = [world.picking("w0", cancel=own), world.picking("w1")]

    shared.set()

    assert [picking.result() for picking in cancelled] == [None] * 3
    assert world.scheduler.wait_parked(2, PATIENCE_S)
    assert all(picking.asleep for picking in others)


def test_a_call_with_an_event_that_is_never_set_gets_its_job(world: World) -> None:
    cancel = threading.Event()
    picking = world.picking("w0", cancel=cancel)

    world.scheduler.add_artifacts("w0", ["a"])
    world.scheduler.schedule_job(Job("a"))

    assert picking.result() == "a"
    assert not waiters(cancel), "the call has left nothing on the caller's event"


def test_the_sleeper_that_keeps_the_time_may_leave(world: World) -> None:
    """The first sleeper wakes for deadlines; when it is cancelled the next one does."""
    cancel = threading.Event()
    world.scheduler.schedule_job(Job("a"))
    keeper, other = world.picking("w0", cancel=cancel), world.picking("w1")

    cancel.set()
    assert keeper.result() is None
    assert world.scheduler.wait_parked(1, PATIENCE_S)
    world.clock.advance(10)

    assert other.result() == "a"


class CancelledInTheClaim:
    """Sets the event of a call while the call looks at a job, inside the claim."""

    def __init__(self, cancel: threading.Event) -> None:
        self.cancel = cancel

    def __call__(self, job: PendingJob) -> bool:
        self.cancel.set()
        return True


def test_an_event_that_is_set_inside_the_claim_does_not_lose_the_job(world: World) -> None:
    scheduler = world.scheduler
    scheduler.add_artifacts("w0", ["a"])
    scheduler.schedule_job(Job("a"))
    cancel = threading.Event()

    assert world.take("w0", cancel=cancel, fits=CancelledInTheClaim(cancel)) == "a"


@pytest.mark.slow
def test_a_cancel_at_the_instant_of_hand_over_never_loses_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The event is set where the sleeper has been chosen and not yet been told, 1,000 times.

    It wakes to both. It returns None, and the job goes on to the other sleeper.
    """
    from lardon.locality.picker import Picker

    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=3600, cold="now")
    scheduler.register_worker("w")
    ring, events = Picker.ring, list[threading.Event]()

    def set_and_ring(picker: Picker) -> None:
        # Once, for the call that is woken for the job: its event is set before the bell.
        if events and picker.cancel is events[0] and picker.assigned is not None:
            events.pop().set()
        ring(picker)

    monkeypatch.setattr(Picker, "ring", set_and_ring)
    answers: list[PendingJob | None] = []
    stay = threading.Event()

    def cancelled_call(cancel: threading.Event) -> None:
        answers.append(scheduler.pick_job("w", cancel=cancel))

    def second_call() -> None:
        answers.append(scheduler.pick_job("w", cancel=stay))

    for number in range(HAND_OVERS):
        cancel = threading.Event()
        first = threading.Thread(target=cancelled_call, args=(cancel,))
        first.start()
        assert scheduler.wait_parked(1, PATIENCE_S)
        second = threading.Thread(target=second_call)
        second.start()
        assert scheduler.wait_parked(2, PATIENCE_S)
        events.append(cancel)
        handle = scheduler.schedule_job(Job(number))
        first.join(PATIENCE_S)
        second.join(PATIENCE_S)
        assert not first.is_alive()
        assert not second.is_alive()
        assert cancel.is_set(), "the race did not happen"
        assert sorted(answers, key=lambda answer: answer is None) == [handle, None]
        answers.clear()
        assert scheduler.on_job_complete("w", number)
        scheduler.remove_artifacts("w", [number])
    assert scheduler.statistics().waiting == 0


@pytest.mark.parametrize("how", ["cancel", "timeout", "error"])
def test_a_sleeper_that_was_woken_and_leaves_passes_the_job_on(
    make_world: Callable[..., World], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sleeper leaves between being woken and looking: the next is woken."""
    from lardon.locality.picker import Picker

    world = make_world("w0", cold="now")
    cancel = threading.Event()
    leaving = world.picking("w0", cancel=cancel, timeout=5)
    staying = world.picking("w0")
    (first, _) = world.scheduler._wakeups.idle
    ring = Picker.ring

    def ring_and_leave(picker: Picker) -> None:
        if picker is first:
            if how == "cancel":
                cancel.set()
            elif how == "timeout":
                picker.deadline = 0.0
            else:
                picker.worker = "nobody"
        ring(picker)

    monkeypatch.setattr(Picker, "ring", ring_and_leave)

    world.scheduler.schedule_job(Job("a"))

    if how == "timeout":
        # It looks once more before it gives up, and so it has the job.
        assert leaving.result() == "a"
        assert staying.asleep
        return
    if how == "error":
        with pytest.raises(KeyError):
            leaving.result()
    else:
        assert leaving.result() is None
    assert staying.result() == "a"


def waiters(event: threading.Event) -> list[object]:
    return list(event._cond._waiters)  # type: ignore[attr-defined]  # not in typeshed


def test_this_python_has_what_an_event_is_told_by() -> None:
    """If this fails, a new Python has another `threading.Event`: see `on_set`."""
    event, rung = threading.Event(), []
    with on_set(event, lambda: rung.append(event.is_set())) as told:
        assert told
        assert len(waiters(event)) == 1
        event.set()
        assert rung == [True]
    assert waiters(event) == []


def test_leaving_takes_the_bell_away() -> None:
    event, rung = threading.Event(), []
    with on_set(event, lambda: rung.append(1)):
        pass
    event.set()

    assert rung == []


class OddEvent(threading.Event):
    """An event that is built in another way."""

    def __init__(self) -> None:
        self._inner = threading.Event()

    def is_set(self) -> bool:
        return self._inner.is_set()

    def set(self) -> None:
        self._inner.set()


def test_an_event_that_is_built_otherwise_is_looked_at(world: World) -> None:
    """Slower, by up to 50 ms, but not lost; neither is a job."""
    cancel = OddEvent()
    with on_set(cancel, lambda: None) as told:
        assert not told
    picking = world.picking("w0", cancel=cancel)
    other = world.picking("w0", cancel=OddEvent())

    cancel.set()

    assert picking.result() is None
    world.scheduler.add_artifacts("w0", ["a"])
    world.scheduler.schedule_job(Job("a"))
    assert other.result() == "a"


def test_without_an_event_there_is_nothing_to_be_told() -> None:
    with on_set(None, lambda: None) as told:
        assert told
