"""What batches really took, by kind: a bounded window that can be saved and loaded."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import Any, Final

import attrs

from lardon.governor.checks import shown

# Enough batches for a 95th percentile to rest on more than one of them, few enough that
# a kind whose cost changed is known by its new cost within one long task.
WINDOW: Final = 128
# Kinds are names that programmers choose; more than this is a name made per task.
MAX_KINDS: Final = 1024
# Larger figures are no measurement, and would overflow what is computed from them.
MOST: Final = 2**128 - 1
MOST_S: Final = MOST / 1_000_000
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


class History:
    """The newest batches of each kind. Not thread-safe: the governor's lock guards it."""

    def __init__(self) -> None:
        self._windows: dict[str, deque[BatchRecord]] = {}

    def add(self, kind: str, record: BatchRecord) -> str | None:
        """
        Append *record*; the oldest of a full window goes, or the stalest kind.

        Returns that kind, None where none had to go.
        """
        window, stalest = self._windows.pop(kind, None), None
        if window is None:
            if len(self._windows) >= MAX_KINDS:
                stalest = next(iter(self._windows))
                del self._windows[stalest]
            window = deque(maxlen=WINDOW)
        # Put back at the end, so that the first kind is the one not heard of longest.
        self._windows[kind] = window
        window.append(record)
        return stalest

    def batches(self, kind: str) -> tuple[BatchRecord, ...]:
        """Return the window of *kind*, oldest first."""
        return tuple(self._windows.get(kind, ()))

    @property
    def known(self) -> int:
        """How many kinds are known."""
        return len(self._windows)

    def counts(self) -> dict[str, int]:
        """Return how many batches are known by kind."""
        return {kind: len(window) for kind, window in self._windows.items()}

    def as_data(self) -> dict[str, Any]:
        """Return everything as JSON-ready data."""
        kinds = {
            kind: [attrs.asdict(record) for record in window]
            for kind, window in self._windows.items()
        }
        return {"format": _FORMAT, "kinds": kinds}


def write_history(path: str | os.PathLike[str], data: dict[str, Any]) -> None:
    """Write *data* as JSON, whole or not at all."""
    # Imported here, so that `import lardon` stays quick.
    import json
    import tempfile
    from pathlib import Path

    target = Path(path)
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        Path(draft).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(draft).unlink()
        raise


def read_history(path: str | os.PathLike[str]) -> History:
    """
    Return the history in the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a history that `write_history` wrote; says what is wrong.

    """
    import json
    from pathlib import Path

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
                history.add(kind, checked_record(**record))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        message = f"{os.fspath(path)} holds a batch that is not valid: {error}"
        raise ValueError(message) from error
    return history


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def checked_record(
    items: int,
    duration_s: float,
    peak_ram_bytes: int | None = None,
    peak_gpu_bytes: int | None = None,
    failed: bool = False,  # noqa: FBT001, FBT002  as in `Governor.record_batch`
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
    return BatchRecord(
        items=items,
        duration_s=float(duration_s),
        peak_ram_bytes=peak_ram_bytes,
        peak_gpu_bytes=peak_gpu_bytes,
        failed=bool(failed),
    )
