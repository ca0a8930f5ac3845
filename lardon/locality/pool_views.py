"""A pool and its workers at one moment."""

from __future__ import annotations

import attrs

from lardon.locality.job import Artifact
from lardon.locality.statistics import LocalityStatistics


@attrs.frozen(kw_only=True)
class WorkerView:
    """One worker of a pool."""

    name: str
    device: str | None
    """The UUID of the GPU that it is pinned to."""
    pid: int | None
    """Of its process; None for a thread, and while a process is replaced."""
    ready: bool
    """Whether it can take tasks: its process has started."""
    paused: bool
    gone: str | None
    """Why there is no such worker any more; None while there is."""
    task: str | None
    """The name of the task that it has."""
    artifacts: tuple[Artifact, ...]
    """What it holds, in the order of the news."""


@attrs.frozen(kw_only=True)
class PoolStatistics:
    """A consistent copy of the counts of one pool; tasks are counted by submission."""

    submitted: int
    unfinished: int
    completed: int
    failed: int
    cancelled: int
    workers: int
    """Workers that are there, the paused ones included."""
    deaths: int
    """Worker processes that ended without being told to."""
    locality: LocalityStatistics
    """What the scheduler counts: by job, and so once for submissions that share a key."""
