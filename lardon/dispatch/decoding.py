"""
Settings from outside, taken strictly: no unknown field, no other type, nothing after the end.

A settings class is `attrs.frozen`, with fields in snake_case. In a document they are written
in camelCase; a field of type `Seconds` ends in ``_s`` here and not there, and is text such as
``25s`` there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NoReturn,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

import attrs

from lardon.dispatch.durations import parse_duration
from lardon.dispatch.enums import ClosedEnum
from lardon.dispatch.errors import InvalidError, MissingExtra
from lardon.governor.checks import described, refuse

if TYPE_CHECKING:
    from cattrs import Converter
    from cattrs.errors import ClassValidationError

T = TypeVar("T")
Document: TypeAlias = str | bytes | Mapping[str, Any]

_DURATION: Final = "duration"
Seconds: TypeAlias = Annotated[float, _DURATION]
"""A duration: seconds inside, Go's text in a document."""

_ROOT: Final = "settings"
_PLAIN: Final[Mapping[type, tuple[tuple[type, ...], str]]] = {
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
    bool: ((bool,), "true or false"),
}


def decode(kind: type[T], document: Document | None) -> T:
    """
    Return the *kind* that *document* describes: JSON as text, or what JSON would give.

    Raises:
        InvalidError: it is not JSON, something follows it, or a field is unknown, missing, of
            another type or against its rule; the error names the path.
        MissingExtra: cattrs is not installed.

    """
    content = _parsed({} if document is None else document)
    converter = _converter()
    try:
        found: T = converter.structure(content, kind)
    except Exception as error:  # noqa: BLE001  one wrong field is one refusal
        raise _refusal(error, "") from None
    return found


def _parsed(document: Document) -> Any:
    if not isinstance(document, (str, bytes)):
        return document
    try:
        content = json.loads(document, object_pairs_hook=_Pairs, parse_constant=_no_constant)
    except InvalidError:
        raise
    except (ValueError, RecursionError) as error:
        why = f"one JSON object and nothing after it ({described(error)})"
        raise refuse(InvalidError, _ROOT, document, why) from None
    _refuse_twice(content)
    return content


class _Pairs(dict[str, Any]):
    """What an object of JSON says, and which of its keys it says more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counted = Counter(key for key, _ in pairs)
        self.twice = [key for key, times in counted.items() if times > 1]


def _refuse_twice(content: Any) -> None:
    """Raise `InvalidError` for a key that an object has twice, at any depth, with its path."""
    left = [("", content)]
    for path, value in left:  # which grows meanwhile
        if isinstance(value, _Pairs):
            inside = {key: f"{path}.{key}" for key in value}
            for key in value.twice:
                raise _refused(inside[key], value[key], "given once")
            left += [(inside[key], inner) for key, inner in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{place}]", inner) for place, inner in enumerate(value)]


def _no_constant(text: str) -> NoReturn:
    raise refuse(InvalidError, _ROOT, text, "JSON, which has no such number")


def _converter() -> Converter:
    try:
        import cattrs
    except ModuleNotFoundError as error:
        message = (
            f"settings need {error.name}, which is not installed; "
            "its extra brings it: python -m pip install 'lardon[dispatch]'"
        )
        raise MissingExtra(message, extra="dispatch") from error

    converter = cattrs.Converter()
    for kind in _PLAIN:
        converter.register_structure_hook(kind, _plain)
    converter.register_structure_hook(ClosedEnum, _member)
    converter.register_structure_hook_factory(attrs.has, lambda kind: _fields(kind, converter))
    converter.register_structure_hook_factory(_is_mapping, lambda kind: _entries(kind, converter))
    converter.register_structure_hook_func(_is_duration, lambda value, _: parse_duration(value, ""))
    return converter


def _plain(value: Any, kind: type) -> Any:
    accepted, name = _PLAIN[kind]
    if type(value) not in accepted:
        raise refuse(InvalidError, "", value, name)
    return kind(value)


def _fields(kind: type[Any], converter: Converter) -> Callable[[Any, Any], Any]:
    from cattrs.gen import make_dict_structure_fn, override

    attrs.resolve_types(kind)
    renamed: dict[str, Any] = {
        field.name: override(rename=_written(field)) for field in attrs.fields(kind)
    }
    inner = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **renamed)

    def structure(value: Any, wanted: Any) -> Any:
        if not isinstance(value, Mapping):
            raise refuse(InvalidError, "", value, "an object with named fields")
        return inner(value, wanted)

    return structure


def _entries(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    key_kind, value_kind = get_args(kind)

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise refuse(InvalidError, "", value, "an object with named entries")
        found = {}
        for key, entry in value.items():
            try:
                known = converter.structure(key, key_kind)
                found[known] = converter.structure(entry, value_kind)
            except Exception as error:  # noqa: BLE001  one wrong entry is one refusal
                raise _refusal(error, f".{key}") from None
        return found

    return structure


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) is Mapping


def _member(value: Any, kind: type[ClosedEnum]) -> ClosedEnum:
    try:
        return kind(value)
    except InvalidError as error:
        raise refuse(InvalidError, "", value, error.rule) from None


def _is_duration(kind: Any) -> bool:
    return get_origin(kind) is Annotated and _DURATION in kind.__metadata__


def _written(field: attrs.Attribute[Any]) -> str:
    """Return the name that *field* has in a document."""
    name = field.name
    inside = (field.type, *get_args(field.type))
    if any(_is_duration(kind) for kind in inside):
        name = name.removesuffix("_s")
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _refusal(error: BaseException, path: str) -> InvalidError:
    """Return the first thing that is wrong, with the path to it."""
    from cattrs.errors import (
        ClassValidationError,
        ForbiddenExtraKeysError,
        IterableValidationError,
    )

    if isinstance(error, ClassValidationError):
        return _of_class(error, path)
    if isinstance(error, IterableValidationError):
        inner, note = error.group_exceptions()[0][0]
        return _refusal(inner, f"{path}[{note.index}]")
    if isinstance(error, ForbiddenExtraKeysError):
        unknown = min(error.extra_fields, key=str)
        known = ", ".join(_written(field) for field in attrs.fields(error.cl))
        return _refused(f"{path}.{unknown}", unknown, f"one of the fields {known}")
    value, rule = None, f"of its type ({described(error)})"
    if isinstance(error, InvalidError):
        value, rule = error.value, error.rule
        path += f".{error.field}" if error.field else ""
    elif isinstance(error, KeyError):
        rule = "given"
    return _refused(path, value, rule)


def _of_class(error: ClassValidationError, path: str) -> InvalidError:
    named = {field.name: _written(field) for field in attrs.fields(error.cl)}
    noted, plain = error.group_exceptions()
    if noted:
        inner, note = noted[0]
        return _refusal(inner, f"{path}.{named[note.name]}")
    own = plain[0]
    if not isinstance(own, InvalidError):
        return _refusal(own, path)
    # A rule of the class itself: it names the field as the constructor does.
    first, dot, rest = own.field.partition(".")
    return _refused(f"{path}.{named.get(first, first)}{dot}{rest}", own.value, own.rule)


def _refused(path: str, value: object, rule: str) -> InvalidError:
    found = refuse(InvalidError, path.removeprefix(".") or _ROOT, value, rule)
    assert isinstance(found, InvalidError)
    return found
