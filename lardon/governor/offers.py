"""What is on offer now, by resource: the arithmetic of admission."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from lardon.governor.zones import CALM, Pressure, Zone

if TYPE_CHECKING:
    from lardon.governor.ledger import Booking, Ledger
    from lardon.governor.lesson import Lesson
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import GpuSnapshot, OwnUse, ResourceSnapshot


class Outlook(NamedTuple):
    """What is known beyond the snapshot and the book; unknown counts as nothing."""

    used: Mapping[int, OwnUse] = MappingProxyType({})
    """Measured use by booking id: what is used already is not promised a second time."""
    ram_credit_bytes: int = 0
    """RAM that the predecessor of this estimate still holds in this process."""
    gpu_credit_bytes: Mapping[str, int] = MappingProxyType({})
    """The same on each GPU, by UUID."""
    lesson: Lesson | None = None
    """What earlier batches of the kind taught."""
    ram_ever_bytes: int | None = None
    """The most that was on offer of late; None until there were many readings."""
    pressure: Pressure = CALM
    """The zone that the machine is in."""
    zone_cap: int | None = None
    """The largest batch that the zone allows this estimate; None for any."""
    growth_bytes_s: int = 0
    """RAM that others take each second."""

    @property
    def adapts(self) -> bool:
        """Whether anything is known that may change an answer of the core's rules."""
        return (
            self.lesson is not None
            or self.zone_cap is not None
            or self.growth_bytes_s > 0
            or self.pressure.zone is Zone.RED
        )


NOTHING_KNOWN: Final = Outlook()


class Offer(NamedTuple):
    """
    One pool of memory, in bytes.

    ``found = available - reserve - promised``, at least 0 and at most what the capacity
    leaves beside the active reservations. `capacity` and `found` are None when unknown.
    """

    available: int
    reserve: int
    promised: int
    capacity: int | None
    found: int | None

    @property
    def live(self) -> int:
        """What the reading alone leaves, whatever the capacity; may be negative."""
        return self.available - self.reserve - self.promised


class DeviceOffer(NamedTuple):
    """One GPU as admission sees it."""

    gpu: GpuSnapshot
    offer: Offer
    """The card's own memory, or the host's RAM for an integrated GPU."""
    tasks: int
    """Reservations that hold the card already."""


def ram_offer(
    snapshot: ResourceSnapshot, policy: Policy, ledger: Ledger, outlook: Outlook
) -> Offer:
    """Return what is on offer of the host's RAM."""
    total, reserve, capacity = policy.ram_terms(snapshot.ram_total_bytes)
    available = min(snapshot.ram_available_bytes + outlook.ram_credit_bytes, total)
    reserved = ledger.ram_bytes
    promised = reserved
    if reserved and outlook.used:
        promised = sum(_ram_promise(booking, outlook) for booking in ledger)
    found = min(available - reserve - promised, capacity - reserved)
    return Offer(available, reserve, promised, capacity, max(0, found))


def _ram_promise(booking: Booking, outlook: Outlook) -> int:
    use = outlook.used.get(booking.id)
    return booking.ram_bytes if use is None else max(0, booking.ram_bytes - use.ram_bytes)


def device_offers(
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    outlook: Outlook,
    ram: Offer,
    devices: Collection[str] | None = None,
) -> list[DeviceOffer]:
    """Return what is on offer of each visible GPU, or of those whose UUID is in *devices*."""
    return [
        DeviceOffer(
            gpu,
            ram if gpu.integrated else _gpu_offer(gpu, policy, ledger, outlook),
            ledger.gpu_tasks(gpu.uuid),
        )
        for gpu in snapshot.gpus
        if devices is None or gpu.uuid in devices
    ]


def _gpu_offer(gpu: GpuSnapshot, policy: Policy, ledger: Ledger, outlook: Outlook) -> Offer:
    total = gpu.size_bytes
    reserve, capacity = policy.gpu_terms(total)
    reserved = ledger.gpu_bytes(gpu.uuid)
    promised = reserved
    if reserved and outlook.used:
        promised = sum(
            _gpu_promise(booking, gpu.uuid, outlook)
            for booking in ledger
            if gpu.uuid in booking.contract.gpus
        )
    free = gpu.free_bytes
    if free is None or not gpu.known:
        return Offer(0, reserve, promised, capacity, None)
    available = free
    if outlook.gpu_credit_bytes:
        available += outlook.gpu_credit_bytes.get(gpu.uuid, 0)
    if total is not None and available > total:
        available = total
    found = available - reserve - promised
    if capacity is not None and found > capacity - reserved:
        found = capacity - reserved
    return Offer(available, reserve, promised, capacity, max(0, found))


def _gpu_promise(booking: Booking, uuid: str, outlook: Outlook) -> int:
    use = outlook.used.get(booking.id)
    if use is None:
        return booking.gpu_bytes
    return max(0, booking.gpu_bytes - use.gpu_bytes.get(uuid, 0))
