"""One module per table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from benchmarks import regret
from benchmarks.topics import (
    decide,
    idle,
    imports,
    latency,
    locality,
    pending_memory,
    sequence_break,
    snapshot_cost,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.effort import Deadline
    from benchmarks.report import Report


@attrs.frozen(kw_only=True)
class Topic:
    """One table: what makes it, and its part of the whole run's time."""

    run: Callable[[Deadline], Report]
    weight: float
    """About the seconds it takes in the short form; the topics share the time by it."""


# The short ones first: what the long ones leave out on a slow machine is rounds.
TOPICS: dict[str, Topic] = {
    "snapshot_cost": Topic(run=snapshot_cost.run, weight=8),
    "decide": Topic(run=decide.run, weight=8),
    "sequence_break": Topic(run=sequence_break.run, weight=10),
    "imports": Topic(run=imports.run, weight=12),
    "pending_memory": Topic(run=pending_memory.run, weight=16),
    "idle": Topic(run=idle.run, weight=14),
    "locality": Topic(run=locality.run, weight=40),
    "latency": Topic(run=latency.run, weight=26),
    "throughput": Topic(run=throughput.run, weight=40),
    "regret": Topic(run=regret.run, weight=36),
}
"""In the order in which they run and are printed."""


def shares(names: Sequence[str]) -> dict[str, float]:
    """Return the part of the time that is left, 0 to 1, for each of *names* in turn."""
    weights = [TOPICS[name].weight for name in names]
    return {
        name: weight / sum(weights[place:])
        for place, (name, weight) in enumerate(zip(names, weights, strict=True))
    }


__all__ = ["TOPICS", "Topic", "shares"]
