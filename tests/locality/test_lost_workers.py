"""Workers that are removed, fall silent, or report before they are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from lardon.locality import Job, LocalityScheduler, Stage, UnknownWorker, WorkerLost

if TYPE_CHECKING:
    from tests.locality.conftest import World

LEASE_S: Final = 30


def test_what_a_removed_worker_held_is_gone(world: World) -> None:
    world.scheduler.add_artifacts("w0", ["a", "b"])
    world.scheduler.add_artifacts("w1", ["b"])
    world.scheduler.schedule_job(Job("j", ("a",)))

    world.scheduler.remove_worker("w0")

    assert world.scheduler.locate_artifact("a") is None
    assert world.scheduler.locate_artifact("b") == "w1"
    with pytest.raises(UnknownWorker):
        world.take("w0")
    world.scheduler.register_worker("w0")
    assert world.scheduler.queues("w0") == ((), (), ())


def test_its_jobs_are_offered_again_to_everybody(world: World) -> None:
    """At GLOBAL, at their old place, and in the local queues that are theirs."""
    world.scheduler.add_artifacts("w0", ["dep", "a"])
    world.scheduler.add_artifacts("w1", ["dep"])
    handle = world.scheduler.schedule_job(Job("a", ("dep",)))
    world.scheduler.schedule_job(Job("b", ("dep",)))
    assert world.take("w0", fits=lambda job: job.job.id == "a") == "a"

    world.scheduler.remove_worker("w0")

    assert handle.stage is Stage.GLOBAL
    assert world.scheduler.queues("w1") == ((), ("a", "b"), ("a",))
    assert world.scheduler.statistics().offered_again == 1
    assert world.take("w1") == "a"
    assert world.scheduler.on_job_complete("w1", "a", 5)
    assert handle.result == 5


def test_a_job_offered_again_is_known_to_a_holder_of_its_result(world: World) -> None:
    world.scheduler.add_artifacts("w0", ["a"])
    world.scheduler.add_artifacts("w1", ["a"])
    world.scheduler.schedule_job(Job("a"))
    assert world.take("w0") == "a"

    world.scheduler.remove_worker("w0")

    assert world.scheduler.queues("w1") == (("a",), (), ("a",))


def test_a_sleeper_is_woken_for_a_job_that_is_offered_again(world: World) -> None:
    world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)
    assert world.take("w0") == "a"
    picking = world.picking("w1")

    world.scheduler.remove_worker("w0")

    assert picking.result() == "a"


def test_a_job_that_is_lost_twice_fails(world: World) -> None:
    """It is offered again once: a job that kills its workers must not kill them all."""
    handle = world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)
    for worker in ("w0", "w1"):
        assert world.take(worker) == "a"
        world.scheduler.remove_worker(worker)

    assert handle.wait(0)
    assert isinstance(handle.error, WorkerLost)
    assert (handle.error.job_id, handle.error.worker) == ("a", "w1")
    assert world.scheduler.schedule_job(Job("a")) is not handle


def test_the_late_report_of_a_removed_worker_wins_if_it_is_the_first(world: World) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)
    assert world.take("w0") == "a"
    world.scheduler.remove_worker("w0")
    assert world.take("w1") == "a"

    assert world.scheduler.on_job_complete("w0", "a", "late")
    assert not world.scheduler.on_job_complete("w1", "a", "second")

    assert handle.result == "late"
    assert world.scheduler.locate_artifact("a") == "w1", "w0 is not registered"


def test_a_call_that_sleeps_for_a_removed_worker_raises(world: World) -> None:
    gone, other = world.picking("w0"), world.picking("w1")

    world.scheduler.remove_worker("w0")

    with pytest.raises(UnknownWorker):
        gone.result()
    assert other.asleep


# Reports of workers that are not registered -----------------------------------------------


def test_a_report_before_the_registration_counts_from_then_on(world: World) -> None:
    world.scheduler.on_job_complete("w9", "a")
    world.scheduler.add_artifacts("w9", ["b", "c"])
    world.scheduler.remove_artifacts("w9", ["c", "never had"])
    assert world.scheduler.locate_artifact("a") is None
    handle = world.scheduler.schedule_job(Job("a"))
    assert handle.stage is Stage.DEPS

    world.scheduler.register_worker("w9")

    assert world.scheduler.queues("w9") == (("a",), (), ())
    assert world.scheduler.locate_artifact("b") == "w9"
    assert world.scheduler.locate_artifact("c") is None


def test_removing_a_worker_that_only_reported_forgets_its_reports(world: World) -> None:
    world.scheduler.add_artifacts("w9", ["a"])
    world.scheduler.remove_worker("w9")
    world.scheduler.add_artifacts("w8", ["b"])
    world.scheduler.remove_artifacts("w8", ["b"])

    with pytest.raises(UnknownWorker):
        world.scheduler.remove_worker("w8")
    world.scheduler.register_worker("w9")
    assert world.scheduler.locate_artifact("a") is None


def test_registering_wakes_a_sleeper_of_the_worker_for_nothing_else(world: World) -> None:
    world.scheduler.add_artifacts("w9", ["dep"])
    world.scheduler.schedule_job(Job("j", ("dep",)))
    world.scheduler.register_worker("w9")

    assert world.take("w9") == "j"


# Leases ---------------------------------------------------------------------------------


@pytest.fixture
def leased(make_world: Callable[..., World]) -> World:
    """Return a world in which w0 has the job "a" since time 0, on a lease of 30 s."""
    world = make_world("w0", "w1", cold="now", lease_s=LEASE_S)
    world.scheduler.schedule_job(Job("a"))
    assert world.take("w0") == "a"
    return world


def test_the_job_of_a_silent_worker_is_offered_again_when_the_lease_is_over(
    leased: World,
) -> None:
    picking = leased.picking("w1")

    leased.clock.advance(LEASE_S - 0.5)
    assert picking.asleep
    leased.clock.advance(0.5)

    assert picking.result() == "a"
    assert leased.scheduler.statistics().offered_again == 1


@pytest.mark.parametrize(
    "tell",
    [
        lambda scheduler: scheduler.add_artifacts("w0", ["model"]),
        lambda scheduler: scheduler.remove_artifacts("w0", ["model"]),
    ],
)
def test_news_of_what_a_worker_holds_renew_its_lease(
    leased: World, tell: Callable[[LocalityScheduler], None]
) -> None:
    leased.clock.advance(LEASE_S - 1)
    tell(leased.scheduler)
    leased.scheduler.add_artifacts("a stranger", ["model"])
    leased.clock.advance(LEASE_S - 1)
    assert leased.take("w1") is None

    leased.clock.advance(1)

    assert leased.take("w1") == "a"


def test_the_silent_worker_is_still_known_and_its_late_report_counts(leased: World) -> None:
    leased.clock.advance(LEASE_S)

    assert leased.scheduler.queues("w1") == ((), (), ("a",))
    assert leased.scheduler.on_job_complete("w0", "a", 1)
    assert leased.scheduler.queues("w1") == ((), (), ())
    assert leased.scheduler.locate_artifact("a") == "w0"


@pytest.mark.parametrize("sign", ["renew", "register_worker", "pick_job", "on_job_complete"])
def test_a_sign_of_life_starts_the_lease_anew(leased: World, sign: str) -> None:
    leased.clock.advance(LEASE_S - 1)
    if sign == "pick_job":
        assert leased.take("w0") is None
    elif sign == "on_job_complete":
        leased.scheduler.on_job_complete("w0", "other")
    else:
        getattr(leased.scheduler, sign)("w0")

    leased.clock.advance(LEASE_S - 1)
    assert leased.scheduler.queues("w1") == ((), (), ())
    leased.clock.advance(1)
    assert leased.scheduler.queues("w1") == ((), (), ("a",))


def test_the_sign_of_a_silent_worker_that_comes_at_the_last_instant_counts(
    leased: World,
) -> None:
    leased.clock.advance(LEASE_S)
    leased.scheduler.renew("w0")

    assert leased.scheduler.queues("w1") == ((), (), ())


def test_a_worker_that_sleeps_in_pick_job_is_there(leased: World) -> None:
    """As long as it sleeps, and a whole lease after that."""
    picking = leased.picking("w0", timeout=5 * LEASE_S)

    leased.clock.advance(4 * LEASE_S)
    assert leased.scheduler.queues("w1") == ((), (), ())
    leased.clock.advance(LEASE_S)
    assert picking.result() is None
    leased.clock.advance(LEASE_S - 1)
    assert leased.scheduler.queues("w1") == ((), (), ())
    leased.clock.advance(1)
    assert leased.scheduler.queues("w1") == ((), (), ("a",))


def test_a_job_whose_second_lease_is_over_fails(leased: World) -> None:
    (handle,) = leased.scheduler._placement.unfinished()
    leased.clock.advance(LEASE_S)
    assert leased.take("w1") == "a"
    leased.clock.advance(LEASE_S)
    leased.scheduler.statistics()

    assert isinstance(handle.error, WorkerLost)
    assert not leased.scheduler.on_job_complete("w0", "a", 1), "too late"


def test_a_worker_without_a_job_may_be_silent(leased: World) -> None:
    leased.scheduler.on_job_complete("w0", "a")
    leased.clock.advance(10 * LEASE_S)
    leased.scheduler.schedule_job(Job("b"))

    assert leased.take("w0") == "b"
    leased.scheduler.remove_worker("w0")
    leased.clock.advance(10 * LEASE_S)
    assert leased.scheduler.statistics().offered_again == 1
    assert leased.take("w1") == "b"


def test_a_worker_is_asked_for_as_long_as_it_has_any_job(leased: World) -> None:
    leased.scheduler.schedule_job(Job("b"))
    assert leased.take("w0") == "b"
    leased.scheduler.on_job_complete("w0", "a")

    leased.clock.advance(LEASE_S)

    assert leased.scheduler.queues("w1") == ((), (), ("b",))


# Jobs that are given back ---------------------------------------------------------------


def test_a_job_that_is_given_back_is_no_loss(leased: World) -> None:
    picking = leased.picking("w1")
    assert not leased.scheduler.give_back("w1", "a")
    assert not leased.scheduler.give_back("w0", "b")

    assert leased.scheduler.give_back("w0", "a")

    assert picking.result() == "a"
    assert leased.scheduler.statistics().offered_again == 0
    leased.scheduler.remove_worker("w1")
    assert leased.take("w0") == "a"
