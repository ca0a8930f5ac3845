"""The command as a function that returns an exit status, whatever happens."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from typing import Any, Final, TextIO

import typer
from typer.main import get_command

from lardon.cli.app import app
from lardon.cli.screen import ReaderGone, complain, drop_unwritten
from lardon.cli.statuses import ExitStatus

# What Typer raises for a wrong command line; where the class lives differs from one of its
# versions to the next.
_USAGE_ERROR: Final[type[Exception]] = next(
    kind for kind in reversed(typer.BadParameter.__mro__) if hasattr(kind, "format_message")
)


def main(arguments: Sequence[str]) -> int:
    """Do what the *arguments* say, and return the status to exit with; it does not raise."""
    for stream in (sys.stdout, sys.stderr):
        _take_any_text(stream)
    status = _guarded(arguments)
    for stream in (sys.stdout, sys.stderr):
        drop_unwritten(stream)
    return status


def _guarded(arguments: Sequence[str]) -> int:
    try:
        return _status_of(arguments)
    except ReaderGone:
        return ExitStatus.READER_GONE
    except (KeyboardInterrupt, typer.Abort):
        return ExitStatus.INTERRUPTED
    except OSError as error:
        complain(sys.stderr, f"cannot write: {error.strerror or error}")
        return ExitStatus.FAILED


def _status_of(arguments: Sequence[str]) -> int:
    command: Any = get_command(app)
    try:
        status = command.main(list(arguments), prog_name="lardon", standalone_mode=False)
    except _USAGE_ERROR as error:
        wrong: Any = error
        where = getattr(getattr(wrong, "ctx", None), "command_path", "lardon")
        complain(sys.stderr, f"{wrong.format_message()}")
        complain(sys.stderr, f"try '{where} --help'")
        return ExitStatus.BAD_INPUT
    except SystemExit as end:
        # A pipe that was closed while help was printed ends so, with 1.
        return ExitStatus.READER_GONE if end.code == 1 else int(end.code or 0)
    return status if isinstance(status, int) else ExitStatus.OK


def _take_any_text(stream: TextIO | None) -> None:
    """Show what an encoding lacks as a question mark, instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        with contextlib.suppress(ValueError, OSError):
            stream.reconfigure(errors="replace")
