"""One pool at a time in a folder and in a store: whose turn it is, and until when."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.parts import made_folder
from lardon.dispatch.records import FileRecords, Records
from lardon.dispatch.remote.errors import FolderInUse, PoolClosed
from lardon.governor.checks import described, refuse

_log: Final = logging.getLogger("lardon.dispatch")

_NAME: Final = ".pool"
# What a file system without locks answers, one that is mounted without them included.
_NO_LOCKS: Final = frozenset(
    {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
)
_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})

# Guards the two tables below; held over the opening of a lock file too, so that no fork happens
# between that and its entry here.
_guard: Final = threading.RLock()
_locked: Final[set[FolderLock]] = set()
_stores: Final[dict[int, Records]] = {}


class FolderLock:
    """
    The lock on one folder, held by this process until `release` or its own end.

    It is the kernel's, so a killed process holds nothing; a forked child closes its copy, and
    a program that is started does not get one. `held` is False where there are no such locks:
    then nothing keeps a second pool out, and that was logged.

    Args:
        folder: Where; it is made when it is not there.

    Raises:
        FolderInUse: somebody else holds it.
        InvalidError: the folder is a file, or one above it is.
        OSError: the folder cannot be made or written.

    """

    def __init__(self, folder: Path) -> None:
        made_folder(folder)
        self.folder = folder
        self._file: int | None = None
        trouble: str | None = None
        try:
            import fcntl
        except ImportError:
            trouble = "this platform has no fcntl"
        else:
            with _guard:
                file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    told = _holder(file)
                    os.close(file)
                    if error.errno in _HELD:
                        raise _in_use(folder, told) from None
                    if error.errno not in _NO_LOCKS:
                        raise
                    trouble = described(error)
                else:
                    self._file = file
                    _locked.add(self)
                    _tell(file)
        if trouble is not None:
            _log.warning(
                "%s cannot be locked (%s): see to it that no second pool uses it", folder, trouble
            )

    @property
    def held(self) -> bool:
        """Whether it keeps others out."""
        return self._file is not None

    def release(self) -> None:
        """Let somebody else have the folder; twice is harmless."""
        with _guard:
            file, self._file = self._file, None
            _locked.discard(self)
        if file is not None:
            import fcntl

            # By name, because a child that is being forked at this moment has a copy.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def _tell(file: int) -> None:
    """Write down who holds the lock, for the message that others get."""
    with contextlib.suppress(OSError):  # on a full disk, say, the lock is as good
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)


def _holder(file: int) -> tuple[int | None, str | None]:
    with contextlib.suppress(OSError, ValueError):
        pid, host = os.pread(file, 4096, 0).decode().split()
        return int(pid), host
    return None, None


def _in_use(folder: Path, holder: tuple[int | None, str | None]) -> FolderInUse:
    pid, host = holder
    who = "another pool" if pid is None else f"a pool of process {pid} on {host}"
    if (pid, host) == (os.getpid(), socket.gethostname()):
        who = f"another pool of this process, {pid} on {host}"
    message = f"{folder} is in use by {who}; close that one first, or use another folder"
    return FolderInUse(message, folder=str(folder), pid=pid, host=host)


def _is_same(place: Path, other: Path) -> bool:
    """Whether both are one folder, by whatever way."""
    try:
        return place.samefile(other)
    except OSError:  # one is not there yet
        return False


class Tenancy:
    """
    The right of one pool to its folder and its store.

    It ends when the pool has left and what was being submitted then is stored: so a successor
    finds every job, and no file that belongs to one which it does not find. Any thread may call.

    Args:
        folder: The pool's folder; None is none.
        records: Its store. One with a folder is locked like the pool's own.

    Raises:
        FolderInUse: another pool works there.
        InvalidError: another pool of this process uses this very store, or the folder is a file.

    """

    def __init__(self, folder: Path | None, records: Records) -> None:
        self._records: Records | None = records
        # Guards all but the locks of the folders; `_guard` is taken inside it.
        self._lock = threading.Lock()
        self._using = 0
        self._left = False
        self._locks: list[FolderLock] = []
        with _guard:
            if id(records) in _stores:
                rule = "a store that no other pool of this process uses"
                raise refuse(InvalidError, "records", records, rule)
            _stores[id(records)] = records
        places = [] if folder is None else [folder]
        if isinstance(records, FileRecords):
            places.append(records.folder)
        try:
            for place in places:
                if not any(_is_same(place, lock.folder) for lock in self._locks):
                    self._locks.append(FolderLock(place))
        except BaseException:
            self._end()
            raise

    @property
    def exclusive(self) -> bool:
        """Whether no other pool can be in any of its folders."""
        return all(lock.held for lock in self._locks)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """
        Keep the tenancy while something is written that a successor has to find whole.

        Raises:
            PoolClosed: the pool has left, so that what would be written is somebody else's.

        """
        with self._lock:
            if self._left:
                message = "the pool was closed"
                raise PoolClosed(message)
            self._using += 1
        try:
            yield
        finally:
            with self._lock:
                self._using -= 1
                if self._left and not self._using:
                    self._end()

    def leave(self) -> None:
        """End it, now or when nobody is writing any more."""
        with self._lock:
            self._left = True
            if not self._using:
                self._end()

    def _end(self) -> None:
        """Let others in; once, because afterwards the store is somebody else's."""
        records, self._records = self._records, None
        if records is not None:
            with _guard:
                _stores.pop(id(records), None)
        for lock in self._locks:
            lock.release()


def _in_child() -> None:
    """Let go of what is the parent's, in a forked child; the parent's locks stay."""
    for lock in _locked:
        if lock._file is not None:
            os.close(lock._file)
            lock._file = None
    _locked.clear()
    _stores.clear()
    _guard.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_in_child
    )
