"""One batch as it went: what is recorded, and the file that records are kept in."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final

import attrs

from lardon.governor.checks import shown
from lardon.governor.history import MOST, MOST_S, History

_FORMAT: Final = 1


@attrs.frozen(kw_only=True)
class BatchRecord:
    """One batch as it went. Peaks are growth above the use at booking; None is unknown."""

    items: int
    """At least 1."""
    duration_s: float
    peak_ram_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    """On the GPU that grew most."""
    failed: bool = False
    """True for a batch that ran out of memory: its peaks are lower bounds."""
    well_since: int = 0
    """Of a failed batch: how many went well after it that are not remembered themselves."""


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def checked_kind(kind: object) -> str:
    """Return *kind*, or raise ValueError when no estimate can have it."""
    if not isinstance(kind, str) or not kind:
        message = f"kind must be a text that is not empty, not {shown(kind)}"
        raise ValueError(message)
    return kind


def checked_record(
    items: int,
    duration_s: float,
    peak_ram_bytes: int | None = None,
    peak_gpu_bytes: int | None = None,
    failed: bool = False,  # noqa: FBT001, FBT002  as in `Governor.record_batch`
    well_since: int = 0,
) -> BatchRecord:
    """Return the record, or raise ValueError that names the field, the value and the rule."""
    if not _whole(items, 1):
        message = f"items must be an integer from 1 to 2**128 - 1, not {shown(items)}"
        raise ValueError(message)
    if not isinstance(duration_s, (int, float)) or not 0 <= duration_s <= MOST_S:
        message = f"duration_s must be a number from 0 to {MOST_S:g}, not {shown(duration_s)}"
        raise ValueError(message)
    for name, peak in (("peak_ram_bytes", peak_ram_bytes), ("peak_gpu_bytes", peak_gpu_bytes)):
        if peak is not None and not _whole(peak, 0):
            message = f"{name} must be None or an integer from 0 to 2**128 - 1, not {shown(peak)}"
            raise ValueError(message)
    if not _whole(well_since, 0):
        message = f"well_since must be an integer from 0 to 2**128 - 1, not {shown(well_since)}"
        raise ValueError(message)
    return BatchRecord(
        items=items,
        duration_s=float(duration_s),
        peak_ram_bytes=peak_ram_bytes,
        peak_gpu_bytes=peak_gpu_bytes,
        failed=bool(failed),
        well_since=well_since,
    )


def write_history(path: str | os.PathLike[str], history: History) -> None:
    """Write *history* as JSON, whole or not at all; raises OSError."""
    kinds = {kind: [attrs.asdict(batch) for batch in window] for kind, window in history.items()}
    data = {"format": _FORMAT, "kinds": kinds}
    target = Path(path)
    # Not by `tempfile`: whoever may read other files of this user may read this one.
    draft = target.parent / f".lardon-{os.urandom(8).hex()}"
    try:
        with draft.open("x", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        draft.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def read_history(path: str | os.PathLike[str]) -> History:
    """
    Return the history in the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a history that `write_history` wrote; says what is wrong.

    """
    with Path(path).open(encoding="utf-8") as file:
        try:
            data = json.load(file)
        except RecursionError:
            message = f"{os.fspath(path)} is nested too deeply for a lardon history"
            raise ValueError(message) from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        message = f"{os.fspath(path)} is not a lardon history of format {_FORMAT}"
        raise ValueError(message)
    history = History()
    try:
        for kind, records in data["kinds"].items():
            for record in records:
                history.add(checked_kind(kind), checked_record(**record))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        message = f"{os.fspath(path)} holds a batch that is not valid: {error}"
        raise ValueError(message) from error
    return history
