"""Measuring the batches of a task, for a governor that learns from them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from lardon.events import logger

if TYPE_CHECKING:
    from lardon.governor.batch_watch import BatchWatch
    from lardon.queue.context import TaskContext


def begin(context: TaskContext) -> BatchWatch | None:
    """Begin to measure a batch; never raises. None where nobody learns from it."""
    abandon(context)
    learner, reservation = context._life.learner, context._reservation
    if learner is None or reservation is None:
        return None
    try:
        context._measured = watch = learner.watch_batch(reservation)
    except Exception:  # noqa: BLE001  a governor may raise anything; the batch goes on
        logger.exception("lardon: a batch of task %s could not be measured", context.task_id)
        return None
    return watch


def abandon(context: TaskContext) -> None:
    """Measure no longer what was begun and not recorded: a batch that nobody finished."""
    watch, context._measured = context._measured, None
    if watch is not None:
        # As long as it goes on nobody else in this process can be measured.
        with contextlib.suppress(Exception):
            watch.stop()


def record(
    context: TaskContext, watch: BatchWatch | None, items: int, *, failed: bool = False
) -> None:
    """Tell the governor what a batch of *items* took; never raises."""
    learner = context._life.learner
    if watch is None or learner is None or watch is not context._measured:
        return  # another batch began within this one: it was the one to measure
    context._measured = None
    try:
        kind = context._task.estimate.kind
        duration, ram, gpu = watch.stop(kind, items)
        learner.record_batch(kind, items, duration, ram, gpu, failed)
    except Exception:  # noqa: BLE001  as above
        logger.exception("lardon: a batch of task %s could not be recorded", context.task_id)
