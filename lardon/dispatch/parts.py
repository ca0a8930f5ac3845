"""What operators, pools and backends are put together from, checked before any of it is used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from lardon.clock import Clock, MachineClock
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.model import Declarations
from lardon.governor.checks import refuse

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.records import Records
    from lardon.dispatch.rules import Check
    from lardon.dispatch.spi import Backend


def with_methods(what: str, *methods: str) -> Check:
    """
    Return the check for an object that has *methods*, which is all that an interface asks.

    A class is refused: it has the methods of its objects too, and fails when they are called.
    """
    rule = f"{what}, with the methods {', '.join(methods[:-1])} and {methods[-1]}"

    def check(name: str, value: Any) -> Any:
        able = all(callable(getattr(value, method, None)) for method in methods)
        if isinstance(value, type) or not able:
            raise refuse(InvalidError, name, value, rule)
        return value

    return check


_clock: Final = with_methods("a Clock", "monotonic", "wall", "wait_for")
_records: Final = with_methods("a store of records", "load", "save", "jobs", "forget")
_backend: Final = with_methods(
    "a Backend", "start", "open", "stop", "observe_many", "find", "declarations", "close"
)

_operator: Final = with_methods("an Operator", "change", "perform", "note")


def checked_clock(value: Any) -> Clock:
    """Return *value* as a clock, the machine's for None, or raise `InvalidError`."""
    return MachineClock() if value is None else cast("Clock", _clock("clock", value))


def checked_records(value: Any) -> Records:
    """Return *value* as a store of records, or raise `InvalidError`."""
    return cast("Records", _records("records", value))


def checked_backend(value: Any) -> Backend:
    """Return *value* as a backend, or raise `InvalidError`."""
    return cast("Backend", _backend("backend", value))


def checked_operator(value: Any) -> Operator:
    """Return *value* as an operator, also one of somebody else's, or raise `InvalidError`."""
    return cast("Operator", _operator("operator", value))


def promises_of(backend: Backend) -> Declarations:
    """Return what *backend* promises, or raise `InvalidError` where it returns anything else."""
    promises: object = backend.declarations()
    if not isinstance(promises, Declarations):
        raise refuse(InvalidError, "backend.declarations()", promises, "a Declarations")
    return promises


def checked_folder(value: Any) -> Path:
    """Return *value* as the path of a folder, which need not exist, or raise `InvalidError`."""
    rule = "the path of a folder: a text that is not empty and holds no NUL, or a path"
    try:
        text = os.fspath(value)
    except TypeError:
        raise refuse(InvalidError, "folder", value, rule) from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise refuse(InvalidError, "folder", value, rule)
    return Path(text)


def made_folder(folder: Path) -> None:
    """
    Make *folder* and those above it, where they are not there.

    Raises:
        InvalidError: it is a file, or one above it is.
        OSError: it cannot be made.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        rule = "the path of a folder: neither it nor one above it may be a file"
        raise refuse(InvalidError, "folder", str(folder), rule) from None
