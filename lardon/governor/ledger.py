"""The book of what is promised: every active reservation, and exact totals."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from lardon.governor.decision import Contract

# A reason names this many holders, and counts the rest.
_HOLDERS_NAMED: Final = 3


class Booking:
    """One line of the book: who holds what, and where it is charged."""

    __slots__ = ("contract", "gpu_bytes", "holder", "id", "ram_bytes")

    def __init__(self, booking_id: int, holder: str, contract: Contract) -> None:
        self.id = booking_id
        """1, 2, 3 … in order of booking; never used again."""
        self.holder = holder
        """Who holds it, for people to read."""
        self.contract = contract
        self.ram_bytes = contract.ram_bytes
        """RAM charged: the contract's, and its GPU memory too on an integrated GPU."""
        self.gpu_bytes = contract.gpu_bytes
        """Charged on each GPU of the contract: 0 where the RAM was charged instead."""


@attrs.define
class DeviceTotal:
    """What is booked on one GPU."""

    gpu_bytes: int = 0
    tasks: int = 0


class Ledger:
    """
    The active bookings of one governor, by id.

    Only integers are added and subtracted, so that the totals are exactly the sum of the
    bookings, and 0 when there is none. Not thread-safe: the governor's lock guards it.
    """

    __slots__ = ("_devices", "bookings", "cpus", "io_slots", "ram_bytes")

    def __init__(self) -> None:
        self.bookings: dict[int, Booking] = {}
        self._devices: dict[str, DeviceTotal] = {}
        self.ram_bytes = 0
        self.cpus = 0
        self.io_slots = 0

    def __len__(self) -> int:
        return len(self.bookings)

    def __iter__(self) -> Iterator[Booking]:
        return iter(self.bookings.values())

    def book(self, booking: Booking, integrated: Collection[str] = ()) -> None:
        """Add a line; GPU memory on one of the *integrated* UUIDs is charged to the RAM."""
        contract = booking.contract
        if contract.gpus:
            if contract.gpus[0] in integrated:
                booking.ram_bytes += booking.gpu_bytes
                booking.gpu_bytes = 0
            for uuid in contract.gpus:
                total = self._devices.setdefault(uuid, DeviceTotal())
                total.gpu_bytes += booking.gpu_bytes
                total.tasks += 1
        self.bookings[booking.id] = booking
        self.ram_bytes += booking.ram_bytes
        self.cpus += contract.cpus
        self.io_slots += contract.io_slots

    def release(self, booking: Booking) -> bool:
        """Take *booking* out; False when it is not in the book."""
        if self.bookings.get(booking.id) is not booking:
            return False
        del self.bookings[booking.id]
        contract = booking.contract
        self.ram_bytes -= booking.ram_bytes
        self.cpus -= contract.cpus
        self.io_slots -= contract.io_slots
        for uuid in contract.gpus:
            total = self._devices[uuid]
            total.gpu_bytes -= booking.gpu_bytes
            total.tasks -= 1
            if not total.tasks:
                del self._devices[uuid]
        return True

    def gpu_bytes(self, uuid: str) -> int:
        """Return the GPU memory booked on this card."""
        total = self._devices.get(uuid)
        return total.gpu_bytes if total is not None else 0

    def gpu_tasks(self, uuid: str) -> int:
        """Return how many bookings hold this card."""
        total = self._devices.get(uuid)
        return total.tasks if total is not None else 0

    def devices(self) -> dict[str, DeviceTotal]:
        """Return a copy of the totals by UUID, for people to read."""
        return {uuid: attrs.evolve(total) for uuid, total in self._devices.items()}

    def holders(self, resource: str) -> str:
        """
        Return the names of those who hold some of *resource*, the first few by name.

        It is ``ram``, ``cpu``, ``io``, ``gpu`` for a slot of any, or the UUID of one.
        """
        names = [
            booking.holder or f"reservation {booking.id}"
            for booking in self
            if _holds(booking, resource)
        ]
        text = ", ".join(names[:_HOLDERS_NAMED])
        rest = len(names) - _HOLDERS_NAMED
        return f"{text} and {rest} more" if rest > 0 else text


def _holds(booking: Booking, resource: str) -> bool:
    contract = booking.contract
    if resource == "ram":
        return booking.ram_bytes > 0
    if resource in {"cpu", "io"}:
        return (contract.cpus if resource == "cpu" else contract.io_slots) > 0
    return resource in contract.gpus or (resource == "gpu" and bool(contract.gpus))
