"""A job record as JSON and back: what is read is checked like any other value."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_origin

import attrs

from lardon.dispatch.enums import ClosedEnum
from lardon.dispatch.errors import InvalidError, MissingExtra
from lardon.dispatch.job_record import JobRecord
from lardon.governor.checks import described, refuse

if TYPE_CHECKING:
    from cattrs import Converter

FORMAT: Final = 1
"""Written into every text; a reader refuses what a later lardon wrote in another way."""


@attrs.frozen(kw_only=True)
class _Stored:
    """A record in its envelope."""

    format: int = attrs.field(validator=attrs.validators.in_([FORMAT]))
    job: JobRecord


def to_text(record: JobRecord) -> str:
    """
    Return *record* as one JSON object.

    Raises:
        MissingExtra: cattrs is not installed.

    """
    content = _converter().unstructure(_Stored(format=FORMAT, job=record))
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def from_text(text: str | bytes) -> JobRecord:
    """
    Return the record that *text* tells.

    Raises:
        InvalidError: it is cut off, of another format, or breaks a rule of its values.
        MissingExtra: cattrs is not installed.

    """
    converter = _converter()
    try:
        stored = converter.structure(json.loads(text), _Stored)
    except Exception as error:
        rule = f"the JSON of a job record of format {FORMAT} ({described(error)})"
        raise refuse(InvalidError, "record", text, rule) from error
    return stored.job


@functools.cache
def _converter() -> Converter:
    try:
        import cattrs
    except ModuleNotFoundError as error:
        message = (
            f"stored records need {error.name}, which is not installed; "
            "its extra brings it: python -m pip install 'lardon[dispatch]'"
        )
        raise MissingExtra(message, extra="dispatch") from error

    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(datetime.datetime, _moment)
    converter.register_unstructure_hook(datetime.datetime, datetime.datetime.isoformat)
    converter.register_structure_hook(ClosedEnum, lambda value, kind: kind(value))
    converter.register_unstructure_hook(ClosedEnum, lambda member: member.value)
    # The values' own rules check these: a number stays a number, a text a text.
    converter.register_structure_hook_func(lambda kind: kind == int | str, _as_it_is)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _as_it_is)
    converter.register_structure_hook_func(_is_texts, _as_it_is)
    return converter


def _moment(value: Any, _: Any) -> datetime.datetime:
    return datetime.datetime.fromisoformat(value)


def _as_it_is(value: Any, _: Any) -> Any:
    return value


def _is_texts(kind: Any) -> bool:
    """Whether *kind* is made of texts alone, which need no other form."""
    return get_origin(kind) in (Mapping, Sequence) and kind in _TEXTS


_TEXTS: Final = (Sequence[str], Mapping[str, str], Mapping[str, Mapping[str, str]])
