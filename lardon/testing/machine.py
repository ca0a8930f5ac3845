"""A machine that exists only in arithmetic, to try thousands of runs on."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import attrs

from lardon.governor.snapshot import OwnUse, ResourceSnapshot

if TYPE_CHECKING:
    from lardon.governor.decision import Contract
    from lardon.testing.clock import ManualClock

Neighbour = Callable[[float], int]
"""The RAM in bytes that somebody else uses at a time, in seconds of the clock."""

# Twice as often as a neighbour that is given by steps of a tenth of a second moves.
STEP_S: Final = 0.05


def nobody(_at: float) -> int:
    """Stand for a neighbour that uses nothing."""
    return 0


def steps(*points: tuple[float, int]) -> Neighbour:
    """
    Return a neighbour that uses what the last of *points* before a time says.

    Args:
        points: Seconds and bytes, by increasing time; before the first it uses nothing.

    """
    times = [at for at, _ in points]

    def use(at: float) -> int:
        place = bisect.bisect_right(times, at)
        return points[place - 1][1] if place else 0

    return use


@attrs.frozen
class Kill:
    """An instant at which more was used than there is."""

    at: float
    used_bytes: int
    batch: int
    """Items of the batch that ran."""


class MachineModel:
    """
    A machine with a hard limit, one process of ours, and a neighbour: a probe.

    Batches are played by `run`, which moves the clock. Their memory is there from the
    start of a batch to its end, as under a callback that holds all items at once. Nothing
    else moves: the same calls give the same run.

    Args:
        clock: The governor's clock; `run` and `idle` advance it.
        total_bytes: The limit. Using more is a kill, which is only noted.
        base_bytes: What our process uses between batches.
        neighbour: What others use.
        lag_s: How long after its end the memory of a batch still shows as used, in the
            availability alone: our own use is always up to date.
        cpus: Effective CPUs.

    """

    def __init__(
        self,
        clock: ManualClock,
        total_bytes: int,
        *,
        base_bytes: int = 0,
        neighbour: Neighbour = nobody,
        lag_s: float = 0.0,
        cpus: int = 2,
    ) -> None:
        self._clock = clock
        self.total_bytes = total_bytes
        self.base_bytes = base_bytes
        self.neighbour = neighbour
        self.lag_s = lag_s
        self.cpus = cpus
        self.kills: list[Kill] = []
        """Every instant at which the limit was passed, in order."""
        self._lingering: list[tuple[float, int]] = []
        self._peak = base_bytes

    def snapshot(self) -> ResourceSnapshot:
        """Return what the machine shows now."""
        now = self._clock.monotonic()
        self._lingering = [(until, size) for until, size in self._lingering if until > now]
        lingering = sum(size for _, size in self._lingering)
        used = self.base_bytes + self.neighbour(now) + lingering
        return ResourceSnapshot(
            taken_at=now,
            ram_total_bytes=self.total_bytes,
            ram_available_bytes=max(0, self.total_bytes - used),
            cpus=self.cpus,
        )

    def own_use(self) -> OwnUse:
        """Return what our process uses between batches."""
        return OwnUse(ram_bytes=self.base_bytes)

    def watch_peak(self) -> MachineModel:
        """Begin to watch the peak; `stop` tells it."""
        self._peak = self.base_bytes
        return self

    start: OwnUse | None = None

    def stop(self) -> OwnUse:
        """Return the most that our process used since `watch_peak`."""
        return OwnUse(ram_bytes=self._peak)

    def run(
        self,
        contract: Contract,
        costs: Sequence[int],
        seconds: float,
        *,
        fixed_bytes: int = 0,
    ) -> None:
        """
        Play a batch: hold *fixed_bytes* and the sum of *costs* for *seconds*.

        Raises:
            ValueError: there are more items than *contract* grants.

        """
        if len(costs) > contract.batch_size:
            message = f"{len(costs)} items, and the contract grants {contract.batch_size}"
            raise ValueError(message)
        held = fixed_bytes + sum(costs)
        self._peak = max(self._peak, self.base_bytes + held)
        start = self._clock.monotonic()
        for at in _instants(start, seconds):
            used = self.base_bytes + held + self.neighbour(at)
            if used > self.total_bytes:
                self.kills.append(Kill(at, used, len(costs)))
                break
        self._clock.advance(seconds)
        if self.lag_s:
            self._lingering.append((self._clock.monotonic() + self.lag_s, held))

    def idle(self, seconds: float) -> None:
        """Let time pass with nothing of ours running."""
        self._clock.advance(seconds)


def _instants(start: float, seconds: float) -> list[float]:
    """Return the times at which a batch is looked at, its last moment included."""
    count = int(seconds / STEP_S)
    return [*accumulate([start] + [STEP_S] * count), start + seconds]
