"""The order of waiting tasks: first in, first out, with places kept for paused ones."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final

from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from lardon.queue.task import Task

# Below this, entries of ended tasks are not worth a compaction.
_COMPACT_FROM: Final = 64


class Line:
    """
    Pending tasks by id, which is the order of submission.

    A task that is paused or cancelled leaves an entry behind, which is dropped when it
    comes to the head; entries of ended tasks are cleared away when they are the majority.
    Everything costs O(1), amortised; only a task that is resumed after its entry was
    dropped costs O(log n). Not thread-safe: the queue's lock guards it.
    """

    __slots__ = ("_entries", "_resumed", "_stale", "_timed", "expiries")

    def __init__(self) -> None:
        self._entries: deque[Task] = deque()
        # Tasks that were resumed behind the front of `_entries`, by id.
        self._resumed: list[tuple[int, Task]] = []
        # A heap of (time, id). Only `_timed` holds the tasks, so that one which started is
        # not kept alive until its time would have been over. A task in `_timed` has
        # exactly one entry in the heap.
        self.expiries: list[tuple[float, int]] = []
        self._timed: dict[int, Task] = {}
        self._stale = 0

    def __len__(self) -> int:
        """Return the number of entries, those of paused and ended tasks included."""
        return len(self._entries) + len(self._resumed)

    def append(self, task: Task) -> None:
        """Add the newest task at the end."""
        self._entries.append(task)
        if task._expires is not None:
            self._watch_expiry(task, task._expires)

    def _watch_expiry(self, task: Task, expires: float) -> None:
        if task.id not in self._timed:
            heapq.heappush(self.expiries, (expires, task.id))
            self._timed[task.id] = task

    def head(self) -> Task | None:
        """Return the first pending task, dropping entries that wait no longer."""
        entries, resumed = self._entries, self._resumed
        while entries or resumed:
            from_resumed = bool(resumed) and (not entries or resumed[0][0] < entries[0].id)
            task = resumed[0][1] if from_resumed else entries[0]
            if task._state is TaskState.PENDING:
                return task
            if from_resumed:
                heapq.heappop(resumed)
            else:
                entries.popleft()
            self._dropped(task)
        return None

    def take(self, task: Task) -> bool:
        """Take *task* out if it is the head; return whether it was."""
        entries = self._entries
        if not self._resumed and entries and entries[0] is task:
            if task._state is not TaskState.PENDING:
                return False
            entries.popleft()
        elif self.head() is not task:
            return False
        elif entries and entries[0] is task:
            entries.popleft()
        else:
            heapq.heappop(self._resumed)
        task._in_line = False
        if task._expires is not None:
            self._timed.pop(task.id, None)
        return True

    def restore(self, task: Task) -> None:
        """Give a resumed task its old place back."""
        if not task._in_line:
            heapq.heappush(self._resumed, (task.id, task))
            task._in_line = True
        if task._expires is not None:
            self._watch_expiry(task, task._expires)

    def discard(self, task: Task) -> None:
        """Note that *task* ended while it waited; its entry goes sooner or later."""
        if task._expires is not None:
            self._timed.pop(task.id, None)
        if not task._in_line:
            return
        self._stale += 1
        if self._stale >= _COMPACT_FROM and self._stale * 2 > len(self):
            self._compact()

    def expired(self, now: float, head: Task | None) -> list[Task]:
        """Return the pending tasks whose time to start is over, without a *head* that was asked."""
        late: list[Task] = []
        asked: Task | None = None
        expiries, timed = self.expiries, self._timed
        while expiries and expiries[0][0] <= now:
            task = timed.pop(heapq.heappop(expiries)[1], None)
            if task is None or task._state is not TaskState.PENDING:
                continue
            # With a time of 0 the head is asked once, as a lock is tried.
            if task is head and (task._since is not None or task._expires == task._submitted):
                asked = task
            else:
                late.append(task)
        if asked is not None:
            assert asked._expires is not None
            self._watch_expiry(asked, asked._expires)
        return late

    def next_expiry(self) -> float | None:
        """Return the earliest time at which a waiting task expires."""
        expiries, timed = self.expiries, self._timed
        while expiries:
            expires, number = expiries[0]
            task = timed.get(number)
            if task is not None and task._state is TaskState.PENDING:
                return expires
            heapq.heappop(expiries)
            timed.pop(number, None)
        return None

    def _dropped(self, task: Task) -> None:
        task._in_line = False
        if task._state.terminal and self._stale:
            self._stale -= 1

    def _compact(self) -> None:
        waiting = deque(task for task in self._entries if not task._state.terminal)
        resumed = [entry for entry in self._resumed if not entry[1]._state.terminal]
        heapq.heapify(resumed)
        self._entries, self._resumed = waiting, resumed
        self.expiries = [entry for entry in self.expiries if entry[1] in self._timed]
        heapq.heapify(self.expiries)
        self._stale = 0
