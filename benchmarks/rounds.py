"""Interleaved rounds: every system once, then every system again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.child import Unavailable
from benchmarks.stats import median, paired_ratio, spread_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.effort import Deadline

OUT_OF_TIME = "there was no time left for it"


@attrs.define(eq=False)
class Rounds:
    """What each system returned, round by round, and why others returned nothing."""

    results: dict[str, list[dict[str, Any] | None]] = attrs.field(factory=dict)
    """One entry a round for every system; None where it had no turn or no figure."""
    missing: dict[str, str] = attrs.field(factory=dict)

    def values(self, system: str, figure: str) -> list[float]:
        """Return one figure of one system over its rounds; empty where there is none."""
        return [value for value in self._by_round(system, figure) if value is not None]

    def _by_round(self, system: str, figure: str) -> list[float | None]:
        rounds = self.results.get(system, [])
        return [None if result is None else result.get(figure) for result in rounds]

    def median(self, system: str, figure: str) -> float | None:
        """Return the median over the rounds, or None."""
        values = self.values(system, figure)
        return median(values) if values else None

    def spread_percent(self, system: str, figure: str) -> float | None:
        """Return the noise over the rounds, or None."""
        values = self.values(system, figure)
        return spread_percent(values) if values else None

    def ratio(self, system: str, peer: str, figure: str) -> float | None:
        """Return the median over the rounds of *system* divided by *peer*, or None."""
        return paired_ratio(self._by_round(system, figure), self._by_round(peer, figure))

    def why_missing(self, *systems: str) -> str:
        """Return the reasons for which any of *systems* has no figure."""
        reasons = [f"{name}: {self.missing[name]}" for name in systems if name in self.missing]
        return "; ".join(reasons) or "no round was completed"

    def as_json(self) -> dict[str, Any]:
        """Return everything, for the result file."""
        return {"results": self.results, "missing": self.missing}


def interleave(
    systems: Sequence[str],
    measure: Callable[[str, float], Mapping[str, Any]],
    deadline: Deadline,
    *,
    rounds: int,
    context: Iterable[str] = (),
) -> Rounds:
    """
    Run *measure* for every system in every round, so that noise falls on all alike.

    Args:
        systems: their keys; odd rounds go backwards, so that none always comes first.
        measure: gets the key and the most seconds it may take.
        deadline: no round starts after the topic's time, except the first one.
        rounds: how many of them are wanted.
        context: systems that nothing is judged against. They take part in the effort's
            `context_rounds`, after the others, and only while the topic has time.

    Returns:
        Every result; a system that raised `Unavailable` is not asked again.

    """
    got = Rounds({name: [] for name in systems})
    context = [name for name in systems if name in frozenset(context)]
    judged = [name for name in systems if name not in context]
    done = 0
    while deadline.allows_round(done, rounds):
        for name in judged if done % 2 == 0 else reversed(judged):
            got.results[name].append(_turn(name, measure, deadline, got))
        for name in context:
            late = done >= deadline.effort.context_rounds or not deadline.topic_left_s
            got.results[name].append(None if late else _turn(name, measure, deadline, got))
        done += 1
    for name in systems:
        if not any(got.results[name]):
            got.missing.setdefault(name, OUT_OF_TIME)
    return got


def _turn(
    name: str,
    measure: Callable[[str, float], Mapping[str, Any]],
    deadline: Deadline,
    got: Rounds,
) -> dict[str, Any] | None:
    """Return one system's result of one round, or None with the reason noted in *got*."""
    if name in got.missing or not deadline.left_s:
        return None
    timeout_s = max(1.0, min(deadline.effort.child_s, deadline.left_s))
    try:
        return dict(measure(name, timeout_s))
    except Unavailable as error:
        if deadline.left_s:
            got.missing[name] = str(error)
        return None
