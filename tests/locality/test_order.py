"""Which job comes first: local-first, an age cap, and cold jobs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from lardon.locality import Job, Stage

if TYPE_CHECKING:
    from tests.locality.conftest import World


def filled(world: World) -> None:
    """Put one job in each queue of w0, the global one first and the first local one last."""
    world.scheduler.schedule_job(Job("global", ("elsewhere",)))
    world.clock.advance(10)
    world.scheduler.queues("w0")
    world.scheduler.add_artifacts("w0", ["own", "dep"])
    world.scheduler.schedule_job(Job("second", ("dep",)))
    world.scheduler.schedule_job(Job("own"))
    assert world.scheduler.queues("w0") == (("own",), ("second",), ("global",))


def test_local_first(make_world: Callable[..., World]) -> None:
    world = make_world("w0", order="local-first")
    filled(world)

    assert [world.take("w0") for _ in range(4)] == ["own", "second", "global", None]


def test_the_drawn_queue_is_the_generators(make_world: Callable[..., World]) -> None:
    """It is asked only where there is a choice, for a number below the number of queues."""
    asked = []

    class Last:
        def randrange(self, stop: int) -> int:
            asked.append(stop)
            return stop - 1

    world = make_world("w0", rng=Last())
    filled(world)

    assert [world.take("w0") for _ in range(3)] == ["global", "second", "own"]
    assert asked == [3, 2]


@pytest.mark.parametrize("order", ["random", "local-first"])
def test_a_job_of_the_age_comes_first(make_world: Callable[..., World], order: Any) -> None:
    world = make_world("w0", order=order, max_age_s=60)
    filled(world)

    world.clock.advance(50)

    assert world.take("w0") == "global", "60 s old, and the only one"
    assert world.take("w0") in {"own", "second"}


def test_of_the_aged_the_oldest_that_fits_comes_first(make_world: Callable[..., World]) -> None:
    world = make_world("w0", order="local-first", max_age_s=60)
    filled(world)
    world.clock.advance(60)
    world.scheduler.schedule_job(Job("young", ("dep",)))

    assert world.take("w0", fits=lambda job: job.job.id in {"second", "own"}) == "second"
    assert world.take("w0", fits=lambda job: job.job.id == "young") == "young"
    assert world.take("w0", fits=lambda job: False) is None
    assert world.take("w0") == "global"
    assert world.take("w0", fits=lambda job: False) is None
    assert world.take("w0") == "own"


def test_the_age_counts_from_the_time_of_scheduling_also_after_a_loss(
    make_world: Callable[..., World],
) -> None:
    world = make_world("w0", "w1", order="local-first", max_age_s=60, cold="now")
    world.scheduler.schedule_job(Job("old"))
    assert world.take("w1") == "old"
    world.scheduler.add_artifacts("w0", ["own"])
    world.scheduler.schedule_job(Job("own"))
    world.clock.advance(30)
    world.scheduler.remove_worker("w1")
    world.clock.advance(30)

    assert world.take("w0") == "old"


def test_a_cold_job_is_offered_at_once(make_world: Callable[..., World]) -> None:
    world = make_world("w0", "w1", cold="now")
    world.scheduler.add_artifacts("w0", ["dep"])
    picking = world.picking("w1")

    warm = world.scheduler.schedule_job(Job("warm", ("dep", "nowhere")))
    cached = world.scheduler.schedule_job(Job("dep"))
    assert (warm.stage, cached.stage) == (Stage.DEPS, Stage.CACHE)
    assert picking.asleep
    cold = world.scheduler.schedule_job(Job("cold", ("nowhere",)))

    assert picking.result() == "cold"
    assert cold.stage is Stage.PICKED
    assert world.scheduler.queues("w0") == (("dep",), ("warm",), ())
