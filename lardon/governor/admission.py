"""
The decision: a pure function of estimate, snapshot, policy, ledger and time.

No clock, probe, lock or log is used here. The order of the checks is part of the public
interface; the first that matches answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs

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

_PRESSURE_DIGITS = 2


def evaluate(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    now: float,
    outlook: Outlook | None = None,
    devices: Collection[str] | None = None,
) -> Decision:
    """
    Return what the governor answers to *estimate*; nothing is booked.

    Args:
        estimate: What is asked for.
        snapshot: The machine as it was read.
        policy: What the owner allows.
        ledger: The active reservations; read only.
        now: Monotonic seconds of the clock that also stamped the snapshot.
        outlook: Measured use and memory that a predecessor still holds, where known.
        devices: Consider only these GPU UUIDs; None means all that the snapshot lists.

    """
    unusable = _unusable(snapshot, policy, now)
    if unusable is not None:
        return Decision(kind=DecisionKind.WAIT, reason=unusable)
    if outlook is None and not estimate.gpus:
        at_once = _full_start(estimate, snapshot, policy, ledger)
        if at_once is not None:
            return at_once
    return _examine(estimate, snapshot, policy, ledger, outlook or NOTHING_KNOWN, devices)


def _examine(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    outlook: Outlook,
    devices: Collection[str] | None,
) -> Decision:
    """Go through the checks that follow a usable snapshot, in their order."""
    ram = ram_offer(snapshot, policy, ledger, outlook)
    offers: list[DeviceOffer] = []
    if estimate.gpus:
        offers = device_offers(snapshot, policy, ledger, outlook, ram, devices)
    asked: Asked = estimate
    shape: Shape | None = None
    if outlook.adapts:
        # Imported where they are needed: a governor that learned nothing needs neither.
        from lardon.governor.adapting import shape_of

        asked = shape = shape_of(estimate, policy, outlook, ram, offers)
    impossible = never(estimate, asked, snapshot, policy, ram, offers)
    if impossible is not None:
        return Decision(kind=DecisionKind.REJECT, reason=impossible)
    free_cpus = policy.cpu_capacity(snapshot.cpus) - ledger.cpus
    not_now = (
        _too_much_pressure(estimate, snapshot, policy)
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
        reason = _granted(contract, ram.found or 0, ram.capacity or 0)
        return Decision(kind=DecisionKind.START, contract=contract, reason=reason)
    reason = _short(asked, estimate.max_batch, snapshot, ledger, ram, option)
    return Decision(kind=DecisionKind.REDUCE_BATCH, contract=contract, reason=reason)


def _full_start(
    estimate: ResourceEstimate, snapshot: ResourceSnapshot, policy: Policy, ledger: Ledger
) -> Decision | None:
    """
    Return START when a full batch without a GPU fits and no rule speaks against it.

    The answer that nearly every question gets, at a fraction of the cost. None means to
    go through the checks in their order; they come to the same answer where this has one.
    """
    total, reserve, capacity = policy.ram_terms(snapshot.ram_total_bytes)
    reserved = ledger.ram_bytes
    found = min(snapshot.ram_available_bytes, total) - reserve - reserved
    if found > capacity - reserved:
        found = capacity - reserved
    need = estimate.ram_most
    if (
        need > found
        or estimate.cpus > policy.cpu_capacity(snapshot.cpus) - ledger.cpus
        or (estimate.io_slots and estimate.io_slots > policy.io_slots - ledger.io_slots)
        or _too_much_pressure(estimate, snapshot, policy) is not None
        or found < 0
    ):
        return None
    last = estimate._last_start
    if last is not None and last[0] == found and last[1] == capacity:
        # The same figures again, as between two tasks of a busy queue: the same answer.
        return last[2]
    contract = Contract(
        batch_size=estimate.max_batch,
        ram_bytes=need,
        cpus=estimate.cpus,
        io_slots=estimate.io_slots,
    )
    decision = Decision(
        kind=DecisionKind.START, contract=contract, reason=_granted(contract, found, capacity)
    )
    object.__setattr__(estimate, "_last_start", (found, capacity, decision))
    return decision


def _granted(contract: Contract, found: int, limit: int) -> Reason:
    facts = ("ram", contract.ram_bytes, found, limit, contract.batch_size, "")
    return Reason(code=ReasonCode.OK, facts=facts)


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


def _unusable(snapshot: ResourceSnapshot, policy: Policy, now: float) -> Reason | None:
    if (problem := snapshot.contradiction) is not None:
        return Reason(
            code=ReasonCode.INVALID_SNAPSHOT, facts={"resource": "snapshot", "problem": problem}
        )
    age = now - snapshot.taken_at
    if 0 <= age <= policy.snapshot_max_age_s:
        return None
    # NaN lands here too, and is not JSON. Not rounded: that could show an age within the limit.
    found = age if math.isfinite(age) else str(age)
    return Reason(
        code=ReasonCode.STALE_SNAPSHOT,
        facts={"resource": "snapshot", "found": found, "limit": policy.snapshot_max_age_s},
    )


def _too_much_pressure(
    estimate: ResourceEstimate, snapshot: ResourceSnapshot, policy: Policy
) -> Reason | None:
    """Return the live rule that is at or above its limit; an unknown reading never is."""
    limit, load = policy.max_load_ratio, snapshot.load1
    if limit is not None and load is not None and load / snapshot.cpus >= limit:
        return _live(ReasonCode.LOAD, "load", load / snapshot.cpus, limit)
    limit, found = policy.max_cpu_pressure, snapshot.cpu_pressure
    if limit is not None and found is not None and found >= limit:
        return _live(ReasonCode.CPU_PRESSURE, "cpu", found, limit)
    limit, found = policy.max_memory_pressure, snapshot.memory_pressure
    if limit is not None and found is not None and found >= limit:
        return _live(ReasonCode.MEMORY_PRESSURE, "memory", found, limit)
    if estimate.io_slots:
        limit, found = policy.max_io_pressure, snapshot.io_pressure
        if limit is not None and found is not None and found >= limit:
            return _live(ReasonCode.IO_PRESSURE, "io", found, limit)
    return None


def _live(code: ReasonCode, resource: str, found: float, limit: float) -> Reason:
    # Rounding could bring the figure below the limit that it reached.
    shown = max(round(found, _PRESSURE_DIGITS), limit)
    return Reason(code=code, facts={"resource": resource, "found": shown, "limit": limit})


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
