"""What one run has worked out so far; its lists are what the report is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import attrs

from photo.neighbour import Neighbour
from photo.options import Options
from photo.pictures import Photograph, UnreadableError
from photo.recorder import News, Recorder

Item = TypeVar("Item")
Done = TypeVar("Done")


@attrs.frozen
class Skipped:
    """A photograph that could not be used, and why."""

    name: str
    task: str
    reason: str


@attrs.frozen
class Extracted:
    """The features of one photograph, as a file."""

    photograph: Photograph
    file: Path
    features: int


@attrs.frozen
class Matched:
    """The matches of two neighbours, as a file."""

    left: Extracted
    right: Extracted
    file: Path
    matches: int
    inliers: int


@attrs.define(eq=False)
class Job:
    """
    One run: what was asked for, and what came out.

    The queue's one worker runs one task at a time, so the lists need no lock: each task
    reads what the one before it has put there.
    """

    options: Options
    recorder: Recorder
    found: list[Path]
    neighbour: Neighbour | None = None
    photographs: list[Photograph] = attrs.field(factory=list)
    extracted: list[Extracted] = attrs.field(factory=list)
    matched: list[Matched] = attrs.field(factory=list)
    skipped: list[Skipped] = attrs.field(factory=list)

    def attempt(self, task: str, work: Callable[[Item], Done], item: Item) -> Done | Skipped:
        """Return what *work* returns, or the note of a photograph that cannot be read."""
        try:
            return work(item)
        except UnreadableError as error:
            self.recorder.news.put(News(f"{task}: skipped {error.path.name}: {error.reason}"))
            return Skipped(error.path.name, task, error.reason)
