"""What a scheduler has done so far, at one moment."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class LocalityStatistics:
    """A consistent copy of the counts of one scheduler."""

    scheduled: int
    """Jobs that got a handle of their own."""
    finished: int
    """Jobs with a result."""
    failed: int
    """Jobs with an error, those of lost workers included."""
    waiting: int
    """Jobs that nobody has picked yet."""
    running: int
    """Jobs that a worker has."""
    picks_own: int
    """Jobs handed out from a first local queue: the worker held their result."""
    picks_deps: int
    """Jobs handed out from a second local queue: the worker held a dependency."""
    picks_global: int
    """Jobs handed out from the global queue."""
    misses: int
    """Jobs handed to a worker that held neither their result nor a dependency."""
    waits: int
    """Calls of `pick_job` that found nothing at once, and blocked."""
    offered_again: int
    """Jobs offered again because their worker was lost."""
    workers: int
    """Workers registered."""
    artifacts: int
    """Pairs of a registered worker and an artifact that it holds."""
