"""Pressure zones: how much lardon holds back after bad readings, and for how long."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import ResourceSnapshot

# Observations without any sign of pressure that lead one step back (adaptive design).
HEALTHY_PER_STEP: Final = 3
# Readings in a row at a limit that make it RED: one may be a moment's spike.
BAD_IN_A_ROW: Final = 2
# After this many doublings nothing is held back any more, whatever the estimate.
DOUBLINGS: Final = 64


class Zone(enum.StrEnum):
    """How the machine has been doing."""

    GREEN = "GREEN"
    """Nothing is held back; after RED, batches may still be growing again."""
    YELLOW = "YELLOW"
    """A kind gets no larger batch than it had last."""
    RED = "RED"
    """Nothing starts."""


class Pressure(NamedTuple):
    """
    The zone, and what is needed to leave it. Changes by `step` only.

    From the last bad reading to the full batch of an estimate it takes at most
    ``HEALTHY_PER_STEP * (1 + ceil(log2(max_batch / min_batch)))`` healthy observations in a
    row after RED, and `HEALTHY_PER_STEP` after YELLOW.
    """

    zone: Zone = Zone.GREEN
    healthy: int = 0
    """Healthy observations since the last bad one or the last step, below 3."""
    at_limit: int = 0
    """Readings in a row at or above a limit."""
    swap_used_bytes: int | None = None
    """Of the last observation; None before the first."""
    doublings: int | None = None
    """How often the smallest batch was doubled since RED; None when nothing is held back."""

    def cap(self, smallest: int, last: int | None) -> int | None:
        """
        Return the largest batch that the zone allows, None for no cap; never below *smallest*.

        Args:
            smallest: The estimate's `min_batch`.
            last: The batch that its kind was granted last; None when it had none yet, so
                that there is nothing to grow from.

        """
        caps = []
        if self.doublings is not None:
            caps.append(smallest << self.doublings)
        if self.zone is not Zone.GREEN and last is not None:
            caps.append(last)
        return max(smallest, min(caps)) if caps else None


CALM: Final = Pressure()


def step(
    before: Pressure, snapshot: ResourceSnapshot, policy: Policy, credit_bytes: int = 0
) -> Pressure:
    """
    Return the pressure after one more observation; a pure function.

    *credit_bytes* of RAM are held by whoever asks, and will be used again: a break must not
    starve on the task's own leftovers.

    Pressure is what makes every task wait: memory PSI, and CPU PSI and load where the
    policy limits them. IO pressure concerns the tasks with IO slots alone, and moves no zone.
    """
    swap = snapshot.swap_used_bytes
    at_limit, half_way = _load(snapshot, policy)
    reserve = policy.ram_terms(snapshot.ram_total_bytes)[1]
    low = (snapshot.ram_available_bytes + credit_bytes) * 2 < reserve
    grown = before.swap_used_bytes is not None and swap > before.swap_used_bytes
    if not (low or half_way or grown):
        if before.zone is Zone.GREEN and before.doublings is None:
            if before.swap_used_bytes == swap:
                return before
            return Pressure(swap_used_bytes=swap)
        return _healthier(before, swap)
    in_a_row = before.at_limit + 1 if at_limit else 0
    if low or in_a_row >= BAD_IN_A_ROW:
        return Pressure(Zone.RED, 0, in_a_row, swap, 0)
    zone = Zone.RED if before.zone is Zone.RED else Zone.YELLOW
    return Pressure(zone, 0, in_a_row, swap, before.doublings)


def _healthier(before: Pressure, swap: int) -> Pressure:
    healthy = before.healthy + 1
    if healthy < HEALTHY_PER_STEP:
        return Pressure(before.zone, healthy, 0, swap, before.doublings)
    if before.zone is Zone.RED:
        return Pressure(Zone.YELLOW, 0, 0, swap, 0)
    doublings = before.doublings
    if doublings is not None:
        doublings = doublings + 1 if doublings < DOUBLINGS else None
    return Pressure(Zone.GREEN, 0, 0, swap, doublings)


def _load(snapshot: ResourceSnapshot, policy: Policy) -> tuple[bool, bool]:
    """Return whether a figure that concerns every task is at its limit, and at half of it."""
    at_limit = half_way = False
    limit, found = policy.max_memory_pressure, snapshot.memory_pressure
    if limit is not None and found is not None:
        at_limit, half_way = found >= limit, found * 2 >= limit
    limit, found = policy.max_cpu_pressure, snapshot.cpu_pressure
    if limit is not None and found is not None:
        at_limit, half_way = at_limit or found >= limit, half_way or found * 2 >= limit
    limit, found = policy.max_load_ratio, snapshot.load1
    if limit is not None and found is not None:
        ratio = found / snapshot.cpus
        at_limit, half_way = at_limit or ratio >= limit, half_way or ratio * 2 >= limit
    return at_limit, half_way
