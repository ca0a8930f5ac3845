"""Item by item on several threads, with a break between rounds."""

from __future__ import annotations

import contextvars
import queue
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lardon.environment import gpus_for_children
from lardon.events import logger
from lardon.queue import meter
from lardon.queue.applied import keep_to, threads
from lardon.queue.feed import Count, Feed
from lardon.queue.out_of_memory import is_out_of_memory, make_room, no_smaller
from lardon.queue.outcome import forget_frames

if TYPE_CHECKING:
    from lardon.queue.context import TaskContext

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

THREAD_NAME: Final = "lardon-item"
# A round lasts at least this long, however small the contract's batch: between two rounds
# the threads stand still until the slowest is done, which must stay a small part of it. It
# is also the default of `Policy.recheck_s`: how old an answer may grow.
ROUND_S: Final = 0.5
# Items that wait for a thread, for each thread: one, so that none waits for the next item.
_AHEAD: Final = 1


def map_items(
    context: TaskContext, fn: Callable[[Item], Outcome], items: Iterable[Item]
) -> list[Outcome]:
    """Call *fn* with each item; see `TaskContext.map_items`."""
    context._go_on()
    count = Count(context, items)
    work = _Items(context, fn, Feed(enumerate(items)))
    try:
        while True:
            watch = meter.begin(context)
            work.round(count)
            if work.taken:
                meter.record(context, watch, work.at_once, failed=bool(work.short))
            work.retry_or_raise()
            if not work.feed.more():
                break
            context._next_batch()
    finally:
        work.close()
    return [work.outcomes[place] for place in range(len(work.outcomes))]


class _Items(Generic[Item, Outcome]):
    """The items of one call: those to come, those in flight, and what came of them."""

    def __init__(
        self,
        context: TaskContext,
        fn: Callable[[Item], Outcome],
        feed: Feed[tuple[int, Item]],
    ) -> None:
        self._context = context
        self._fn = fn
        self.feed = feed
        self.outcomes: dict[int, Outcome] = {}
        self.at_once = 1
        """How many items the last round worked on at the same time."""
        self.taken = 0
        """How many items the last round took."""
        self.short: list[tuple[int, Item]] = []
        """Those of the last round that ran out of memory, or were not tried after that."""
        self._shortage: BaseException | None = None
        # The first other error by place, as a loop would have met it.
        self._error: tuple[int, BaseException] | None = None
        # Fewer than the contract allows, after a shortage, until its items are done.
        self._limit: int | None = None
        self._again = 0
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0
        # Filled by the threads, emptied by the callback's own.
        self._done: queue.SimpleQueue[_Flight[Item, Outcome]] = queue.SimpleQueue()

    def round(self, count: Count) -> None:
        """Work until the time of a round is over; nothing is in flight then."""
        contract = self._context.contract
        size = min(contract.cpus, contract.batch_size, self._limit or contract.batch_size)
        self.at_once, self.taken = 1, 0
        self.short, self._shortage = [], None
        # Libraries share one limit for all threads, or have one for each: both are set.
        with gpus_for_children(contract), threads(max(1, contract.cpus // size)):
            self._fly(self._threads(size), size, count)

    def _fly(self, pool: ThreadPoolExecutor, size: int, count: Count) -> None:
        context, contract = self._context, self._context.contract
        clock = context._task._signal.clock
        ends = clock.monotonic() + ROUND_S
        flying = 0
        stop = False
        while True:
            while not stop and flying < min(contract.batch_size, size * (1 + _AHEAD)):
                # A contract for fewer items than there are CPUs is asked to grow soon.
                over = size < contract.cpus or clock.monotonic() >= ends
                stop = (
                    (over and self.taken >= contract.batch_size)
                    or context._must_stop()
                    or not self.feed.more()
                )
                if not stop:
                    ((place, item),) = self.feed.take(1)
                    flight = _Flight(self._fn, place, item)
                    pool.submit(contextvars.copy_context().run, flight.run, self._done)
                    flying += 1
                    self.taken += 1
                    self.at_once = max(self.at_once, min(flying, size))
            if not flying:
                return
            stop = self._landed(self._done.get(), count) or stop
            flying -= 1

    def _landed(self, flight: _Flight[Item, Outcome], count: Count) -> bool:
        """Take in what came of one item; return whether nothing more may start."""
        error = flight.error
        if error is None:
            self.outcomes[flight.place] = flight.outcome
            if self._again:
                self._again -= 1
                if not self._again:
                    self._limit = None
            count.add(1)
            return False
        if is_out_of_memory(error):
            forget_frames(error)
            self.short.append((flight.place, flight.item))
            self._shortage = error
        elif self._error is None or flight.place < self._error[0]:
            self._error = flight.place, error
        return True

    def retry_or_raise(self) -> None:
        """Prepare the next round after a failure, or raise what ends the work."""
        if self._error is not None:
            raise self._error[1]
        if not self.short:
            return
        context, shortage = self._context, self._shortage
        assert shortage is not None, "it came with the items"
        if self.at_once <= 1:
            raise no_smaller(context, shortage, 1) from shortage
        self._limit = self.at_once // 2
        logger.info(
            "lardon: task %s (%s) ran out of memory on %s items at a time: %s at most now",
            *(context.task_id, context.name, self.at_once, self._limit),
        )
        self.short.sort(key=lambda one: one[0])
        self._again += len(self.short)
        self.feed.give_back(self.short, 1)
        self.short, self._shortage = [], None
        make_room()

    def _threads(self, size: int) -> ThreadPoolExecutor:
        """Return a pool of *size* threads; the last one where it has that size."""
        if self._pool is None or self._size != size:
            self.close()
            self._size = size
            self._pool = ThreadPoolExecutor(
                size, thread_name_prefix=THREAD_NAME, initializer=keep_to, initargs=(1,)
            )
        return self._pool

    def close(self) -> None:
        """End the threads; waits for items that are still in flight."""
        if self._pool is not None:
            self._pool.shutdown()


class _Flight(Generic[Item, Outcome]):
    """One item on a thread, and what came of it."""

    __slots__ = ("_fn", "error", "item", "outcome", "place")

    outcome: Outcome

    def __init__(self, fn: Callable[[Item], Outcome], place: int, item: Item) -> None:
        self._fn = fn
        self.place = place
        self.item = item
        self.error: BaseException | None = None

    def run(self, done: queue.SimpleQueue[_Flight[Item, Outcome]]) -> None:
        """Call the function, and say so; never raises. Runs on a thread of the pool."""
        try:
            self.outcome = self._fn(self.item)
        except BaseException as error:  # noqa: BLE001  the callback's own thread raises it
            self.error = error
        done.put(self)
