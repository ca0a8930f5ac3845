"""What a scheduler in memory does that behaves like Slurm."""

from __future__ import annotations

import datetime

import attrs

from lardon.dispatch.enums import Capability, Cause, State, Tristate
from lardon.dispatch.errors import CrashedError, RefusedError
from lardon.dispatch.holds import hold_start
from lardon.dispatch.memory.hooks import crashes
from lardon.dispatch.memory.record import Record
from lardon.dispatch.memory.scheduler import Scheduler
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Ref


class SlurmScheduler(Scheduler):
    """Constant names, ids that wrap, gates, holds as start times, and the requeue bit."""

    def start(self, spec: JobSpec) -> Ref:
        """Create a gated object; the name may be there already."""
        world = self.world
        free = world.next_id(spec.name)
        if free is None:
            message = f"no job id up to {world.settings.max_job_id} is free"
            raise RefusedError(message)
        ref = Ref(spec.name, free, world.second())
        world.add(Record(spec, ref, world.next_number(), gated=True))
        return ref

    def stop(self, ref: Ref) -> None:
        """Cancel the object of this id and submit time, if it is there and has not ended."""
        record = self.world.present(ref)
        if record is not None and record.state is not State.ENDED:
            self.world.end(record, Cause.CANCELLED)

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Set the start time that is the hold; who placed it and why is not kept."""
        record = self._unfinished(ref)
        if record.state is State.RUNNING:
            message = f"Job is no longer pending execution for job {ref.id}"
            raise RefusedError(message)
        record.start_time = hold_start(ref, meta.instance)
        self.world.changed(record)

    def requeuing(self, operation: str) -> SlurmScheduler:  # noqa: ARG002  it does them all
        """Return itself."""
        return self

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """Set the bit, requeue, and clear the bit again, whatever the requeue came to."""
        record = self.world.record(ref)
        requeue_ended = self.world.settings.declarations().supports(Capability.REQUEUE_ENDED)
        if record.state is State.ENDED and requeue_ended is Tristate.NO:
            message = f"Job has already finished for job {ref.id}"
            raise RefusedError(message)
        self._set_bit(record, on=True)
        if crashes():
            bound = datetime.timedelta(seconds=self.world.settings.call_bound_s)
            message = f"crashed after Requeue=1 for job {ref.id}: the bit is set"
            raise CrashedError(message, settles_at=meta.deadline + bound)
        try:
            return self._requeue(record)
        finally:
            self._set_bit(record, on=False)

    def restore_requeue_bit(self, ref: Ref) -> None:
        """Clear the bit; an ended object takes no update."""
        self._set_bit(self._unfinished(ref), on=False)

    def preempt(self, ref: Ref) -> None:
        """End the execution Preempted, or requeue it on Slurm's own authority."""
        record = self._running(ref)
        if record.requeue_bit:
            self._requeue(record)
        else:
            self.world.end(record, Cause.PREEMPTED)

    def requeue_externally(self, ref: Ref) -> Ref:
        """Set the bit and requeue what does not wait already; the bit stays set."""
        record = self.world.record(ref)
        self._set_bit(record, on=True)
        return record.ref if record.state is State.PENDING else self._requeue(record)

    def _node_lost(self, record: Record) -> None:
        """Show nothing: it counts as running until `slurmd_timeout_s` has passed."""

    def _node_back(self, record: Record) -> None:
        """Show nothing: it never showed."""

    def _execution_number(self, record: Record) -> int:
        return record.restarts

    def _set_bit(self, record: Record, *, on: bool) -> None:
        record.requeue_bit = on
        self.world.changed(record)

    def _requeue(self, record: Record) -> Ref:
        if record.state is State.PENDING:
            message = f"Job is pending execution for job {record.ref.id}"
            raise RefusedError(message)
        record.move(State.PENDING, Cause.REQUEUED)
        record.restarts += 1
        if self.world.settings.requeue_resets_submit_time:
            self._reset_submit_time(record)
        self.world.changed(record)
        return record.ref

    def _reset_submit_time(self, record: Record) -> None:
        instance = record.instance
        self.world.rename(record, attrs.evolve(record.ref, submitted_at=self.world.second()))
        if instance is not None:
            # The hold counts from the submit time, so it moves with it.
            record.start_time = hold_start(record.ref, instance)
