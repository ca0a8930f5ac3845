"""Durations as Go writes them, which is how the settings of a backend say them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import refuse

_RULE: Final = "a duration such as 25s, 5m, 1h2m3.5s or 250ms"
# Both ways to write a micro: the micro sign and the Greek letter.
_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "\N{MICRO SIGN}s": 10**3,
    "\N{GREEK SMALL LETTER MU}s": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_UNITS: Final = "|".join(sorted(_NANOSECONDS, key=len, reverse=True))
_PART: Final = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({_UNITS})", re.ASCII)
_WHOLE: Final = re.compile(rf"([+-]?)(0|(?:{_PART.pattern})+)", re.ASCII)
# Go keeps a duration in 64 bits: 292 years.
_LONGEST_NS: Final = (1 << 63) - 1


def parse_duration(text: str, path: str = "duration") -> float:
    """
    Return the seconds that *text* names: ``1h2m3.5s``, ``250ms``, ``-1.5h`` or ``0``.

    Raises:
        InvalidError: no duration of Go's, or one of more than 292 years; it names *path*.

    """
    found = _WHOLE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise refuse(InvalidError, path, text, _RULE)
    try:
        total = sum(
            (Fraction(number) * _NANOSECONDS[unit] for number, unit in _PART.findall(found[2])),
            start=Fraction(0),
        )
    except ValueError:  # Python takes no number of thousands of digits
        raise refuse(InvalidError, path, text, _RULE) from None
    if total > _LONGEST_NS:
        raise refuse(InvalidError, path, text, "a duration of at most 292 years")
    return float(total / 10**9) * (-1 if found[1] == "-" else 1)


def format_duration(seconds: float) -> str:
    """Return *seconds*, rounded to whole nanoseconds, as `parse_duration` reads them back."""
    nanoseconds = round(abs(Fraction(seconds)) * 10**9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    hours, rest = divmod(nanoseconds, _NANOSECONDS["h"])
    minutes, rest = divmod(rest, _NANOSECONDS["m"])
    whole, parts = divmod(rest, 10**9)
    fraction = f".{parts:09d}".rstrip("0") if parts else ""
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if minutes else ""
    text += f"{whole}{fraction}s" if whole or fraction or not text else ""
    return sign + text
