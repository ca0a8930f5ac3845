"""The calls that change jobs: looked up, made behind a deadline, and never guessed about."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from lardon.clock import Clock
from lardon.dispatch.enums import State
from lardon.dispatch.errors import (
    BackendClosed,
    FinishedError,
    NotFoundError,
    OutcomeUnknown,
    RefusedError,
)
from lardon.dispatch.holds import hold_start
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref
from lardon.dispatch.slurm.cluster import Cluster
from lardon.dispatch.slurm.faults import ClusterUnreachable, UnreadableAnswer
from lardon.dispatch.slurm.host import Applied
from lardon.dispatch.slurm.rows import JobRow, observed
from lardon.dispatch.slurm.settings import MOST_IDS
from lardon.dispatch.slurm.submission import submit_call, submitted_id
from lardon.dispatch.slurm.wrapper import Call, checked_job_id, requeue_calls

_FINISHED: Final = "Job has already finished"
_NO_SUCH_JOB: Final = "Invalid job id specified"
# A job that Slurm takes down already needs no second cancellation.
_ENDS_ANYWAY: Final = frozenset(
    {_FINISHED, _NO_SUCH_JOB, "Job/step already completing or completed"}
)
# `now` itself can fall into the second in which an earlier run was killed, and fails then
# (8 of 20 on Slurm 22.05); a second later it does not.
_RELEASED: Final = "StartTime=now+1"
_LOOK_AGAIN_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)

Pause = Callable[[float], None]


class Actor:
    """
    Changes jobs on one cluster; see `SlurmBackend` for what each method promises.

    Args:
        cluster: Where the jobs are.
        clock: What time it is here.
        nonce: Gives 32 new lower-case hex digits.
        pause: Waits for some seconds; it raises when the backend is closed meanwhile.

    """

    def __init__(
        self, cluster: Cluster, clock: Clock, nonce: Callable[[], str], pause: Pause
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._settings = cluster.settings
        self._clock = clock
        self._nonce = nonce
        self._pause = pause

    def start(self, spec: JobSpec) -> Ref:
        """Submit *spec*, and return the identity that the controller gave it."""
        call = submit_call(
            spec,
            attempt=self._nonce(),
            defaults=self._settings.options,
            output_folder=self._settings.output_folder,
        )
        deadline = self._window()
        applied = self._change([call], deadline)
        try:
            job_id = submitted_id(applied.stdout)
            return self._submitted(spec.name, job_id)
        except (ClusterUnreachable, UnreadableAnswer) as error:
            message = f"the job {spec.name} was submitted, and was not seen since: {error}"
            raise OutcomeUnknown(message, settles_at=self._settles_at(deadline)) from error

    def open(self, ref: Ref) -> None:
        """Lift the gate."""
        row, seen = self._unfinished(ref)
        if seen.admin_held:
            message = f"an administrator holds job {row.job_id}"
            raise RefusedError(message)
        if seen.gated:
            self._act(ref, [Call(("scontrol", "release", str(row.job_id)))], self._window())

    def stop_many(self, refs: Iterable[Ref]) -> None:
        """Cancel what is there and has not ended, `MOST_IDS` jobs with one call."""
        wanted = set(refs)
        rows = [row for row in self._cluster.listing().rows if row.ref in wanted]
        alive = [row for row in rows if observed(row).state is not State.ENDED]
        for first in range(0, len(alive), MOST_IDS):
            chosen = alive[first : first + MOST_IDS]
            # The name is a second check of the identity, by the host itself.
            named = (f"--name={chosen[0].name}",) if len(chosen) == 1 else ()
            ids = [str(row.job_id) for row in chosen]
            try:
                self._change([Call(("scancel", *named, *ids))], self._window())
            except RefusedError as error:
                if error.reason not in _ENDS_ANYWAY:
                    raise

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Set the start time that is the hold."""
        row, seen = self._unfinished(ref)
        _refuse_completing(row)
        if seen.state is State.RUNNING:
            message = f"Job is no longer pending execution for job {row.job_id}"
            raise RefusedError(message)
        start = hold_start(row.ref, meta.instance).strftime("%Y-%m-%dT%H:%M:%S")
        self._act(ref, [_update(row, f"StartTime={start}")], meta.deadline)

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        """Set the start time to now, when the hold is the one that *meta* names."""
        row, seen = self._unfinished(ref)
        _refuse_completing(row)
        if seen.hold_instance != meta.instance:
            held = "no hold" if seen.hold_instance is None else f"the hold {seen.hold_instance}"
            message = f"{held} is in place on job {row.job_id}, and not {meta.instance}"
            raise RefusedError(message)
        self._act(ref, [_update(row, _RELEASED)], meta.deadline)

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """Put a running object back with three calls, and return what it is called then."""
        row, seen = self._found(ref)
        if seen.state is not State.RUNNING:
            why = "Job is pending execution" if seen.state is State.PENDING else _FINISHED
            message = f"{why} for job {row.job_id}"
            raise RefusedError(message)
        _refuse_completing(row)
        self._act(ref, requeue_calls(row.job_id), meta.deadline)
        return self._put_back(row, meta.deadline)

    def restore_requeue_bit(self, ref: Ref, meta: CallMeta) -> None:
        """Clear the requeue bit."""
        row, _ = self._unfinished(ref)
        self._act(ref, [_update(row, "Requeue=0")], meta.deadline)

    # Shared

    def _window(self) -> datetime.datetime:
        return self._clock.wall() + datetime.timedelta(seconds=self._settings.call_window_s)

    def _settles_at(self, deadline: datetime.datetime) -> datetime.datetime:
        return deadline + datetime.timedelta(seconds=self._cluster.terms().total_s)

    def _change(self, calls: Sequence[Call], deadline: datetime.datetime) -> Applied:
        settles_at = self._settles_at(deadline)
        try:
            return self._cluster.host.change(calls, deadline, settles_at)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"the call in flight may still land until {settles_at}")
            raise

    def _act(self, ref: Ref, calls: Sequence[Call], deadline: datetime.datetime) -> None:
        """Change one job; what the controller says of its state is an error of that name."""
        try:
            self._change(calls, deadline)
        except RefusedError as error:
            message = f"{error.reason} for job {ref.id}"
            if error.reason == _FINISHED:
                raise FinishedError(message, ref=ref) from None
            if error.reason == _NO_SUCH_JOB:
                raise NotFoundError(message, ref=ref) from None
            raise

    def _found(self, ref: Ref) -> tuple[JobRow, Observation]:
        row = self._cluster.row(ref)
        if row is None:
            message = f"no job is {ref.name}, {ref.id} and of {ref.submitted_at} at once"
            raise NotFoundError(message, ref=ref)
        return row, observed(row)

    def _unfinished(self, ref: Ref) -> tuple[JobRow, Observation]:
        row, seen = self._found(ref)
        if seen.state is State.ENDED:
            message = f"{_FINISHED} for job {row.job_id}"
            raise FinishedError(message, ref=ref)
        return row, seen

    def _submitted(self, name: str, job_id: int) -> Ref:
        """Return the identity that the controller gave; a new job is in the queue at once."""
        for row in self._cluster.listing().rows:
            if (row.name, row.job_id) == (name, job_id):
                return row.ref
        message = f"squeue does not list job {job_id}"
        raise UnreadableAnswer(message)

    def _put_back(self, before: JobRow, deadline: datetime.datetime) -> Ref:
        """Return the ref after a requeue: the submit time moves when the old run has ended."""
        message = f"job {before.job_id} was put back, and its old execution has not ended yet"
        unknown = OutcomeUnknown(message, settles_at=self._settles_at(deadline))
        try:
            for _ in self._looks(self._settings.requeue_wait_s):
                for row in self._rows_if_told():
                    same = (row.name, row.job_id) == (before.name, before.job_id)
                    if same and not row.completing and row.restarts > before.restarts:
                        return row.ref
        except (BackendClosed, UnreadableAnswer) as error:
            # Either says for itself that nothing was changed.
            raise unknown from error
        raise unknown

    def _rows_if_told(self) -> tuple[JobRow, ...]:
        with contextlib.suppress(ClusterUnreachable):
            return self._cluster.listing().rows
        return ()

    def _looks(self, seconds: float) -> Iterator[None]:
        """Yield before every look of a wait, ever further apart, for *seconds* in all."""
        end = self._clock.monotonic() + seconds
        delays = iter(_LOOK_AGAIN_S)
        yield
        while self._clock.monotonic() < end:
            self._pause(next(delays, _LOOK_AGAIN_S[-1]))
            yield


def _update(row: JobRow, change: str) -> Call:
    return Call(("scontrol", "update", f"JobId={checked_job_id(row.job_id)}", change))


def _refuse_completing(row: JobRow) -> None:
    """
    Refuse to touch a job whose execution is being taken down.

    It counts as pending for the controller, a hold on it is taken, and then its submit time
    moves: the instance would be read wrongly (dispatch design, 4.8).
    """
    if row.completing:
        message = f"the execution of job {row.job_id} is being taken down; ask again after that"
        raise RefusedError(message)
