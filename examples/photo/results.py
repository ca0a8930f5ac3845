"""Files that are whole or not there: features, matches and the report."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import numpy as np

from photo.features import Features, Matches


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """
    Open a file that takes the name *path* when the block has succeeded, and not before.

    Whoever looks sees the old file or the new one, never a part; so does the next run
    after a kill or a full disk.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save_features(path: Path, features: Features) -> None:
    """Write the features of one photograph as .npz; raises OSError."""
    _save(path, features)


def load_features(path: Path) -> Features:
    """Return the features that `save_features` wrote."""
    with np.load(path) as arrays:
        return Features(**{name: arrays[name] for name in arrays.files})


def save_matches(path: Path, matches: Matches) -> None:
    """Write the matches of two photographs as .npz; raises OSError."""
    _save(path, matches)


def _save(path: Path, arrays: Features | Matches) -> None:
    with written_whole(path) as file:
        np.savez(
            file,
            **{field.name: getattr(arrays, field.name) for field in attrs.fields(type(arrays))},
        )


def save_report(path: Path, report: dict[str, Any]) -> None:
    """Write the report as JSON; raises OSError."""
    with written_whole(path) as file:
        file.write(json.dumps(report, indent=2).encode() + b"\n")
