"""Cutting an iterable into batches whose size follows the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from lardon.events import logger
from lardon.queue import meter
from lardon.queue.feed import Count, Feed
from lardon.queue.out_of_memory import is_out_of_memory, make_room, no_smaller
from lardon.queue.outcome import forget_frames

if TYPE_CHECKING:
    from lardon.governor.batch_watch import BatchWatch
    from lardon.queue.context import TaskContext

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def batches(context: TaskContext, items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the batches; see `TaskContext.batches`."""
    context._go_on()
    count = Count(context, items)
    feed = Feed(items)
    watch, batch = _take(context, feed)
    while batch:
        size = len(batch)
        yield batch
        # Not kept through the break; the consumer may still hold it.
        del batch
        count.add(size)
        # Before the batch is over: what is read ahead is measured, too.
        feed.more()
        meter.record(context, watch, size)
        watch, batch = _next(context, feed)


def map_batches(
    context: TaskContext, fn: Callable[[list[Item]], Outcome], items: Iterable[Item]
) -> list[Outcome]:
    """Call *fn* with each batch; see `TaskContext.map_batches`."""
    context._go_on()
    count = Count(context, items)
    feed = Feed(items)
    outcomes: list[Outcome] = []
    least = context.min_batch
    watch, batch = _take(context, feed)
    while batch:
        size = len(batch)
        # What *fn* takes out of its list, to free memory or otherwise, is tried again too.
        kept = batch.copy() if size > least else []
        failure = _attempt(context, fn, batch, outcomes)
        del batch
        if failure is None:
            del kept
            count.add(size)
            # As above.
            feed.more()
            meter.record(context, watch, size)
        else:
            meter.record(context, watch, size, failed=True)
            if size <= least:
                raise no_smaller(context, failure, size) from failure
            half = max(least, size // 2)
            logger.info(
                "lardon: task %s (%s) ran out of memory on a batch of %s: at most %s of its "
                "items at a time now",
                *(context.task_id, context.name, size, half),
            )
            feed.give_back(kept, half)
            del failure, kept
            make_room()
        watch, batch = _next(context, feed)
    return outcomes


def _attempt(
    context: TaskContext,
    fn: Callable[[list[Item]], Outcome],
    batch: list[Item],
    outcomes: list[Outcome],
) -> BaseException | None:
    """Run one batch; return the error by which it ran out of memory, raise any other."""
    try:
        with context.applied():
            outcomes.append(fn(batch))
    except BaseException as error:
        if not is_out_of_memory(error):
            raise
        # The retry must not fail on what the frames of this try still hold.
        forget_frames(error)
        return error
    return None


def _take(context: TaskContext, feed: Feed[Item]) -> tuple[BatchWatch | None, list[Item]]:
    """Return the next batch, and the watch over it: what the iterable takes is a part of it."""
    watch = meter.begin(context)
    batch = feed.take(context.contract.batch_size)
    # The iterable may have taken a break itself, after which the contract is another.
    most = context.contract.batch_size
    if len(batch) > most:
        feed.keep(batch[most:])
        del batch[most:]
    if watch is not context._measured:
        # The iterable has worked on batches of its own.
        watch = meter.begin(context)
    if not batch:
        meter.abandon(context)
    return watch, batch


def _next(context: TaskContext, feed: Feed[Item]) -> tuple[BatchWatch | None, list[Item]]:
    """
    Return the next batch, read after the break before it; empty at the end.

    One item is read before the break, to know whether there is anything to break for.
    """
    if not feed.more():
        return None, []
    context._next_batch()
    return _take(context, feed)
