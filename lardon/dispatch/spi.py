"""
What a backend does: seven methods that every one has, and eight interfaces that some have.

Every method may block as long as the scheduler takes, may be called from any thread, and
raises a `DispatchError` or returns: a method that raises `OutcomeUnknown` may have done its
work, any other error of these says that nothing was changed. Which of the optional interfaces
a backend has is asked with `isinstance`; a backend that has one and whose cluster does not
raises `UnsupportedError`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from lardon.dispatch.model import (
    CallMeta,
    Cessation,
    Declarations,
    HoldMeta,
    JobSpec,
    Observation,
    Ref,
)
from lardon.dispatch.recovery import NativePolicy, RecoveryPolicy

OutputName: TypeAlias = Literal["stdout", "stderr"]


@runtime_checkable
class Backend(Protocol):
    """What every backend does."""

    def start(self, spec: JobSpec) -> Ref:
        """
        Create the object of *spec*, gated where `declarations().gated` says so.

        Raises:
            RefusedError: the scheduler took no such job.
            DuplicateError: names are unique, and it has an object of this one.
            OutcomeUnknown: it may exist; `find` it after `settles_at`.

        """
        ...

    def open(self, ref: Ref) -> None:
        """
        Lift the gate; an object that is open stays so.

        Raises:
            FinishedError: it ended.
            RefusedError: it is held by the people who run the cluster.
            NotFoundError: nothing matches all of *ref*.

        """
        ...

    def stop(self, ref: Ref) -> None:
        """
        End the object that matches all of *ref*, and no other one.

        It carries no deadline: a late stop can only end this one object. One that ended, or
        that nobody knows, is left as it is; that is no error.
        """
        ...

    def observe_many(self, refs: Iterable[Ref]) -> Mapping[Ref, Observation]:
        """Return one observation for each of *refs*; `State.UNKNOWN` for what nobody knows."""
        ...

    def find(self, name: str) -> Observation | None:
        """
        Return the newest object of a job, or None where nobody knows one.

        Args:
            name: The job's id, or the name of its objects.

        """
        ...

    def declarations(self) -> Declarations:
        """Return what the backend promises; it does not change while the backend is open."""
        ...

    def close(self) -> None:
        """End the watch streams and let go; objects live on. Closing twice is harmless."""
        ...


@runtime_checkable
class Holder(Protocol):
    """Keeps an object from running, by a hold that has a number."""

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """
        Place the hold `meta.instance`, instead of one that is in place.

        Raises:
            ExpiredError: the call started after `meta.deadline`.
            RefusedError: it runs, where a running object cannot be held.
            FinishedError: it ended.
            NotFoundError: nothing matches all of *ref*.
            OutcomeUnknown: settles at the deadline plus the call bound.

        """
        ...

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        """
        Lift the hold `meta.instance`; the errors are those of `hold`.

        Raises:
            RefusedError: another hold is in place, or none; nothing was changed.

        """
        ...


@runtime_checkable
class Requeuer(Protocol):
    """Puts an object back to pending, as the same object."""

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """
        Put the object back, and return the ref that it has now.

        The ref is another one where a requeue sets the submit time anew; the old one then
        names nothing.

        Raises:
            ExpiredError: the call started after `meta.deadline`.
            RefusedError: it is pending, or ended where an ended object cannot be revived.
            RequeueBitMaybeSet: see `restore_requeue_bit`.
            NotFoundError, OutcomeUnknown: as for `Holder.hold`.

        """
        ...

    def restore_requeue_bit(self, ref: Ref, meta: CallMeta) -> None:
        """
        Clear the bit that a requeue which was cut off has left set.

        Raises:
            FinishedError: it ended, and an ended object takes no update.
            ExpiredError, NotFoundError, OutcomeUnknown: as for `Holder.hold`.

        """
        ...


@runtime_checkable
class NativePolicyCompiler(Protocol):
    """Turns a recovery policy into what the scheduler enforces by itself."""

    def compile_policy(self, policy: RecoveryPolicy) -> NativePolicy:
        """
        Return which rules the scheduler enforces, and which are left to a supervisor.

        Raises:
            UnsupportedError: a rule asks for an action that the adapter cannot express.

        """
        ...


class WatchStream(Protocol):
    """
    Observations as they come.

    It ends when its buffer is full, when its cancel event is set, and when it or the backend
    is closed. What was missed is not told: watch again.
    """

    @property
    def closed(self) -> bool:
        """Whether nothing more will be added."""
        ...

    def get(self, timeout: float | None = None) -> Observation:
        """
        Return the next observation; wait for it up to *timeout* seconds, or for ever.

        Raises:
            queue.Empty: nothing came in time.
            WatchClosed: the stream ended and is empty.

        """
        ...

    def get_nowait(self) -> Observation:
        """Return the next observation; the errors are those of `get`."""
        ...

    def close(self) -> None:
        """End the stream and drop what is in it; closing twice is harmless."""
        ...


@runtime_checkable
class Watcher(Protocol):
    """Tells of changes as they happen."""

    def watch(self, cancel: threading.Event | None = None) -> WatchStream:
        """Return a stream that begins with the current observation of every object."""
        ...


@runtime_checkable
class CessationSignal(Protocol):
    """Knows whether an execution has certainly ceased, also on a node that nobody reaches."""

    def ceased(self, ref: Ref) -> Cessation:
        """Return whether no execution of the object can be running any more."""
        ...


@runtime_checkable
class IdentityWeakener(Protocol):
    """Says when what is read back identifies less than what was acted on."""

    def weakened(self, ref: Ref) -> frozenset[str]:
        """Return the fields of `Ref` that a reading of *ref* cannot confirm; empty is none."""
        ...


@runtime_checkable
class MultiFinder(Protocol):
    """Sees duplicates."""

    def find_all(self, name: str) -> Sequence[Observation]:
        """Return every object of a job, oldest first; *name* is as for `Backend.find`."""
        ...


@runtime_checkable
class OutputReader(Protocol):
    """Reads what a job has written."""

    def read_output(
        self, ref: Ref, *, name: OutputName = "stdout", offset: int = 0, limit: int | None = None
    ) -> bytes:
        """
        Return up to *limit* bytes from *offset* on; empty at the end, and before the start.

        Raises:
            NotFoundError: nothing matches all of *ref*, or its output is gone.

        """
        ...
