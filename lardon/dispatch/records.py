"""Where the records of jobs are kept: in memory, or in a folder that a crash leaves whole."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs

from lardon.dispatch.errors import DispatchError, InvalidError
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.parts import checked_folder
from lardon.dispatch.record_text import from_text, to_text
from lardon.dispatch.ulid import checked_ulid, is_ulid
from lardon.governor.checks import refuse


class RecordConflict(DispatchError):
    """Somebody else has stored the job `job` since it was loaded; nothing was changed."""

    job: str
    expected: int
    """The version that was loaded."""
    found: int
    """The version that is stored; 0 is none."""


class Records(Protocol):
    """
    Records by job, each replaced only by one who has seen the last.

    Every method may be called from any thread, and from several processes where the store is
    one that they share.
    """

    def load(self, job: str) -> JobRecord | None:
        """Return the record of the job with this id, or None."""
        ...

    def save(self, record: JobRecord) -> JobRecord:
        """
        Store *record* if the stored version is still its own; return it with the next one.

        Raises:
            RecordConflict: another version is stored.

        """
        ...

    def jobs(self) -> Sequence[str]:
        """Return the ids of all jobs, which is the order in which they were made."""
        ...

    def forget(self, job: str) -> None:
        """Remove a job's record; one that is not there is no error."""
        ...


def _conflict(record: JobRecord, found: int) -> RecordConflict:
    message = f"job {record.id} is stored with version {found}, not {record.version}"
    return RecordConflict(message, job=record.id, expected=record.version, found=found)


class MemoryRecords:
    """Records that live as long as the process; for tests and the simulator."""

    def __init__(self) -> None:
        # Guards the table; held for one look-up or one assignment.
        self._lock = threading.Lock()
        self._table: dict[str, JobRecord] = {}

    def load(self, job: str) -> JobRecord | None:
        """Return the record, or None."""
        with self._lock:
            return self._table.get(job)

    def save(self, record: JobRecord) -> JobRecord:
        """Store *record*, or raise `RecordConflict`."""
        with self._lock:
            stored = self._table.get(record.id)
            found = 0 if stored is None else stored.version
            if found != record.version:
                raise _conflict(record, found)
            newer = attrs.evolve(record, version=record.version + 1)
            self._table[record.id] = newer
            return newer

    def jobs(self) -> Sequence[str]:
        """Return the ids of all jobs."""
        with self._lock:
            return sorted(self._table)

    def forget(self, job: str) -> None:
        """Remove the record."""
        with self._lock:
            self._table.pop(job, None)


_SUFFIX: Final = ".json"


class FileRecords:
    """
    Records as files of one folder, one file a job, shared by every process that opens it.

    A file is written beside its place, flushed to the disk and renamed, so a crash leaves the
    old record or the new one. A lock file keeps two writers apart; it needs a file
    system whose locks work between the machines that share it.

    Args:
        folder: Where; it is made when it is not there.

    Raises:
        InvalidError: the folder is no path.
        OSError: the folder cannot be made or written.

    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = checked_folder(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        # A lock of the file system is the process's, so its threads need one of their own.
        self._lock = threading.Lock()
        # What a file said last, which is decoded once. The bytes are compared, because a file
        # that is replaced twice can have the old number, size and coarse time of change again.
        # Entries are replaced whole, which needs no lock.
        self._read: dict[str, tuple[bytes, JobRecord]] = {}

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    def load(self, job: str) -> JobRecord | None:
        """Return the record, or None; raises `InvalidError` for a file that is none."""
        try:
            content = self._path(job).read_bytes()
        except FileNotFoundError:
            self._read.pop(job, None)
            return None
        known = self._read.get(job)
        if known is not None and known[0] == content:
            return known[1]
        try:
            record = from_text(content)
        except InvalidError as error:
            raise refuse(InvalidError, str(self._path(job)), error.value, error.rule) from error
        self._read[job] = (content, record)
        return record

    def save(self, record: JobRecord) -> JobRecord:
        """Store *record*, or raise `RecordConflict`; returns once it is on the disk."""
        with self._locked():
            stored = self.load(record.id)
            found = 0 if stored is None else stored.version
            if found != record.version:
                raise _conflict(record, found)
            newer = attrs.evolve(record, version=record.version + 1)
            self._write(self._path(record.id), to_text(newer))
            return newer

    def jobs(self) -> Sequence[str]:
        """Return the ids of all jobs; a file of another name is somebody else's."""
        return sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}") if is_ulid(path.stem))

    def forget(self, job: str) -> None:
        """Remove the record."""
        with self._locked():
            self._path(job).unlink(missing_ok=True)

    def _path(self, job: str) -> Path:
        return self._folder / f"{checked_ulid(job, 'job')}{_SUFFIX}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl  # not on Windows, where the rest of the package can still be imported

        with self._lock, (self._folder / ".lock").open("ab") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # By name: closing alone would leave it to a child that was forked meanwhile.
                fcntl.flock(handle, fcntl.LOCK_UN)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        beside = path.with_suffix(".new")
        # Arguments that are names of files may hold bytes that are no UTF-8, as surrogates.
        with beside.open("w", encoding="utf-8", errors="surrogatepass") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
