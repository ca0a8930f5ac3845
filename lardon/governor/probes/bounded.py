"""Driver calls that may hang, on a thread that nobody has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

THREAD_NAME: Final = "lardon-nvml"


class Helper:
    """
    One piece of work on a named daemon thread.

    The thread lives as long as the work. One that hangs in a driver cannot be ended; it
    is left behind, and ends by itself when the driver answers.
    """

    def __init__(self, work: Callable[[Helper], None]) -> None:
        """Start *work*; it should stop when `abandoned` is set."""
        self.abandoned = False
        self.doing: int | None = None
        """The place of the card that is being asked, None before the first."""
        self._thread = threading.Thread(target=work, args=(self,), name=THREAD_NAME, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The interpreter is about to end, or the machine is out of threads.
            self.abandoned = True

    def finished(self, timeout: float) -> bool:
        """Wait up to *timeout* seconds; return whether the work is done."""
        if self.abandoned:
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def running(self) -> bool:
        """Whether the work is still going on, abandoned or not."""
        return self._thread.is_alive()
