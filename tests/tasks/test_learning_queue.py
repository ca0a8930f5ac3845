"""The queue reports its batches to a governor that learns, and works without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

from lardon import (
    Governor,
    MiB,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.governor.snapshot import OwnUse
from lardon.queue.views import TaskEvent
from lardon.testing import ManualClock, ScriptedGovernor, ScriptedProbe, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S: Final = 10.0
ESTIMATE: Final = ResourceEstimate(ram_bytes_per_item=MiB, max_batch=4, kind="sums")
SNAPSHOT: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1024 * MiB, ram_available_bytes=900 * MiB, cpus=2
)


class World:
    """A governor on a manual clock, whose batches take a second and 3 MiB an item."""

    def __init__(self, **policy: Any) -> None:
        self.clock = ManualClock()
        self.probe = ScriptedProbe(SNAPSHOT, clock=self.clock, own_use=OwnUse(ram_bytes=50 * MiB))
        self.governor = Governor(Policy(**policy), probe=self.probe, clock=self.clock)

    def work(self, batch: list[int]) -> int:
        self.clock.advance(1.0)
        self.probe.peak = OwnUse(ram_bytes=(50 + 3 * len(batch)) * MiB)
        return len(batch)

    def run(self, callback: Callable[[TaskContext], Any]) -> Any:
        with TaskQueue(self.governor) as queue:
            return queue.submit(callback, estimate=ESTIMATE).result(PATIENCE_S)

    def figures(self) -> list[tuple[int, float, int | None]]:
        return [
            (record.items, record.duration_s, record.peak_ram_bytes)
            for record in self.governor.history("sums")
        ]


def test_map_batches_reports_every_batch() -> None:
    world = World()

    world.run(lambda context: context.map_batches(world.work, range(10)))

    assert world.figures() == [(4, 1.0, 12 * MiB), (4, 1.0, 12 * MiB), (2, 1.0, 6 * MiB)]


def test_batches_reports_what_happened_between_two_of_them() -> None:
    world = World()

    world.run(lambda context: [world.work(batch) for batch in context.batches(range(6))])

    assert world.figures() == [(4, 1.0, 12 * MiB), (2, 1.0, 6 * MiB)]


@pytest.mark.parametrize("method", ["map_batches", "batches"])
def test_what_the_items_take_to_be_read_is_a_part_of_the_batch(method: str) -> None:
    """Where a generator decodes them, reading is all the work, and takes the memory."""
    world = World()

    def decoded() -> Iterator[int]:
        for item in range(6):
            world.clock.advance(0.5)
            yield item

    def callback(context: TaskContext) -> None:
        if method == "map_batches":
            context.map_batches(world.work, decoded())
        else:
            for batch in context.batches(decoded()):
                world.work(batch)

    world.run(callback)

    # The fifth item is read before the break, to know whether there is anything to break for.
    assert world.figures() == [(4, 3.5, 12 * MiB), (2, 1.5, 6 * MiB)]


def test_what_the_items_take_to_be_read_is_a_part_of_the_round() -> None:
    world = World()

    def decoded() -> Iterator[int]:
        for item in range(3):
            world.clock.advance(0.5)
            yield item

    with TaskQueue(world.governor) as queue:
        task = queue.submit(
            lambda context: context.map_items(lambda item: world.work([item]), decoded()),
            estimate=ESTIMATE.evolve(max_batch=1),
        )
        task.result(PATIENCE_S)

    # Two items are read in the first round, one in the second, and none in the third.
    assert [duration for _, duration, _ in world.figures()] == [2.0, 1.5, 1.0]


@pytest.mark.parametrize("method", ["map_batches", "map_items"])
def test_a_pause_within_a_batch_is_no_part_of_its_duration(method: str) -> None:
    """It would be taken for how long the next ones last, and they wait for an hour's growth."""
    world = World()

    def work(context: TaskContext) -> None:
        queue.pause(context.task_id)
        assert context.checkpoint()
        world.work([0])

    def resume(event: TaskEvent) -> None:
        if event.state is TaskState.PAUSED:
            world.clock.advance(3600.0)
            queue.resume(event.task_id)

    with TaskQueue(world.governor) as queue:
        queue.subscribe(resume)
        task = queue.submit(
            lambda context: getattr(context, method)(lambda _: work(context), range(2)),
            estimate=ESTIMATE.evolve(max_batch=1),
        )
        task.result(2 * 3600.0 + PATIENCE_S)  # by the clock that `resume` moves

    assert {duration for _, duration, _ in world.figures()} <= {1.0, 2.0}


def test_a_batch_is_measured_also_where_its_items_come_out_of_other_batches() -> None:
    world = World()

    def decoded(context: TaskContext) -> Iterator[int]:
        for _ in range(2):
            yield from context.map_batches(world.work, range(4))

    world.run(lambda context: context.map_batches(world.work, decoded(context)))

    # Two of four within, and of what they gave one of two: the second is read with the first.
    assert [size for size, _, _ in world.figures()] == [4, 4, 2]


def test_an_iterable_without_items_leaves_nothing_being_measured() -> None:
    """What is measured at the same time in this process, by another queue, would be unknown."""
    world = World()

    def callback(context: TaskContext) -> list[bool]:
        measured = []
        for method in (context.map_batches, context.map_items):
            method(len, [])
            measured.append(context._measured is not None)
        return measured

    assert world.run(callback) == [False, False]


def test_a_batch_that_nobody_finishes_teaches_nothing_and_hinders_nobody() -> None:
    """Somebody keeps the generator when the callback is over."""
    world, kept = World(), []

    def callback(context: TaskContext) -> None:
        batches = context.batches(range(8))
        kept.append(batches)
        next(batches)

    world.run(callback)
    assert world.governor.history("sums") == ()

    world.run(lambda context: context.map_batches(world.work, range(4)))
    assert world.figures() == [(4, 1.0, 12 * MiB)]


def test_map_items_reports_how_many_ran_at_a_time() -> None:
    world = World()

    world.run(lambda context: context.map_items(lambda item: world.work([item]), range(3)))

    assert sum(figures[0] for figures in world.figures()) == len(world.figures())
    assert {figures[2] for figures in world.figures()} == {3 * MiB}


class PausingAtARound(Governor):
    """Pauses the task right before the first item of its second round."""

    rounds = 0
    pause: Callable[[], object]

    def watch_batch(self, reservation: Any) -> Any:
        self.rounds += 1
        if self.rounds == 2:
            self.pause()
        return super().watch_batch(reservation)


def test_a_round_without_an_item_reports_nothing() -> None:
    world = World()
    governor = PausingAtARound(probe=world.probe, clock=world.clock)

    with TaskQueue(governor) as queue:
        governor.pause = lambda: queue.pause(1)
        queue.subscribe(lambda event: event.state == "PAUSED" and queue.resume(event.task_id))
        task = queue.submit(
            lambda context: context.map_items(lambda item: world.work([item]), range(8)),
            estimate=ESTIMATE,
        )
        assert task.result(PATIENCE_S) == [1] * 8

    assert governor.rounds == 3
    assert [record.items for record in governor.history("sums")] == [1, 1]


def test_what_was_learned_shrinks_the_next_task_of_the_kind() -> None:
    world = World(ram_limit_bytes=6 * MiB)
    sizes: list[int] = []

    def note(batch: list[int]) -> None:
        sizes.append(world.work(batch))

    world.run(lambda context: context.map_batches(note, range(4)))
    world.run(lambda context: context.map_batches(note, range(4)))

    assert sizes == [4, 1, 1, 1, 1]


def test_trust_in_measurements_starts_small_and_doubles() -> None:
    world = World(trust="measured")
    sizes: list[int] = []

    world.run(
        lambda context: context.map_batches(
            lambda batch: sizes.append(world.work(batch)), range(15)
        )
    )

    assert sizes == [1, 2, 4, 4, 4]


def test_a_governor_that_does_not_learn_is_left_alone() -> None:
    governor = ScriptedGovernor([start(batch_size=2)])
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: context.map_batches(len, range(4)), estimate=ESTIMATE)
        assert task.result(PATIENCE_S) == [2, 2]


class Raising(Governor):
    """Fails where it should learn."""

    at = ""

    def watch_batch(self, reservation: Any) -> Any:
        if self.at == "watch":
            raise OSError("no watch")
        return super().watch_batch(reservation)

    def record_batch(self, *args: Any, **kwargs: Any) -> None:
        raise OSError("no record")


@pytest.mark.parametrize("at", ["watch", "record"])
def test_a_governor_that_cannot_learn_costs_no_batch(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    governor = Raising(probe=ScriptedProbe(attrs.evolve(SNAPSHOT)))
    governor.at = at
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda context: context.map_batches(len, range(8)), estimate=ESTIMATE)
        assert task.result(PATIENCE_S) == [4, 4]

    assert "of task 1 could not be" in caplog.text
    assert f"no {at}" in caplog.text


def test_memory_that_an_allocator_keeps_is_no_need_of_the_smallest_batch() -> None:
    """
    On this machine: a last, small batch works in what the large one before it has left.

    Its peak was taken for the fixed part of every batch, and the next task of the kind
    waited for a minute, on an idle machine, for more than there was.
    """
    governor = Governor()
    if governor._reader.own_use() is None:
        pytest.skip("this platform does not tell what a process uses")
    pool = bytearray()

    def work(items: list[int]) -> None:
        nonlocal pool
        need = len(items) * 2 * MiB
        if len(pool) < need:
            pool = bytearray(b"x") * need

    estimate = ResourceEstimate(ram_bytes_per_item=2 * MiB, max_batch=64, kind="pool")
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda task: task.map_batches(work, range(64 + 4)), estimate=estimate)
        task.result(60)

    large, small = governor.history("pool")
    assert (large.items, small.items) == (64, 4)
    if large.peak_ram_bytes is None:
        pytest.skip("this process has children, so that no batch of it can be measured")
    assert large.peak_ram_bytes >= 120 * MiB
    assert small.peak_ram_bytes is None
    del pool[:]
    one = governor.decide(attrs.evolve(estimate, max_batch=1))
    assert one.contract is not None
    assert one.contract.ram_bytes < 16 * MiB
