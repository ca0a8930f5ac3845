"""The standard library's ways to run callables on one thread, and the reference loops."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.reference import Reads, admission_files
from benchmarks.systems.base import Submitting, System, noop, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ThreadPool(Submitting):
    """The executor that most programs would use instead; it asks nobody."""

    key = "thread_pool"
    label = "ThreadPoolExecutor(1)"

    def start(self) -> None:
        """Start the pool and its thread."""
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(noop).result()

    def stop(self) -> None:
        """End the thread."""
        self.pool.shutdown()

    def submit(self, call: Callable[[], object]) -> Future[object]:
        """Queue *call*."""
        return self.pool.submit(call)

    def submit_noops(self, tasks: int) -> Sequence[object]:
        """Queue *tasks* no-ops."""
        submit = self.pool.submit
        return [submit(noop) for _ in range(tasks)]

    def result(self, handle: Any) -> object:
        """Wait for one future."""
        result: object = handle.result()
        return result


class Box:
    """The least that a caller can wait for: a lock that the worker opens."""

    __slots__ = ("_done", "call", "value")

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.value: object = None
        self._done = threading.Lock()
        self._done.acquire()

    def __call__(self) -> None:
        """Run the call and let the waiter go."""
        self.value = self.call()
        self._done.release()

    def wait(self) -> object:
        """Block until the call has run."""
        with self._done:
            return self.value


class QueueLoop(Submitting):
    """A thread that takes callables from a `queue.Queue` and calls them, no more."""

    key = "queue_loop"
    label = "queue.Queue loop"

    def start(self) -> None:
        """Start the thread."""
        self.queue: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self.before_each = self.gate()
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()
        self.result(self.submit(noop))

    def gate(self) -> Callable[[], object] | None:
        """Return what is done before each task, if anything."""
        return None

    def _loop(self) -> None:
        get = self.queue.get
        before_each = self.before_each
        while True:
            call = get()
            if call is None:
                return
            if before_each is not None:
                before_each()
            call()

    def stop(self) -> None:
        """End the thread."""
        self.queue.put(None)
        self.thread.join(10)

    def submit(self, call: Callable[[], object]) -> Box:
        """Queue *call* with something to wait for."""
        box = Box(call)
        self.queue.put(box)
        return box

    def submit_noops(self, tasks: int) -> Sequence[object]:
        """Queue bare functions; only the last one can be waited for."""
        put = self.queue.put
        for _ in range(tasks - 1):
            put(noop)
        return [self.submit(noop)]

    def result(self, handle: Any) -> object:
        """Wait for one box."""
        result: object = handle.wait()
        return result


class QueueReads(QueueLoop):
    """The queue loop that reads, before each task, what one admission reads. No parsing."""

    key = "queue_reads"
    label = "queue.Queue loop + the same reads"

    def gate(self) -> Callable[[], object]:
        """Read the files of one admission."""
        return Reads(admission_files()).take


class QueueFigures(QueueLoop):
    """The queue loop that also gets one figure out of each file, and does nothing with it."""

    key = "queue_figures"
    label = "queue.Queue loop + the same reads, parsed"

    def gate(self) -> Callable[[], object]:
        """Read the files of one admission, and get their figures."""
        return Reads(admission_files()).take_figures


class QueueSnapshots(QueueLoop):
    """The queue loop that reads and parses as lardon does before each task; decides nothing."""

    key = "queue_snapshots"
    label = "queue.Queue loop + lardon's readings"

    def gate(self) -> Callable[[], object]:
        """Read and parse as one admission does."""
        from lardon import SystemProbe

        probe = SystemProbe()

        def look() -> None:
            probe.own_use()
            probe.snapshot()

        return look


class PlainReads(System):
    """No queue, no thread: read the files of one admission, call the no-op, again."""

    key = "plain_reads"
    label = "bare loop + the same reads"
    holds = False

    def start(self) -> None:
        """Open the files."""
        self.reads = Reads(admission_files())

    def stop(self) -> None:
        """Close the files."""
        self.reads.close()

    def latency_ns(self) -> int:
        """Return what the reads alone take."""
        before = time.monotonic_ns()
        self.reads.take()
        return stamp() - before

    def burst(self, tasks: int) -> tuple[float, float]:
        """Run the loop; there is nothing to submit."""
        take, call = self.reads.take, noop
        before = time.perf_counter()
        for _ in range(tasks):
            take()
            call()
        return 0.0, time.perf_counter() - before

    def drain(self, tasks: int) -> float:
        """Run the same loop."""
        return self.burst(tasks)[1]
