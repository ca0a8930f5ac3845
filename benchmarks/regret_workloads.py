"""The workloads on which batching policies are compared: costs, and what happens around them."""

from __future__ import annotations

import random
from functools import cached_property
from typing import Final

import attrs

MIB: Final = 1024 * 1024
LIMIT_BYTES: Final = 600 * MIB
# The same items for every policy, every round and every machine.
SEED: Final = 20261130


@attrs.frozen(kw_only=True, slots=False)
class Workload:
    """Items to process, and a neighbour under the same limit."""

    name: str
    label: str
    items: int = 200
    item_bytes: int = 40 * MIB
    """The mean of the items' costs."""
    deviation: float = 0.0
    """Sigma of the lognormal factor on each item; 0 is a constant cost."""
    longest: float = 2.5
    """No item costs more than so many times the mean."""
    item_s: float = 0.020
    """Time of an item of `item_bytes`; others in proportion."""
    batch_s: float = 0.030
    """Time of a batch on top of its items."""
    declared_bytes: int = 40 * MIB
    max_batch: int = 64
    neighbour_bytes: int = 0
    """How much a neighbour takes, over one second, holds for two, and gives back."""
    judged: bool = True
    """Whether the goal is the regret; else it is the makespan of the supervisor."""
    scan: tuple[int, ...] = (1, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14)
    """Fixed batches among which the best is looked for."""

    @cached_property
    def costs(self) -> list[int]:
        """The bytes of each item, in order."""
        if not self.deviation:
            return [self.item_bytes] * self.items
        draw = random.Random(SEED)
        mean = -(self.deviation**2) / 2
        factors = [draw.lognormvariate(mean, self.deviation) for _ in range(self.items)]
        return [int(self.item_bytes * min(self.longest, factor)) for factor in factors]


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload(name="constant", label="(a) constant cost"),
        Workload(name="heavy", label="(b) heavy-tailed cost", deviation=0.5),
        Workload(
            name="neighbour",
            label="(c) a neighbour takes half the memory and returns it",
            neighbour_bytes=300 * MIB,
            scan=(1, 2, 3, 4, 5, 6, 7, 8),
        ),
        Workload(
            name="grows",
            label="(c) a neighbour grows by 350 MiB/s",
            neighbour_bytes=350 * MIB,
            judged=False,
            scan=(1, 2, 3, 4, 5, 6),
        ),
        Workload(name="double", label="(d) declared twice the cost", declared_bytes=80 * MIB),
        Workload(name="half", label="(d) declared half the cost", declared_bytes=20 * MIB),
        Workload(
            name="tiny",
            label="(e) cheap fixed cost, tiny items",
            items=20_000,
            item_bytes=MIB // 8,
            item_s=0.000_15,
            batch_s=0.002,
            declared_bytes=MIB // 8,
            max_batch=4096,
            scan=(64, 256, 512, 1024, 2048, 3072, 3584),
        ),
        # Enough to run every line once.
        Workload(
            name="smoke",
            label="every line once",
            items=16,
            item_bytes=MIB,
            item_s=0.001,
            batch_s=0.001,
            declared_bytes=MIB,
            scan=(8, 16),
        ),
    )
}
