"""A decision with its whole arithmetic, resource by resource."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import attrs

from lardon.governor.admission import evaluate
from lardon.governor.decision import Decision, DecisionKind
from lardon.governor.offers import NOTHING_KNOWN, Offer, device_offers, ram_offer
from lardon.governor.reason import ReasonCode
from lardon.governor.snapshot import ResourceSnapshot
from lardon.units import format_bytes

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.ledger import Ledger
    from lardon.governor.offers import DeviceOffer, Outlook
    from lardon.governor.policy import Policy
    from lardon.governor.shape import Asked

# A wait or a reduction for one of these is said by its resource's line.
_SAID_BY_A_LINE: Final = frozenset(
    {
        ReasonCode.RAM_SHORT,
        ReasonCode.GPU_MEMORY_SHORT,
        ReasonCode.CPUS_BUSY,
        ReasonCode.IO_SLOTS_BUSY,
    }
)


@attrs.frozen(kw_only=True)
class ResourceLine:
    """
    The arithmetic of one resource: bytes for memory, counts for slots.

    None stands for unknown, or for a term that the resource does not have.
    """

    resource: str
    """``ram``, ``cpus``, ``io_slots``, a GPU's UUID, or ``gpus`` where none is visible."""
    asked_least: int
    """
    For the smallest batch, or the fewest CPUs. An integrated GPU needs the RAM as well.

    Of memory it is what is asked for: where batches of the kind were measured, what they
    taught.
    """
    asked_most: int
    capacity: int | None
    reserve: int | None
    promised: int
    available: int | None
    """The live figure; None when there is none or it is unknown."""
    found: int | None
    """What is on offer after reserve, promises and capacity."""

    @property
    def verdict(self) -> str:
        """``enough``, ``reduced``, ``short``, ``never`` or ``unknown``."""
        if self.capacity is not None and self.asked_least > self.capacity:
            return "never"
        if self.found is None:
            return "unknown" if self.asked_least else "enough"
        if self.asked_most <= self.found:
            return "enough"
        return "reduced" if self.asked_least <= self.found else "short"


@attrs.frozen(kw_only=True)
class Explanation:
    """What `Governor.explain` returns: the decision and how it came about."""

    decision: Decision
    snapshot: ResourceSnapshot | None
    """None when the probe failed; then there are no lines either."""
    lines: tuple[ResourceLine, ...] = ()
    to_start: tuple[str, ...] = ()
    """What would have to change before the full batch could start, in words."""


def explain(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    now: float,
    outlook: Outlook | None = None,
    devices: Collection[str] | None = None,
) -> Explanation:
    """Return the decision of `evaluate` on the same arguments, with its arithmetic."""
    decision = evaluate(estimate, snapshot, policy, ledger, now, outlook, devices)
    if snapshot.contradiction is not None:
        to_start = (_until_over(decision),)
        return Explanation(decision=decision, snapshot=snapshot, to_start=to_start)
    known = outlook or NOTHING_KNOWN
    ram = ram_offer(snapshot, policy, ledger, known)
    cpus = policy.cpu_capacity(snapshot.cpus)
    io_slots = estimate.io_slots
    offers: list[DeviceOffer] = []
    if estimate.gpus:
        offers = device_offers(snapshot, policy, ledger, known, ram, devices)
    asked: Asked = estimate
    if known.adapts:
        from lardon.governor.adapting import shape_of

        asked = shape_of(estimate, policy, known, ram, offers)
    host = [
        _memory_line("ram", *_ram_range(estimate, asked), ram),
        _slot_line("cpus", estimate.min_cpus, estimate.cpus, cpus, ledger.cpus),
        _slot_line("io_slots", io_slots, io_slots, policy.io_slots, ledger.io_slots),
    ]
    cards: list[ResourceLine] = []
    if estimate.gpus:
        cards = [_card_line(estimate, asked, device) for device in offers]
        if not cards:
            cards = [_slot_line("gpus", estimate.gpus, estimate.gpus, 0, 0)]
    return Explanation(
        decision=decision,
        snapshot=snapshot,
        lines=(*host, *cards),
        to_start=_to_start(decision, estimate, host, cards),
    )


def _memory_line(resource: str, least: int, most: int, offer: Offer) -> ResourceLine:
    return ResourceLine(
        resource=resource,
        asked_least=least,
        asked_most=most,
        capacity=offer.capacity,
        reserve=offer.reserve,
        promised=offer.promised,
        available=None if offer.found is None else offer.available,
        found=offer.found,
    )


def _ram_range(estimate: ResourceEstimate, asked: Asked) -> tuple[int, int]:
    least, most = estimate.min_batch, estimate.max_batch
    return asked.needs(least, shared=False)[0], asked.needs(most, shared=False)[0]


def _card_line(estimate: ResourceEstimate, asked: Asked, device: DeviceOffer) -> ResourceLine:
    shared = device.gpu.integrated
    least, most = (
        sum(needs) if shared else needs[1]
        for needs in (
            asked.needs(estimate.min_batch, shared=shared),
            asked.needs(estimate.max_batch, shared=shared),
        )
    )
    return _memory_line(device.gpu.uuid, least, most, device.offer)


def _slot_line(resource: str, least: int, most: int, capacity: int, reserved: int) -> ResourceLine:
    return ResourceLine(
        resource=resource,
        asked_least=least,
        asked_most=most,
        capacity=capacity,
        reserve=None,
        promised=reserved,
        available=None,
        found=max(0, capacity - reserved),
    )


def _to_start(
    decision: Decision,
    estimate: ResourceEstimate,
    host: list[ResourceLine],
    cards: list[ResourceLine],
) -> tuple[str, ...]:
    if decision.kind is DecisionKind.START:
        return ()
    if decision.kind is DecisionKind.REJECT:
        giver = decision.reason.facts.get("giver")
        where = f"by {giver}" if giver else "on this machine and policy"
        return (f"never {where}: {decision.reason.text}",)
    # As many cards as are asked for must do; the others do not matter.
    enough = sum(card.verdict == "enough" for card in cards) >= estimate.gpus
    lines = host if enough else [*host, *cards]
    missing = tuple(text for line in lines if (text := _missing(line)))
    if missing and decision.reason.code in _SAID_BY_A_LINE:
        return missing
    return (_until_over(decision), *missing)


def _until_over(decision: Decision) -> str:
    return f"until this no longer holds: {decision.reason.text}"


def _missing(line: ResourceLine) -> str:
    """Return what a full batch lacks of one resource, or nothing."""
    found = line.found or 0
    if line.resource in {"cpus", "io_slots"}:
        # A full batch starts on fewer CPUs than wanted.
        if line.verdict != "short":
            return ""
        return f"{line.asked_least - found} more {line.resource} must be released"
    if line.verdict not in {"short", "reduced"}:
        return ""
    text = f"{format_bytes(line.asked_most - found)} more must be on offer of {line.resource}"
    if line.verdict == "short" and line.asked_least < line.asked_most:
        text += f" ({format_bytes(line.asked_least - found)} for the smallest batch)"
    if line.capacity is not None and line.asked_most > line.capacity:
        text += f"; its capacity of {format_bytes(line.capacity)} never holds the full batch"
    return text
