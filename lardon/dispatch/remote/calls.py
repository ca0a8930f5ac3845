"""The files of a pool's functions: what is called, and what came of it."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lardon.dispatch.absorbing import is_live
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.remote.function import ENDS, write_call
from lardon.dispatch.ulid import is_ulid
from lardon.governor.checks import described

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.records import Records

_log: Final = logging.getLogger("lardon.dispatch")

# The last part is that of a file which is being written: see `function.write_whole`.
_OURS: Final = re.compile(r"([0-9A-Z]{26})\.(?:call|result)(?:\.\d+\.new)?")


class Calls:
    """
    A folder with two files for each job that is a function.

    A call is written before the record that names it, and removed after that: a crash between
    leaves a file that no record names, never a record whose file is not there.

    Args:
        folder: Where; it is made when the first call is written.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(
        self, job: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[str], Path]:
        """Write the call of a job; what it returns and raises is that of `write_call`."""
        return write_call(self._folder, job, fn, args, kwargs)

    def discard(self, job: str) -> None:
        """Remove both files of a job; what cannot be removed is logged, and swept later."""
        self._remove(self._folder / f"{job}.{end}" for end in ENDS)

    def take_back(self, job: str, records: Records) -> None:
        """Remove what is there of a job that could not be submitted, unless it may be on record."""
        try:
            found = records.load(job)
        except Exception:  # noqa: BLE001  whatever a store raises: nobody knows, so it stays
            return
        if found is None:
            self.discard(job)

    def sweep(self, operator: Operator) -> None:
        """
        Remove the files of jobs that are not on record, left by a crash.

        A job that may still run keeps its files: somebody removed its record, and the cluster
        may start it, or start it again. So the scheduler is asked about each, and where it does
        not answer they stay.

        For who knows that nobody else is submitting. Each job is asked for by its id, because
        a listing of a network file system can be a minute old. One whose record cannot be read
        is on record.
        """
        orphans: dict[str, list[Path]] = {}
        for path in self._listed():
            job = _job_of(path)
            if job is not None:
                orphans.setdefault(job, []).append(path)
        for job, paths in orphans.items():
            with contextlib.suppress(InvalidError):
                if operator.records.load(job) is None and not _may_run(operator, job):
                    self._remove(paths)

    def _listed(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning(
                "%s cannot be listed, so nothing is removed there: %s", self._folder, error
            )
            return []

    @staticmethod
    def _remove(paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("%s is needed no more and cannot be removed: %s", path, error)


def _may_run(operator: Operator, job: str) -> bool:
    """Whether an object of the job is seen that has not ended; unknown counts as seen."""
    try:
        live = any(is_live(one) for one in operator.observer.named(job))
    except Exception as error:  # noqa: BLE001  whatever a backend raises: nobody knows
        _log.warning("the files of job %s stay: %s", job, described(error))
        return True
    if live:
        _log.warning("job %s has no record and may still run: its files stay", job)
    return live


def _job_of(path: Path) -> str | None:
    """Return whose file it is; None for a file of somebody else."""
    found = _OURS.fullmatch(path.name)
    return found[1] if found is not None and is_ulid(found[1]) else None
