"""Durations as people write and read them."""

from __future__ import annotations

import math
import re
from typing import Final

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_UNITS_S: Final = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def parse_duration(text: str) -> float:
    """
    Return the seconds that a duration such as ``10m``, ``30s``, ``1.5 h`` or ``90`` names.

    A bare number is seconds. Case does not matter.

    Raises:
        ValueError: the text is empty, signed, not a finite number, or of an unknown unit.
            The message holds the text and the rule.

    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        message = f"not a duration: {text!r}; write digits and a unit, such as 30s or 10m"
        raise ValueError(message)
    number, unit = found.groups()
    factor = _UNITS_S.get(unit.lower())
    if factor is None:
        message = f"unknown unit in the duration {text!r}: use ms, s, m, h or d"
        raise ValueError(message)
    seconds = float(number) * factor
    if not math.isfinite(seconds):
        message = "the duration is longer than a number can say"
        raise ValueError(message)
    return seconds


def format_duration(seconds: float) -> str:
    """Return *seconds* as a short text, such as ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < _MINUTE_S:
        # Whole seconds, except where these would say 0 of something.
        return f"{seconds:.0f} s" if seconds >= 1 or not seconds else f"{seconds:.2g} s"
    whole = int(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
