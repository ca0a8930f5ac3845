"""What batches really took, by kind: a bounded window of the newest."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lardon.governor.batch_record import BatchRecord

# Enough batches for a 95th percentile to rest on more than one of them, few enough that
# a kind whose cost changed is known by its new cost within one long task.
WINDOW: Final = 128
# Kinds are names that programmers choose; more than this is a name made per task.
MAX_KINDS: Final = 1024
# Larger figures are no measurement, and would overflow what is computed from them.
MOST: Final = 2**128 - 1
MOST_S: Final = MOST / 1_000_000


class History:
    """The newest batches of each kind. Not thread-safe: the governor's lock guards it."""

    def __init__(self) -> None:
        self._windows: dict[str, deque[BatchRecord]] = {}

    def add(self, kind: str, record: BatchRecord) -> str | None:
        """
        Append *record*; the oldest of a full window goes, or the stalest kind.

        A batch whose RAM peak is unknown takes the place of another such one, where there is
        one: what is known is not forgotten for it. It never takes that of the last failure,
        and what failed before it is no less long ago. Returns the kind that had to go, or None.
        """
        window, stalest = self._windows.pop(kind, None), None
        if window is None:
            if len(self._windows) >= MAX_KINDS:
                stalest = next(iter(self._windows))
                del self._windows[stalest]
            window = deque(maxlen=WINDOW)
        # Put back at the end, so that the first kind is the one not heard of longest.
        self._windows[kind] = window
        if len(window) == WINDOW and record.peak_ram_bytes is None:
            _forget(window, _least_known(window))
        window.append(record)
        return stalest

    def batches(self, kind: str) -> tuple[BatchRecord, ...]:
        """Return the window of *kind*, oldest first."""
        return tuple(self._windows.get(kind, ()))

    @property
    def known(self) -> int:
        """How many kinds are known."""
        return len(self._windows)

    def counts(self) -> dict[str, int]:
        """Return how many batches are known by kind."""
        return {kind: len(window) for kind, window in self._windows.items()}

    def copy(self) -> History:
        """Return a history with the same batches, which records never change."""
        made = History()
        made._windows = {kind: window.copy() for kind, window in self._windows.items()}
        return made

    def items(self) -> Iterable[tuple[str, Iterable[BatchRecord]]]:
        """Return kinds and windows, the kind not heard of longest first."""
        return self._windows.items()


def _least_known(window: deque[BatchRecord]) -> int:
    """Return the place of the oldest batch of unknown peak, but for the last failure; or 0."""
    last_failure = max((place for place, one in enumerate(window) if one.failed), default=-1)
    unknown = (
        place
        for place, one in enumerate(window)
        if one.peak_ram_bytes is None and place != last_failure
    )
    return next(unknown, 0)


def _forget(window: deque[BatchRecord], place: int) -> None:
    """Take one batch out of *window*; those that failed before it keep the count of successes."""
    gone = window[place]
    del window[place]
    if gone.failed:
        return
    for earlier in range(place):
        one = window[earlier]
        if one.failed:
            window[earlier] = attrs.evolve(one, well_since=one.well_since + 1)
