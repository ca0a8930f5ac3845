"""A probe for one look: it waits for a driver that is only starting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lardon.governor.probes import SystemProbe

if TYPE_CHECKING:
    from lardon.governor.snapshot import ResourceSnapshot

# A driver that nobody uses is loaded at the first call, which takes a second or two; a
# snapshot waits half a second for it. Whoever asks once would never see the cards.
PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.05
# What `lardon.governor.probes.nvml` says of such a driver; a test holds the two together.
STARTING: Final = "GPU driver has not answered yet"


class PatientProbe(SystemProbe):
    """
    The machine's probe, whose first reading waits up to `PATIENCE_S` for the GPU driver.

    Args:
        arguments: `SystemProbe`'s own, by name.
        sleep: how the time until the next try passes; for tests.

    """

    def __init__(self, sleep: Callable[[float], object] | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._sleep = threading.Event().wait if sleep is None else sleep
        self._patient = True

    def snapshot(self) -> ResourceSnapshot:
        """Return a fresh reading; the first one with the cards, if the driver says them soon."""
        found = super().snapshot()
        if self._patient:
            self._patient = False
            until = time.monotonic() + PATIENCE_S
            while _driver_starts(found) and time.monotonic() < until:
                self._sleep(_PAUSE_S)
                found = super().snapshot()
        return found


def _driver_starts(snapshot: ResourceSnapshot) -> bool:
    return any(text.startswith(STARTING) for text in snapshot.limits)
