"""What every system under measurement can do."""

from __future__ import annotations

import abc
import threading
import time
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.effort import Effort


def noop() -> None:
    """Do nothing; the task of every throughput figure."""


def stamp() -> int:
    """Return the moment at which the task started, in monotonic nanoseconds."""
    return time.monotonic_ns()


class System(abc.ABC):
    """One way to run callables on one worker."""

    key: ClassVar[str]
    """Its name on command lines and in the results."""
    label: ClassVar[str]
    """Its name in the tables."""
    context: ClassVar[bool] = False
    """Whether it is only shown beside the others, and nothing is judged against it."""
    slow: ClassVar[bool] = False
    """Whether a task takes milliseconds, so that it gets fewer of them."""
    holds: ClassVar[bool] = True
    """Whether tasks can be queued behind a worker that is held back."""

    @classmethod
    def share(cls, count: int, effort: Effort) -> int:
        """Return how many of *count* tasks or samples this system gets."""
        return max(1, count // effort.slow_share) if cls.slow else count

    @abc.abstractmethod
    def start(self) -> None:
        """Start the worker; raises `Unavailable` where this system cannot run."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End the worker; nothing is pending any more."""

    @abc.abstractmethod
    def latency_ns(self) -> int:
        """Submit one task to the sleeping worker; return the time until it started."""

    @abc.abstractmethod
    def burst(self, tasks: int) -> tuple[float, float]:
        """Run *tasks* no-ops; return seconds to submit them and until the last one ended."""

    def drain(self, tasks: int) -> float | None:
        """
        Return the seconds that the worker takes for *tasks* no-ops queued beforehand.

        None: this system cannot be held back while they are queued.
        """
        del tasks
        return None


class Submitting(System):
    """A system that takes callables and hands out handles."""

    @abc.abstractmethod
    def submit(self, call: Callable[[], object]) -> object:
        """Queue *call* and return its handle."""

    @abc.abstractmethod
    def submit_noops(self, tasks: int) -> Sequence[object]:
        """Queue *tasks* no-ops in the way that costs least, and return their handles."""

    @abc.abstractmethod
    def result(self, handle: object) -> object:
        """Wait for a task and return what it returned."""

    def latency_ns(self) -> int:
        """Submit one task to the sleeping worker; return the time until it started."""
        before = time.monotonic_ns()
        started = self.result(self.submit(stamp))
        assert isinstance(started, int)
        return started - before

    def burst(self, tasks: int) -> tuple[float, float]:
        """Submit from this thread while the worker runs: the two share one interpreter."""
        before = time.perf_counter()
        handles = self.submit_noops(tasks)
        submitted = time.perf_counter()
        self.result(handles[-1])  # one worker, first in first out: the last one ends last
        return submitted - before, time.perf_counter() - before

    def drain(self, tasks: int) -> float | None:
        """Hold the worker back, queue everything, and time the rest."""
        if not self.holds:
            return None
        release = self.hold()
        handles = self.submit_noops(tasks)
        before = time.perf_counter()
        release()
        self.result(handles[-1])
        return time.perf_counter() - before

    def hold(self) -> Callable[[], None]:
        """Occupy the worker with a waiting task, and return what lets it go."""
        gate = threading.Event()
        running = threading.Event()

        def wait() -> None:
            running.set()
            gate.wait()

        self.submit(wait)
        running.wait()
        return gate.set
