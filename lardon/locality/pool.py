"""Several workers, one governor, and the scheduler that hands each task to its worker."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Self

from lardon.clock import checked_timeout
from lardon.errors import (
    InvalidEstimate,
    InvalidOption,
    QueueClosed,
    UnknownWorker,
    WorkerDied,
    WouldDeadlock,
)
from lardon.forks import forks
from lardon.governor.checks import refuse, shown, text, whole_number
from lardon.governor.decision import DecisionKind
from lardon.governor.default import default_governor
from lardon.governor.estimate import ResourceEstimate
from lardon.locality.executions import Executions
from lardon.locality.job import several
from lardon.locality.pool_views import PoolStatistics, WorkerView
from lardon.locality.precedence import Precedence
from lardon.locality.scheduler import LocalityScheduler
from lardon.locality.slot import Slot
from lardon.locality.worker_spec import Workers, specs_of

if TYPE_CHECKING:
    from types import TracebackType

    from lardon.locality.job import Artifact
    from lardon.locality.pinned import PoolGovernor
    from lardon.locality.pool_task import PoolTask

# How long a task waits for a holder before others may have it. Long enough for a short job
# that the holder is at to end, short against what it costs to load what makes locality pay.
CACHE_TIMEOUT_S: Final = 0.1
DEPS_TIMEOUT_S: Final = 1.0
# Longer than a queue of minutes takes to drain, or a full queue would be served by age alone.
MAX_AGE_S: Final = 3600.0
# How long the interpreter waits at its exit for callbacks that were told to stop.
EXIT_GRACE_S: Final = 5.0


class WorkerPool:
    """
    Runs each task on the worker that already holds its data, if the governor says that it fits.

    Every method may be called from any thread. Only `join`, `close` and leaving the ``with``
    block block. ``with WorkerPool(governor, workers=4) as pool`` waits at its end for the
    tasks and closes; an exception in the block cancels everything instead.

    Args:
        governor: Who decides; None is `default_governor()`. One for all workers.
        workers: A number; names; `WorkerSpec` values, which pin a worker to a GPU by its UUID;
            or None: one for each GPU, pinned to it, or one for each CPU where there is none.
        process: Whether workers that are not `WorkerSpec` values are processes of their own.
        name: Part of the names of the threads.
        max_artifacts: How many artifacts a worker keeps; what was not used for longest is
            dropped, from `CurrentWorker.state` too. None is no limit.
        cache_timeout_s: How long a task waits for a worker that holds its result.
        deps_timeout_s: And then for one that holds a dependency.
        max_age_s: A task that waits so long goes before all others, and none of them starts
            until it has room; None is never.

    """

    def __init__(
        self,
        governor: PoolGovernor | None = None,
        *,
        workers: Workers = None,
        process: bool = False,
        name: str = "pool",
        max_artifacts: int | None = None,
        cache_timeout_s: float = CACHE_TIMEOUT_S,
        deps_timeout_s: float = DEPS_TIMEOUT_S,
        max_age_s: float | None = MAX_AGE_S,
    ) -> None:
        self.name = text("name", name)
        if max_artifacts is not None:
            max_artifacts = whole_number(InvalidOption, "max_artifacts", max_artifacts, 1)
        self.max_artifacts = max_artifacts
        self.governor: PoolGovernor = governor if governor is not None else default_governor()
        specs = specs_of(workers, self.governor, process=process)
        self.scheduler = LocalityScheduler(
            cache_timeout_s=cache_timeout_s,
            deps_timeout_s=deps_timeout_s,
            order="local-first",
            cold="now",
            max_age_s=max_age_s,
            clock=self.governor.clock,
        )
        self.owner_pid = os.getpid()
        self._born = forks()
        # Guards the attributes below and the executions. Held for bookkeeping alone:
        # callbacks and done-callbacks are called with it released. Order: this lock, then
        # the scheduler's, then a queue's; what the scheduler asks under its own lock, `fits`,
        # takes neither this one nor a queue's.
        self._lock = threading.RLock()
        self.precedence = Precedence(max_age_s, self.governor.clock)
        self.executions = Executions(self._lock, self.scheduler, self.precedence)
        self.closing = False
        # Moves with everything that the governor tells; `short` says that a task waits for it.
        self.changes = 0
        self.short = False
        self._deaths = 0
        self._slots = {spec.name: Slot(self, spec) for spec in specs}
        for worker in self._slots:
            self.scheduler.register_worker(worker)
        self._unsubscribe = self.governor.subscribe(self._news_of_governor)
        _pools.add(self)
        for slot in self._slots.values():
            slot.start()
        if any(spec.process for spec in specs):
            # What is registered last is called first: before `multiprocessing`, which has
            # been imported only now, ends the processes under the pool's hands.
            atexit.unregister(_close_all)
            atexit.register(_close_all)

    # Submitting ------------------------------------------------------------------

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        estimate: ResourceEstimate,
        key: Artifact = None,
        deps: Iterable[Artifact] = (),
        name: str | None = None,
        **kwargs: Any,
    ) -> PoolTask:
        """
        Queue ``fn(context, *args, **kwargs)`` and return its handle; never blocks.

        Args:
            fn: The callback. Its first argument is a `TaskContext` on a worker that is a
                thread, a `ProcessContext` on one that is a process; there, the function, its
                arguments and its result are pickled.
            args: More arguments for it.
            estimate: What a batch of it needs.
            key: Names its result, which then is an artifact of the worker that made it; while
                a task of this key is unfinished another submission shares its job. None is a
                job of its own, whose result is nobody's artifact.
            deps: Artifacts that the task uses. A worker that has done it holds them.
            name: For people to read; None is made from the key.
            kwargs: Keyword arguments for the callback.

        Raises:
            QueueClosed: the pool was closed, or belongs to another process.
            WorkerDied: no worker is left.

        """
        if not callable(fn):
            message = f"a task must be callable, not {shown(fn)}"
            raise TypeError(message)
        if not isinstance(estimate, ResourceEstimate):
            raise refuse(InvalidEstimate, "estimate", estimate, "a lardon.ResourceEstimate")
        with self._open_lock():
            if self.closing:
                message = f"the pool {self.name!r} is closed"
                raise QueueClosed(message)
            if not self._live():
                raise self._deserted()
            call = (fn, args, kwargs)
            return self.executions.add(self, call, estimate, key, deps, name)

    def _open_lock(self) -> threading.RLock:
        """Return the lock; in a forked child, where it may be held for ever, raise instead."""
        if forks() != self._born:
            message = f"this pool belongs to process {self.owner_pid}; a fork needs its own"
            raise QueueClosed(message, owner_pid=self.owner_pid)
        return self._lock

    def resources_changed(self) -> None:
        """Say that something outside gave resources back: what waits is examined again."""
        self._open_lock()
        self.changes += 1
        self.scheduler.resources_changed()
        for slot in self._slots.values():
            slot.queue.resources_changed()

    def _news_of_governor(self) -> None:
        self.changes += 1
        # A worker that finds no room sets `short`, and then looks whether `changes` moved.
        if self.short:
            self.short = False
            self.scheduler.resources_changed()

    # Workers ---------------------------------------------------------------------

    def _slot(self, worker: str) -> Slot:
        """Return a worker that is there. The caller holds the lock."""
        slot = self._slots.get(worker)
        if slot is None or slot.gone is not None:
            why = "" if slot is None else f" any more: {slot.gone}"
            message = f"the pool {self.name!r} has no worker {shown(worker)}{why}"
            raise UnknownWorker(message, worker=worker)
        return slot

    def _live(self) -> list[Slot]:
        return [slot for slot in self._slots.values() if slot.gone is None]

    def add_artifacts(self, worker: str, ids: Iterable[Artifact]) -> None:
        """Say that *worker* holds these; raises `UnknownWorker`."""
        artifacts = several(ids)
        with self._open_lock():
            self._slot(worker).news(artifacts, ())

    def remove_artifacts(self, worker: str, ids: Iterable[Artifact]) -> None:
        """Say that *worker* holds these no longer; raises `UnknownWorker`."""
        artifacts = several(ids)
        with self._open_lock():
            self._slot(worker).news((), artifacts)

    def pause_worker(self, worker: str) -> bool:
        """
        Have *worker* take no more tasks; returns at once, True when that is new.

        The task that it runs goes on; one that has not started goes back to the others. Until
        it is resumed, what it holds draws no task. Raises `UnknownWorker`.
        """
        with self._open_lock():
            slot = self._slot(worker)
            if slot.paused:
                return False
            slot.paused = True
            self.scheduler.remove_artifacts(worker, tuple(slot.held))
            execution = slot.execution
        slot.wake.set()
        if execution is not None and execution.task is not None:
            # A running one stays. The worker's thread gives the job back.
            execution.task.future.cancel()
        return True

    def resume_worker(self, worker: str) -> bool:
        """Let *worker* take tasks again; True when it was paused. Raises `UnknownWorker`."""
        with self._open_lock():
            slot = self._slot(worker)
            if not slot.paused:
                return False
            slot.paused = False
            self.scheduler.add_artifacts(worker, tuple(slot.held))
        slot.wake.set()
        return True

    def _rejected_elsewhere(self, asking: Slot, estimate: ResourceEstimate) -> bool:
        """Whether no other worker could ever run this. Called inside a claim: takes no lock."""
        return all(
            slot.governor.decide(estimate).kind is DecisionKind.REJECT
            for slot in self._live()
            if slot is not asking
        )

    def _worker_lost(self, slot: Slot) -> None:
        """Have the worker begin anew with nothing; what it had is offered again, once."""
        with self._lock:
            self._deaths += 1
            execution = slot.let_go()
            self.scheduler.remove_worker(slot.name)
            self.scheduler.register_worker(slot.name)
        if execution is not None:
            self.executions.lost(execution, closing=self.closing)

    def _worker_gone(self, slot: Slot, why: str) -> None:
        """Do without this worker from now on."""
        with self._lock:
            slot.gone = why
            execution = slot.let_go()
            self.scheduler.remove_worker(slot.name)
            deserted = not self.closing and not self._live()
        if self.precedence.abandon(slot):
            self.scheduler.resources_changed()
        if execution is not None:
            self.executions.lost(execution, closing=self.closing)
        slot.queue.close(0)
        if deserted:
            self.executions.end_all(self._deserted())

    def _deserted(self) -> WorkerDied:
        reasons = "; ".join(f"{slot.name}: {slot.gone}" for slot in self._slots.values())
        return WorkerDied(f"the pool {self.name!r} has no worker left ({reasons})")

    # Looking ---------------------------------------------------------------------

    def workers(self) -> tuple[WorkerView, ...]:
        """Return the workers as they are now, those that are gone included."""
        with self._open_lock():
            return tuple(slot.view() for slot in self._slots.values())

    def statistics(self) -> PoolStatistics:
        """Return a consistent copy of the counts."""
        with self._open_lock():
            book = self.executions
            return PoolStatistics(
                submitted=book.submitted,
                unfinished=book.unfinished,
                completed=book.completed,
                failed=book.failed,
                cancelled=book.cancelled,
                workers=len(self._live()),
                deaths=self._deaths,
                locality=self.scheduler.statistics(),
            )

    def on_worker(self) -> bool:
        """Whether the calling thread is a worker's: it runs a callback or a done-callback."""
        here = threading.current_thread()
        slots = self._slots.values()
        return any(slot.thread is here or slot.queue._signal.would_deadlock() for slot in slots)

    # Ending ----------------------------------------------------------------------

    def join(self, timeout: float | None = None) -> bool:
        """
        Block until every task has ended; return whether they have.

        The timeout is by the governor's clock. Raises `WouldDeadlock` in a callback.
        """
        seconds = checked_timeout(timeout)
        with self._open_lock():
            if self.executions.unfinished and seconds != 0 and self.on_worker():
                message = f"a callback cannot wait for its own pool {self.name!r}"
                raise WouldDeadlock(message)
            return self.executions.wait_settled(self.governor.clock, seconds)

    def close(self, timeout: float | None = None) -> bool:
        """
        Refuse new tasks, cancel everything, and wait for the workers to end.

        Waiting tasks are CANCELLED at once. A running callback sees `cancel_requested`. From
        a callback of this pool it requests the same and returns at once.

        Args:
            timeout: How many real seconds to wait; None is no limit. A process that has not
                ended by then is killed.

        Returns:
            Whether every worker has ended. Calling it again waits again.

        """
        seconds = checked_timeout(timeout)
        with self._open_lock():
            self.closing = True
        self._unsubscribe()
        self.executions.cancel_all()
        self.scheduler.stop()
        for slot in self._slots.values():
            slot.wake.set()
            slot.queue._request_close()
        if self.on_worker():
            return False
        deadline = None if seconds is None else time.monotonic() + seconds
        # Every worker is waited for, also behind one that does not end.
        ended = [slot.join(deadline) for slot in self._slots.values()]
        return all(ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and not self.closing and not self.on_worker():
                self.join()
        finally:
            # Also when Ctrl-C ends the waiting.
            self.close()


_pools: Final[weakref.WeakSet[WorkerPool]] = weakref.WeakSet()


def _close_all() -> None:
    """At the interpreter's exit: cancel everything, and give callbacks a moment to stop."""
    for pool in list(_pools):
        if forks() == pool._born:
            pool.close(EXIT_GRACE_S)


atexit.register(_close_all)
