"""ULIDs: names for jobs that sort by the time they were made."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Final

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

# Crockford's base 32: no I, L, O and U. Source: the ULID specification.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH: Final = 26
_TIME_BITS: Final = 48
_RANDOM_BITS: Final = 80
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
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


class UlidSequence:
    """
    ULIDs of which each sorts after those before it, also within one millisecond.

    Not for several threads at once.

    Args:
        random_bits: As for `new_ulid`.

    """

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self._random_bits = random_bits
        self._last_at: datetime.datetime | None = None

    def next(self, now: datetime.datetime) -> str:
        """Return the next one, for *now* or a little later."""
        last_at = self._last_at
        self._last_at = now if last_at is None else max(now, last_at + _MILLISECOND)
        return new_ulid(self._last_at, self._random_bits)


def is_ulid(text: str) -> bool:
    """Return whether *text* is a ULID in capitals."""
    return _ULID.fullmatch(text) is not None


def checked_ulid(value: object, field: str = "id") -> str:
    """Return *value* in capitals, or raise `InvalidError` for *field* when it is no ULID."""
    text = value.upper() if isinstance(value, str) else ""
    if not is_ulid(text):
        raise refuse(InvalidError, field, value, "a ULID (26 characters of Crockford's base 32)")
    return text
