"""Asking a probe that may fail, without ever failing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lardon.events import logger
from lardon.governor.checks import described, shown
from lardon.governor.decision import Decision, DecisionKind
from lardon.governor.reason import Reason, ReasonCode
from lardon.governor.snapshot import MeasuringProbe, ResourceSnapshot, WatchingProbe

if TYPE_CHECKING:
    from lardon.governor.snapshot import OwnUse, PeakWatch, Probe


def checked_snapshot(snapshot: object) -> ResourceSnapshot:
    """Return *snapshot*, or raise TypeError when it is none."""
    if not isinstance(snapshot, ResourceSnapshot):
        message = f"a snapshot must be a lardon.ResourceSnapshot, not {shown(snapshot)}"
        raise TypeError(message)
    return snapshot


class Reader:
    """A probe, and what is made of its failures."""

    __slots__ = ("_complaints", "_measure", "_watch", "probe")

    def __init__(self, probe: Probe) -> None:
        if isinstance(probe, type) or not callable(getattr(probe, "snapshot", None)):
            message = f"a probe must have a snapshot method, unlike {shown(probe)}"
            raise TypeError(message)
        self.probe = probe
        self._measure = probe.own_use if isinstance(probe, MeasuringProbe) else None
        self._watch = probe.watch_peak if isinstance(probe, WatchingProbe) else None
        self._complaints: set[str] = set()

    def snapshot(self) -> ResourceSnapshot | Decision:
        """Return a fresh reading, or the WAIT that stands for a probe that raised."""
        try:
            return checked_snapshot(self.probe.snapshot())
        except Exception as error:  # noqa: BLE001  a probe may raise anything
            self._complain("snapshot", error)
            facts = {"resource": "probe", "error": described(error)}
            reason = Reason(code=ReasonCode.PROBE_FAILED, facts=facts)
            return Decision(kind=DecisionKind.WAIT, reason=reason)

    def own_use(self) -> OwnUse | None:
        """Return what this process uses, or None when that cannot be measured."""
        if self._measure is None:
            return None
        try:
            return self._measure()
        except Exception as error:  # noqa: BLE001  a probe may raise anything
            self._complain("own use", error)
            return None

    def tidy(self) -> None:
        """Have freed memory given back, where the probe can, so that it is not read as used."""
        tidy = getattr(self.probe, "tidy", None)
        if tidy is not None:
            try:
                tidy()
            except Exception as error:  # noqa: BLE001  as above
                self._complain("tidying", error)

    def watch_peak(self) -> PeakWatch | None:
        """Begin to watch the peak of this process; None when that cannot be measured."""
        if self._watch is None:
            return None
        try:
            return self._watch()
        except Exception as error:  # noqa: BLE001  a probe may raise anything
            self._complain("watch", error)
            return None

    def peak(self, watch: PeakWatch) -> OwnUse | None:
        """Return the most used since *watch* began; None when it is unknown."""
        try:
            return watch.stop()
        except Exception as error:  # noqa: BLE001  as above
            self._complain("peak", error)
            return None

    def _complain(self, what: str, error: Exception) -> None:
        """Log a failure once per type: a broken probe is asked often."""
        key = f"{what} {type(error).__name__}"
        if key not in self._complaints:
            self._complaints.add(key)
            logger.warning("lardon: the probe's %s failed", what, exc_info=error)
