"""Targets, and whether a measured figure reaches them."""

from __future__ import annotations

import enum
from typing import assert_never

import attrs


class Bound(enum.Enum):
    """Which side of its limit a figure has to be on."""

    AT_MOST = "≤"
    AT_LEAST = "≥"


class Outcome(enum.Enum):
    """What became of one target."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@attrs.frozen(kw_only=True)
class Target:
    """One figure to reach, as the project's plan states it."""

    what: str
    """The figure in words, for the JSON and the summary."""
    limit: float
    bound: Bound = Bound.AT_MOST
    unit: str = "x"
    """`x` for a ratio; otherwise the unit of the limit."""

    def judge(self, measured: float | None, *, reason: str = "") -> Verdict:
        """Return the verdict on *measured*; None is a figure that could not be had."""
        return Verdict(target=self, measured=measured, reason=reason)

    def __str__(self) -> str:
        """Return the limit as the tables show it: ``≤ 2.5 x``."""
        return f"{self.bound.value} {self.limit:g} {self.unit}".rstrip()


@attrs.frozen(kw_only=True)
class Verdict:
    """A target beside what was measured."""

    target: Target
    measured: float | None
    reason: str = ""
    """Why there is no figure."""

    @property
    def outcome(self) -> Outcome:
        """Met, missed or not measured; a figure on the limit is met."""
        if self.measured is None:
            return Outcome.NOT_MEASURED
        if self.target.bound is Bound.AT_MOST:
            met = self.measured <= self.target.limit
        else:
            met = self.measured >= self.target.limit
        return Outcome.MET if met else Outcome.MISSED

    @property
    def distance(self) -> str:
        """How far the figure is from its limit, on the good side or the bad one."""
        if self.measured is None:
            return ""
        gap = abs(self.measured - self.target.limit)
        if self.target.limit:
            return f"{100 * gap / self.target.limit:.0f} %"
        return f"{gap:g} {self.target.unit}".rstrip()

    def __str__(self) -> str:
        """Return what the tables show: ``met, 12 % to spare`` or ``MISSED by 30 %``."""
        match self.outcome:
            case Outcome.MET:
                return f"met, {self.distance} to spare" if self.target.limit else "met"
            case Outcome.MISSED:
                return f"MISSED by {self.distance}"
            case Outcome.NOT_MEASURED:
                return "not measured"
            case _:
                assert_never(self.outcome)
