"""Against starvation by size: the task that younger ones have to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.locality.choice import Fits
    from lardon.locality.pending import PendingJob
    from lardon.locality.slot import Slot


class Precedence:
    """
    The oldest task that is past its age and does not fit now, and where it was asked about.

    While there is one, no younger task is claimed on any worker: what runs ends, and leaves
    the room that a stream of small tasks would take up again and again. So does a `TaskQueue`
    with the head of its line.

    Takes no lock: `holds_back` and `note` are called inside a claim, one at a time; `leave`
    once the task has its reservation or its end, `abandon` by the one thread that asks for the
    worker.
    """

    def __init__(self, max_age_s: float | None, clock: Clock) -> None:
        self._max_age_s = max_age_s
        self._clock = clock
        self._first: tuple[PendingJob, Slot] | None = None

    def before(self, fits: Fits) -> Fits:
        """Return *fits*, but False for what is paused, or has to wait for an older task."""

        def may_go(handle: PendingJob) -> bool:
            # Whoever changes one of the first two has every worker look once more.
            paused = handle.job.payload.paused
            return not paused and not self.holds_back(handle) and fits(handle)

        return may_go

    def holds_back(self, handle: PendingJob) -> bool:
        """Return whether *handle* has to wait for an older task."""
        first = self._first
        return first is not None and handle._number > first[0]._number

    def note(self, handle: PendingJob, slot: Slot) -> None:
        """Take in that *handle* does not fit on *slot* now, but may later."""
        age_s = self._clock.monotonic() - handle._scheduled_at
        if self._max_age_s is not None and age_s >= self._max_age_s:
            self._first = handle, slot

    def leave(self, handle: PendingJob) -> bool:
        """Let the others pass if *handle* was waited for; return whether it was."""
        return self._let_pass(self._first is not None and self._first[0] is handle)

    def abandon(self, slot: Slot) -> bool:
        """Let the others pass if the task was asked about on *slot*; return whether it was."""
        return self._let_pass(self._first is not None and self._first[1] is slot)

    def _let_pass(self, over: bool) -> bool:  # noqa: FBT001  one word, one meaning
        if over:
            self._first = None
        return over
