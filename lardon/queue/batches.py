"""Cutting an iterable into batches whose size follows the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from lardon.queue.context import TaskContext

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# Stands for "no more items", which None may be.
_END: Final = object()


class _Count:
    """Items done, added to the progress that the task had before."""

    __slots__ = ("_context", "_done", "_total")

    def __init__(self, context: TaskContext, items: Iterable[object]) -> None:
        self._context = context
        progress = context._task._progress
        self._done = progress.done
        self._total = self._done + len(items) if isinstance(items, Sized) else None
        if self._total is not None:
            context.set_progress(self._done, self._total, progress.message)

    def add(self, items: int) -> None:
        self._done += items
        progress = self._context._task._progress
        self._context.set_progress(self._done, self._total, progress.message)


def batches(context: TaskContext, items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the batches; see `TaskContext.batches`."""
    context._go_on()
    count = _Count(context, items)
    source = iter(items)
    batch = list(islice(source, context.contract.batch_size))
    while batch:
        size = len(batch)
        yield batch
        # Not kept through the break; the consumer may still hold it.
        del batch
        count.add(size)
        batch = _next_batch(context, source)


def map_batches(
    context: TaskContext, fn: Callable[[list[Item]], Outcome], items: Iterable[Item]
) -> list[Outcome]:
    """Call *fn* with each batch; see `TaskContext.map_batches`."""
    context._go_on()
    count = _Count(context, items)
    source = iter(items)
    outcomes: list[Outcome] = []
    batch = list(islice(source, context.contract.batch_size))
    while batch:
        size = len(batch)
        outcomes.append(fn(batch))
        del batch
        count.add(size)
        batch = _next_batch(context, source)
    return outcomes


def _next_batch(context: TaskContext, source: Iterator[Item]) -> list[Item]:
    """
    Return the next batch, read after the break before it; empty at the end.

    One item is read before the break, to know whether there is anything to break for.
    """
    first = next(source, _END)
    if first is _END:
        return []
    size = context._next_batch()
    batch: list[Item] = [first]  # type: ignore[list-item]  # not the end marker
    batch.extend(islice(source, size - 1))
    return batch
