"""What is kept of a pool's tasks, as record and as files: taken up again, and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from lardon.dispatch.errors import InvalidError, NotFoundError
from lardon.dispatch.remote.calls import Calls
from lardon.dispatch.remote.notes import FORGOTTEN, forgotten, readable, tasks

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.remote.handle import RemoteHandle

_CALLS: Final = "calls"
# Of jobs that are on record elsewhere; a pool with its records in the folder sweeps the others.
_CALLS_APART: Final = "calls-apart"


def calls_in(folder: Path | None, *, own: bool) -> Calls | None:
    """Return where a pool keeps its functions; *own* says that its records are there too."""
    return None if folder is None else Calls(folder / (_CALLS if own else _CALLS_APART))


class Kept:
    """
    The records of a pool's tasks, and the files of its functions.

    Any thread may call; every method blocks as long as the store takes.

    Args:
        operator: Whose records they are.
        calls: Where the functions are; None is nowhere.

    """

    def __init__(self, operator: Operator, calls: Calls | None) -> None:
        self._operator = operator
        self._records = operator.records
        self._calls = calls

    def recall(self, *, sweep: bool) -> list[JobRecord]:
        """Return the tasks of those before, in order, once what they forgot is removed."""
        stored = readable(self._records)
        for record in stored:
            if FORGOTTEN in record.notes:
                self._remove(record)
        if sweep and self._calls is not None:
            self._calls.sweep(self._operator)
        return tasks(stored)

    def forget(self, handle: RemoteHandle) -> None:
        """Remove what is kept of a task that is over; a lost record that is back stays."""
        if handle._record_lost and self._is_on_record(handle.id):
            return
        try:
            record = self._operator.change(handle.id, forgotten)
        except NotFoundError:  # somebody else has removed it
            self._discard(handle.id)
        else:
            self._remove(record)

    def _is_on_record(self, job: str) -> bool:
        try:
            return self._records.load(job) is not None
        except InvalidError:
            return True  # there is one, though nobody can read it

    def _remove(self, record: JobRecord) -> None:
        """Remove what is kept of a job that was forgotten; what a crash leaves of it goes later."""
        # Its record stays as long as a duplicate of it may come, which has to be stopped.
        if record.closed:
            self._records.forget(record.id)
        self._discard(record.id)

    def _discard(self, job: str) -> None:
        if self._calls is not None:
            self._calls.discard(job)
