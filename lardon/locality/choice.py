"""Which of a worker's jobs is handed out."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from lardon.locality.options import Options
    from lardon.locality.pending import PendingJob
    from lardon.locality.waiting_list import WaitingList

Fits: TypeAlias = Callable[["PendingJob"], bool]


class RandomSource(Protocol):
    """What is asked of a random generator; `random.Random` has it."""

    def randrange(self, stop: int, /) -> int:
        """Return an integer from 0 to below *stop*, each as likely as the others."""
        ...


class Choice:
    """
    Chooses among the queues of one worker; takes nothing out.

    The job that has waited for `max_age_s` comes first, the oldest of them before the others.
    Then one queue after the other, in random order or as they are given.
    """

    __slots__ = ("_local_first", "_max_age_s", "_rng")

    def __init__(self, options: Options, rng: RandomSource) -> None:
        self._local_first = options.order == "local-first"
        self._max_age_s = options.max_age_s
        self._rng = rng

    def of(
        self, queues: Sequence[WaitingList], now: float, fits: Fits | None
    ) -> tuple[PendingJob, WaitingList] | None:
        """Return a job and the queue it is taken from; None when nothing fits."""
        left = [queue for queue in queues if queue.members]
        if not left:
            return None
        if fits is not None:
            fits = _asked_once(fits)
        if self._max_age_s is not None:
            due = now - self._max_age_s
            found = _overdue(left, due, fits)
            if found is not None:
                return found
        while left:
            place = 0
            if len(left) > 1 and not self._local_first:
                place = self._rng.randrange(len(left))
            queue = left.pop(place)
            job = queue.head() if fits is None else _first(queue, fits)
            if job is not None:
                return job, queue
        return None


def _asked_once(fits: Fits) -> Fits:
    """Return *fits* with a memory: a job may be in three queues of the same worker."""
    answers: dict[PendingJob, bool] = {}

    def remembered(job: PendingJob) -> bool:
        answer = answers.get(job)
        if answer is None:
            answer = answers[job] = bool(fits(job))
        return answer

    return remembered


def _first(queue: WaitingList, fits: Fits) -> PendingJob | None:
    """Return the first job of *queue* that fits."""
    with contextlib.closing(queue.in_order()) as jobs:
        return next((job for job in jobs if fits(job)), None)


def _overdue(
    queues: Sequence[WaitingList], due: float, fits: Fits | None
) -> tuple[PendingJob, WaitingList] | None:
    """Return the oldest job that was scheduled at *due* or before, and fits."""
    heads = [job for queue in queues if (job := queue.head()) is not None]
    if min(job._scheduled_at for job in heads) > due:
        return None
    with contextlib.ExitStack() as stack:
        ordered = [stack.enter_context(contextlib.closing(queue.in_order())) for queue in queues]
        for job in heapq.merge(*ordered, key=lambda job: job._number):
            if job._scheduled_at > due:
                return None
            if fits is None or fits(job):
                return job, next(queue for queue in queues if job in queue.members)
    return None
