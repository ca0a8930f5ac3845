"""The store of a simulated run: records that may be out of sight for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lardon.dispatch.record_text import from_text, to_text
from lardon.dispatch.records import MemoryRecords, RecordConflict

if TYPE_CHECKING:
    from lardon.dispatch.job_record import JobRecord


class SimRecords(MemoryRecords):
    """
    Records in memory, of which some are not seen, as if their folder were not mounted.

    What is out of sight is not there for whoever loads, lists or removes, and is not replaced
    by whoever saves what was loaded before.

    Args:
        written: Whether all that is kept passes through text, as it does through a file.

    """

    def __init__(self, *, written: bool) -> None:
        super().__init__()
        self._written = written
        self.hidden: set[str] = set()
        """The jobs whose records are out of sight."""

    def load(self, job: str) -> JobRecord | None:
        """Return the record, or None where it is not seen."""
        return None if job in self.hidden else super().load(job)

    def save(self, record: JobRecord) -> JobRecord:
        """Store *record*; raise `RecordConflict` where the one before is not seen."""
        if record.id in self.hidden:
            message = f"job {record.id} is out of sight"
            raise RecordConflict(message, job=record.id, expected=record.version, found=0)
        return super().save(from_text(to_text(record)) if self._written else record)

    def jobs(self) -> Sequence[str]:
        """Return the ids of all jobs that are seen."""
        return [job for job in super().jobs() if job not in self.hidden]

    def truth(self, job: str) -> JobRecord | None:
        """Return the record, seen or not."""
        return super().load(job)
