"""Where the records of jobs are kept: in memory, or in a folder that a crash leaves whole."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final, Protocol

import attrs

from lardon.dispatch.errors import DispatchError, InvalidError
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.parts import checked_folder, made_folder
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


class StoreAway(DispatchError):
    """
    The store cannot be reached now, so that nobody can tell what is on record.

    A folder that is not mounted at the moment, say, which is then `folder`.
    """

    folder: str = ""


class Records(Protocol):
    """
    Records by job, each replaced only by one who has seen the last.

    Every method may be called from any thread, and from several processes where the store is
    one that they share. Each may raise `StoreAway`; then nothing is concluded from it, and it
    is asked again later.
    """

    def load(self, job: str) -> JobRecord | None:
        """
        Return the record of the job with this id; None says for certain that there is none.

        Raises:
            InvalidError: what is stored of this job cannot be read; the others are not touched
                by that.

        """
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
_LOCK: Final = ".lock"


def _opened(path: str, flags: int) -> int:
    """Open a file; what is a pipe in its place must not keep anybody waiting for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class FileRecords:
    """
    Records as files of one folder, one file a job, shared by every process that opens it.

    A file is written beside its place, flushed to the disk and renamed, so a crash leaves the
    old record or the new one. A lock file keeps two writers apart; it needs a file
    system whose locks work between the machines that share it.

    A folder that is gone, that cannot be listed, or that is empty down to the lock file although
    there were jobs in it, is away: every method raises `StoreAway`, and none makes it anew.

    Args:
        folder: Where; it is made when it is not there. A relative path is taken from where the
            process stands now, once and for all.

    Raises:
        InvalidError: the folder is no path, or a file.
        OSError: the folder cannot be made or written.

    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = checked_folder(folder).absolute()
        made_folder(self._folder)
        # A lock of the file system is the process's, so its threads need one of their own.
        self._lock = threading.Lock()
        # What a file said last, which is decoded once. The bytes are compared, because a file
        # that is replaced twice can have the old number, size and coarse time of change again.
        # Entries are replaced whole, which needs no lock.
        self._read: dict[str, tuple[bytes, JobRecord]] = {}
        # Whether anything of ours was ever seen in it; it is only ever set, which needs no lock.
        self._was_here = False

    @property
    def folder(self) -> Path:
        """Where the files are, as an absolute path."""
        return self._folder

    def load(self, job: str) -> JobRecord | None:
        """Return the record, or None; raises `InvalidError` for a file that is none."""
        found = self._stored(job)
        if found is None:
            self._look()
            found = self._stored(job)  # it may have come back between the two looks
        return found

    def _stored(self, job: str) -> JobRecord | None:
        path = self._path(job)
        try:
            with open(path, "rb", opener=_opened) as handle:
                content = handle.read()
        except FileNotFoundError:
            self._read.pop(job, None)
            return None
        except OSError as error:
            self._look()  # the others can be read, so this concerns the one file
            rule = f"the file of a record ({error.strerror})"
            raise refuse(InvalidError, str(path), job, rule) from error
        self._was_here = True
        known = self._read.get(job)
        if known is not None and known[0] == content:
            return known[1]
        try:
            record = from_text(content)
        except InvalidError as error:
            raise refuse(InvalidError, str(path), error.value, error.rule) from error
        if record.id != job:
            raise refuse(InvalidError, str(path), record.id, f"the record of the job {job}")
        self._read[job] = (content, record)
        return record

    def save(self, record: JobRecord) -> JobRecord:
        """Store *record*, or raise `RecordConflict`; returns once it is on the disk."""
        with self._locked():
            stored = self._stored(record.id)
            found = 0 if stored is None else stored.version
            if found != record.version:
                raise _conflict(record, found)
            newer = attrs.evolve(record, version=record.version + 1)
            self._write(self._path(record.id), to_text(newer))
            return newer

    def jobs(self) -> Sequence[str]:
        """Return the ids of all jobs; a file of another name is somebody else's."""
        return self._look()

    def forget(self, job: str) -> None:
        """Remove the record."""
        with self._locked():
            self._path(job).unlink(missing_ok=True)

    def _path(self, job: str) -> Path:
        return self._folder / f"{checked_ulid(job, 'job')}{_SUFFIX}"

    def _look(self) -> list[str]:
        """Return the ids of all jobs; raise `StoreAway` where the folder is not what it was."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError as error:
            raise self._away(str(error.strerror)) from error
        paths = (Path(name) for name in names)
        jobs = sorted(one.stem for one in paths if one.suffix == _SUFFIX and is_ulid(one.stem))
        here = bool(jobs) or _LOCK in names
        if self._was_here and not here:
            # The empty folder below which a file system is mounted looks like this.
            why = "there were jobs in it, and nothing of them is left"
            raise self._away(why)
        if here:
            self._was_here = True
        return jobs

    def _away(self, why: str) -> StoreAway:
        message = f"the records in {self._folder} cannot be reached now: {why}"
        return StoreAway(message, folder=str(self._folder))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl  # not on Windows, where the rest of the package can still be imported

        with self._lock, self._opened_lock() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._was_here = True
            try:
                yield
            finally:
                # By name: closing alone would leave it to a child that was forked meanwhile.
                fcntl.flock(handle, fcntl.LOCK_UN)

    def _opened_lock(self) -> IO[bytes]:
        path = self._folder / _LOCK
        try:
            return path.open("r+b")
        except FileNotFoundError:
            self._look()  # so that nothing is stored below the place of a mount
            return path.open("ab")

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
