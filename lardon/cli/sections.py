"""Titled tables of texts, and how they look without a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import attrs
from rich.cells import cell_len

# Control characters steer a terminal, lone surrogates cannot be written, and the marks of
# direction reorder what a reader sees.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_GAP = "  "


@attrs.frozen(kw_only=True)
class Section:
    """A table with a title, or lines of text with one; the texts may hold anything."""

    title: str = ""
    header: tuple[str, ...] = ()
    """Names of the columns; without them the first column of `rows` names each row."""
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()
    """Sentences below the table."""


def printable(text: str) -> str:
    r"""Return *text* with everything escaped that is not just shown, as in ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _UNPRINTABLE or character in _DIRECTION:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def plain(sections: Iterable[Section]) -> str:
    """Return the sections as aligned columns, without colours, frames or control characters."""
    return "\n".join(_plain_section(section) for section in sections)


def _plain_section(section: Section) -> str:
    table = [[printable(cell) for cell in row] for row in (section.header, *section.rows) if row]
    widths = [0] * max((len(row) for row in table), default=0)
    for row in table:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], cell_len(cell))
    indent = _GAP if section.title else ""
    out = [printable(section.title)] if section.title else []
    for row in table:
        cells = [cell + " " * (widths[column] - cell_len(cell)) for column, cell in enumerate(row)]
        out.append((indent + _GAP.join(cells)).rstrip())
    out.extend(indent + printable(line) for line in section.lines)
    return "".join(f"{line}\n" for line in out)
