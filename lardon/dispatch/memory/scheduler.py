"""What a scheduler in memory does with its objects, whichever it behaves like."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Mapping
from typing import Final, Protocol

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import FinishedError, RefusedError
from lardon.dispatch.memory.record import Execution, Record
from lardon.dispatch.memory.world import World
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Ref
from lardon.dispatch.model import epoch as epoch_of

# Long enough that no two executions of a simulation share one.
_ATTEMPT_LENGTH: Final = 20


class Requeuing(Protocol):
    """What only Slurm does."""

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """Put an object back to pending."""
        ...

    def restore_requeue_bit(self, ref: Ref) -> None:
        """Clear the bit."""
        ...

    def requeue_externally(self, ref: Ref) -> Ref:
        """Requeue as somebody else does, who leaves the bit set."""
        ...


class Scheduler(abc.ABC):
    """
    The rules that both shapes share; a subclass adds its own.

    Every method is called by a view or the environment, inside `World.entered`.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    # What a caller asks for

    @abc.abstractmethod
    def start(self, spec: JobSpec) -> Ref:
        """Create the object of *spec*."""

    def open(self, ref: Ref) -> None:
        """Lift the gate."""
        record = self._unfinished(ref)
        if record.admin_held:
            message = f"Access/permission denied for job {ref.id}: an administrator holds it"
            raise RefusedError(message)
        record.gated = False
        self.world.changed(record)

    @abc.abstractmethod
    def stop(self, ref: Ref) -> None:
        """End the object that matches all of *ref*."""

    @abc.abstractmethod
    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Place a hold."""

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        """Lift the hold that *meta* names, and no other."""
        record = self._releasable(ref)
        if record.instance != meta.instance:
            current = "none" if record.instance is None else f"number {record.instance}"
            message = f"hold {meta.instance} is not in place on job {ref.id}, {current} is"
            raise RefusedError(message)
        record.start_time = None
        record.annotations = None
        self.world.changed(record)

    @abc.abstractmethod
    def requeuing(self, operation: str) -> Requeuing:
        """Return what requeues here, or raise `UnsupportedError` for *operation*."""

    def matching(self, name: str) -> list[Record]:
        """Return the objects of a job, by its id or their name, the oldest first."""
        job = name.upper()
        known = (*self.world.archive.values(), *self.world.records.values())
        found = [
            one
            for one in known
            if name == one.ref.name or job in (one.spec.id, one.spec.name.upper())
        ]
        return sorted(found, key=lambda one: one.number)

    # What the cluster does

    def run(self, ref: Ref, node: str | None) -> None:
        """Start an execution, if nothing is against it."""
        record = self._unfinished(ref)
        obstacle = self._obstacle(record)
        if obstacle is not None:
            message = f"job {ref.id} does not run: it {obstacle}"
            raise RefusedError(message)
        number = epoch_of(record.spec.submission, self._execution_number(record))
        record.executions += 1
        told = f"{record.number}/{record.executions}".encode()
        attempt = hashlib.sha256(told).hexdigest()[:_ATTEMPT_LENGTH]
        record.move(State.RUNNING)
        record.execution = Execution(attempt, number, node or f"node-{record.number}")
        self.world.changed(record)

    def finish(self, ref: Ref, cause: Cause, exit_code: int | None = None) -> None:
        """End the execution that runs, on a node that can tell of it."""
        record = self._running(ref)
        if record.lost_at is not None:
            message = f"the node of job {ref.id} is lost, so nobody learns how it ended"
            raise RefusedError(message)
        self.world.end(record, cause, exit_code=exit_code)

    @abc.abstractmethod
    def preempt(self, ref: Ref) -> None:
        """Take the node away from the execution that runs."""

    def lose_node(self, ref: Ref) -> None:
        """Lose the node under the execution that runs, and all that run on it."""
        record = self._running(ref)
        assert record.execution is not None
        node = record.execution.node
        for other in self.world.records.values():
            on_it = other.execution is not None and other.execution.node == node
            if other.state is State.RUNNING and on_it and other.lost_at is None:
                other.lost_at = self.world.now()
                self._node_lost(other)

    def recover_node(self, node: str) -> None:
        """Bring a node back: what still counts as running there runs on, the rest is killed."""
        for record in self.world.every():
            record.adrift = tuple(one for one in record.adrift if one.node != node)
            ran = record.execution
            if record.lost_at is not None and ran is not None and ran.node == node:
                record.lost_at = None
                self._node_back(record)

    def admin_hold(self, ref: Ref) -> None:
        """Keep an object from running, as the people who run the cluster can."""
        record = self._unfinished(ref)
        if record.state is State.RUNNING:
            message = f"Job is no longer pending execution for job {ref.id}"
            raise RefusedError(message)
        record.admin_held = True
        self.world.changed(record)

    def admin_release(self, ref: Ref) -> None:
        """Lift an administrator's hold."""
        record = self.world.record(ref)
        record.admin_held = False
        self.world.changed(record)

    def purge(self, ref: Ref) -> None:
        """Forget an object that ended."""
        record = self.world.record(ref)
        if record.state is not State.ENDED:
            message = f"job {ref.id} is {record.state.value.lower()}: only what ended is purged"
            raise RefusedError(message)
        self.world.purge(record)

    # Shared by the shapes

    @abc.abstractmethod
    def _node_lost(self, record: Record) -> None:
        """Show that the node of a running object is lost, if that shows."""

    @abc.abstractmethod
    def _node_back(self, record: Record) -> None:
        """Show that it is back."""

    @abc.abstractmethod
    def _execution_number(self, record: Record) -> int:
        """Return the number of the next execution, for its epoch."""

    def _unfinished(self, ref: Ref) -> Record:
        record = self.world.known(ref) or self.world.record(ref)
        if record.state is State.ENDED:
            message = f"Job has already finished for job {ref.id}"
            raise FinishedError(message, ref=ref)
        return record

    def _releasable(self, ref: Ref) -> Record:
        return self._unfinished(ref)

    def _running(self, ref: Ref) -> Record:
        record = self._unfinished(ref)
        if record.state is not State.RUNNING:
            message = f"Job is pending execution for job {ref.id}"
            raise RefusedError(message)
        return record

    @staticmethod
    def _obstacle(record: Record) -> str | None:
        obstacles: Mapping[str, bool] = {
            "runs already": record.state is State.RUNNING,
            "was not opened": record.gated,
            "is held by an administrator": record.admin_held,
            f"is held under number {record.instance}": record.instance is not None,
        }
        return next((text for text, there in obstacles.items() if there), None)
