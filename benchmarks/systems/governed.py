"""lardon as a user has it: default policy, the real probe, a need that must be admitted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.systems.base import Submitting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lardon import TaskContext


def noop(_: TaskContext) -> None:
    """Do nothing; lardon's callbacks get their context first."""


def stamp(_: TaskContext) -> int:
    """Return the moment at which the callback started, in monotonic nanoseconds."""
    return time.monotonic_ns()


class Lardon(Submitting):
    """A `TaskQueue` with a governor of its own; each task is admitted on a fresh snapshot."""

    key = "lardon"
    label = "lardon"

    def start(self) -> None:
        """Start the queue and its worker."""
        # Here and not above: the peers' processes do without it.
        from lardon import Governor, MiB, ResourceEstimate, TaskQueue

        # Small enough to be granted on any machine, and not 0: it has to be looked at.
        self.estimate = ResourceEstimate(ram_bytes=1 * MiB)
        self.queue = TaskQueue(Governor())
        self.queue.submit(noop, estimate=self.estimate).result()

    def stop(self) -> None:
        """Close the queue."""
        self.queue.close()

    def submit(self, call: Callable[[], object]) -> object:
        """Queue *call*, which wants no context."""
        return self.queue.submit(lambda _: call(), estimate=self.estimate)

    def submit_noops(self, tasks: int) -> Sequence[object]:
        """Queue *tasks* no-ops."""
        submit, estimate = self.queue.submit, self.estimate
        return [submit(noop, estimate=estimate) for _ in range(tasks)]

    def result(self, handle: Any) -> object:
        """Wait for one task."""
        result: object = handle.result()
        return result

    def latency_ns(self) -> int:
        """Submit one task to the sleeping worker; return the time until its callback started."""
        before = time.monotonic_ns()
        started = self.queue.submit(stamp, estimate=self.estimate).result()
        assert isinstance(started, int)
        return started - before
