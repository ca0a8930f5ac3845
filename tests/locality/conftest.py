"""A scheduler on a clock that a test moves."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from lardon.locality import LocalityScheduler, PendingJob
from lardon.testing import ManualClock
from tests.locality.pools import Pools

CACHE_S: Final = 1.0
DEPS_S: Final = 10.0
PATIENCE_S: Final = 10.0


class World:
    """A scheduler, its clock, and threads that pick."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.scheduler = LocalityScheduler(
            **{
                "cache_timeout_s": CACHE_S,
                "deps_timeout_s": DEPS_S,
                "clock": self.clock,
                "rng": random.Random(1),
                **options,
            }
        )
        self.threads: list[threading.Thread] = []
        self.done: queue.SimpleQueue[Picking] = queue.SimpleQueue()

    def take(self, worker: str, **options: Any) -> Any:
        """Return the id of what *worker* gets now, without waiting, or None."""
        handle = self.scheduler.pick_job(worker, timeout=0, **options)
        return None if handle is None else handle.job.id

    def picking(self, worker: str, **options: Any) -> Picking:
        """Start a thread that picks for *worker*, and return once it sleeps."""
        asleep = self.scheduler._wakeups.asleep()
        picking = Picking(self, worker, options)
        self.threads.append(picking.thread)
        assert self.scheduler.wait_parked(asleep + 1, PATIENCE_S)
        return picking

    def next_result(self) -> Any:
        """Return the id that the next of the calls to end has got."""
        return self.done.get(timeout=PATIENCE_S).result()


class Picking:
    """A call of `pick_job` on a thread of its own."""

    def __init__(self, world: World, worker: str, options: dict[str, Any]) -> None:
        self.answer: PendingJob | None = None
        self.error: BaseException | None = None

        def call() -> None:
            try:
                self.answer = world.scheduler.pick_job(worker, **options)
            except BaseException as error:  # noqa: BLE001  the test looks at it
                self.error = error
            world.done.put(self)

        self.thread = threading.Thread(target=call, name=f"picking-{worker}", daemon=True)
        self.thread.start()

    @property
    def asleep(self) -> bool:
        return self.thread.is_alive()

    def result(self) -> Any:
        """Return the id that the call got, or None; what it raised is raised."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), "the call still sleeps"
        if self.error is not None:
            raise self.error
        return None if self.answer is None else self.answer.job.id


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Return a maker of worlds, which are stopped when the test ends."""
    worlds: list[World] = []

    def make(*workers: str, **options: Any) -> World:
        world = World(**options)
        for worker in workers:
            world.scheduler.register_worker(worker)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.scheduler.stop()
        for thread in world.threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Return a world with the workers w0 and w1."""
    return make_world("w0", "w1")


@pytest.fixture
def pools() -> Iterator[Pools]:
    made = Pools()
    yield made
    for gate in made.gates:
        gate.opened.set()
    for pool in made.pools:
        assert pool.close(PATIENCE_S)
