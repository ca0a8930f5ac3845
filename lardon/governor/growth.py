"""How fast others take memory, from the last readings."""

from __future__ import annotations

from typing import Final, NamedTuple

# Of a queue that asks thousands of times a second one reading in this time is taken in: in
# it even a neighbour that grows by a GiB/s stays within the noise.
NEAR_S: Final = 0.005
# Readings closer than this say more of the kernel's own batching than of a neighbour.
MIN_SPAN_S: Final = 0.05
# Older readings say nothing of the batch that is about to start.
MAX_SPAN_S: Final = 1.0
# The use of a quiet machine comes and goes by a few MiB between two readings.
NOISE_BYTES: Final = 8 * 1024 * 1024
# Once it has stopped, growth counts half as much after this long: about two batches, so
# that a neighbour which grows in bursts is not forgotten between two of them.
HALF_LIFE_S: Final = 0.5
# Less than this is no growth any more: it takes a quarter of an hour to a GiB.
NEGLIGIBLE: Final = 1024 * 1024


class Growth(NamedTuple):
    """The use of memory by others, as observed. Changes by `observed` only."""

    readings: tuple[tuple[float, int], ...] = ()
    """Seconds and bytes, oldest first, at least `MIN_SPAN_S` apart but for the last."""
    bytes_per_s: float = 0.0
    """At the last reading; at least 0."""

    def rate(self, now: float) -> int:
        """Return the growth to expect from *now* on, in bytes per second; 0 or more."""
        if not self.bytes_per_s:
            return 0
        elapsed = max(0.0, now - self.readings[-1][0])
        rate = self.bytes_per_s * 0.5 ** (elapsed / HALF_LIFE_S)
        return int(rate) if rate >= NEGLIGIBLE else 0


NO_GROWTH: Final = Growth()


def observed(before: Growth, taken_at: float, foreign_bytes: int) -> Growth:
    """
    Return the growth after one more reading; a pure function.

    The rate is the steepest from any reading of the last second, or from the last reading
    of all, to this one, less the noise: the moment at which a neighbour began is not known.
    It is never negative, and a former rate fades instead of vanishing.

    Args:
        before: What was known.
        taken_at: Monotonic seconds; a reading that is not at least `NEAR_S` later than the
            last one taken in is ignored.
        foreign_bytes: The memory in use that is not this process's own.

    """
    kept = before.readings
    if kept and taken_at - kept[-1][0] < NEAR_S:
        return before
    steepest = 0.0
    for at, used in kept:
        span = taken_at - at
        # A queue whose batches are long asks seldom: then the last reading has to do.
        if span >= MIN_SPAN_S and (span <= MAX_SPAN_S or at == kept[-1][0]):
            steepest = max(steepest, (foreign_bytes - used - NOISE_BYTES) / span)
    # The last reading stands in for all that followed within the least span.
    if len(kept) > 1 and kept[-1][0] - kept[-2][0] < MIN_SPAN_S:
        kept = kept[:-1]
    # Of a queue that asks often that is one reading per MIN_SPAN_S, and the last.
    recent = [one for one in kept if taken_at - one[0] <= MAX_SPAN_S]
    return Growth((*recent, (taken_at, foreign_bytes)), max(steepest, before.rate(taken_at)))
