"""What a queue says of itself."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class QueueStatistics:
    """A queue at one moment: tasks by state, and whether its worker lives."""

    pending: int
    running: int
    paused: int
    completed: int
    failed: int
    cancelled: int
    submitted: int
    worker_alive: bool
    worker_error: str | None = None
    """Why the worker died, if it did."""
