"""Item by item on several threads, with a break between rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lardon.environment import gpus_for_children
from lardon.events import logger
from lardon.queue import meter
from lardon.queue.applied import keep_to, threads
from lardon.queue.crew import Crew, Flight
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
# is the default of `Policy.snapshot_max_age_s`, too: how old a reading may grow.
ROUND_S: Final = 1.0
# So many items for each thread wait for it, where they are all there already (a sequence):
# the one thread that hands them out may have to wait for a CPU that the others use.
_AHEAD: Final = 8


def map_items(
    context: TaskContext, fn: Callable[[Item], Outcome], items: Iterable[Item]
) -> list[Outcome]:
    """Call *fn* with each item; see `TaskContext.map_items`."""
    context._go_on()
    count = Count(context, items)
    ahead = _AHEAD if isinstance(items, Sequence) else 1
    work = _Items(context, fn, Feed(enumerate(items)), count, ahead)
    try:
        while True:
            watch = meter.begin(context)
            work.round()
            if work.taken:
                if not work.failed:
                    # Before the round is over: what is read ahead is measured, too.
                    work.feed.more()
                meter.record(context, watch, work.at_once, failed=bool(work.short))
            else:
                meter.abandon(context)
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
        count: Count,
        ahead: int,
    ) -> None:
        self._context = context
        self._ahead = ahead
        self._fn = fn
        self.feed = feed
        self._count = count
        self.outcomes: dict[int, Outcome] = {}
        self.at_once = 1
        """How many items the last round worked on at the same time."""
        self.taken = 0
        """How many items the last round took."""
        self.short: list[tuple[int, Item]] = []
        """Those of the last round that ran out of memory."""
        self._shortage: BaseException | None = None
        # The first other error by place, as a loop would have met it.
        self._error: tuple[int, BaseException] | None = None
        # Fewer than the contract allows, after a shortage, until its items are done.
        self._limit: int | None = None
        self._again = 0
        self._crew: Crew[Item, Outcome] | None = None
        self._made_for = (0, 0)
        self._size_before = 0
        self._flying = 0
        # Whether the iterable has taken a break in this round.
        self._broke = False

    def round(self) -> None:
        """Work until the time of a round is over; nothing is in flight then."""
        contract = self._context.contract
        size = min(contract.cpus, contract.batch_size, self._limit or contract.batch_size)
        self.at_once, self.taken = 1, 0
        self.short, self._shortage, self._broke = [], None, False
        # A contract for fewer items than there are CPUs is asked to grow soon, as long as it does.
        grows = self._size_before < size < contract.cpus
        seconds = 0.0 if grows else ROUND_S
        self._size_before = size
        self._ends = self._context._task._signal.clock.monotonic() + seconds
        # Libraries share one limit for all threads, or have one for each: both are set.
        with gpus_for_children(contract), threads(max(1, contract.cpus // size)):
            if size == 1:
                self._alone()
            else:
                self._together(size)

    def _more(self) -> bool:
        """Return whether this round goes on to another item; reads one ahead to know."""
        context = self._context
        if self._must_stop():
            return False
        enough = self.taken >= context.contract.batch_size
        if enough and context._task._signal.clock.monotonic() >= self._ends:
            return False
        return self.feed.more()

    def _take(self) -> Flight[Item, Outcome]:
        ((place, item),) = self.feed.take(1)
        self.taken += 1
        return Flight(self._fn, place, item)

    def _alone(self) -> None:
        """Work on one item after the other, on the callback's own thread."""
        while self._more():
            flight = self._take()
            flight.run()
            self._landed(flight)
            if flight.error is None:
                self._count.add(1)

    def _together(self, size: int) -> None:
        """Keep *size* threads busy with up to a batch of items in flight."""
        window = self._context.contract.batch_size
        if self._limit is not None:
            window = size
        elif self._ahead > 1:
            # What waits for a thread takes no memory that it did not take before.
            window = max(window, size * self._ahead)
        crew = self._threads(size)
        crew.renew(max(1, window // 4))
        self._flying = 0
        context = self._context
        outer, context._land = context._land, self._land
        try:
            while True:
                while self._flying < window and self._more():
                    # One by one: the next may be long in coming.
                    crew.start(self._take())
                    self._flying += 1
                self.at_once = max(self.at_once, min(self._flying, size))
                if not self._flying:
                    return
                landed = crew.wait(self._flying)
                self._flying -= len(landed)
                for flight in landed:
                    self._landed(flight)
                self._count.add(sum(flight.error is None for flight in landed))
                if self._must_stop():
                    self._take_back(crew)
        except BaseException:
            # The iterable raised: what has begun is awaited, and no more begins for nothing.
            crew.take_back()
            self.close()
            raise
        finally:
            context._land = outer

    def _take_back(self, crew: Crew[Item, Outcome]) -> None:
        """Give what no thread has begun back to where it came from."""
        spare = [(flight.place, flight.item) for flight in crew.take_back()]
        self._flying -= len(spare)
        self.taken -= len(spare)
        self.feed.give_back(spare, 1)

    def _land(self) -> None:
        """Let what flies land: the iterable takes a break, and the reservation is given back."""
        crew = self._crew
        assert crew is not None, "it has flown with one"
        self._take_back(crew)
        crew.land(self._flying)
        self._broke = True

    @property
    def failed(self) -> bool:
        """Whether an item of the last round raised anything."""
        return bool(self.short) or self._error is not None

    def _must_stop(self) -> bool:
        return self.failed or self._broke or self._context._must_stop()

    def _landed(self, flight: Flight[Item, Outcome]) -> None:
        """Take in what came of one item."""
        error = flight.error
        if error is None:
            self.outcomes[flight.place] = flight.outcome
            if self._again:
                self._again -= 1
                if not self._again:
                    self._limit = None
        elif is_out_of_memory(error):
            forget_frames(error)
            self.short.append((flight.place, flight.item))
            self._shortage = error
        elif self._error is None or flight.place < self._error[0]:
            self._error = flight.place, error

    def retry_or_raise(self) -> None:
        """Prepare the next round after a failure, or raise what ends the work."""
        if self._error is not None:
            raise self._error[1]
        shortage = self._shortage
        if shortage is None:
            return
        context = self._context
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
        del shortage
        make_room()

    def _threads(self, size: int) -> Crew[Item, Outcome]:
        """Return a crew of *size* threads; the last one where it has that size."""
        # Where libraries share one limit these find it in force already, and leave it alone.
        each = max(1, self._context.contract.cpus // size)
        if self._crew is None or self._made_for != (size, each):
            self.close()
            self._made_for = (size, each)
            self._crew = Crew(helpers=self._context._task._signal.helpers)
            self._crew.hire(size, THREAD_NAME, partial(keep_to, each))
        return self._crew

    def close(self) -> None:
        """End the threads."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.dismiss()
