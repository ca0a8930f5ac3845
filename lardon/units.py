"""Byte units: constants, and sizes as people read and write them."""

from __future__ import annotations

import re
from typing import Final

KiB: Final = 1 << 10
"""Bytes in a kibibyte."""
MiB: Final = 1 << 20
"""Bytes in a mebibyte."""
GiB: Final = 1 << 30
"""Bytes in a gibibyte."""

_BINARY_STEPS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
# Above this an int no longer fits a double, and decimal digits help nobody.
_READABLE_BITS: Final = 100

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
# K, M, G and T stand for powers of 1024, as Slurm's --mem reads them; only the
# explicit SI spelling with a B is a power of 1000.
_FACTORS: Final = {
    "": 1,
    "b": 1,
    **{name: 1024**power for power, name in enumerate("kmgt", start=1)},
    **{f"{name}ib": 1024**power for power, name in enumerate("kmgt", start=1)},
    **{f"{name}b": 1000**power for power, name in enumerate("kmgt", start=1)},
}


def format_bytes(count: int) -> str:
    """
    Return *count* bytes as a short text with a binary unit, such as ``1.5 GiB``.

    Any integer is accepted; one beyond every real machine is shown as a power of two.
    """
    if count < 0:
        return f"-{format_bytes(-count)}"
    if count < KiB:
        return f"{count} B"
    if count.bit_length() > _READABLE_BITS:
        return f"about 2^{count.bit_length() - 1} B"
    step = min((count.bit_length() - 1) // 10, len(_BINARY_STEPS))
    return f"{count / (1 << (10 * step)):.4g} {_BINARY_STEPS[step - 1]}"


def parse_size(text: str) -> int:
    """
    Return the bytes that a size such as ``2G``, ``1.5 GiB``, ``500MB`` or ``4096`` names.

    K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB are powers of
    1000; a bare integer is bytes. Case does not matter, except that a small ``b`` after
    a capital letter (``2Gb``) is refused, because it reads as bits.

    Raises:
        ValueError: the text is empty, signed, not a number, in bits, of an unknown unit,
            or names a fraction of a byte. The message holds the text and the rule.

    """
    stripped = text.strip()
    found = _SIZE.fullmatch(stripped)
    if found is None:
        message = f"not a size: {text!r}; write digits and a unit, such as 2GiB or 500MB"
        raise ValueError(message)
    number, unit = found.groups()
    factor = _FACTORS.get(unit.lower())
    if factor is None:
        message = f"unknown unit in the size {text!r}: use K, M, G, T, KiB … TiB or KB … TB"
        raise ValueError(message)
    if len(unit) == 2 and unit[0].isupper() and unit[1] == "b":  # noqa: PLR2004
        message = f"the size {text!r} reads as bits; write {unit[0]}B or {unit[0]}iB"
        raise ValueError(message)
    if factor == 1 and "." in number:
        message = f"the size {text!r} is a fraction of a byte"
        raise ValueError(message)
    # Imported here, so that `import lardon` stays quick.
    from fractions import Fraction

    return int(Fraction(number) * factor)
