"""How the Linux kernel writes numbers and lists into its control files."""

from __future__ import annotations

import math
from typing import Final

# No control file holds a longer number; the bound keeps garbage out of big arithmetic.
_MAX_DIGITS: Final = 24


def shown(raw: bytes) -> str:
    """Return the beginning of a file's content, for a message."""
    return repr(raw[:40])


def whole_number(raw: bytes) -> int:
    """
    Return the integer that *raw* is, white space around it allowed.

    Raises:
        ValueError: it is anything else. `int` alone would take underscores as well.

    """
    text = raw.strip()
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        message = f"{shown(raw)} is not an integer"
        raise ValueError(message)
    return int(text)


def amount(raw: bytes) -> int:
    """Return an integer of at least 0; `ValueError` for anything else."""
    number = whole_number(raw)
    if number < 0:
        message = f"{number} is negative"
        raise ValueError(message)
    return number


def limit_or_none(raw: bytes) -> int | None:
    """Return the limit in *raw*: None for ``max`` and for an empty file."""
    text = raw.strip()
    if text == b"max" or not text:
        return None
    return amount(text)


def finite(raw: bytes) -> float:
    """Return a finite decimal number of at least 0; `ValueError` for anything else."""
    number = float(raw)
    if not 0 <= number < math.inf:
        message = f"{shown(raw)} is not a finite number of at least 0"
        raise ValueError(message)
    return number


def field(raw: bytes, name: bytes) -> bytes | None:
    """
    Return what stands behind *name* on the line that begins with it, or None.

    *name* includes its separator, such as ``b"MemTotal:"`` or ``b"inactive_file "``.
    """
    if raw.startswith(name):
        start = len(name)
    else:
        found = raw.find(b"\n" + name)
        if found < 0:
            return None
        start = found + 1 + len(name)
    end = raw.find(b"\n", start)
    return raw[start:] if end < 0 else raw[start:end]


def kibibytes(raw: bytes, name: bytes) -> int | None:
    """Return the bytes of a ``name:   123 kB`` line, or None when there is no such line."""
    text = field(raw, name)
    return None if text is None else amount(text.rstrip(b" kB\r")) * 1024


def count_of_list(raw: bytes) -> int:
    """Return how many CPUs a list such as ``0-3,8`` names; `ValueError` for anything else."""
    count = 0
    for part in raw.strip().split(b","):
        first, dash, last = part.partition(b"-")
        low = amount(first)
        high = amount(last) if dash else low
        count += max(0, high - low + 1)
    return count
