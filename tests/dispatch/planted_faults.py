"""Backends that break one rule each, to see the suite find out."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

import attrs

from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import ExpiredError, OutcomeUnknown, RefusedError
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.memory.kubeflow import KubeflowScheduler
from lardon.dispatch.memory.record import Record
from lardon.dispatch.memory.scheduler import Scheduler
from lardon.dispatch.memory.slurm import SlurmScheduler
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref
from lardon.dispatch.stream import BufferedStream


class StartsOpen(SlurmScheduler):
    """What is started may run at once."""

    def start(self, spec: JobSpec) -> Ref:
        ref = super().start(spec)
        self.world.records[ref].gated = False
        return ref


class OpensTheEnded(SlurmScheduler):
    """Open of an ended object returns as if it had done something."""

    def open(self, ref: Ref) -> None:
        if self.world.record(ref).state is not State.ENDED:
            super().open(ref)


class RefusesToOpenTheEnded(SlurmScheduler):
    """Open of an ended object is refused like anything else."""

    def open(self, ref: Ref) -> None:
        if self.world.record(ref).state is State.ENDED:
            raise RefusedError("no")
        super().open(ref)


class OpensForAdministrators(SlurmScheduler):
    """Open lifts an administrator's hold."""

    def open(self, ref: Ref) -> None:
        self.world.record(ref).admin_held = False
        super().open(ref)


class StopsById(SlurmScheduler):
    """Stop looks at the id alone."""

    def stop(self, ref: Ref) -> None:
        for other in list(self.world.records):
            if other.id == ref.id:
                super().stop(other)


class OpensTheHeld(SlurmScheduler):
    """Open lifts a hold."""

    def open(self, ref: Ref) -> None:
        self.world.record(ref).start_time = None
        super().open(ref)


class ReleasesAny(SlurmScheduler):
    """A release lifts whatever hold is in place."""

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        current = self.world.record(ref).instance or meta.instance
        super().release(ref, attrs.evolve(meta, instance=current))


class HoldsTheRunning(SlurmScheduler):
    """A hold of a running object is taken."""

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        record = self.world.record(ref)
        record.state, before = State.PENDING, record.state
        super().hold(ref, meta)
        record.state = before


class HoldsWithoutEnding(KubeflowScheduler):
    """A hold of a running object leaves it running."""

    def _end_if_held(self, record: Record) -> None:
        self.world.changed(record)


class LeavesTheBit(SlurmScheduler):
    """A requeue does not clear its bit."""

    def _set_bit(self, record: Record, *, on: bool) -> None:
        super()._set_bit(record, on=on or record.requeue_bit)


class RequeuesThePending(SlurmScheduler):
    """A requeue of a pending object counts as one."""

    def _requeue(self, record: Record) -> Ref:
        if record.state is State.PENDING:
            record.restarts += 1
            return record.ref
        return super()._requeue(record)


class RevivesGated(SlurmScheduler):
    """What is requeued waits to be opened."""

    def _requeue(self, record: Record) -> Ref:
        ref = super()._requeue(record)
        record.gated = True
        return ref


class HidesTheCrash(SlurmScheduler):
    """A requeue that is cut off shows no bit."""

    def _set_bit(self, record: Record, *, on: bool) -> None:
        """Set nothing."""


class UpdatesTheEnded(SlurmScheduler):
    """The bit of an ended object is cleared."""

    def restore_requeue_bit(self, ref: Ref) -> None:
        self._set_bit(self.world.record(ref), on=False)


class PreemptsDespiteTheBit(SlurmScheduler):
    """Preemption ends an object whatever its bit says."""

    def preempt(self, ref: Ref) -> None:
        self.world.end(self._running(ref), Cause.PREEMPTED)


class CountsPreemptions(KubeflowScheduler):
    """Preemption is counted as a restart."""

    def preempt(self, ref: Ref) -> None:
        super().preempt(ref)
        self.world.record(ref).restarts += 1


class CountsRestartsForEpochs(KubeflowScheduler):
    """The epoch is made of a restart counter that misses re-admissions."""

    def _execution_number(self, record: Record) -> int:
        return record.restarts


class SaysItReturned(SlurmScheduler):
    """A job that ran out of memory is said to have returned something."""

    def finish(self, ref: Ref, cause: Cause, exit_code: int | None = None) -> None:
        told = Cause.NON_ZERO_EXIT if cause is Cause.OUT_OF_MEMORY else cause
        super().finish(ref, told, exit_code)


class EndsLostNodesAtOnce(SlurmScheduler):
    """A lost node ends its object with no time-out."""

    def _node_lost(self, record: Record) -> None:
        self.world.end(record, Cause.NODE_LOST)


class EndsWhatIsWedged(KubeflowScheduler):
    """A lost node ends its object."""

    def _node_lost(self, record: Record) -> None:
        self.world.end(record, Cause.NODE_LOST)


class TakesDuplicates(KubeflowScheduler):
    """A second object of one name is taken."""

    def start(self, spec: JobSpec) -> Ref:
        try:
            return super().start(spec)
        except RefusedError:
            return super().start(attrs.evolve(spec, submission=spec.submission + 1))


class NeverWraps(SlurmScheduler):
    """Ids grow for ever."""

    def start(self, spec: JobSpec) -> Ref:
        old = super().start(spec)
        record = self.world.records[old]
        self.world.rename(record, attrs.evolve(old, id=1000 + record.number))
        return record.ref


class BeginsAndEnds(BufferedStream):
    """A stream ends before it has told of anything."""

    def __init__(self, first: Any, **rest: Any) -> None:
        super().__init__(first, **rest)
        self.close()


class FindsOne(MemoryBackend):
    """A finder that sees one object of each job."""

    def find_all(self, name: str) -> list[Observation]:
        return list(super().find_all(name))[-1:]


class ReadsById(MemoryBackend):
    """An observation looks at the id alone."""

    def observe_many(self, refs: Any) -> dict[Ref, Observation]:
        now = {ref.id: ref for ref in self._world.records}
        seen = {ref: super(ReadsById, self).observe_many([now.get(ref.id, ref)]) for ref in refs}
        return {ref: attrs.evolve(next(iter(one.values())), ref=ref) for ref, one in seen.items()}


class CallsAbsentDone(MemoryBackend):
    """What is gone has completed."""

    def observe_many(self, refs: Any) -> dict[Ref, Observation]:
        return {
            ref: seen
            if seen.known
            else Observation(ref=ref, state=State.ENDED, cause=Cause.COMPLETED, exit_code=0)
            for ref, seen in super().observe_many(refs).items()
        }


class ForgetsDeadlines(MemoryBackend):
    """A call that starts late is made all the same."""

    def _change(self, operation: str, act: Any, meta: CallMeta | None = None) -> Any:
        far = None if meta is None else CallMeta(datetime.datetime.max.replace(tzinfo=datetime.UTC))
        return super()._change(operation, act, far)


class LandsAfterExpiry(MemoryBackend):
    """A call that expired lands some seconds later."""

    def _change(self, operation: str, act: Any, meta: CallMeta | None = None) -> Any:
        try:
            return super()._change(operation, act, meta)
        except ExpiredError:
            self._world.land_later(self._world.clock.monotonic() + 10, act)
            raise


class ForgetsTheBound(MemoryBackend):
    """An unknown outcome is said to settle at the deadline."""

    def _change(self, operation: str, act: Any, meta: CallMeta | None = None) -> Any:
        try:
            return super()._change(operation, act, meta)
        except OutcomeUnknown as error:
            assert meta is not None
            raise OutcomeUnknown(str(error), settles_at=meta.deadline) from None


class LandsTooLate(MemoryBackend):
    """A call without an answer lands after it has settled."""

    def _lose_answer(self, operation: str, act: Any, deadline: datetime.datetime) -> None:
        bound = self._world.settings.call_bound_s
        left = (deadline - self._world.clock.wall()).total_seconds()
        self._world.land_later(self._world.clock.monotonic() + left + bound + 5, act)
        settles_at = deadline + datetime.timedelta(seconds=bound)
        raise OutcomeUnknown("lost", settles_at=settles_at)


class ViewsThatWrite(MemoryBackend):
    """A read-only view writes."""

    def view(self, *, read_only: bool = False) -> MemoryBackend:
        del read_only
        return super().view()


class SaysNothingOfLostNodes(MemoryBackend):
    """Everything has ceased."""

    def ceased(self, ref: Ref) -> Any:
        return attrs.evolve(super().ceased(ref), ceased=True, detail="")


class RequeuesEverywhere(MemoryBackend):
    """A requeue on Kubeflow returns as if it had done something."""

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        del meta
        return ref


class LosesChanges(BufferedStream):
    """A full buffer drops what does not fit."""

    def send(self, observation: Observation) -> None:
        if len(self._changes) < self._room:
            super().send(observation)


class BeginsEmpty(BufferedStream):
    """A stream begins with nothing."""

    def __init__(self, first: Any, **rest: Any) -> None:
        super().__init__([], **rest)


class OutlivesItsCancel(BufferedStream):
    """The cancel event is not looked at."""

    def __init__(self, first: Any, **rest: Any) -> None:
        super().__init__(first, **{**rest, "cancel": None})


def _with_streams(kind: type[BufferedStream]) -> type[MemoryBackend]:
    class Watched(MemoryBackend):
        def watch(self, cancel: Any = None) -> BufferedStream:
            stream = super().watch(cancel)
            first = [record.observation() for record in self._world.records.values()]
            room, clock = self._world.settings.watch_buffer, self._world.clock
            other = kind(first, room=room, clock=clock, cancel=cancel)
            streams: list[BufferedStream] = self._world._streams
            streams[streams.index(stream)] = other
            self._streams[self._streams.index(stream)] = other
            return other

    return Watched


class KeepsEvidence(MemoryBackend):
    """A cause is told for ever."""

    def observe_many(self, refs: Any) -> dict[Ref, Observation]:
        truth = self.env().truth
        return {
            ref: attrs.evolve(seen, cause=truth(ref).cause)
            for ref, seen in super().observe_many(refs).items()
        }


class Lenient(MemoryBackend):
    """Settings that nobody knows are passed over."""

    @classmethod
    def from_settings(cls, settings: Any = None, *, clock: Any = None) -> MemoryBackend:
        known = {"shape", "maxJobId", "minJobAge", "rules", "native", "capabilities"}
        kept = {key: value for key, value in dict(settings).items() if key in known}
        return super().from_settings(kept, clock=clock)


@attrs.frozen
class Fault:
    """One broken rule, and the check that must find it."""

    name: str
    shape: Shape
    check: str
    scheduler: type[Scheduler] | None = None
    backend: type[MemoryBackend] = MemoryBackend

    def make(self, settings: Mapping[str, Any], **rest: Any) -> MemoryBackend:
        """Return a backend with the fault in it."""
        made = self.backend.from_settings(settings, **rest)
        if self.scheduler is not None:
            made._scheduler = self.scheduler(made._world)
        return made


FAULTS: Final = (
    Fault("a setting nobody knows", Shape.SLURM, "01-settings-are-strict", backend=Lenient),
    Fault(
        "what was not opened runs",
        Shape.SLURM,
        "03-started-is-found-and-gated",
        scheduler=StartsOpen,
    ),
    Fault(
        "duplicates are not seen",
        Shape.SLURM,
        "04-duplicates-are-seen-or-refused",
        backend=FindsOne,
    ),
    Fault(
        "duplicates are taken",
        Shape.KUBEFLOW,
        "04-duplicates-are-seen-or-refused",
        scheduler=TakesDuplicates,
    ),
    Fault(
        "an ended object is opened",
        Shape.SLURM,
        "05-open-of-an-ended-object-is-finished",
        scheduler=OpensTheEnded,
    ),
    Fault(
        "an ended object is refused",
        Shape.SLURM,
        "05-open-of-an-ended-object-is-finished",
        scheduler=RefusesToOpenTheEnded,
    ),
    Fault(
        "ids never come round",
        Shape.SLURM,
        "07-a-reused-id-is-another-object",
        scheduler=NeverWraps,
    ),
    Fault(
        "a stream ends at once",
        Shape.SLURM,
        "20-a-watcher-sees-every-change",
        backend=_with_streams(BeginsAndEnds),
    ),
    Fault(
        "an administrator is overruled",
        Shape.SLURM,
        "05-an-administrators-hold-refuses-open",
        scheduler=OpensForAdministrators,
    ),
    Fault(
        "a stop looks at the id alone",
        Shape.SLURM,
        "06-stop-ends-the-one-that-is-meant",
        scheduler=StopsById,
    ),
    Fault(
        "a reading looks at the id alone",
        Shape.SLURM,
        "07-a-reused-id-is-another-object",
        backend=ReadsById,
    ),
    Fault(
        "a stop by id meets the next object",
        Shape.SLURM,
        "07-a-reused-id-is-another-object",
        scheduler=StopsById,
    ),
    Fault("absent is a success", Shape.SLURM, "08-absent-is-no-success", backend=CallsAbsentDone),
    Fault(
        "open lifts a hold", Shape.SLURM, "09-a-held-object-does-not-run", scheduler=OpensTheHeld
    ),
    Fault(
        "any release lifts a hold",
        Shape.SLURM,
        "10-only-the-current-hold-is-released",
        scheduler=ReleasesAny,
    ),
    Fault(
        "a running object is held",
        Shape.SLURM,
        "11-a-hold-meets-a-running-object",
        scheduler=HoldsTheRunning,
    ),
    Fault(
        "a held object runs on",
        Shape.KUBEFLOW,
        "11-a-hold-meets-a-running-object",
        scheduler=HoldsWithoutEnding,
    ),
    Fault(
        "deadlines are not looked at",
        Shape.SLURM,
        "12-a-call-after-its-deadline-does-nothing",
        backend=ForgetsDeadlines,
    ),
    Fault(
        "deadlines are not looked at on Kubeflow",
        Shape.KUBEFLOW,
        "12-a-call-after-its-deadline-does-nothing",
        backend=ForgetsDeadlines,
    ),
    Fault(
        "an expired call lands later",
        Shape.SLURM,
        "13-a-call-after-its-bound-does-nothing",
        backend=LandsAfterExpiry,
    ),
    Fault(
        "the bound is left out",
        Shape.SLURM,
        "14-a-lost-answer-settles-in-time",
        backend=ForgetsTheBound,
    ),
    Fault(
        "a call lands after its bound",
        Shape.KUBEFLOW,
        "14-a-lost-answer-settles-in-time",
        backend=LandsTooLate,
    ),
    Fault(
        "a requeue leaves its bit",
        Shape.SLURM,
        "15-a-running-object-is-requeued",
        scheduler=LeavesTheBit,
    ),
    Fault(
        "a pending object is requeued",
        Shape.SLURM,
        "15-a-pending-object-is-not-requeued",
        scheduler=RequeuesThePending,
    ),
    Fault(
        "a revived object is gated",
        Shape.SLURM,
        "15-an-ended-object-is-revived-or-not",
        scheduler=RevivesGated,
    ),
    Fault(
        "a crash does not show",
        Shape.SLURM,
        "16-a-crash-between-steps-shows",
        scheduler=HidesTheCrash,
    ),
    Fault(
        "an ended object is updated",
        Shape.SLURM,
        "16-an-ended-object-takes-no-update",
        scheduler=UpdatesTheEnded,
    ),
    Fault(
        "the bit is not looked at",
        Shape.SLURM,
        "17-preemption-with-the-bit",
        scheduler=PreemptsDespiteTheBit,
    ),
    Fault(
        "a preemption is a restart",
        Shape.KUBEFLOW,
        "17-preemption-without-the-bit",
        scheduler=CountsPreemptions,
    ),
    Fault(
        "two executions have one epoch",
        Shape.KUBEFLOW,
        "17-every-execution-has-its-identity",
        scheduler=CountsRestartsForEpochs,
    ),
    Fault("a cause is another one", Shape.SLURM, "18-causes-are-typed", scheduler=SaysItReturned),
    Fault("evidence is kept", Shape.KUBEFLOW, "18-evidence-fades", backend=KeepsEvidence),
    Fault(
        "a lost node ends at once",
        Shape.SLURM,
        "19-a-lost-node-ends-or-wedges",
        scheduler=EndsLostNodesAtOnce,
    ),
    Fault(
        "a wedged object ends",
        Shape.KUBEFLOW,
        "19-a-lost-node-ends-or-wedges",
        scheduler=EndsWhatIsWedged,
    ),
    Fault(
        "what runs has ceased",
        Shape.SLURM,
        "19-cessation-is-certain",
        backend=SaysNothingOfLostNodes,
    ),
    Fault(
        "a full buffer loses changes",
        Shape.SLURM,
        "20-a-full-buffer-ends-a-stream",
        backend=_with_streams(LosesChanges),
    ),
    Fault(
        "a stream begins with nothing",
        Shape.SLURM,
        "20-a-watcher-sees-every-change",
        backend=_with_streams(BeginsEmpty),
    ),
    Fault(
        "a cancelled stream goes on",
        Shape.SLURM,
        "20-nothing-comes-after-the-end",
        backend=_with_streams(OutlivesItsCancel),
    ),
    Fault(
        "a read-only view writes",
        Shape.SLURM,
        "21-a-read-only-view-changes-nothing",
        backend=ViewsThatWrite,
    ),
    Fault(
        "Kubeflow requeues",
        Shape.KUBEFLOW,
        "22-what-is-unsupported-says-so",
        backend=RequeuesEverywhere,
    ),
)
