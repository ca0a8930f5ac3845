"""Figures as the tables show them; a missing one is a dash."""

from __future__ import annotations

MISSING = "—"


def number(value: float | None, digits: int = 0) -> str:
    """Return *value* with thousands separated."""
    return MISSING if value is None else f"{value:,.{digits}f}"


def microseconds(nanoseconds: float | None, digits: int = 1) -> str:
    """Return a duration in µs."""
    return MISSING if nanoseconds is None else f"{nanoseconds / 1000:,.{digits}f}"


def noise(percent: float | None) -> str:
    """Return half the range over the rounds, relative to the median."""
    return MISSING if percent is None else f"±{percent:.0f} %"
