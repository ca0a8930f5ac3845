"""Threads that work through what one thread gives them, at little cost for each item."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from lardon.forks import forks

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


# How long a cancel or a pause may go unnoticed while items run.
LOOK_S: Final = 0.1


class Flight(Generic[Item, Outcome]):
    """One item on its way, and what came of it."""

    __slots__ = ("_fn", "error", "item", "outcome", "place")

    outcome: Outcome

    def __init__(self, fn: Callable[[Item], Outcome], place: int, item: Item) -> None:
        self._fn = fn
        self.place = place
        self.item = item
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call the function; an error is kept, whatever it is."""
        try:
            self.outcome = self._fn(self.item)
        except BaseException as error:  # noqa: BLE001  whoever waits for the item raises it
            self.error = error


class Crew(Generic[Item, Outcome]):
    """
    Flights from one thread, the dispatcher, to several that run them, and back.

    A future for each item would cost more than a small item does. Here the lock is taken
    when somebody has to sleep or to be woken; `deque` hands items over without it.

    Args:
        quota: The dispatcher is woken once so many flights have landed, or all.
        helpers: Where the threads write their identifiers as long as they are there.

    """

    def __init__(self, quota: int = 1, helpers: set[int] | None = None) -> None:
        self._quota = quota
        self._helpers = helpers if helpers is not None else set()
        self._threads: list[threading.Thread] = []
        # A thread that finds itself in a child, which an item forked, ends with that item.
        self._born = forks()
        self._todo: deque[Flight[Item, Outcome]] = deque()
        self._landed: deque[Flight[Item, Outcome]] = deque()
        # Guards what follows, and nothing while a flight runs.
        self._lock = threading.Lock()
        # Notified when there is something to do, and when the crew is dismissed.
        self._work = threading.Condition(self._lock)
        # Notified when enough has landed. Only the dispatcher waits on it.
        self._enough = threading.Condition(self._lock)
        self._idle = 0
        self._dismissed = False
        # Set by the first flight that ends with an error.
        self._failed = False
        # How many flights have to land before the dispatcher is woken; 0: it is awake.
        self._wanted = 0

    # For the dispatcher ----------------------------------------------------------

    def hire(self, count: int, name: str, prepare: Callable[[], object]) -> None:
        """
        Start *count* threads, which call *prepare* and see the caller's context variables.

        They are daemons, as the worker is: an executor's threads are awaited at the exit of
        the interpreter, before anybody is told to stop.
        """
        for place in range(count):
            run = contextvars.copy_context().run
            thread = threading.Thread(
                target=run, args=(self._serve, prepare), name=f"{name}-{place}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def renew(self, quota: int) -> None:
        """Begin another round, with its own *quota*. Nothing may be in flight."""
        self._quota, self._failed = quota, False

    def start(self, flight: Flight[Item, Outcome]) -> None:
        """Give the crew something to do; never blocks."""
        self._todo.append(flight)
        # Read without the lock: a thread that goes idle right now looks once more with it.
        if self._idle:
            with self._lock:
                self._work.notify()

    def wait(self, flying: int) -> list[Flight[Item, Outcome]]:
        """
        Block until enough of the *flying* have landed, or one with an error; return them.

        After `LOOK_S` it returns what there is, so that a cancel or a pause is not slept through.
        """
        with self._lock:
            self._wanted = min(self._quota, flying)
            self._enough.wait_for(self._has_enough, LOOK_S)
            self._wanted = 0
        landed = []
        while self._landed:
            landed.append(self._landed.popleft())
        return landed

    def land(self, flying: int) -> None:
        """Block until all of the *flying* have landed; `wait` returns them."""
        with self._lock:
            self._wanted = flying
            self._enough.wait_for(lambda: len(self._landed) >= flying)
            self._wanted = 0

    def _has_enough(self) -> bool:
        landed = len(self._landed)
        return landed >= self._wanted or (self._failed and landed > 0)

    def take_back(self) -> list[Flight[Item, Outcome]]:
        """Return the flights that no thread has begun; they will not be."""
        spare = []
        while True:
            try:
                spare.append(self._todo.popleft())
            except IndexError:
                return spare

    def dismiss(self) -> None:
        """Let the threads go once they have nothing to do, and wait for those that were hired."""
        with self._lock:
            self._dismissed = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()

    # For the threads -------------------------------------------------------------

    def _serve(self, prepare: Callable[[], object]) -> None:
        prepare()
        self.work()

    def work(self) -> None:
        """Run flights until the crew is dismissed; never raises."""
        here = threading.get_ident()
        self._helpers.add(here)
        try:
            self._work_on()
        finally:
            self._helpers.discard(here)

    def _work_on(self) -> None:
        while True:
            try:
                flight = self._todo.popleft()
            except IndexError:
                if not self._wait_for_work():
                    return
                continue
            flight.run()
            if forks() != self._born:
                return
            if flight.error is not None:
                self._failed = True
            self._landed.append(flight)
            # Not kept while this thread waits, perhaps through a break.
            del flight
            # Read without the lock: a dispatcher that goes to sleep right now looks at
            # what has landed itself, with the lock, before it does.
            if self._wanted and (len(self._landed) >= self._wanted or self._failed):
                with self._lock:
                    self._enough.notify()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; False when there never will be."""
        with self._lock:
            self._idle += 1
            self._work.wait_for(lambda: self._todo or self._dismissed)
            self._idle -= 1
            return bool(self._todo) or not self._dismissed
