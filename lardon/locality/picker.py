"""One call of `pick_job` that may have to sleep."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lardon.locality.cancelling import POLL_S

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.locality.job import WorkerId
    from lardon.locality.pending import PendingJob
    from lardon.locality.worker_state import WorkerState


class Picker:
    """
    A call that wants a job: how it sleeps, and how it is woken.

    Everything but `condition` is guarded by the scheduler's lock.
    """

    __slots__ = (
        "assigned", "awake", "cancel", "condition", "deadline", "seen", "state", "told", "until",
        "worker",
    )  # fmt: skip

    def __init__(
        self, worker: WorkerId, deadline: float | None, cancel: threading.Event | None
    ) -> None:
        self.worker = worker
        self.deadline = deadline
        """When the caller gives up."""
        self.cancel = cancel
        # Notified by the scheduler and by the caller's event. Its own lock is the innermost
        # of all: nothing is called under it but the clock. None until it has to sleep.
        self.condition: threading.Condition | None = None
        self.awake = True
        """False while it sleeps and nobody has woken it."""
        self.assigned: PendingJob | None = None
        """The job that it was woken for; if it takes another, somebody else is woken."""
        self.until: float | None = None
        """When it wakes by itself: its deadline, or the next one of all if it keeps the time."""
        self.seen = 0
        """Which offers it has looked at; see `LocalityScheduler._changes`."""
        self.state: WorkerState | None = None
        """The worker, while it sleeps for it."""
        self.told = True
        """Whether the caller's event says when it is set."""

    @property
    def cancelled(self) -> bool:
        """Whether the caller's event is set."""
        return self.cancel is not None and self.cancel.is_set()

    def ring(self) -> None:
        """Look up from sleep, to see whether there is a reason to wake."""
        condition = self.condition
        if condition is not None:
            with condition:
                condition.notify_all()

    def sleep(self, clock: Clock) -> None:
        """Sleep until it is woken, cancelled, or its time has come. No lock is held."""
        if self.condition is None:
            self.condition = threading.Condition()

        def over() -> bool:
            late = self.until is not None and clock.monotonic() >= self.until
            return late or self.awake or self.cancelled

        with self.condition:
            if self.told:
                left = None if self.until is None else max(0.0, self.until - clock.monotonic())
                clock.wait_for(self.condition, over, left)
                return
            while not over():
                # Real time: nobody would tell a manual clock to go on.
                self.condition.wait(POLL_S)
