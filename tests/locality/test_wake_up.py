"""Threads: each job is picked once, and one new job wakes at most one sleeper."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon.locality import Job, LocalityScheduler, PendingJob, UnknownWorker

if TYPE_CHECKING:
    from tests.locality.conftest import World

PATIENCE_S: Final = 15.0


@pytest.mark.slow
@pytest.mark.parametrize("order", ["random", "local-first"])
def test_8_threads_drain_2000_jobs_and_each_is_picked_once(order: Any) -> None:
    """Jobs depend on each other's results and on artifacts that come and go meanwhile."""
    scheduler = LocalityScheduler(
        cache_timeout_s=0.0005, deps_timeout_s=0.001, order=order, rng=random.Random(3)
    )
    workers = [f"w{number}" for number in range(8)]
    picked: list[Any] = []
    cancel = threading.Event()

    def work(worker: str) -> None:
        while (handle := scheduler.pick_job(worker, cancel=cancel)) is not None:
            picked.append(handle.job.id)
            scheduler.add_artifacts(worker, handle.job.deps)
            assert scheduler.on_job_complete(worker, handle.job.id, worker)

    for worker in workers:
        scheduler.register_worker(worker)
    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    handles = [
        scheduler.schedule_job(Job(number, (f"a{number % 13}", number - 7)))
        for number in range(2000)
    ]
    assert all(handle.wait(PATIENCE_S) for handle in handles)
    cancel.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    assert sorted(picked) == list(range(2000))
    assert scheduler.statistics().waiting == scheduler.statistics().running == 0


@pytest.mark.slow
def test_nothing_is_slept_through_while_calls_are_cancelled_and_time_out() -> None:
    """
    1,000 jobs, workers that leave at any moment, and jobs that do not fit everybody.

    A wake-up that is lost leaves a job waiting beside sleepers without a timer: the jobs do
    not wait for any delay here, and calls that are not cancelled have no timeout.
    """
    scheduler = LocalityScheduler(cache_timeout_s=0, deps_timeout_s=3600, cold="now")
    workers = [f"w{number}" for number in range(6)]
    cancels: dict[str, threading.Event] = {}
    closing = threading.Event()
    picked: list[Any] = []

    def work(worker: str, rng: random.Random) -> None:
        odd = bool(workers.index(worker) % 2)
        while not closing.is_set():
            cancel = cancels[worker] = threading.Event()
            if closing.is_set():
                return
            timeout = rng.choice([None, None, 0.0, 0.0005])
            handle = scheduler.pick_job(
                worker,
                timeout=timeout,
                cancel=cancel,
                fits=lambda job: bool(job.job.payload % 3) or odd,
            )
            if handle is not None:
                picked.append(handle.job.id)
                scheduler.on_job_complete(worker, handle.job.id)
                scheduler.remove_artifacts(worker, [handle.job.id])

    for worker in workers:
        scheduler.register_worker(worker)
    threads = [
        threading.Thread(target=work, args=(worker, random.Random(worker))) for worker in workers
    ]
    for thread in threads:
        thread.start()
    rng = random.Random(5)
    try:
        handles = []
        for number in range(1000):
            handles.append(scheduler.schedule_job(Job(number, payload=number)))
            for worker in rng.sample(workers, 2):
                if worker in cancels:
                    cancels[worker].set()
            if number % 10 == 9:
                assert handles[-1].wait(PATIENCE_S), f"job {number} is slept through"
        assert all(handle.wait(PATIENCE_S) for handle in handles)
    finally:
        closing.set()
        for _ in range(2):
            for cancel in list(cancels.values()):
                cancel.set()
        scheduler.stop()
        for thread in threads:
            thread.join(PATIENCE_S)

    assert sorted(picked) == list(range(1000))


class Looks:
    """Counts how often a sleeping call gets up and looks."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        placement = world.scheduler._placement
        pick = placement.pick

        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            return pick(*args, **options)

        monkeypatch.setattr(placement, "pick", counted)


def test_one_new_job_wakes_one_sleeper(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(*(f"w{number}" for number in range(6)), cold="now")
    pickings = [world.picking(f"w{number}") for number in range(6)]
    looks = Looks(world, monkeypatch)

    world.scheduler.schedule_job(Job("a"))

    assert pickings[0].result() == "a", "the one that has slept longest"
    assert world.scheduler.wait_parked(5, PATIENCE_S)
    assert looks.count == 1


def test_a_deadline_wakes_one_sleeper(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pickings = [world.picking("w0") for _ in range(4)]
    looks = Looks(world, monkeypatch)

    world.scheduler.schedule_job(Job("a"))
    assert world.scheduler.wait_parked(4, PATIENCE_S)
    assert looks.count == 1, "one has set its alarm"
    world.clock.advance(10)

    assert world.scheduler.wait_parked(3, PATIENCE_S)
    assert looks.count == 2
    assert world.next_result() == "a"
    assert sum(picking.asleep for picking in pickings) == 3


def test_two_jobs_at_one_deadline_wake_two_sleepers(world: World) -> None:
    pickings = [world.picking(worker) for worker in ("w0", "w1", "w0")]
    world.scheduler.schedule_job(Job("a"))
    world.scheduler.schedule_job(Job("b"))
    assert world.scheduler.wait_parked(3, PATIENCE_S)

    world.clock.advance(10)

    assert world.scheduler.wait_parked(1, PATIENCE_S)
    assert {world.next_result(), world.next_result()} == {"a", "b"}
    assert sum(picking.asleep for picking in pickings) == 1


def test_a_sleeper_with_less_patience_than_the_next_deadline(world: World) -> None:
    """The keeper's own timeout comes first; the next sleeper takes its place."""
    impatient, patient = world.picking("w0", timeout=3), world.picking("w1", timeout=30)
    world.scheduler.schedule_job(Job("a"))
    assert world.scheduler.wait_parked(2, PATIENCE_S)

    world.clock.advance(3)
    assert impatient.result() is None
    assert world.scheduler.wait_parked(1, PATIENCE_S)
    world.clock.advance(7)

    assert patient.result() == "a"


def test_a_holder_that_sleeps_is_woken_before_others(make_world: Callable[..., World]) -> None:
    """Also for a job that everybody may have."""
    world = make_world("w0", "w1", cold="now")
    stranger, holder = world.picking("w0"), world.picking("w1")
    world.scheduler.add_artifacts("w1", ["dep"])
    world.scheduler.schedule_job(Job("first", ("dep",)))
    assert holder.result() == "first"
    again = world.picking("w1")

    world.scheduler.remove_worker("w0")
    with pytest.raises(UnknownWorker):
        stranger.result()
    world.scheduler.register_worker("w0")
    stranger = world.picking("w0")
    world.scheduler.schedule_job(Job("second", ("dep",)))

    assert again.result() == "second"
    assert stranger.asleep


def test_a_sleeper_that_takes_another_job_passes_on_what_it_was_woken_for(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """w0 is woken for a global job; before it looks it gets a local one, and takes that."""
    from lardon.locality.picker import Picker

    world = make_world("w0", "w1", cold="now", order="local-first")
    scheduler = world.scheduler
    first, second = world.picking("w0"), world.picking("w1")
    ring, jobs = Picker.ring, [Job("local", ("dep",))]

    def local_job_first(picker: Picker) -> None:
        if jobs:
            scheduler.add_artifacts("w0", ["dep"])
            scheduler.schedule_job(jobs.pop())
        ring(picker)

    monkeypatch.setattr(Picker, "ring", local_job_first)
    scheduler.schedule_job(Job("global"))

    assert first.result() == "local"
    assert second.result() == "global"


# fits -----------------------------------------------------------------------------------


def small(job: PendingJob) -> bool:
    return bool(job.job.payload <= 1)


def test_a_job_that_does_not_fit_is_skipped_and_not_consumed(
    make_world: Callable[..., World],
) -> None:
    world = make_world("w0", cold="now")
    for name, size in (("a", 3), ("b", 2), ("c", 1), ("d", 1)):
        world.scheduler.schedule_job(Job(name, payload=size))

    assert world.take("w0", fits=small) == "c"
    assert world.take("w0", fits=small) == "d"
    assert world.take("w0", fits=small) is None
    assert world.scheduler.queues("w0")[2] == ("a", "b")
    assert world.take("w0") == "a"


def test_a_job_that_does_not_fit_one_sleeper_wakes_the_next_and_no_one_twice(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world("w0", "w1", "w2", cold="now")
    asked = []

    def no(job: PendingJob) -> bool:
        asked.append(job.job.id)
        return False

    choosy = [world.picking("w0", fits=no), world.picking("w1", fits=no)]
    other = world.picking("w2")

    world.scheduler.schedule_job(Job("a"))

    assert other.result() == "a"
    assert asked == ["a", "a"]
    world.scheduler.schedule_job(Job("b"))
    assert world.scheduler.wait_parked(2, PATIENCE_S)
    assert asked == ["a", "a", "b", "b"]
    assert all(picking.asleep for picking in choosy)


def test_a_job_that_fits_later_is_asked_about_when_something_changed(
    make_world: Callable[..., World],
) -> None:
    world = make_world("w0", cold="now")
    room = [0]
    picking = world.picking("w0", fits=lambda job: room[0] > 0)
    world.scheduler.schedule_job(Job("a"))
    assert world.scheduler.wait_parked(1, PATIENCE_S)

    room[0] = 1
    world.scheduler.resources_changed()

    assert picking.result() == "a"


def test_what_fits_raises_comes_through_and_the_job_goes_on(
    make_world: Callable[..., World],
) -> None:
    world = make_world("w0", "w1", cold="now")

    def broken(job: PendingJob) -> bool:
        raise ZeroDivisionError

    failing, other = world.picking("w0", fits=broken), world.picking("w1")
    world.scheduler.schedule_job(Job("a"))

    with pytest.raises(ZeroDivisionError):
        failing.result()
    assert other.result() == "a"


def test_fits_may_look_at_the_scheduler(make_world: Callable[..., World]) -> None:
    world = make_world("w0", cold="now")
    world.scheduler.add_artifacts("w0", ["b"])
    for name in "abc":
        world.scheduler.schedule_job(Job(name))
    seen = []

    def look(job: PendingJob) -> bool:
        seen.append(world.scheduler.queues("w0"))
        return False

    assert world.take("w0", fits=look) is None
    assert seen == [(("b",), (), ("a", "c"))] * 3
    assert world.scheduler.queues("w0") == seen[0]


def test_an_interrupt_in_its_sleep_leaves_nothing_behind(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does: the sleep raises after the sleeper was woken for a job."""
    from lardon.locality.picker import Picker

    world = make_world("w0", cold="now")
    sleep = Picker.sleep
    interrupted: list[Picker] = []

    def broken_sleep(picker: Picker, clock: Any) -> None:
        sleep(picker, clock)
        if not interrupted:
            interrupted.append(picker)
            raise KeyboardInterrupt

    monkeypatch.setattr(Picker, "sleep", broken_sleep)
    first, second = world.picking("w0"), world.picking("w0")
    world.scheduler.schedule_job(Job("a"))

    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert second.result() == "a"
    assert not world.scheduler._wakeups.idle


def test_the_counts(make_world: Callable[..., World]) -> None:
    world = make_world("w0", "w1", cold="now", order="local-first")
    scheduler = world.scheduler
    scheduler.add_artifacts("w0", ["own", "dep"])
    scheduler.schedule_job(Job("own"))
    scheduler.schedule_job(Job("second", ("dep",)))
    scheduler.schedule_job(Job("third", ("nowhere",)))
    assert [world.take("w0") for _ in range(3)] == ["own", "second", "third"]
    scheduler.on_job_complete("w0", "own")
    scheduler.on_job_complete("w0", "second", error=ValueError())
    picking = world.picking("w1")
    scheduler.schedule_job(Job("fourth"))
    assert picking.result() == "fourth"

    seen = scheduler.statistics()

    assert (seen.picks_own, seen.picks_deps, seen.picks_global) == (1, 1, 2)
    assert (seen.misses, seen.waits) == (2, 1)
    assert (seen.scheduled, seen.finished, seen.failed) == (4, 1, 1)
    assert (seen.waiting, seen.running) == (0, 2)
    assert (seen.workers, seen.artifacts, seen.offered_again) == (2, 2, 0)
