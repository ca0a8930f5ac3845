"""One job as a listing or the accounting shows it, and the observation that it makes."""

from __future__ import annotations

import datetime
from typing import Final

import attrs

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.holds import instance_held
from lardon.dispatch.model import Observation, Ref, epoch
from lardon.dispatch.slurm.states import meaning
from lardon.dispatch.slurm.submission import read_note

# What a shell makes of the number of a signal.
_SIGNALLED: Final = 128
_WAITS_FOR_ROOM: Final = frozenset(
    {"Priority", "Resources", "ReqNodeNotAvail", "NodeDown", "PartitionDown", "PartitionInactive"}
)


@attrs.frozen(kw_only=True)
class JobRow:
    """What one row says; times are Unix seconds, 0 is none."""

    job_id: int
    name: str
    user_id: int | None
    submit_time: int
    states: tuple[str, ...]
    eligible_time: int = 0
    reason: str = ""
    requeue_bit: bool = False
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    directory: str = ""
    comment: str = ""
    detail: str = ""
    sluid: str | None = None
    is_part: bool = False
    """An array element or a part of a heterogeneous job: the adapter submits neither."""

    @property
    def ref(self) -> Ref:
        """The identity of the job."""
        submitted_at = datetime.datetime.fromtimestamp(self.submit_time, datetime.UTC)
        return Ref(self.name, self.job_id, submitted_at, sluid=self.sluid)

    @property
    def completing(self) -> bool:
        """Whether its execution is being taken down."""
        return meaning(self.states).completing


def observed(row: JobRow) -> Observation:
    """Return what *row* says about its job."""
    means = meaning(row.states, requeue_bit=row.requeue_bit)
    pending = means.state is State.PENDING
    # EligibleTime, not StartTime: the latter is that of the old run while it is completing.
    start = datetime.datetime.fromtimestamp(row.eligible_time, datetime.UTC)
    instance = instance_held(row.ref, start) if pending and row.eligible_time else None
    admin_held = pending and row.reason == "JobHeldAdmin"
    note = read_note(row.comment)
    # The count moves when a job is put back; until it runs again, the last run is the one before.
    runs = means.state is State.RUNNING or bool(row.nodes)
    execution = row.restarts if runs else row.restarts - 1
    tells = note is not None and execution >= 0
    return Observation(
        ref=row.ref,
        state=means.state,
        cause=_cause(row, means.state, means.cause, instance=instance, admin_held=admin_held),
        exit_code=_exit_code(row) if means.state is State.ENDED else None,
        restarts=row.restarts,
        requeue_bit=row.requeue_bit,
        gated=pending and row.reason == "JobHeldUser",
        hold_instance=instance,
        admin_held=admin_held,
        attempt=f"{note.attempt}.{execution}" if note and tells else None,
        epoch=epoch(note.submission, execution) if note and tells else None,
        nodes=row.nodes,
        detail=_detail(row),
    )


def absent(ref: Ref, detail: str) -> Observation:
    """Return the observation of an object that nobody knows."""
    return Observation(ref=ref, state=State.UNKNOWN, cause=Cause.UNKNOWN, detail=detail)


def _cause(
    row: JobRow, state: State, cause: Cause | None, *, instance: int | None, admin_held: bool
) -> Cause | None:
    if row.reason.startswith("OutOfMemory") and state is State.ENDED:
        return Cause.OUT_OF_MEMORY
    if state is not State.PENDING or cause is not None:
        return cause
    if admin_held:
        return Cause.ADMIN_HELD
    if instance is not None:
        return Cause.HELD
    if row.restarts:
        return Cause.REQUEUED
    return Cause.NO_CAPACITY if row.reason.partition(",")[0] in _WAITS_FOR_ROOM else None


def _exit_code(row: JobRow) -> int | None:
    return _SIGNALLED + row.signal if row.signal else row.exit_code


def _detail(row: JobRow) -> str:
    reason = "" if row.reason in {"", "None"} else f" ({row.reason})"
    said = f": {row.detail}" if row.detail else ""
    return f"{'+'.join(row.states)}{reason}{said}"
