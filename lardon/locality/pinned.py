"""A governor that considers one worker's device only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from lardon.governor.like import GovernorLike

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.decision import Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.policy import Policy
    from lardon.governor.reservation import Reservation
    from lardon.governor.snapshot import ResourceSnapshot


class PoolGovernor(GovernorLike, Protocol):
    """What a `WorkerPool` needs of a governor."""

    def snapshot(self) -> ResourceSnapshot:
        """Return a reading of the machine; asked only for the GPUs and CPUs that it has."""
        ...

    def decide(
        self, estimate: ResourceEstimate, *, devices: Iterable[str] | None = None
    ) -> Decision:
        """Return what `reserve` would answer; nothing changes."""
        ...


class PinnedGovernor:
    """The governor of a pool, as the queue of one worker sees it."""

    def __init__(self, governor: PoolGovernor, device: str | None) -> None:
        self._governor = governor
        self._devices = None if device is None else (device,)

    @property
    def clock(self) -> Clock:
        """The clock of the governor."""
        return self._governor.clock

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._governor.policy

    def decide(self, estimate: ResourceEstimate) -> Decision:
        """Return what `reserve` would answer for this device."""
        if self._devices is None:
            return self._governor.decide(estimate)
        return self._governor.decide(estimate, devices=self._devices)

    def reserve(
        self,
        estimate: ResourceEstimate,
        *,
        holder: str = "",
        replaces: Reservation | None = None,
        devices: Iterable[str] | None = None,
    ) -> tuple[Decision, Reservation | None]:
        """Decide and book, on this device alone."""
        chosen = self._devices if devices is None else devices
        return self._governor.reserve(estimate, holder=holder, replaces=replaces, devices=chosen)

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call *callback* after every change of the governor."""
        return self._governor.subscribe(callback)
