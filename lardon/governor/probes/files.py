"""Control files that stay open between two snapshots, and the first warning about each."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

# Nearly every control file is shorter; a longer one makes its reader ask for more.
READ_BYTES: Final = 4096
# What a batch asks for at least. The content of a file read by the batch is a number, or
# keeps its size, so that a quarter more than its first size has room for it.
LEAST_READ_BYTES: Final = 128
# Beyond this no control file is read: it is not what its name says.
MAX_READ_BYTES: Final = 1 << 20
# "There is no such thing here" is an answer and not a fault: an absent file, a controller
# that was switched off, pressure accounting that the kernel was booted without.
ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP})

# The process has no descriptor or memory left to look with: nothing is known then, least of
# all that there is no limit. The whole reading fails.
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# The cgroup was removed, the process that /proc/self stood for is no more, or somebody
# closed every descriptor of this process.
GONE: Final = frozenset({errno.ENODEV, errno.ESRCH, errno.EBADF})


def _positioned_read(fd: int, size: int, offset: int) -> bytes:
    """Read as `os.pread` does, on platforms without it (single descriptor, no sharing)."""
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, size)


pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _positioned_read)


class VanishedError(Exception):
    """A file that was there went away: the process was moved to another cgroup."""


class Warnings:
    """Warns about each file once, however often it is read."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def warn(self, subject: str, problem: str) -> None:
        """Log *problem* at warning level, unless *subject* had its warning already."""
        if subject in self._seen:
            return
        self._seen.add(subject)
        # Imported here: a machine without odd files never needs it.
        import logging

        logging.getLogger("lardon").warning("%s: %s", subject, problem)


class Descriptor:
    """
    An open file descriptor that closes when the last reader lets go of it.

    A reader holds the object while it reads, so that the number cannot be given to
    another file in between, and no lock is needed.
    """

    __slots__ = ("_identity", "fd")

    def __init__(self, path: str) -> None:
        self.fd = -1
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        self.fd = os.open(path, flags)
        status = os.fstat(self.fd)
        self._identity = (status.st_dev, status.st_ino)

    def __del__(
        self,
        fstat: Callable[[int], os.stat_result] = os.fstat,
        close: Callable[[int], None] = os.close,
    ) -> None:
        # A child that closed everything after a fork may have got the number again for a
        # file of its own, which is not ours to close. Bound as defaults, because the
        # interpreter clears modules before the last objects go.
        if self.fd < 0:
            return
        try:
            status = fstat(self.fd)
            if (status.st_dev, status.st_ino) == self._identity:
                close(self.fd)
        except OSError:
            pass


class ControlFile(Generic[T]):
    """
    One kept-open file, with its last parse.

    What cannot be read or parsed is the *default*, with one warning. Safe to use from
    several threads: the last parse is one tuple, replaced whole.
    """

    __slots__ = ("_default", "_last", "_warnings", "descriptor", "parse", "path", "size")

    def __init__(
        self, path: str, parse: Callable[[bytes], T], default: T, warnings: Warnings
    ) -> None:
        """
        Open *path*.

        Raises:
            OSError: it cannot be opened; see `open_file` for the usual way in.

        """
        self.path = path
        self.parse = parse
        self._default = default
        self._warnings = warnings
        self.size = READ_BYTES
        self.descriptor = Descriptor(path)
        self._last: tuple[bytes | None, T] = (None, default)

    def read(self) -> T:
        """
        Return what the file says now.

        Raises:
            VanishedError: the file is gone.

        """
        return self.parsed(self.raw())

    def raw(self) -> bytes:
        """
        Return the file's bytes, none when it cannot be read.

        Raises:
            VanishedError: the file is gone.

        """
        descriptor = self.descriptor
        try:
            raw = pread(descriptor.fd, self.size, 0)
            while len(raw) == self.size and self.size < MAX_READ_BYTES:
                self.size *= 2
                raw = pread(descriptor.fd, self.size, 0)
        except OSError as error:
            return self._failed(error)
        return raw

    def parsed(self, raw: bytes) -> T:
        """Return what *raw*, read from this file, says."""
        last = self._last
        if raw == last[0]:
            return last[1]
        try:
            value = self.parse(raw)
        except ValueError as error:
            self._warnings.warn(self.path, f"ignored, because it cannot be understood: {error}")
            value = self._default
        self._last = (raw, value)
        return value

    def _failed(self, error: OSError) -> bytes:
        # A file that never gave anything is absent; one that did has just gone away.
        if error.errno in GONE and self._last[0]:
            raise VanishedError(self.path) from error
        if error.errno not in ABSENT:
            self._warnings.warn(self.path, f"ignored, because it cannot be read: {error}")
        return b""


class AbsentFile(Generic[T]):
    """Stands for a file that is not there, and says what that means."""

    __slots__ = ("_default",)

    path: Final = ""

    def __init__(self, default: T) -> None:
        self._default = default

    def read(self) -> T:
        """Return what the absence of the file means."""
        return self._default

    def raw(self) -> bytes:
        """Return nothing."""
        return b""

    def parse(self, raw: bytes) -> T:  # noqa: ARG002  there is nothing to parse
        """Return what the absence of the file means."""
        return self._default

    parsed = parse


class Batch:
    """
    Files that are read in one go, in order.

    One list comprehension over the descriptors is what keeps a snapshot close to the
    price of the bare system calls.
    """

    def __init__(self, files: Iterable[ControlFile[Any]]) -> None:
        """Read *files* once, so that the size of each read fits its content."""
        # They hold the descriptors open that the plan names by number.
        self.files = tuple(files)
        self._plan = [(file.descriptor.fd, _room(file)) for file in self.files]

    def read(self) -> list[bytes]:
        """
        Return the bytes of each file, none where one cannot be read.

        Raises:
            VanishedError: a file is gone.

        """
        try:
            return [pread(fd, size, 0) for fd, size in self._plan]
        except OSError:
            return [file.raw() for file in self.files]


def _room(file: ControlFile[Any]) -> int:
    """Return how many bytes to ask for: a buffer that fits is cheaper than a page."""
    content = file.raw()
    file.parsed(content)
    return max(LEAST_READ_BYTES, 1 << (len(content) * 5 // 4).bit_length())


Source: TypeAlias = ControlFile[T] | AbsentFile[T]


def open_file(path: str, parse: Callable[[bytes], T], default: T, warnings: Warnings) -> Source[T]:
    """
    Return the file at *path*, to read from now on.

    One that cannot be opened counts as absent, with a warning unless it is just that.
    """
    try:
        return ControlFile(path, parse, default, warnings)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        if error.errno not in ABSENT:
            warnings.warn(path, f"ignored, because it cannot be opened: {error}")
        return AbsentFile(default)


def read_whole(path: str) -> bytes | None:
    """Return all of a file that is read seldom, or None when that is not possible."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  pathlib is slow to import
            return file.read()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
    except ValueError:
        return None
