"""Items on their way into batches, with a way back for those of a batch that failed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sized
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from lardon.queue.context import TaskContext

Item = TypeVar("Item")


class Feed(Generic[Item]):
    """Takes from an iterable what is asked for, in order, and at most one item ahead of that."""

    __slots__ = ("_again", "_ahead", "_limit", "_source")

    def __init__(self, items: Iterable[Item]) -> None:
        self._source = iter(items)
        self._ahead: list[Item] = []
        # What failed and is to be given out again, at most `_limit` at a time.
        self._again: list[Item] = []
        self._limit = 0

    def more(self) -> bool:
        """Return whether anything is left."""
        if not (self._again or self._ahead):
            self._ahead = list(islice(self._source, 1))
        return bool(self._again or self._ahead)

    def take(self, count: int) -> list[Item]:
        """Return the next items: *count*, or fewer at the end or after a failure."""
        if self._again:
            count = min(count, self._limit)
            taken, self._again = self._again[:count], self._again[count:]
            return taken
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        # A contract may be for more than there can be of anything.
        taken.extend(islice(self._source, min(count - len(taken), sys.maxsize)))
        return taken

    def keep(self, items: list[Item]) -> None:
        """Take *items* back that were the last of the iterable so far: they are the next."""
        self._ahead = [*items, *self._ahead]

    def give_back(self, items: list[Item], limit: int) -> None:
        """Take *items* back, to be given out again before all others, *limit* at a time."""
        self._again = [*items, *self._again]
        self._limit = limit


class Count:
    """Items done, added to the progress that the task had before."""

    __slots__ = ("_context", "_done", "_total")

    def __init__(self, context: TaskContext, items: Iterable[object]) -> None:
        self._context = context
        progress = context._task._progress
        self._done = progress.done
        length = _length(items)
        self._total = None if length is None else self._done + length
        if self._total is not None:
            context.set_progress(self._done, self._total, progress.message)

    def add(self, items: int) -> None:
        """Count *items* more as done."""
        self._done += items
        progress = self._context._task._progress
        self._context.set_progress(self._done, self._total, progress.message)


def _length(items: Iterable[object]) -> int | None:
    """
    Return how many *items* there are; None where they do not tell.

    A progress bar around a generator has a length that raises, and a very long range one
    that Python cannot express.
    """
    if not isinstance(items, Sized):
        return None
    try:
        return len(items)
    except Exception:  # noqa: BLE001  whatever it is, a total is not worth the task
        return None
