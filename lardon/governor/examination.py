"""
The checks of admission in their order, for what does not simply start.

Pure functions, as in `lardon.governor.admission`, which calls `examine`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs

from lardon.governor.admission import granted, too_much_pressure
from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.governor.feasibility import limits_text, never
from lardon.governor.offers import NOTHING_KNOWN, DeviceOffer, Offer, device_offers, ram_offer
from lardon.governor.placing import Option, place_on_gpus, place_without_gpu
from lardon.governor.reason import Fact, Reason, ReasonCode
from lardon.governor.zones import Zone

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.ledger import Ledger
    from lardon.governor.offers import Outlook
    from lardon.governor.policy import Policy
    from lardon.governor.shape import Asked, Shape
    from lardon.governor.snapshot import ResourceSnapshot


def examine(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    outlook: Outlook | None,
    devices: Collection[str] | None,
) -> Decision:
    """Go through the checks that follow a usable snapshot, in their order."""
    outlook = outlook or NOTHING_KNOWN
    ram = ram_offer(snapshot, policy, ledger, outlook)
    offers: list[DeviceOffer] = []
    if estimate.gpus:
        offers = device_offers(snapshot, policy, ledger, outlook, ram, devices)
    asked: Asked = estimate
    shape: Shape | None = None
    if outlook.adapts:
        # Imported where it is needed: a governor that learned nothing does without.
        from lardon.governor.adapting import shape_of

        asked = shape = shape_of(estimate, policy, outlook, ram, offers)
    impossible = never(estimate, asked, snapshot, policy, ram, offers)
    if impossible is not None:
        return Decision(kind=DecisionKind.REJECT, reason=impossible)
    free_cpus = policy.cpu_capacity(snapshot.cpus) - ledger.cpus
    not_now = (
        too_much_pressure(estimate, snapshot, policy)
        or _slots_busy(estimate, snapshot, policy, ledger, free_cpus, offers)
        or _red_zone(outlook)
    )
    if not_now is not None:
        return Decision(kind=DecisionKind.WAIT, reason=not_now)

    def place(asked: Asked) -> Option | Reason:
        if not estimate.gpus:
            return place_without_gpu(asked, ram)
        return _choose_gpus(estimate, asked, policy, ram, offers)

    option = place(asked)
    if isinstance(option, Reason):
        return Decision(kind=DecisionKind.WAIT, reason=option)
    cpus = min(estimate.cpus, free_cpus)
    answer = _answer(estimate, asked, snapshot, ledger, ram, option, cpus)
    if shape is None:
        return answer
    from lardon.governor.adapting import adapted

    reason = adapted(answer.reason, estimate, shape, option, outlook, place)
    return attrs.evolve(answer, reason=reason)


def _red_zone(outlook: Outlook) -> Reason | None:
    if outlook.pressure.zone is not Zone.RED:
        return None
    from lardon.governor.adapting import red_zone

    return red_zone(outlook.pressure)


def _answer(
    estimate: ResourceEstimate,
    asked: Asked,
    snapshot: ResourceSnapshot,
    ledger: Ledger,
    ram: Offer,
    option: Option,
    cpus: int,
) -> Decision:
    """Return the decision for a placed batch, or for none that fits."""
    batch = option.batch
    if not batch:
        reason = _short(asked, estimate.min_batch, snapshot, ledger, ram, option)
        return Decision(kind=DecisionKind.WAIT, reason=reason)
    ram_bytes, gpu_bytes = asked.needs(batch, shared=option.shared_ram)
    contract = Contract(
        batch_size=batch,
        ram_bytes=ram_bytes,
        gpu_bytes=gpu_bytes,
        gpus=tuple([device.gpu.uuid for device in option.gpus]),
        cpus=cpus,
        io_slots=estimate.io_slots,
    )
    if batch == estimate.max_batch:
        reason = granted(contract, ram.found or 0, ram.capacity or 0)
        return Decision(kind=DecisionKind.START, contract=contract, reason=reason)
    reason = _short(asked, estimate.max_batch, snapshot, ledger, ram, option)
    return Decision(kind=DecisionKind.REDUCE_BATCH, contract=contract, reason=reason)


def _choose_gpus(
    estimate: ResourceEstimate,
    asked: Asked,
    policy: Policy,
    ram: Offer,
    offers: list[DeviceOffer],
) -> Option | Reason:
    """Place the estimate on free cards, or say that too few tell what they have free."""
    usable = _usable_together(estimate, offers)
    free = [device for device in usable if device.tasks < policy.tasks_per_gpu]
    known = free
    if estimate.asks_gpu_memory:
        known = [device for device in free if device.offer.found is not None]
    return place_on_gpus(estimate, asked, ram, known) or _free_memory_unknown(estimate, free, known)


def _usable_together(estimate: ResourceEstimate, offers: list[DeviceOffer]) -> list[DeviceOffer]:
    """Leave out the integrated GPUs where several are asked for: such a GPU is used alone."""
    return [device for device in offers if estimate.gpus == 1 or not device.gpu.integrated]


def _slots_busy(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    free_cpus: int,
    offers: list[DeviceOffer],
) -> Reason | None:
    if free_cpus < estimate.min_cpus:
        limit = policy.cpu_capacity(snapshot.cpus)
        return _busy(ReasonCode.CPUS_BUSY, "cpu", estimate.min_cpus, free_cpus, limit, ledger)
    if estimate.gpus:
        usable = _usable_together(estimate, offers)
        free = sum(device.tasks < policy.tasks_per_gpu for device in usable)
        if free < estimate.gpus:
            code = ReasonCode.GPUS_BUSY
            return _busy(code, "gpu", estimate.gpus, free, len(usable), ledger)
    if estimate.io_slots:
        free = policy.io_slots - ledger.io_slots
        if free < estimate.io_slots:
            code, limit = ReasonCode.IO_SLOTS_BUSY, policy.io_slots
            return _busy(code, "io", estimate.io_slots, free, limit, ledger)
    return None


def _busy(
    code: ReasonCode, resource: str, asked: int, found: int, limit: int, ledger: Ledger
) -> Reason:
    return Reason(
        code=code,
        facts={
            "resource": resource,
            "asked": asked,
            "found": max(0, found),
            "limit": limit,
            "holders": ledger.holders(resource),
        },
    )


def _free_memory_unknown(
    estimate: ResourceEstimate, free: list[DeviceOffer], known: list[DeviceOffer]
) -> Reason:
    facts: dict[str, Fact] = {"resource": "gpu", "asked": estimate.gpus}
    facts.update(found=len(known), limit=len(free))
    return Reason(code=ReasonCode.GPU_MEMORY_UNKNOWN, facts=facts)


def _short(
    asked: Asked,
    batch: int,
    snapshot: ResourceSnapshot,
    ledger: Ledger,
    ram: Offer,
    option: Option,
) -> Reason:
    """Return the reason why a batch of *batch* items does not fit, with every term."""
    facts: dict[str, Fact] = {"batch": batch}
    need, gpu_need = asked.needs(batch, shared=option.shared_ram)
    if option.bound is ReasonCode.RAM_SHORT:
        if option.shared_ram:
            need += gpu_need
        facts.update(_terms("ram", need, ram, ledger.ram_bytes))
        facts.update(holders=ledger.holders("ram"), limits=limits_text(snapshot, gpus=False))
        return Reason(code=option.bound, facts=facts)
    weakest = option.gpus[-1]
    booked = ledger.gpu_bytes(weakest.gpu.uuid)
    facts.update(_terms("gpu", gpu_need, weakest.offer, booked))
    facts.update(device=weakest.gpu.uuid, holders=ledger.holders(weakest.gpu.uuid))
    total, driver_free = weakest.gpu.total_bytes, weakest.gpu.free_bytes or 0
    if total is not None:
        facts["others"] = max(0, total - driver_free - booked)
    return Reason(code=option.bound, facts=facts)


def _terms(resource: str, asked: int, offer: Offer, reserved: int) -> dict[str, Fact]:
    terms: dict[str, Fact] = {
        "resource": resource,
        "asked": asked,
        "found": offer.found or 0,
        "available": offer.available,
        "reserve": offer.reserve,
        "promised": offer.promised,
        "reserved": reserved,
    }
    if offer.capacity is not None:
        terms["limit"] = offer.capacity
    return terms
