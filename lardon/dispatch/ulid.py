"""ULIDs: names for jobs that sort by the time they were made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import refuse

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

# Crockford's base 32: no I, L, O and U. Source: the ULID specification.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH: Final = 26
_TIME_BITS: Final = 48
_RANDOM_BITS: Final = 80
# 26 characters hold 130 bits, a ULID has 128: the first is at most 7.
_ULID: Final = re.compile(rf"[0-7][{_ALPHABET}]{{{_LENGTH - 1}}}", re.ASCII)


def new_ulid(at: datetime.datetime, random_bits: Callable[[int], int]) -> str:
    """
    Return a ULID for the instant *at*, an aware datetime.

    Args:
        at: When; it is kept in milliseconds.
        random_bits: Returns that many random bits: ``secrets.randbits``, or
            ``random.Random(seed).getrandbits`` for the same names in every run.

    """
    milliseconds = int(at.timestamp() * 1000)
    if at.tzinfo is None or not 0 <= milliseconds < 1 << _TIME_BITS:
        raise refuse(InvalidError, "at", at, "an aware datetime from 1970 on")
    number = milliseconds << _RANDOM_BITS | random_bits(_RANDOM_BITS)
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(_LENGTH)))


def checked_ulid(value: object, field: str = "id") -> str:
    """Return *value* in capitals, or raise `InvalidError` for *field* when it is no ULID."""
    text = value.upper() if isinstance(value, str) else ""
    if not _ULID.fullmatch(text):
        raise refuse(InvalidError, field, value, "a ULID (26 characters of Crockford's base 32)")
    return text
