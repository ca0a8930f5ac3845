"""The part of a governor that a queue relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.batch_watch import BatchWatch
    from lardon.governor.decision import Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.policy import Policy
    from lardon.governor.reservation import Reservation


class GovernorLike(Protocol):
    """What a `TaskQueue` needs of a governor. One that learns is a `LearningGovernor` too."""

    @property
    def clock(self) -> Clock:
        """The clock that the queue uses too."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy in force; the queue reads `recheck_s`."""
        ...

    def reserve(
        self,
        estimate: ResourceEstimate,
        *,
        holder: str = "",
        replaces: Reservation | None = None,
        devices: Iterable[str] | None = None,
    ) -> tuple[Decision, Reservation | None]:
        """Decide, and book what is granted."""
        ...

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call *callback* after every booking, release and policy change."""
        ...


@runtime_checkable
class LearningGovernor(Protocol):
    """What a queue needs to report batches; both are called on the worker's thread."""

    def watch_batch(self, reservation: Reservation) -> BatchWatch:
        """Begin to measure a batch that runs under *reservation*."""
        ...

    def record_batch(
        self,
        kind: str,
        items: int,
        duration_s: float,
        peak_ram_bytes: int | None = None,
        peak_gpu_bytes: int | None = None,
        failed: bool = False,  # noqa: FBT001, FBT002  the design's own signature
    ) -> None:
        """Remember what a batch of *kind* took."""
        ...
