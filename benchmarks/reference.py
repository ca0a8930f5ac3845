"""
The floor under every governed figure: the bare reads of one admission.

A governor that looks at the machine before each task cannot be faster than the kernel
hands out the files it looks at. The list is the probe's own, so that the reference reads
what lardon reads, with `os.pread` on descriptors that stay open. `take` parses nothing and
keeps nothing, which is stricter than anything useful could be; `take_figures` gets the one
figure out of each file that an admission needs, without any check.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# More than any of the files holds, as a reader has to allow for.
READ_BYTES = 4096


class Reads:
    """Files kept open, read anew at every call."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = tuple(files)
        self.descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self.files]
        self.figures = [_parser(path) for path in self.files]

    def take(self) -> None:
        """Read every file from its start, and look at nothing."""
        pread = os.pread
        for descriptor in self.descriptors:
            pread(descriptor, READ_BYTES, 0)

    def take_figures(self) -> list[float]:
        """Read every file from its start, and get its figure in the cheapest way."""
        pread = os.pread
        return [
            figure(pread(descriptor, READ_BYTES, 0))
            for descriptor, figure in zip(self.descriptors, self.figures, strict=True)
        ]

    def close(self) -> None:
        """Close the files."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


def _parser(path: str) -> Callable[[bytes], float]:
    """Return what gets the figure out of a file of this name."""
    name = os.path.basename(path)  # noqa: PTH119 - a name, no file is touched
    if "pressure" in path:
        return lambda raw: _after(raw, b"avg10=")
    if name in MARKS:
        mark = MARKS[name]
        return lambda raw: _after(raw, mark)
    return _first


MARKS = {"meminfo": b"MemAvailable:", "status": b"RssAnon:", "memory.stat": b"inactive_file "}


def _after(raw: bytes, mark: bytes) -> float:
    start = raw.find(mark) + len(mark)
    return float(raw[start : start + 24].split(None, 1)[0])


def _first(raw: bytes) -> float:
    word = raw[:24].split(None, 1)[0]
    return float(word) if word[:1].isdigit() and b":" not in word else 0.0


def snapshot_files() -> tuple[str, ...]:
    """Return the files that one `SystemProbe.snapshot()` reads on this machine."""
    from lardon import SystemProbe

    return SystemProbe().files_read()


def own_use_files() -> tuple[str, ...]:
    """Return the files that one `SystemProbe.own_use()` reads: every admission asks for it."""
    return ("/proc/self/status",)


def admission_files() -> tuple[str, ...]:
    """Return the files that the admission of a task with a need of RAM reads."""
    files = snapshot_files()
    return files + tuple(path for path in own_use_files() if path not in files)
