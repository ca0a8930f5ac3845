"""What a pool keeps in the notes of a record, and which records are of its tasks."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import described, refuse
from lardon.governor.estimate import ResourceEstimate

if TYPE_CHECKING:
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.records import Records

_log: Final = logging.getLogger("lardon.dispatch")

ESTIMATE: Final = "lardon.estimate"
BATCH: Final = "lardon.batch"
RESULT: Final = "lardon.result"
FORGOTTEN: Final = "lardon.forgotten"

_FIELDS: Final = (
    "ram_bytes", "ram_bytes_per_item", "gpu_bytes", "gpu_bytes_per_item", "min_batch",
    "max_batch", "cpus", "min_cpus", "gpus", "io_slots", "kind",
)  # fmt: skip


def written(estimate: ResourceEstimate) -> str:
    """Return *estimate* as a note."""
    return json.dumps({name: getattr(estimate, name) for name in _FIELDS})


def estimate_of(record: JobRecord) -> ResourceEstimate:
    """Return the estimate that a record tells; raise `InvalidError` where its note tells none."""
    note = record.notes[ESTIMATE]
    try:
        return ResourceEstimate(**json.loads(note))
    except (TypeError, ValueError) as error:
        raise _refused(record, ESTIMATE, f"an estimate ({described(error)})") from error


def batch_of(record: JobRecord) -> int | None:
    """Return the batch that was granted, None before that; `InvalidError` as above."""
    note = record.notes.get(BATCH)
    try:
        return None if note is None else int(note)
    except ValueError as error:
        raise _refused(record, BATCH, "a whole number") from error


def _refused(record: JobRecord, name: str, rule: str) -> Exception:
    return refuse(InvalidError, f"{record.id}.notes.{name}", record.notes[name], rule)


def forgotten(record: JobRecord) -> JobRecord:
    """Return *record* as one that no pool takes for its own; one that is not over is refused."""
    if record.outcome is None:
        raise refuse(InvalidError, "name", record.label, "the name of a job that is over")
    notes = {key: text for key, text in record.notes.items() if key != ESTIMATE}
    notes[FORGOTTEN] = "yes"
    return attrs.evolve(record, notes=notes, label="")


def readable(records: Records) -> list[JobRecord]:
    """Return what is on record, without that which cannot be read: it is logged."""
    found = []
    for job in records.jobs():
        try:
            record = records.load(job)
        except InvalidError as error:
            _log.error("a pool is opened without a job, until its record is mended: %s", error)
            continue
        if record is not None:
            found.append(record)
    return found


def tasks(stored: list[JobRecord]) -> list[JobRecord]:
    """Return those of a pool's tasks, in order; one whose notes tell nonsense is logged."""
    found = []
    for record in stored:
        if ESTIMATE not in record.notes:
            continue
        try:
            estimate_of(record), batch_of(record)
        except InvalidError as error:
            _log.error("a pool is opened without a job: %s", error)
        else:
            found.append(record)
    return sorted(found, key=lambda one: (one.position, one.id))
