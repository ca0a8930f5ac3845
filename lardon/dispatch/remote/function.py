"""Functions as jobs: what is called is written to a file, and so is what comes of it."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lardon.dispatch.errors import MissingExtra
from lardon.governor.checks import described, shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# The folder holds pickles, which do what they like to who loads them.
_OWNER_ONLY: Final = 0o700
ENDS: Final = ("call", "result")
"""What the names of a job's two files end with."""


@attrs.frozen
class Returned:
    """What a function came to."""

    value: Any = None
    error: BaseException | None = None
    epoch: int | None = None
    """Of which execution, where that is known; a larger one is a later execution."""


def written(returned: Returned) -> bytes:
    """Return *returned* as a file holds it; raise what pickling it raises."""
    content = cloudpickle().dumps((returned.value, returned.error, returned.epoch))
    assert isinstance(content, bytes)
    return content


def write_call(
    folder: Path, job: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[str], Path]:
    """
    Write a call into *folder*; return the command that makes it, and where its result will be.

    Raises:
        MissingExtra: cloudpickle is not installed.
        Exception: what pickling the call raises.

    """
    content = cloudpickle().dumps((fn, tuple(args), dict(kwargs)))
    folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
    call, result = (folder / f"{job}.{end}" for end in ENDS)
    write_whole(call, content)
    return [sys.executable, "-m", "lardon.dispatch.call", str(call), str(result)], result


def read_result(path: Path, since: int | None = None) -> Returned | None:
    """
    Return what the function came to, or None where nothing is there yet.

    What an execution before the epoch *since* has left there is nothing. What cannot be read
    is the error that reading it raised: an object's own code runs then. Where that exits, it is
    a `RuntimeError` with the traceback, so that nobody exits with it.
    """
    try:
        # A listing refreshes what a network file system remembers of the folder.
        os.listdir(path.parent)  # noqa: PTH208  the call itself is the point
        content = path.read_bytes()
    except OSError:
        return None
    try:
        value, error, epoch = pickle.loads(content)  # noqa: S301  our own job wrote it
        found = Returned(value, _error(error), None if epoch is None else int(epoch))
    except BaseException as broken:  # noqa: BLE001  the objects' own code runs, and may exit
        if isinstance(broken, Exception):
            return Returned(error=broken)
        words = f"the result in {path} cannot be read here:\n{_traceback_of(broken)}"
        return Returned(error=RuntimeError(words))
    old = since is not None and found.epoch is not None and found.epoch < since
    return None if old else found


def _error(value: object) -> BaseException | None:
    if isinstance(value, BaseException | None):
        return value
    message = f"{shown(value)} is no error"
    raise TypeError(message)


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001  a broken __str__ may raise anything
        return described(error)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(path)


def cloudpickle() -> ModuleType:
    """Return the module, or raise `MissingExtra`."""
    try:
        import cloudpickle as found
    except ModuleNotFoundError as error:
        message = (
            f"functions as jobs need {error.name}, which is not installed; "
            "its extra brings it: python -m pip install 'lardon[dispatch]'"
        )
        raise MissingExtra(message, extra="dispatch") from error
    module: ModuleType = found
    return module
