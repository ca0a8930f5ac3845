"""The handle of one remote task: a future whose task runs somewhere else."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from lardon.dispatch.errors import UnsupportedError
from lardon.dispatch.remote.errors import PoolClosed
from lardon.errors import WouldDeadlock
from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.dispatch.job_record import JobRecord, Outcome
    from lardon.dispatch.remote.errors import RecordLost
    from lardon.governor.decision import Contract, Decision

_log: Final = logging.getLogger("lardon.dispatch")


class Owner(Protocol):
    """What a handle needs of its pool."""

    def cancel(self, handle: RemoteHandle) -> bool:
        """Ask for the end of a job; return whether it was not over yet."""
        ...

    def on_waiter(self) -> bool:
        """Return whether the caller is the thread that brings the results."""
        ...

    def check_owner(self) -> None:
        """Raise `PoolClosed` in a forked child."""
        ...

    def leave_child(self) -> None:
        """End the calling thread in a child that a callback forked."""
        ...


class RemoteHandle(concurrent.futures.Future[Any]):
    """
    A `concurrent.futures.Future` of a remote task, with what is known of its job.

    It works with `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future`. Every
    method may be called from any thread; only `result` and `exception` wait, and only `cancel`
    writes anything down. In a forked child these three raise `PoolClosed` while it is not done:
    the job is the parent's. The functions above cannot be refused there, and wait in vain.
    """

    def __init__(self, owner: Owner, record: JobRecord) -> None:
        super().__init__()
        self._owner = owner
        self._task_state = TaskState.PENDING
        # Set last, and read without the lock that a fork may have copied while it was held.
        self._settled = False
        self._record_lost = False
        self.id = record.id
        """The job's ULID."""
        self.name = record.label or record.id
        """The name that finds it again after a crash."""
        self.record = record
        """What was on record of the job when it was last looked at."""
        self.contract: Contract | None = None
        """What was granted; None while it waits in line, and for an adopted job."""
        self.decision: Decision | None = None
        """The last answer of the pool's governor: why it waits, or what it got."""

    @property
    def state(self) -> TaskState:
        """PENDING in line and with the scheduler, RUNNING once an execution was seen."""
        return self._task_state

    @property
    def outcome(self) -> Outcome | None:
        """How the job ended, with its cause; None while it is not over."""
        return self.record.outcome

    def running(self) -> bool:
        """Return whether an execution was seen that is not known to have ended."""
        return self._task_state is TaskState.RUNNING

    def cancel(self) -> bool:
        """
        Ask for the end of the job; return False where it is over already.

        The handle is done once the job was seen ended, not before: then `cancelled` is true,
        unless the job had completed meanwhile. Blocks as long as the store takes.

        Raises:
            InvalidError: its record cannot be read.
            StoreAway: the store cannot be reached.
            PoolClosed: the pool left meanwhile, or this is a forked child; nothing was written.

        """
        self._check_owner()
        return self.cancelled() if self.done() else self._owner.cancel(self)

    def result(self, timeout: float | None = None) -> Any:
        """
        Return the outcome of a command, or what a function returned.

        Raises:
            TimeoutError: it is not over after *timeout* seconds; it goes on.
            RemoteFailed: it ended without success; `RemoteFailed.cause` says why.
            concurrent.futures.CancelledError: it was cancelled.
            TaskRefused: the limits of the pool can never hold it.
            RecordLost: somebody removed its record.
            PoolClosed: the pool was closed before it was over, or belongs to another process.
            BaseException: what the function raised.

        """
        self._refuse_to_block()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what `result` would raise, or None; raises `CancelledError` like it."""
        self._refuse_to_block()
        return super().exception(timeout)

    def sequence_break(self) -> NoReturn:
        """
        Refuse: a reservation on another machine is given back as a whole, at the job's end.

        Raises:
            UnsupportedError: always.

        """
        message = (
            f"task {self.name} is remote and has no sequence break: its reservation is given "
            "back as a whole when its job is over; submit smaller tasks instead"
        )
        raise UnsupportedError(message, operation="sequence_break")

    def _check_owner(self) -> None:
        if not self._settled:
            self._owner.check_owner()

    def _refuse_to_block(self) -> None:
        self._check_owner()
        if not self.done() and self._owner.on_waiter():
            message = f"the pool's own thread cannot wait for {self.name}, whose end it brings"
            raise WouldDeadlock(message)

    # For the pool, on its own thread

    def _seen(self, record: JobRecord) -> None:
        """Take over what is on record now."""
        self.record = record
        if record.outcome is None:
            last = record.attempts[-1] if record.attempts else None
            runs = last is not None and last.ended_at is None
            self._task_state = TaskState.RUNNING if runs else TaskState.PENDING

    def _end(self, state: TaskState, value: Any = None, error: BaseException | None = None) -> None:
        """Be done; the only place that ends a handle."""
        self._task_state = state
        if state is TaskState.CANCELLED and not (self.done() or super().running()):
            self._call_back(super().cancel)
            self.set_running_or_notify_cancel()
        elif state is TaskState.CANCELLED:  # a future that was said to run cannot be cancelled
            self._settle(error=concurrent.futures.CancelledError())
        else:
            self._settle(value, error)
        self._settled = True

    def _settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Let `result` return or raise, unless somebody has set that with his own hands."""
        if self.done() or not (super().running() or self.set_running_or_notify_cancel()):
            return
        if error is None:
            self._call_back(functools.partial(self.set_result, value))
        else:
            self._call_back(functools.partial(self.set_exception, error))

    def _lose(self, error: RecordLost) -> None:
        """Be done without a record: should it come back, it is the next pool's."""
        self._record_lost = True
        self._end(TaskState.FAILED, error=error)

    def _abandon(self) -> None:
        """Be done here, though the job goes on: the pool was closed."""
        message = f"the pool was closed; the job of {self.name} goes on: adopt it by its name"
        self._settle(error=PoolClosed(message, name=self.name))
        self._settled = True

    def _call_back(self, settle: Callable[[], object]) -> None:
        """Settle the future, which calls its callbacks: one that exits does not end the pool."""
        try:
            settle()
        except BaseException:  # noqa: BLE001  a future itself catches `Exception` alone
            _log.exception("a callback of %s exited", self.name)
        finally:
            self._owner.leave_child()
