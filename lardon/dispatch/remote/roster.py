"""Which handles a pool has: by name, in order, and how many of them are done."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.remote.errors import PoolClosed
from lardon.dispatch.ulid import UlidSequence
from lardon.governor.checks import refuse

if TYPE_CHECKING:
    import datetime

    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.remote.handle import RemoteHandle
    from lardon.dispatch.remote.waiter import Waiter


class Roster:
    """
    The handles of a pool, names that are unique among them, and the next place in line.

    Every method may be called from any thread, and raises `PoolClosed` in a forked child.

    Args:
        waiter: Whose lock guards the table, and who tells `join` of every end.

    """

    def __init__(self, waiter: Waiter) -> None:
        # Its lock guards every attribute below.
        self._waiter = waiter
        self._ids = UlidSequence(secrets.randbits)
        self._handles: dict[str, RemoteHandle] = {}
        self._names: set[str] = set()
        self._position = 0
        self._done = 0

    @property
    def done(self) -> int:
        """How many handles are done."""
        return self._done

    def new_id(self, now: datetime.datetime) -> str:
        """Return an id that sorts after those before, so that jobs are started in order too."""
        with self._waiter.open_lock():
            return self._ids.next(now)

    @contextlib.contextmanager
    def place(self, label: str) -> Iterator[int]:
        """
        Take a name and the next place in line; an error inside gives the name back.

        Raises:
            InvalidError: another job has the name.
            PoolClosed: the pool takes no more tasks.

        """
        with self._waiter.open_lock():
            self._waiter.check_open()
            if label in self._names:
                rule = "a name that no other job has; adopt(name) returns its handle"
                raise refuse(InvalidError, "name", label, rule)
            self._names.add(label)
            self._position += 1
            position = self._position
        try:
            yield position
        except BaseException:
            with self._waiter.open_lock():
                self._names.discard(label)
            raise

    def add(self, handle: RemoteHandle) -> None:
        """Take up a handle whose name was taken."""
        with self._waiter.open_lock():
            self._handles[handle.id] = handle
        handle.add_done_callback(self._ended)

    def recall(self, handle: RemoteHandle, record: JobRecord) -> None:
        """Take up a handle with the name and the place that are on record."""
        with self._waiter.open_lock():
            self._names.add(handle.name)
            self._position = max(self._position, record.position)
        self.add(handle)

    def find(self, name: str) -> RemoteHandle | None:
        """Return the handle of this name, or None."""
        with self._waiter.open_lock():
            return next((one for one in self._handles.values() if one.name == name), None)

    def drop(self, handle: RemoteHandle) -> None:
        """Let go of a handle and of its name."""
        with self._waiter.open_lock():
            self._handles.pop(handle.id, None)
            self._names.discard(handle.name)

    def handles(self) -> tuple[RemoteHandle, ...]:
        """Return all of them, in order of submission."""
        with self._waiter.open_lock():
            return tuple(self._handles.values())

    def all_done(self) -> bool:
        """Return whether every handle is done."""
        return all(one.done() for one in self.handles())

    def cancel_all(self) -> None:
        """Cancel what is not over; raise `InvalidError` at last for a record nobody can read."""
        unreadable: InvalidError | None = None
        for handle in self.handles():
            try:
                handle.cancel()
            except PoolClosed:
                return  # it has left meanwhile
            except InvalidError as error:
                unreadable = unreadable or error
        if unreadable is not None:
            raise unreadable

    def _ended(self, _: object) -> None:
        with self._waiter.open_lock():
            self._done += 1
        self._waiter.notify()
