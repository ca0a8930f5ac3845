"""
A pool of remote tasks: the queue's side of a dispatch.

Users' calls write down what is asked for, and wake the one thread that waits for all jobs.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from lardon.clock import Clock, checked_timeout
from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.errors import InvalidError, NotFoundError
from lardon.dispatch.model import JobSpec
from lardon.dispatch.parts import checked_backend, checked_clock, checked_folder
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.remote.capacity import Limits
from lardon.dispatch.remote.core import check_parts, operator_of, supervisor_of
from lardon.dispatch.remote.handle import RemoteHandle
from lardon.dispatch.remote.kept import Kept, calls_in
from lardon.dispatch.remote.line import Line
from lardon.dispatch.remote.notes import ESTIMATE, RESULT, written
from lardon.dispatch.remote.options import (
    PoolTimings,
    RemoteStatistics,
    TaskOptions,
    check_options,
    check_policy,
    check_timings,
)
from lardon.dispatch.remote.roster import Roster
from lardon.dispatch.remote.tenancy import Tenancy
from lardon.dispatch.remote.waiter import Waiter
from lardon.dispatch.rules import member, some_text
from lardon.errors import InvalidEstimate
from lardon.governor.checks import refuse
from lardon.governor.estimate import ResourceEstimate

if TYPE_CHECKING:
    from types import TracebackType

    from lardon.dispatch.model import Observation
    from lardon.dispatch.records import Records
    from lardon.dispatch.spi import Backend
    from lardon.governor.governor import Governor


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
        FolderInUse: another pool works in the folder.
        UnsupportedError: the backend is not safe to start with, or cannot show such objects.
        StoreAway: the store of records cannot be reached.
        OSError: the folder cannot be made or written.

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
        checked_backend(backend)
        check_timings(timings)
        self._clock = checked_clock(clock)
        where = None if folder is None else checked_folder(folder).absolute()
        check_parts(backend, self._clock, timings, unmatched)
        own = records is None
        self._calls = calls_in(where, own=own)
        self._operator = operator_of(backend, records, where, self._clock, timings)
        self._records = self._operator.records
        self._kept = Kept(self._operator, self._calls)
        self._governor = limits.governor(self._clock)
        self._supervisor = supervisor_of(self._operator, timings, unmatched)
        self._line = Line(
            self._operator, self._supervisor, self._governor, limits, timings.result_patience_s
        )
        self._waiter = Waiter(self._line.turn, self._let_go, self._clock, timings.poll_s)
        self._roster = Roster(self._waiter)
        self._tenancy = Tenancy(where, self._records)
        try:
            for record in self._kept.recall(sweep=own and self._tenancy.exclusive):
                handle = RemoteHandle(self, record)
                self._roster.recall(handle, record)
                self._waiter.post(functools.partial(self._line.add, handle))
            self._waiter.start()
        except BaseException:
            self._tenancy.leave()
            raise

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
        spec = JobSpec(id=self._roster.new_id(self._clock.wall()), command=command, **options)
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
        if self._calls is None:
            raise refuse(InvalidError, "folder", None, "given to a pool that runs functions")
        more: TaskOptions = {} if options is None else options
        check_options(more)
        job = self._roster.new_id(self._clock.wall())
        with self._tenancy.used():
            self._records.load(job)  # raises where the store is away: then no file is written
            try:
                command, result = self._calls.write(job, fn, args, kwargs)
                spec = JobSpec(id=job, command=command, **more)
                return self._submit(spec, estimate, name, policy, {RESULT: str(result)})
            except BaseException:
                self._calls.take_back(job, self._records)
                raise

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
        with self._tenancy.used():
            with self._roster.place(label) as position:
                record = self._operator.submit(
                    spec,
                    policy=policy,
                    label=label,
                    position=position,
                    may_start=False,
                    may_open=False,
                    notes={**notes, ESTIMATE: written(estimate)},
                )
            handle = RemoteHandle(self, record)
            with self._waiter.open_lock():
                if self._waiter.over:  # the pool was closed since the name was taken
                    handle._abandon()
                self._roster.add(handle)
        self._waiter.post(functools.partial(self._line.add, handle))
        return handle

    # Looking

    def adopt(self, name: str) -> RemoteHandle | None:
        """Return the handle of the job with this name, submitted here or on record, or None."""
        return self._roster.find(name)

    def handles(self) -> tuple[RemoteHandle, ...]:
        """Return the handles of all jobs on record, in order of submission."""
        return self._roster.handles()

    def forget(self, name: str) -> None:
        """
        Remove a job that is over from the records, so that its name is free again.

        A job whose record somebody removed is forgotten here. Should its record be back, it
        and the files of its function stay: they are the next pool's.

        Raises:
            NotFoundError: no job of this name.
            InvalidError: it is not over, or its record cannot be read.
            StoreAway: the store cannot be reached.
            PoolClosed: the pool was closed, or belongs to another process.

        """
        self.check_owner()
        with self._tenancy.used():
            handle = self.adopt(name)
            if handle is None:
                message = f"no job is called {name!r}"
                raise NotFoundError(message, ref=name)
            if not handle.done():
                raise refuse(InvalidError, "name", name, "the name of a job that is over")
            self._kept.forget(handle)
            self._roster.drop(handle)

    def unmatched(self) -> tuple[Observation, ...]:
        """Return the objects that no record claims; see `Supervisor.unmatched`."""
        self.check_owner()
        return self._supervisor.unmatched()

    @property
    def governor(self) -> Governor:
        """Who admits the tasks."""
        return self._governor

    def statistics(self) -> RemoteStatistics:
        """Return a count of the tasks and of what they hold."""
        self.check_owner()
        booked = self._governor.statistics()
        entries = self._line.entries
        admitted = sum(one.admitted for one in entries)
        return RemoteStatistics(
            waiting=len(entries) - admitted,
            admitted=admitted,
            done=self._roster.done,
            reserved_ram_bytes=booked.reserved_ram_bytes,
            reserved_cpus=booked.reserved_cpus,
            waiter_error=self._waiter.error or self._line.trouble,
        )

    # For handles

    def cancel(self, handle: RemoteHandle) -> bool:
        """
        Ask for the end of a job; what `RemoteHandle.cancel` does.

        Raises:
            InvalidError: it is no handle of this pool, or its record cannot be read.
            StoreAway: the store cannot be reached.
            PoolClosed: the pool was closed, or belongs to another process.

        """
        if not isinstance(handle, RemoteHandle) or handle._owner is not self:
            raise refuse(InvalidError, "handle", handle, "a handle of this pool")
        self.check_owner()
        with self._tenancy.used():
            if handle.done():
                return handle.cancelled()
            try:
                return self._operator.stop(handle.id).outcome is None
            except NotFoundError:
                return False  # its record was removed: the next turn ends the handle
            finally:
                self._waiter.post(functools.partial(self._line.wake, handle.id))

    def on_waiter(self) -> bool:
        """Return whether the caller is the pool's own thread."""
        return self._waiter.is_current()

    def check_owner(self) -> None:
        """Raise `PoolClosed` in a forked child: the jobs and their records are the parent's."""
        self._waiter.check_owner()

    def leave_child(self) -> None:
        """End the pool's own thread in a child that a callback on it forked."""
        if self.on_waiter():
            self._waiter.leave_child()

    # Ending

    def join(self, timeout: float | None = None) -> bool:
        """
        Block until every task is done, at most *timeout* real seconds; return whether they are.

        Raises:
            ValueError: the timeout is negative or NaN.
            WouldDeadlock: called from a callback of a handle.

        """
        return self._waiter.wait_for(self._roster.all_done, checked_timeout(timeout))

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

        Raises:
            InvalidError: the record of a job to be cancelled cannot be read. The others are
                cancelled then, and the pool is not closed.

        """
        self.check_owner()
        if cancel:
            self._roster.cancel_all()
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

    def _let_go(self) -> None:
        """Leave the jobs to a successor, and tell those who wait that nothing comes here."""
        try:
            self._line.hand_over()
            for handle in self.handles():
                if not handle.done():
                    handle._abandon()
        finally:
            self._tenancy.leave()
