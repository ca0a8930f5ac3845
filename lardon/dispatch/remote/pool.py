"""
A pool of remote tasks: the queue's side of a dispatch.

Users' calls write down what is asked for, and wake the one thread that waits for all jobs.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from lardon.clock import Clock, MachineClock, checked_timeout
from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.errors import InvalidError, NotFoundError
from lardon.dispatch.model import JobSpec
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.remote.capacity import Limits
from lardon.dispatch.remote.core import operator_of, supervisor_of
from lardon.dispatch.remote.errors import PoolClosed
from lardon.dispatch.remote.function import write_call
from lardon.dispatch.remote.handle import RemoteHandle
from lardon.dispatch.remote.line import ESTIMATE, RESULT, Line, forgotten, written
from lardon.dispatch.remote.options import (
    PoolTimings,
    RemoteStatistics,
    TaskOptions,
    check_options,
    check_policy,
)
from lardon.dispatch.remote.waiter import Waiter
from lardon.dispatch.rules import member, some_text
from lardon.dispatch.ulid import UlidSequence
from lardon.errors import InvalidEstimate
from lardon.governor.checks import refuse
from lardon.governor.estimate import ResourceEstimate

if TYPE_CHECKING:
    from types import TracebackType

    from lardon.dispatch.model import Observation
    from lardon.dispatch.records import Records
    from lardon.dispatch.spi import Backend
    from lardon.governor.governor import Governor

_CALLS: Final = "calls"


class RemotePool:
    """
    Runs tasks on a cluster, in order, within what its user allows himself there.

    Like a `TaskQueue`, a pool asks a governor before it starts a task; its governor knows the
    limits below and nothing of this machine. A reservation is given back once, when the job is
    over for certain. Every method may be called from any thread; `submit` and `cancel` block
    as long as the store takes, `result`, `join`, `close` and leaving the ``with`` block wait.

    Leaving the block waits for all tasks; an exception cancels them.

    Args:
        backend: Who runs the jobs; the pool does not close it.
        jobs: How many may be with the scheduler at a time.
        cpus: How many CPUs they may hold together.
        gpus: How many GPUs.
        ram_bytes: How much memory.
        folder: Where records and functions are kept, on a file system that the nodes share;
            None keeps the records in memory, so that nothing survives this process.
        records: Another store of records than the folder's.
        clock: What time it is; None is the machine's.
        timings: How patient the pool is.
        unmatched: What to do with objects that no record claims; see `Supervisor`.

    Raises:
        InvalidError: an argument breaks its rule; the error names it.
        UnsupportedError: the backend is not safe to start with, or cannot show such objects.

    """

    def __init__(  # noqa: PLR0913  the limits are named one by one
        self,
        backend: Backend,
        *,
        jobs: int,
        cpus: int,
        gpus: int = 0,
        ram_bytes: int,
        folder: str | os.PathLike[str] | None = None,
        records: Records | None = None,
        clock: Clock | None = None,
        timings: PoolTimings = PoolTimings(),  # noqa: B008  a frozen value
        unmatched: UnmatchedPolicy = UnmatchedPolicy.LEAVE,
    ) -> None:
        limits = Limits(jobs=jobs, cpus=cpus, gpus=gpus, ram_bytes=ram_bytes)
        unmatched = member(UnmatchedPolicy)("unmatched", unmatched)
        self._clock: Clock = MachineClock() if clock is None else clock
        self._folder = None if folder is None else Path(folder).absolute()
        self._operator = operator_of(backend, records, self._folder, self._clock, timings)
        self._records = self._operator.records
        self._governor = limits.governor(self._clock)
        self._supervisor = supervisor_of(self._operator, timings, unmatched)
        self._line = Line(
            self._operator, self._supervisor, self._governor, limits, timings.result_patience_s
        )
        self._owner_pid = os.getpid()
        self._waiter = Waiter(self._line.turn, self._let_go, self._clock, timings.poll_s)
        # The five below are guarded by the waiter's lock.
        self._ids = UlidSequence(secrets.randbits)
        self._handles: dict[str, RemoteHandle] = {}
        self._names: set[str] = set()
        self._position = 0
        self._done = 0
        self._recall()
        self._waiter.start()

    def _recall(self) -> None:
        """Take up the jobs of a process that crashed, in their old order."""
        stored = (self._records.load(job) for job in self._records.jobs())
        mine = [one for one in stored if one is not None and ESTIMATE in one.notes]
        for record in sorted(mine, key=lambda one: (one.position, one.id)):
            handle = self._handles[record.id] = RemoteHandle(self, record)
            handle.add_done_callback(self._ended)
            self._names.add(handle.name)
            self._position = max(self._position, record.position)
            self._waiter.post(functools.partial(self._line.add, handle))

    # Submitting

    def submit(
        self,
        command: Sequence[str],
        *,
        estimate: ResourceEstimate,
        name: str | None = None,
        policy: RecoveryPolicy | None = None,
        **options: Unpack[TaskOptions],
    ) -> RemoteHandle:
        """
        Put a command in line, and return its handle; once this returned, no crash loses it.

        The command finds what it was granted in ``LARDON_BATCH_SIZE``, ``LARDON_CPUS`` and
        ``LARDON_RAM_BYTES``, and in the variables of the numeric libraries.

        Args:
            command: The program and its arguments; no shell reads them.
            estimate: What each node needs.
            name: Finds the handle again; None is the job's id.
            policy: What follows a preemption, a lost node and so on; None ends at each end.
            options: More for the scheduler; see `TaskOptions`.

        Raises:
            InvalidError: an argument breaks its rule, or a job of this name exists (`adopt`).
            InvalidEstimate: *estimate* is none.
            PoolClosed: the pool was closed, or belongs to another process.

        """
        check_options(options)
        spec = JobSpec(id=self._new_id(), command=command, **options)
        return self._submit(spec, estimate, name, policy, {})

    def submit_function(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        estimate: ResourceEstimate,
        name: str | None = None,
        policy: RecoveryPolicy | None = None,
        options: TaskOptions | None = None,
        **kwargs: Any,
    ) -> RemoteHandle:
        """
        Put ``fn(*args, **kwargs)`` in line; its handle's result is what it returns.

        The call is pickled into the pool's folder and made on a node with this Python, by
        ``python -m lardon.dispatch.call``.

        Args:
            fn: The function.
            args: Its arguments.
            estimate: What each node needs.
            name: Finds the handle again; None is the job's id.
            policy: What follows its ends.
            options: More for the scheduler.
            kwargs: Its keyword arguments.

        Raises:
            InvalidError: the pool has no folder; or as for `submit`.
            MissingExtra: cloudpickle is not installed.

        """
        if not callable(fn):
            raise refuse(InvalidError, "fn", fn, "callable")
        if self._folder is None:
            raise refuse(InvalidError, "folder", None, "given to a pool that runs functions")
        more: TaskOptions = {} if options is None else options
        check_options(more)
        job = self._new_id()
        command, result = write_call(self._folder / _CALLS, job, fn, args, kwargs)
        spec = JobSpec(id=job, command=command, **more)
        return self._submit(spec, estimate, name, policy, {RESULT: str(result)})

    def _new_id(self) -> str:
        """Return an id that sorts after those before, so that jobs are started in order too."""
        with self._waiter.lock:
            return self._ids.next(self._clock.wall())

    def _submit(
        self,
        spec: JobSpec,
        estimate: ResourceEstimate,
        name: str | None,
        policy: RecoveryPolicy | None,
        notes: Mapping[str, str],
    ) -> RemoteHandle:
        if not isinstance(estimate, ResourceEstimate):
            raise refuse(InvalidEstimate, "estimate", estimate, "a lardon.ResourceEstimate")
        check_policy(policy)
        label = spec.id if name is None else some_text("name", name)
        position = self._take_place(label)
        try:
            record = self._operator.submit(
                spec,
                policy=policy,
                label=label,
                position=position,
                may_start=False,
                may_open=False,
                notes={**notes, ESTIMATE: written(estimate)},
            )
        except BaseException:
            with self._waiter.lock:
                self._names.discard(label)
            raise
        handle = RemoteHandle(self, record)
        handle.add_done_callback(self._ended)
        with self._waiter.lock:
            if self._waiter.over:  # the pool was closed since the name was taken
                handle._abandon()
            self._handles[record.id] = handle
        self._waiter.post(functools.partial(self._line.add, handle))
        return handle

    def _take_place(self, label: str) -> int:
        """Take a name and the next place in line; return the place."""
        with self._waiter.lock:
            self._check_open()
            if label in self._names:
                rule = "a name that no other job has; adopt(name) returns its handle"
                raise refuse(InvalidError, "name", label, rule)
            self._names.add(label)
            self._position += 1
            return self._position

    # Looking

    def adopt(self, name: str) -> RemoteHandle | None:
        """Return the handle of the job with this name, submitted here or on record, or None."""
        with self._waiter.lock:
            return next((one for one in self._handles.values() if one.name == name), None)

    def handles(self) -> tuple[RemoteHandle, ...]:
        """Return the handles of all jobs on record, in order of submission."""
        with self._waiter.lock:
            return tuple(self._handles.values())

    def forget(self, name: str) -> None:
        """
        Remove a job that is over from the records, so that its name is free again.

        Raises:
            NotFoundError: no job of this name.
            InvalidError: it is not over.

        """
        handle = self.adopt(name)
        if handle is None:
            message = f"no job is called {name!r}"
            raise NotFoundError(message, ref=name)
        if not handle.done():
            raise refuse(InvalidError, "name", name, "the name of a job that is over")
        # Its record stays as long as a duplicate of it may come, which has to be stopped.
        kept = self._operator.change(handle.id, forgotten)
        if kept.closed:
            self._records.forget(handle.id)
        with self._waiter.lock:
            self._handles.pop(handle.id, None)
            self._names.discard(name)

    def unmatched(self) -> tuple[Observation, ...]:
        """Return the objects that no record claims; see `Supervisor.unmatched`."""
        return self._supervisor.unmatched()

    @property
    def governor(self) -> Governor:
        """Who admits the tasks."""
        return self._governor

    def statistics(self) -> RemoteStatistics:
        """Return a count of the tasks and of what they hold."""
        booked = self._governor.statistics()
        entries = self._line.entries
        admitted = sum(one.admitted for one in entries)
        return RemoteStatistics(
            waiting=len(entries) - admitted,
            admitted=admitted,
            done=self._done,
            reserved_ram_bytes=booked.reserved_ram_bytes,
            reserved_cpus=booked.reserved_cpus,
            waiter_error=self._waiter.error,
        )

    # For handles

    def cancel(self, handle: RemoteHandle) -> bool:
        """Ask for the end of a job, and write that down; return whether it was not over yet."""
        record = self._operator.stop(handle.id)
        self._waiter.post(functools.partial(self._line.wake, handle.id))
        return record.outcome is None

    def on_waiter(self) -> bool:
        """Return whether the caller is the pool's own thread."""
        return self._waiter.is_current()

    # Ending

    def join(self, timeout: float | None = None) -> bool:
        """
        Block until every task is done, at most *timeout* real seconds; return whether they are.

        Raises:
            ValueError: the timeout is negative or NaN.
            WouldDeadlock: called from a callback of a handle.

        """
        return self._waiter.wait_for(self._all_done, checked_timeout(timeout))

    def wait_parked(self, timeout: float | None = None) -> bool:
        """Block until the waiter sleeps with nothing to do now; for tests, in real seconds."""
        return self._waiter.wait_parked(checked_timeout(timeout))

    def close(self, *, wait: bool = True, cancel: bool = False) -> None:
        """
        Take no more tasks, and end the pool's thread.

        Args:
            wait: Whether to wait for the tasks first. Else their jobs go on by themselves:
                their handles raise `PoolClosed`, and another pool on the same folder adopts
                them. One that waits in line waits on.
            cancel: Whether to cancel what is not over.

        """
        with self._waiter.lock:
            handles = list(self._handles.values())
        if cancel:
            for handle in handles:
                handle.cancel()
        if wait and not self.on_waiter():
            self.join()
        self._waiter.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(cancel=error is not None)

    # On the waiter's thread

    def _ended(self, _: object) -> None:
        with self._waiter.lock:
            self._done += 1
        self._waiter.notify()

    def _let_go(self) -> None:
        """Leave the jobs to a successor, and tell those who wait that nothing comes here."""
        self._line.hand_over()
        for handle in self.handles():
            if not handle.done():
                handle._abandon()

    def _all_done(self) -> bool:
        return all(one.done() for one in self._handles.values())

    def _check_open(self) -> None:
        if self._waiter.closing or os.getpid() != self._owner_pid:
            message = "the pool was closed, or belongs to another process"
            raise PoolClosed(message)
