"""What a scheduler in memory does that behaves like Kubeflow with Kueue."""

from __future__ import annotations

from typing import NoReturn

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import DuplicateError, RefusedError, UnsupportedError
from lardon.dispatch.memory.record import Annotations, Record
from lardon.dispatch.memory.scheduler import Scheduler
from lardon.dispatch.model import HoldMeta, JobSpec, Ref


class KubeflowScheduler(Scheduler):
    """Unique names, stops that delete, wedged jobs, and holds that end what runs."""

    def start(self, spec: JobSpec) -> Ref:
        """Create an object that may run at once; a name that is there is refused."""
        name = spec.submission_name
        if any(ref.name == name for ref in self.world.records):
            message = f"an object named {name} exists already"
            raise DuplicateError(message, name=name)
        number = self.world.next_number()
        ref = Ref(name, f"uid-{number}", self.world.second())
        self.world.add(Record(spec, ref, number, gated=False))
        return ref

    def stop(self, ref: Ref) -> None:
        """Delete the object, if it is there."""
        record = self.world.present(ref)
        if record is not None:
            self.world.delete(record)

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Deactivate the object: an execution of it ends."""
        record = self._unfinished(ref)
        record.annotations = Annotations(meta.instance, meta.placed_by, meta.until, meta.reason)
        self._end_if_held(record)

    def requeuing(self, operation: str) -> NoReturn:
        """Refuse: nothing puts an object of Kubeflow back, and there is no such bit."""
        message = f"Kubeflow has no {operation}"
        raise UnsupportedError(message, operation=operation)

    def preempt(self, ref: Ref) -> None:
        """Send the object back to pending; its restart counter does not count that."""
        record = self._running(ref)
        if record.lost_at is not None:
            message = f"{ref.name} is wedged: its pods on the lost node do not go away"
            raise RefusedError(message)
        record.move(State.PENDING, Cause.PREEMPTED)
        self.world.changed(record)

    def _node_lost(self, record: Record) -> None:
        # Wedged: it counts as running, and never ends on its own.
        record.cause = Cause.NODE_LOST
        self.world.changed(record)

    def _node_back(self, record: Record) -> None:
        record.cause = None
        record.evidence_gone = False
        self._end_if_held(record)

    def _end_if_held(self, record: Record) -> None:
        # What is wedged cannot be ended: its pods do not go away.
        running = record.state is State.RUNNING and record.lost_at is None
        if running and record.annotations is not None:
            self.world.end(record, Cause.HELD)
        else:
            self.world.changed(record)

    def _execution_number(self, record: Record) -> int:
        # The restart counter misses re-admissions, so executions are counted.
        return record.executions

    def _releasable(self, ref: Ref) -> Record:
        # What a hold has ended keeps the hold, until it is released or the object is gone.
        return self.world.record(ref)
