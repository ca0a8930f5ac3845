"""How far a task is."""

from __future__ import annotations

import math
from typing import Final

import attrs


@attrs.frozen
class Progress:
    """How far a task is. Never goes back, and survives breaks."""

    done: float = 0
    total: float | None = None
    """None while it is unknown."""
    message: str = ""
    fraction: float = 0.0
    """0 to 1; 0 while the total is unknown."""

    def advanced(self, done: float, total: float | None, message: str) -> Progress:
        """Return the progress after a report: neither `done` nor `fraction` goes back."""
        done = max(self.done, _amount("done", done))
        total = self.total if total is None else _amount("total", total)
        fraction = self.fraction
        if total is not None:
            share = 1.0 if total == 0 else min(1.0, done / total)
            fraction = max(fraction, share)
        return Progress(done, total, message, fraction)


NO_PROGRESS: Final = Progress()


def _amount(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"{name} must be a number, not {value!r}"
        raise TypeError(message)
    # An integer of any size is finite, and may be too large for a float.
    if (isinstance(value, float) and not math.isfinite(value)) or value < 0:
        message = f"{name} must be a finite number of at least 0, not {value!r}"
        raise ValueError(message)
    return value
