"""Writing: framed tables in a terminal, plain text elsewhere, and never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lardon.cli.sections import Section, plain, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

# Characters that always fit into the 4096 bytes that a pipe takes whole or not at all. Of
# more, an unbuffered stream (`python -u`) drops without a word what a pipe did not take.
_PIECE: Final = 1024
_STYLES: Final = {
    "enough": "green",
    "reduced": "yellow",
    "short": "yellow",
    "unknown": "yellow",
    "never": "red",
}


class ReaderGone(Exception):
    """Whoever read the output has closed the pipe."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether *stream* is a terminal; one that is closed or missing is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def write(stream: TextIO | None, text: str) -> None:
    """
    Write and flush *text*.

    Raises:
        ReaderGone: the pipe was closed at its other end.
        OSError: it cannot be written for another reason, such as a full disk.

    """
    if stream is None or stream.closed:
        return
    try:
        for start in range(0, len(text), _PIECE):
            stream.write(text[start : start + _PIECE])
        stream.flush()
    except OSError as error:
        # Windows says EINVAL of a closed pipe.
        if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
            raise ReaderGone from error
        raise


def complain(stream: TextIO | None, text: str) -> None:
    """Write one line for people beside the output; nobody fails because it is not read."""
    try:
        write(stream, f"lardon: {printable(text)}\n")
    except (ReaderGone, OSError):
        return


def drop_unwritten(stream: TextIO | None) -> None:
    """
    Let what *stream* still holds go nowhere, if it cannot be written.

    For the very end: the interpreter's last flush would complain, and change the status.
    """
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def show(stream: TextIO, sections: Sequence[Section]) -> None:
    """Write the sections: with frames and colours in a terminal, plain elsewhere."""
    if not is_terminal(stream):
        write(stream, plain(sections))
        return
    console = console_of(stream)
    with console.capture() as capture:
        console.print(framed(sections))
    write(stream, capture.get())


def console_of(stream: TextIO) -> Console:
    """Return a console that takes texts as they are: no markup, no emoji codes, no guesses."""
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def framed(sections: Sequence[Section]) -> RenderableType:
    """Return the sections as Rich draws them."""
    parts: list[RenderableType] = []
    for section in sections:
        if parts:
            parts.append(Text())
        if section.title:
            parts.append(Text(printable(section.title), style="bold"))
        if section.rows:
            parts.append(_indented(_table(section)))
        parts.extend(_indented(Text(printable(line))) for line in section.lines)
    return Group(*parts)


def _indented(part: RenderableType) -> RenderableType:
    return Padding(part, (0, 0, 0, 2))


def _table(section: Section) -> Table:
    table = Table(
        box=box.SIMPLE if section.header else None,
        show_header=bool(section.header),
        pad_edge=False,
    )
    for column in range(len(section.header or section.rows[0])):
        title = Text(printable(section.header[column])) if section.header else ""
        # A UUID or a file that is cut off says nothing: it goes on in the next line.
        table.add_column(title, overflow="fold", no_wrap=False)
    for row in section.rows:
        table.add_row(*(Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row))
    return table
