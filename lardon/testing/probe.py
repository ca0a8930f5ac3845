"""A probe that says what a test tells it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from lardon.clock import MachineClock

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.snapshot import OwnUse, PeakWatch, ResourceSnapshot


class ScriptedProbe:
    """
    Returns the given snapshots one after the other; the last one repeats.

    An exception in the script is raised instead. Each snapshot is stamped with the
    clock's time, as a fresh reading would be, unless *stamp* is False.

    Args:
        snapshots: What to say.
        clock: The governor's clock; None is the machine's.
        stamp: Whether `taken_at` is replaced by the time of the call.
        own_use: What the process is said to use: an `OwnUse`, a function that returns
            one, or None for "cannot be measured".

    """

    def __init__(
        self,
        *snapshots: ResourceSnapshot | BaseException,
        clock: Clock | None = None,
        stamp: bool = True,
        own_use: OwnUse | Callable[[], OwnUse | None] | None = None,
    ) -> None:
        if not snapshots:
            message = "a scripted probe needs at least one snapshot or exception"
            raise ValueError(message)
        self._clock: Clock = clock if clock is not None else MachineClock()
        self._stamp = stamp
        # Guards the script; a test may change it while a governor asks.
        self._lock = threading.Lock()
        self._script = list(snapshots)
        self.use = own_use
        """What `own_use` answers; a test may set it."""
        self.peak = own_use
        """What a watch answers in the end, given like `use`; at first the same."""
        self.calls = 0
        """How many snapshots were asked for."""
        self.on_snapshot: Callable[[], object] | None = None
        """Called before each answer, on the thread that asks: the place for a race."""

    def set(self, snapshot: ResourceSnapshot | BaseException) -> None:
        """Say this from now on."""
        with self._lock:
            self._script = [snapshot]

    def snapshot(self) -> ResourceSnapshot:
        """Return or raise the next entry of the script."""
        if self.on_snapshot is not None:
            self.on_snapshot()
        with self._lock:
            self.calls += 1
            entry = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(entry, BaseException):
            raise entry
        if self._stamp:
            return attrs.evolve(entry, taken_at=self._clock.monotonic())
        return entry

    def own_use(self) -> OwnUse | None:
        """Return what the test set."""
        return self.use() if callable(self.use) else self.use

    def watch_peak(self) -> PeakWatch:
        """Begin to watch; what `stop` returns is `peak` at that time."""
        return _ScriptedPeak(self)


class _ScriptedPeak:
    """What `ScriptedProbe.watch_peak` returns."""

    start: OwnUse | None = None

    def __init__(self, probe: ScriptedProbe) -> None:
        self._probe = probe

    def stop(self) -> OwnUse | None:
        peak = self._probe.peak
        return peak() if callable(peak) else peak
