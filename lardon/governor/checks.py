"""The rules that fields of estimates, policies and options obey, checked at the border."""

from __future__ import annotations

import math
import operator
import reprlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lardon.errors import _InvalidValue


# A reason is for people: the full error is kept beside it.
_MESSAGE_LENGTH: Final = 300


def described(error: BaseException) -> str:
    """Return the type and message of *error*, bounded, also when it cannot be printed."""
    name = type(error).__name__
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  a broken __str__ may raise anything
        return f"{name} (its message cannot be printed)"
    if len(message) > _MESSAGE_LENGTH:
        message = f"{message[:_MESSAGE_LENGTH]}…"
    return f"{name}: {message}" if message else name


def text(name: str, value: object) -> str:
    """Return *value*, or raise TypeError when it is no text."""
    if not isinstance(value, str):
        message = f"{name} must be a text, not {shown(value)}"
        raise TypeError(message)
    return value


def uuids(devices: Iterable[str]) -> Iterable[str]:
    """Return *devices*, or raise TypeError for one text, which would be taken apart."""
    if isinstance(devices, str):
        message = f"devices must be a collection of UUIDs, not the text {devices!r}"
        raise TypeError(message)
    return devices


def shown(value: object) -> str:
    """Return a short text for any value, also for one whose `repr` fails."""
    try:
        return reprlib.repr(value)
    except Exception:  # noqa: BLE001  a value's own repr may raise anything
        return f"<{type(value).__name__}>"


def refuse(error: type[_InvalidValue], field: str, value: object, rule: str) -> _InvalidValue:
    """Return the *error* that names the field, the value and the rule."""
    return error(f"{field} must be {rule}, not {shown(value)}", field=field, value=value, rule=rule)


def whole_number(error: type[_InvalidValue], field: str, value: object, minimum: int) -> int:
    """
    Return *value* as a plain `int` of at least *minimum*.

    Anything with `__index__` counts (NumPy integers do), except `bool`: True is not one
    GPU. Floats, also whole ones, NaN and infinity are refused.
    """
    rule = f"an integer of at least {minimum}"
    if type(value) is int and value >= minimum:
        return value
    if isinstance(value, bool):
        raise refuse(error, field, value, rule)
    try:
        number = int(operator.index(value))  # type: ignore[arg-type]  # any object may come in
    except TypeError:
        raise refuse(error, field, value, rule) from None
    if number < minimum:
        raise refuse(error, field, value, rule)
    return number


def finite_number(
    error: type[_InvalidValue],
    field: str,
    value: object,
    *,
    above: float | None = None,
    maximum: float | None = None,
) -> float:
    """Return *value* as a finite `float`: at least 0, or greater than *above* where given."""
    rule = "a finite number of at least 0" if above is None else f"a finite number above {above:g}"
    if maximum is not None:
        rule += f" and at most {maximum:g}"
    if isinstance(value, (bool, str, bytes)):
        raise refuse(error, field, value, rule)
    try:
        number = float(value)  # type: ignore[arg-type]  # any object may come in
    except (TypeError, ValueError, OverflowError):
        raise refuse(error, field, value, rule) from None
    low_enough = maximum is None or number <= maximum
    high_enough = number >= 0 if above is None else number > above
    if not (math.isfinite(number) and low_enough and high_enough):
        raise refuse(error, field, value, rule)
    return number
