"""The semantics of the origin document, one sentence after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from lardon.locality import Job, SchedulerStopped, Stage, UnknownWorker

if TYPE_CHECKING:
    from tests.locality.conftest import World


# What a reader of the document tries first ----------------------------------------------


def test_a_job_that_nobody_has_cached_waits_deps_timeout_and_then_anyone_gets_it(
    world: World,
) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    assert handle.stage is Stage.DEPS
    picking = world.picking("w1")

    world.clock.advance(9.999)
    assert world.scheduler.queues("w0") == ((), (), ())
    assert picking.asleep

    world.clock.advance(0.001)
    assert picking.result() == "a"
    assert handle.stage is Stage.PICKED


def test_a_cached_job_goes_to_its_holder_first(world: World) -> None:
    world.scheduler.on_job_complete("w1", "a", "old")
    other, holder = world.picking("w0"), world.picking("w1")

    handle = world.scheduler.schedule_job(Job("a"))

    assert holder.result() == "a"
    assert handle.stage is Stage.PICKED
    assert other.asleep


def test_a_completion_for_a_job_that_nobody_scheduled_is_remembered(world: World) -> None:
    assert not world.scheduler.on_job_complete("w1", "a", "result")

    assert world.scheduler.locate_artifact("a") == "w1"
    assert world.scheduler.schedule_job(Job("a")).stage is Stage.CACHE
    assert world.scheduler.queues("w1") == (("a",), (), ())
    assert world.scheduler.queues("w0") == ((), (), ())


# schedule_job ---------------------------------------------------------------------------


def test_a_live_id_returns_the_same_handle_and_arms_no_new_timer(world: World) -> None:
    first = world.scheduler.schedule_job(Job("a", payload=1))
    world.clock.advance(6)

    assert world.scheduler.schedule_job(Job("a", payload=2)) is first
    assert first.job.payload == 1
    world.clock.advance(4)
    assert world.take("w0") == "a"
    assert world.scheduler.schedule_job(Job("a")) is first, "also while a worker has it"


def test_after_completion_there_is_a_new_handle(world: World) -> None:
    first = world.scheduler.schedule_job(Job("a"))
    assert world.scheduler.on_job_complete("w0", "a", 7)

    second = world.scheduler.schedule_job(Job("a"))

    assert second is not first
    assert (first.finished, first.result, second.finished) == (True, 7, False)
    assert world.scheduler.queues("w0")[0] == ("a",)


def test_something_that_is_no_job_is_refused(world: World) -> None:
    with pytest.raises(TypeError, match=r"must be a lardon\.locality\.Job, not 'a'"):
        world.scheduler.schedule_job("a")  # type: ignore[arg-type]  # the test


# Stages ---------------------------------------------------------------------------------


def test_the_two_delays_are_one_after_the_other(world: World) -> None:
    world.scheduler.on_job_complete("w0", "a")
    world.scheduler.add_artifacts("w1", ["dep"])
    handle = world.scheduler.schedule_job(Job("a", ("dep",)))
    assert world.scheduler.queues("w1") == ((), (), ())

    world.clock.advance(1)
    assert world.scheduler.queues("w1") == ((), ("a",), ())
    assert handle.stage is Stage.DEPS
    world.clock.advance(9)
    assert world.scheduler.queues("w1") == ((), ("a",), ())
    world.clock.advance(1)
    assert world.scheduler.queues("w1") == ((), ("a",), ("a",))
    assert world.scheduler.queues("w0") == (("a",), (), ("a",))
    assert handle.stage is Stage.GLOBAL


def test_the_second_delay_starts_when_the_end_of_the_first_is_noticed(world: World) -> None:
    world.scheduler.on_job_complete("w0", "a")
    handle = world.scheduler.schedule_job(Job("a"))

    world.clock.advance(100)
    world.scheduler.queues("w1")
    assert handle.stage is Stage.DEPS
    world.clock.advance(9.5)
    world.scheduler.queues("w1")
    assert handle.stage is Stage.DEPS
    world.clock.advance(0.5)
    world.scheduler.queues("w1")
    assert handle.stage is Stage.GLOBAL


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.queues("w0"),
        lambda s: s.statistics(),
        lambda s: s.locate_artifact("x"),
        lambda s: s.register_worker("w0"),
        lambda s: s.renew("w0"),
        lambda s: s.add_artifacts("w0", ["x"]),
        lambda s: s.remove_artifacts("w0", ["x"]),
        lambda s: s.on_job_complete("w0", "x"),
        lambda s: s.schedule_job(Job("x")),
        lambda s: s.remove_worker("w1"),
        lambda s: s.resources_changed(),
    ],
)
def test_any_call_notices_the_end_of_a_delay(
    world: World, call: Callable[[object], object]
) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)

    call(world.scheduler)

    assert handle.stage is Stage.GLOBAL


def test_pick_job_notices_it_too(world: World) -> None:
    world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)

    assert world.take("w1") == "a"


def test_which_stages_a_job_goes_through_is_fixed_when_it_is_scheduled(world: World) -> None:
    """News that comes later adds queues; it does not send the job back to CACHE."""
    handle = world.scheduler.schedule_job(Job("a", ("dep",)))
    world.scheduler.add_artifacts("w0", ["a"])
    world.scheduler.add_artifacts("w1", ["dep"])

    assert handle.stage is Stage.DEPS
    assert world.scheduler.queues("w0") == (("a",), (), ())
    assert world.scheduler.queues("w1") == ((), ("a",), ())


def test_news_about_a_job_in_the_global_queue_adds_it_to_the_first_local_queue(
    world: World,
) -> None:
    """The document's own example."""
    world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)
    assert world.scheduler.queues("w0") == ((), (), ("a",))

    world.scheduler.on_job_complete("w1", "other")
    world.scheduler.add_artifacts("w0", ["a"])

    assert world.scheduler.queues("w0") == (("a",), (), ("a",))
    assert world.take("w0") == "a"
    assert world.scheduler.queues("w0") == ((), (), ())


def test_news_about_a_dependency_of_a_job_at_cache_waits_with_it(world: World) -> None:
    world.scheduler.add_artifacts("w0", ["a"])
    world.scheduler.schedule_job(Job("a", ("dep",)))
    world.scheduler.add_artifacts("w1", ["dep"])
    assert world.scheduler.queues("w1") == ((), (), ())

    world.clock.advance(1)

    assert world.scheduler.queues("w1") == ((), ("a",), ())


def test_one_dependency_is_enough(world: World) -> None:
    world.scheduler.add_artifacts("w0", ["d2"])
    world.scheduler.schedule_job(Job("a", ("d1", "d2", "d3")))

    assert world.scheduler.queues("w0") == ((), ("a",), ())
    world.scheduler.add_artifacts("w0", ["d3"])
    assert world.scheduler.queues("w0") == ((), ("a",), ())


# pick_job -------------------------------------------------------------------------------


def test_a_job_in_three_queues_is_handed_out_once(world: World) -> None:
    world.scheduler.add_artifacts("w0", ["a", "dep"])
    world.scheduler.add_artifacts("w1", ["a", "dep"])
    world.scheduler.schedule_job(Job("a", ("dep",)))
    world.clock.advance(1)
    world.scheduler.queues("w0")
    world.clock.advance(10)
    assert world.scheduler.queues("w0") == (("a",), ("a",), ("a",))

    assert world.take("w1") == "a"

    assert world.scheduler.queues("w0") == world.scheduler.queues("w1") == ((), (), ())
    assert world.take("w0") is None


def test_a_queue_is_first_in_first_out_by_order_of_scheduling(world: World) -> None:
    """Also when the jobs came into the queue in another order."""
    for name in ("c", "a", "b"):
        world.scheduler.schedule_job(Job(name, (f"dep-{name}",)))
    world.scheduler.add_artifacts("w0", ["dep-b"])
    world.scheduler.add_artifacts("w0", ["dep-c", "dep-a"])

    assert world.scheduler.queues("w0")[1] == ("c", "a", "b")
    assert [world.take("w0") for _ in range(4)] == ["c", "a", "b", None]


def test_the_choice_among_queues_that_have_a_job_is_uniform(
    make_world: Callable[..., World],
) -> None:
    """3,000 draws from three queues with one job each; then from two."""
    world = make_world("w0")
    scheduler = world.scheduler
    counts = dict.fromkeys(("own", "deps", "global"), 0)
    for _ in range(3000):
        scheduler.schedule_job(Job("global"))
        world.clock.advance(10)
        scheduler.add_artifacts("w0", ["own", "dep"])
        scheduler.schedule_job(Job("deps", ("dep",)))
        scheduler.schedule_job(Job("own"))
        assert scheduler.queues("w0") == (("own",), ("deps",), ("global",))
        counts[world.take("w0")] += 1
        for name in counts:
            scheduler.on_job_complete("w0", name)
            scheduler.remove_artifacts("w0", [name])

    # Six standard deviations: 6 * sqrt(3000 * 1/3 * 2/3) = 155.
    assert all(abs(count - 1000) < 155 for count in counts.values()), counts


def test_an_unknown_worker_is_an_error(world: World) -> None:
    for call in (world.take, world.scheduler.queues, world.scheduler.remove_worker):
        with pytest.raises(UnknownWorker, match="no worker 'w9' is registered") as caught:
            call("w9")
        assert caught.value.worker == "w9"


def test_a_timeout_is_over_by_the_injected_clock(world: World) -> None:
    picking = world.picking("w0", timeout=5)

    world.clock.advance(4.5)
    assert picking.asleep
    world.clock.advance(0.5)

    assert picking.result() is None


# on_job_complete ------------------------------------------------------------------------


def test_the_first_report_wins_and_the_second_adds_its_location(world: World) -> None:
    handle = world.scheduler.schedule_job(Job("a"))

    assert world.scheduler.on_job_complete("w0", "a", "first")
    assert not world.scheduler.on_job_complete("w1", "a", "second")

    assert handle.result == "first"
    world.scheduler.schedule_job(Job("a"))
    assert world.scheduler.queues("w0")[0] == world.scheduler.queues("w1")[0] == ("a",)


def test_a_job_that_is_finished_while_it_waits_is_in_no_queue_any_more(world: World) -> None:
    world.scheduler.add_artifacts("w0", ["a", "dep"])
    handle = world.scheduler.schedule_job(Job("a", ("dep",)))

    assert world.scheduler.on_job_complete("w1", "a", 1)

    assert handle.finished
    assert world.scheduler.queues("w0") == ((), (), ())


def test_a_failed_result_leaves_no_location(world: World) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    error = ValueError("no")

    assert world.scheduler.on_job_complete("w0", "a", error=error)

    assert (handle.finished, handle.result, handle.error) == (True, None, error)
    assert world.scheduler.locate_artifact("a") is None


def test_a_result_makes_the_jobs_that_need_it_local(world: World) -> None:
    picking = world.picking("w0")
    world.scheduler.schedule_job(Job("later", ("sooner",)))
    world.scheduler.schedule_job(Job("sooner"))

    world.scheduler.on_job_complete("w0", "sooner")

    assert picking.result() == "later"


def test_waiting_for_the_end_of_a_job(world: World) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    assert not handle.wait(0)
    assert not handle.wait(0)

    world.scheduler.on_job_complete("w0", "a", 3)

    assert handle.wait()
    assert repr(handle) == "<PendingJob 'a' FINISHED>"


# stop -----------------------------------------------------------------------------------


def test_stop_wakes_every_picker(world: World) -> None:
    pickings = [world.picking(worker) for worker in ("w0", "w0", "w1")]

    world.scheduler.stop()

    assert [picking.result() for picking in pickings] == [None, None, None]
    assert world.take("w0") is None
    with pytest.raises(SchedulerStopped, match="was stopped"):
        world.scheduler.schedule_job(Job("a"))


def test_stop_ends_the_waiting_for_a_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    ended: list[bool] = []
    waits, wait_for = threading.Event(), world.clock.wait_for

    def told(*args: Any) -> bool:
        # Under the lock, which the wait lets go of.
        waits.set()
        return wait_for(*args)

    monkeypatch.setattr(world.clock, "wait_for", told)
    thread = threading.Thread(target=lambda: ended.append(handle.wait()))
    thread.start()
    assert waits.wait(10)

    world.scheduler.stop()
    thread.join(10)

    assert ended == [False]


def test_a_wait_notices_that_a_delay_is_over_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    seconds: list[float] = []

    def moves_on(_condition: object, _predicate: object, timeout: float) -> bool:
        seconds.append(timeout)
        if len(seconds) == 1:
            world.clock.advance(timeout)
            return False
        assert handle.stage is Stage.GLOBAL
        return world.scheduler.on_job_complete("w0", "a", 1)

    monkeypatch.setattr(world.clock, "wait_for", moves_on)

    assert handle.wait(100)
    assert seconds == [10, 90]


def test_after_stop_a_worker_may_still_report(world: World) -> None:
    handle = world.scheduler.schedule_job(Job("a"))
    world.clock.advance(10)
    assert world.take("w0") == "a"

    with world.scheduler:
        pass
    assert not handle.wait(), "nobody waits for ever"
    assert world.scheduler.on_job_complete("w0", "a", 1)

    assert handle.wait()
