"""The right to use what a contract grants, until it is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from lardon.governor.ledger import Booking

if TYPE_CHECKING:
    from types import TracebackType

    from lardon.governor.decision import Contract
    from lardon.governor.snapshot import OwnUse


class _Releaser(Protocol):
    def _release(self, reservation: Reservation) -> bool: ...


class Reservation(Booking):
    """
    One booking of a governor, held until it is released.

    Opaque to callbacks: they read the contract. Usable as a context manager. Every
    method may be called from any thread, any number of times.
    """

    __slots__ = ("_active", "_alone", "_at_booking", "_baseline", "_owner")

    def __init__(
        self, owner: _Releaser, reservation_id: int, holder: str, contract: Contract
    ) -> None:
        # What `Booking.__init__` does, without the cost of a second call: one reservation
        # is made for every task and every break.
        self.id = reservation_id
        self.holder = holder
        self.contract = contract
        self.ram_bytes = contract.ram_bytes
        self.gpu_bytes = contract.gpu_bytes
        self._owner = owner
        self._active = True
        # What this process used when the work began; None where it cannot be measured.
        self._baseline: OwnUse | None = None
        # And what it used when this was booked: at a break more than that, if something is kept.
        self._at_booking: OwnUse | None = None
        # Set at release: no other reservation of the governor was active then.
        self._alone = False

    @property
    def active(self) -> bool:
        """True until the first release."""
        return self._active

    def release(self) -> bool:
        """Give everything back. True for the first call, whoever makes it, then False."""
        return self._owner._release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "active" if self._active else "released"
        return f"<Reservation {self.id} {state}: {self.contract}>"
