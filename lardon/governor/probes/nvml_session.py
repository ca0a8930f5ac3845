"""What is known of the driver in this process: whether it runs, and what to leave alone."""

from __future__ import annotations

import contextlib
import math
import threading
from typing import Any, Final

from lardon.forks import forks
from lardon.governor.probes.bounded import Helper
from lardon.governor.probes.nvml_cards import KnownCard, described, unavailable

# How long a driver that is not there, or a card that does not answer, is left alone; and
# how long a card's name, UUID and MIG instances are taken as known.
RETRY_S: Final = 30.0

# NVML's codes for a driver that is not there, as on every machine without a GPU: driver
# not loaded, library not found. Nobody needs to be told.
_NO_DRIVER: Final = frozenset({9, 12})
# Somebody else in this process shut NVML down.
_UNINITIALISED: Final = 1


def _code(error: BaseException) -> int | None:
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


class Session:
    """
    NVML as initialised by this process; a forked child makes a session of its own.

    Several helper threads may write here, one that hung for long among them: every
    attribute is one reference, and each helper writes what it found itself.
    """

    def __init__(self, nvml: Any) -> None:
        self.forks = forks()
        self.nvml = nvml
        self.count: int | None = None
        """Cards that the driver lists, None as long as it never said."""
        self.known: dict[int, KnownCard] = {}
        self.error = ""
        """Why there is no GPU, for people to read; empty when there may be one."""
        self.quiet_until = -math.inf
        """Before this, in seconds of the clock, a driver that failed is not tried again."""
        self.worth_telling = False
        """Whether the error is more than the absence of any driver."""
        # Held by a helper while the driver starts, so that it is started once.
        self._init_lock = threading.Lock()
        self._ready = False
        self._to_shut_down = False
        self._stuck: Helper | None = None
        self._left_alone: dict[int, tuple[float, Helper]] = {}
        self._identified_at: dict[int, float] = {}

    @property
    def starting(self) -> bool:
        """Whether the driver as a whole was asked and has not answered yet."""
        return self._stuck is not None and self._stuck.running

    def fail(self, text: str, now: float, *, worth_telling: bool) -> None:
        """Note that there is no driver now, and leave it alone for a while."""
        self.error, self.worth_telling = text, worth_telling
        self.quiet_until = now + RETRY_S
        self._ready = False
        self.count = None
        self.known.clear()

    def count_cards(self, now: float) -> int | None:
        """Start the driver if need be; return how many cards it lists, None if it failed."""
        try:
            self._start()
            try:
                count = int(self.nvml.nvmlDeviceGetCount())
            except Exception as error:
                if _code(error) != _UNINITIALISED:
                    raise
                self._ready = self._to_shut_down = False
                self._start()
                count = int(self.nvml.nvmlDeviceGetCount())
        except Exception as error:  # noqa: BLE001  a binding may raise anything
            text = described(error)
            self.fail(text, now, worth_telling=_code(error) not in _NO_DRIVER)
            return None
        self.error, self.count = "", count
        return count

    def _start(self) -> None:
        with self._init_lock:
            if self._ready:
                return
            if self._to_shut_down:
                # The driver went away under an earlier start: each start has its end.
                self._to_shut_down = False
                with contextlib.suppress(Exception):
                    self.nvml.nvmlShutdown()
            self.nvml.nvmlInit()
            self._ready = self._to_shut_down = True

    def give_up(self, helper: Helper, now: float) -> None:
        """Leave alone what *helper* hangs at: one card, or the driver before any card."""
        helper.abandoned = True
        place = helper.doing
        if place is None:
            self._stuck = helper
        else:
            self._left_alone[place] = (now + RETRY_S, helper)

    def is_left_alone(self, place: int, now: float) -> bool:
        """Return whether the card at *place* must not be asked now."""
        entry = self._left_alone.get(place)
        if entry is None:
            return False
        until, helper = entry
        if now < until or helper.running:
            return True
        self._left_alone.pop(place, None)
        return False

    def identified(self, place: int, now: float) -> KnownCard | None:
        """Return the card at *place*, None when it has to be identified again."""
        card = self.known.get(place)
        if card is None or card.handle is None or card.error:
            return None
        return card if now - self._identified_at[place] < RETRY_S else None

    def cards(self) -> list[KnownCard]:
        """Return every card that the driver lists, in bus order."""
        known = self.known
        return [
            known.get(place) or unavailable(place, "it did not answer")
            for place in range(self.count or 0)
        ]

    def learn(self, place: int, card: KnownCard, now: float) -> None:
        """Remember what the card at *place* said of itself."""
        self._identified_at[place] = now
        self.known[place] = card
