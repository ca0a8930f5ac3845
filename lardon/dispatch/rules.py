"""The rules that the fields of a dispatch's values obey, applied when a value is made."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.frozen_map import FrozenMap
from lardon.dispatch.ulid import checked_ulid
from lardon.governor.checks import finite_number, refuse, whole_number

if TYPE_CHECKING:
    from lardon.dispatch.enums import ClosedEnum

Check: TypeAlias = Callable[[str, Any], Any]
E = TypeVar("E", bound="ClosedEnum")
V = TypeVar("V")

_RULE: Final = "lardon.dispatch.rule"
_OPTIONAL: Final = "lardon.dispatch.optional"

LONGEST_S: Final = ((1 << 63) - 1) / 10**9
"""Go's longest duration: a time that is so much later still is one that a datetime can tell."""
RESERVED_PREFIX: Final = "DISPATCH_"
"""Environment variables of this prefix belong to the backend."""
RESERVED_NAMESPACE: Final = "dispatch"
"""The extension namespace that no adapter may take."""


def must(check: Check, *, optional: bool = False) -> dict[str, object]:
    """Return the metadata of a field that obeys *check*, or may be None."""
    return {_RULE: check, _OPTIONAL: optional}


def apply_rules(_: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Give every field of a class the converter that its metadata asks for."""
    return [_with_converter(field) if _RULE in field.metadata else field for field in fields]


def _with_converter(field: attrs.Attribute[Any]) -> attrs.Attribute[Any]:
    name, check, optional = field.name, field.metadata[_RULE], field.metadata[_OPTIONAL]

    def convert(value: Any) -> Any:
        return None if optional and value is None else check(name, value)

    return field.evolve(converter=convert)


def count(minimum: int = 0, below: int | None = None) -> Check:
    """Return the check for a whole number of at least *minimum*, and below *below*."""

    def check(name: str, value: Any) -> int:
        number = whole_number(InvalidError, name, value, minimum)
        if below is not None and number >= below:
            raise refuse(InvalidError, name, value, f"an integer from {minimum} to {below - 1}")
        return number

    return check


def seconds(*, above: float | None = None) -> Check:
    """Return the check for a number of seconds: at least 0 or greater than *above*, and no age."""

    def check(name: str, value: Any) -> float:
        found = finite_number(InvalidError, name, value, above=above)
        if found > LONGEST_S:
            raise refuse(InvalidError, name, value, f"at most {LONGEST_S:.0f} seconds, 292 years")
        return found

    return check


def number(minimum: float) -> Check:
    """Return the check for a finite number of at least *minimum*."""

    def check(name: str, value: Any) -> float:
        found = finite_number(InvalidError, name, value)
        if found < minimum:
            raise refuse(InvalidError, name, value, f"a finite number of at least {minimum:g}")
        return found

    return check


def flag(name: str, value: Any) -> bool:
    """Return *value* when it is True or False."""
    if not isinstance(value, bool):
        raise refuse(InvalidError, name, value, "True or False")
    return value


def any_text(name: str, value: Any) -> str:
    """Return *value* when it is a text, which may be empty."""
    if not isinstance(value, str):
        raise refuse(InvalidError, name, value, "a text")
    return value


def some_text(name: str, value: Any) -> str:
    """Return *value* when it is a text that is not empty and holds no NUL."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise refuse(InvalidError, name, value, "a text that is not empty and holds no NUL")
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Return *value* as a tuple of texts; one text alone is refused, it would be taken apart."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise refuse(InvalidError, name, value, "a sequence of texts")
    parts = tuple(value)
    for place, part in enumerate(parts):
        if not isinstance(part, str) or "\0" in part:
            raise refuse(InvalidError, f"{name}[{place}]", part, "a text that holds no NUL")
    return parts


def command(name: str, value: Any) -> tuple[str, ...]:
    """Return *value* as the program and its arguments."""
    parts = texts(name, value)
    if not parts or not parts[0]:
        raise refuse(InvalidError, name, value, "the program and its arguments")
    return parts


def member(kind: type[E]) -> Check:
    """Return the check for a member of *kind*, or the text of one."""

    def check(name: str, value: Any) -> E:
        try:
            return kind(value)
        except InvalidError as error:
            raise refuse(InvalidError, name, value, error.rule) from None

    return check


def one(kind: type[V]) -> Check:
    """Return the check for a *kind*, which is made from a mapping of its fields if need be."""

    def check(name: str, value: Any) -> V:
        if isinstance(value, kind):
            return value
        fields = {field.name for field in attrs.fields(kind)}  # type: ignore[arg-type]  # an attrs class
        if not isinstance(value, Mapping):
            raise refuse(InvalidError, name, value, f"a {kind.__name__}, or its fields")
        for key in value:
            if key not in fields:
                raise refuse(InvalidError, f"{name}.{key}", value[key], "a field that is known")
        try:
            return kind(**value)
        except InvalidError as error:
            raise refuse(InvalidError, f"{name}.{error.field}", error.value, error.rule) from None
        except TypeError:
            raise refuse(InvalidError, name, value, f"all fields of a {kind.__name__}") from None

    return check


def table(keys: type[E], values: type[V]) -> Check:
    """Return the check for a mapping from members of *keys* to *values*, copied out."""

    def check(name: str, value: Any) -> FrozenMap[E, V]:
        if not isinstance(value, Mapping):
            raise refuse(InvalidError, name, value, f"a mapping to {values.__name__}")
        found = {member(keys)(f"{name}.{key}", key): entry for key, entry in value.items()}
        of_values = one(values)
        return FrozenMap({key: of_values(f"{name}.{key}", found[key]) for key in found})

    return check


def instant(name: str, value: Any) -> datetime.datetime:
    """Return *value*, an aware datetime, in UTC."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise refuse(InvalidError, name, value, "an aware datetime")
    return value.astimezone(datetime.UTC)


def whole_instant(name: str, value: Any) -> datetime.datetime:
    """Return *value*, an aware datetime of a whole second, in UTC."""
    found = instant(name, value)
    if found.microsecond:
        raise refuse(InvalidError, name, value, "an aware datetime in whole seconds")
    return found


def object_id(name: str, value: Any) -> int | str:
    """Return *value*, the id that a scheduler gave to an object: a number or a text."""
    return some_text(name, value) if isinstance(value, str) else count()(name, value)


def ulid(name: str, value: Any) -> str:
    """Return *value*, a ULID, in capitals."""
    return checked_ulid(value, name)


def environment(name: str, value: Any) -> FrozenMap[str, str]:
    """Return *value* as environment variables, none of them reserved."""
    if not isinstance(value, Mapping):
        raise refuse(InvalidError, name, value, "a mapping of names to texts")
    for key, text in value.items():
        some_text(f"the name of a variable in {name}", key)
        path = f"{name}.{key}"
        if "=" in key or key.startswith(RESERVED_PREFIX):
            raise refuse(InvalidError, path, text, f"named without = and not {RESERVED_PREFIX}…")
        if not isinstance(text, str) or "\0" in text:
            raise refuse(InvalidError, path, text, "a text that holds no NUL")
    return FrozenMap(value)


def extensions(name: str, value: Any) -> FrozenMap[str, FrozenMap[str, str]]:
    """Return *value* as texts by namespace and key; the namespace ``dispatch`` is reserved."""
    if not isinstance(value, Mapping):
        raise refuse(InvalidError, name, value, "a mapping of namespaces to mappings")
    for space, pairs in value.items():
        some_text(f"a namespace of {name}", space)
        if space == RESERVED_NAMESPACE:
            raise refuse(InvalidError, f"{name}.{space}", pairs, "in a namespace of an adapter")
        if not isinstance(pairs, Mapping):
            raise refuse(InvalidError, f"{name}.{space}", pairs, "a mapping of keys to texts")
        for key, text in pairs.items():
            some_text(f"a key of {name}.{space}", key)
            any_text(f"{name}.{space}.{key}", text)
    return FrozenMap({space: FrozenMap(pairs) for space, pairs in value.items()})
