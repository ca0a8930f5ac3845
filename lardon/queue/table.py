"""Which tasks a queue knows: the unfinished, those somebody holds, and a short history."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from lardon.errors import UnknownTask
from lardon.queue.states import TERMINAL, TaskState
from lardon.queue.task import Task

if TYPE_CHECKING:
    from lardon.queue.signal import Signal
    from lardon.queue.views import TaskSnapshot

# Dead weak references are swept when this many were added since the last sweep, or as
# many as were alive then: a constant cost per task.
_SWEEP_FROM: Final = 1024
_weak: Final = weakref.ref


class TaskTable:
    """
    Tasks by id, and how many there are in each state.

    Not thread-safe: the queue's lock guards it.
    """

    __slots__ = ("_finished", "_history", "_signal", "_sweep_at", "ended", "live", "paused")

    def __init__(self, signal: Signal, history: int) -> None:
        self._signal = signal
        self.live: dict[int, Task] = {}
        """Unfinished tasks by id, in order of submission."""
        self.paused = 0
        """Unfinished tasks in the state PAUSED."""
        self.ended: dict[TaskState, int] = dict.fromkeys(TERMINAL, 0)
        """How many tasks ended in each terminal state."""
        self._finished: dict[int, weakref.ref[Task]] = {}
        self._sweep_at = _SWEEP_FROM
        # Only facts are kept of a task that nobody holds: no result, no error, no call.
        self._history: deque[tuple[Any, ...]] = deque(maxlen=history)

    def end(self, task: Task) -> None:
        """Let go of a task that has ended."""
        del self.live[task.id]
        self.ended[task._state] += 1
        if self._history.maxlen:
            self._history.append(task._summary())
        finished = self._finished
        finished[task.id] = _weak(task)
        if len(finished) >= self._sweep_at:
            alive = {number: ref for number, ref in finished.items() if ref() is not None}
            self._finished = alive
            self._sweep_at = _SWEEP_FROM + 2 * len(alive)

    def get(self, task_id: int) -> Task:
        """
        Return the handle of a task that is unfinished, held by somebody, or in the history.

        Raises:
            UnknownTask: no such task, or it is forgotten.

        """
        task = self.live.get(task_id)
        if task is not None:
            return task
        ref = self._finished.get(task_id)
        task = ref() if ref is not None else None
        if task is not None:
            return task
        for summary in list(self._history):
            if summary[0] == task_id:
                return Task._recalled(self._signal, summary)
        message = f"no task {task_id} is known here: it never was, or it is finished and forgotten"
        raise UnknownTask(message, task_id=task_id)

    def snapshots(self) -> tuple[TaskSnapshot, ...]:
        """Return the history and the unfinished tasks, in order of submission."""
        # Copies, because a signal handler may change either in the middle.
        views = [Task._recalled(self._signal, summary)._view() for summary in list(self._history)]
        views += [task._view() for task in list(self.live.values())]
        views.sort(key=lambda view: view.id)
        return tuple(views)
