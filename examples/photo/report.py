"""The account of a run: report.json for programs, a table for people."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from lardon import Task, TaskState
from lardon.units import format_bytes
from photo.job import Job
from photo.recorder import Batch

# Chance alone finds some matches that fit one movement of the camera: 11 to 16 between sample
# photographs of different places, where neighbours have 267 and more.
OVERLAPS: Final = 30

HEADER: Final = ("task", "ended", "batches", "sizes", "peak memory", "granted", "waits")


def outcome(tasks: Sequence[Task]) -> str:
    """Return how the run ended: completed, cancelled or failed."""
    states = {task.state for task in tasks}
    if TaskState.FAILED in states:
        return "failed"
    return "completed" if states == {TaskState.COMPLETED} else "cancelled"


def report(job: Job, tasks: Sequence[Task], started_at: datetime.datetime) -> dict[str, Any]:
    """Return everything that report.json holds, ready for JSON."""
    options = job.options
    return {
        "outcome": outcome(tasks),
        "started_at": started_at.isoformat(timespec="seconds"),
        "duration_s": round(job.recorder.now_s(), 3),
        "detector": options.detector.name,
        "memory_limit_bytes": options.memory_limit_bytes,
        "photographs": [
            {
                "name": photograph.name,
                "width": photograph.width,
                "height": photograph.height,
            }
            for photograph in job.photographs
        ],
        "features": [
            {
                "name": extracted.photograph.name,
                "features": extracted.features,
                "file": extracted.file.relative_to(options.output).as_posix(),
            }
            for extracted in job.extracted
        ],
        "matches": [
            {
                "left": matched.left.photograph.name,
                "right": matched.right.photograph.name,
                "matches": matched.matches,
                "inliers": matched.inliers,
                "file": matched.file.relative_to(options.output).as_posix(),
            }
            for matched in job.matched
        ],
        "skipped": [
            {"name": skipped.name, "task": skipped.task, "reason": skipped.reason}
            for skipped in sorted(job.skipped, key=lambda skipped: skipped.name)
        ],
        "tasks": [_task_report(job, task) for task in tasks],
    }


def _task_report(job: Job, task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "state": str(task.state),
        "reason": str(task.reason) if task.reason is not None else None,
        "asked": {
            "ram_bytes": task.estimate.ram_bytes,
            "ram_bytes_per_item": task.estimate.ram_bytes_per_item,
            "max_batch": task.estimate.max_batch,
        },
        "batches": [
            {
                "size": batch.size,
                "granted_batch": batch.granted_batch,
                "granted_bytes": batch.granted_bytes,
                "peak_bytes": batch.peak_bytes,
                "duration_s": round(batch.ended_s - batch.started_s, 3),
            }
            for batch in _batches_of(job, task)
        ],
        "waits": [
            {"reason": wait.reason, "duration_s": round(wait.ended_s - wait.started_s, 3)}
            for wait in job.recorder.waits
            if wait.task == task.name and wait.ended_s is not None
        ],
    }


def rows(job: Job, tasks: Sequence[Task]) -> Iterator[tuple[str, ...]]:
    """Yield a row under `HEADER` for each task."""
    for task in tasks:
        batches = _batches_of(job, task)
        # The batch that came nearest to its grant, or went furthest beyond it.
        fullest = max(batches, key=_used_fraction, default=None)
        waits = [wait for wait in job.recorder.waits if wait.task == task.name]
        waited_s = sum(wait.ended_s - wait.started_s for wait in waits if wait.ended_s is not None)
        yield (
            task.name,
            str(task.state).lower(),
            str(len(batches)),
            sizes_in_words([batch.size for batch in batches]) or "-",
            f"{format_bytes(fullest.peak_bytes)}, {_used_fraction(fullest):.0%}"
            if fullest
            else "-",
            format_bytes(fullest.granted_bytes) if fullest else "-",
            f"{len(waits)} ({waited_s:.1f} s)" if waits else "none",
        )


def _batches_of(job: Job, task: Task) -> list[Batch]:
    return [batch for batch in job.recorder.batches if batch.task == task.name]


def _used_fraction(batch: Batch) -> float:
    return batch.peak_bytes / batch.granted_bytes if batch.granted_bytes else 0.0


def sizes_in_words(sizes: Sequence[int]) -> str:
    """Return batch sizes as people write them: ``9 twice`` is ``2 x 9``."""
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    return ", ".join(f"{times} x {size}" if times > 1 else str(size) for size, times in runs)


def summary(job: Job) -> str:
    """Return one line that says what there is now, and where."""
    features = sum(extracted.features for extracted in job.extracted)
    paired = sum(matched.inliers >= OVERLAPS for matched in job.matched)
    skipped = f", {len(job.skipped)} skipped" if job.skipped else ""
    return (
        f"{len(job.photographs)} of {len(job.found)} photographs{skipped}; {features:,} features; "
        f"{paired} of {len(job.matched)} pairs of neighbours overlap. See {job.options.report_file}"
    )
