"""Pressure and load: how long work stands in line on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lardon.governor.probes.kernel_text import finite, shown

RESOURCES: Final = ("cpu", "memory", "io")

_SOME: Final = b"some avg10="
_FULL_SCALE: Final = 100.0


def parse_pressure(raw: bytes) -> float | None:
    """
    Return ``some avg10`` of a PSI file in percent, or None for an empty file.

    Raises:
        ValueError: the file holds something else.

    """
    if not raw.strip():
        return None
    start = raw.find(_SOME)
    if start < 0:
        message = f"no 'some avg10' in {shown(raw)}"
        raise ValueError(message)
    start += len(_SOME)
    end = raw.find(b" ", start)
    return min(_FULL_SCALE, finite(raw[start:end] if end >= 0 else raw[start:]))


def parse_load(raw: bytes) -> float | None:
    """Return the load average over one minute, the first figure of ``/proc/loadavg``."""
    return finite(raw[: raw.find(b" ")])


class LeadingFigure:
    """
    Parses a file of which only the beginning counts, and that beginning seldom changes.

    The counters that stand behind it change at every reading on a machine at work.
    """

    __slots__ = ("_end", "_last", "_parse")

    def __init__(self, parse: Callable[[bytes], float | None], end: bytes) -> None:
        """Use *parse*; what it looks at ends with the first *end*."""
        self._parse = parse
        self._end = end
        self._last: tuple[bytes, float | None] | None = None

    def __call__(self, raw: bytes) -> float | None:
        """Return what the parser returns for *raw*."""
        last = self._last
        if last is not None and raw.startswith(last[0]):
            return last[1]
        figure = self._parse(raw)
        end = raw.find(self._end)
        self._last = (raw[: end + len(self._end)], figure) if end > 0 else None
        return figure


def pressure_parser() -> LeadingFigure:
    """Return a parser for one PSI file."""
    return LeadingFigure(parse_pressure, b" avg60")


def load_parser() -> LeadingFigure:
    """Return a parser for ``/proc/loadavg``."""
    return LeadingFigure(parse_load, b" ")
