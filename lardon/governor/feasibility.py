"""Can it ever run here? Capacity and policy decide, never the present."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lardon.governor.reason import Reason, ReasonCode

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.offers import DeviceOffer, Offer
    from lardon.governor.policy import Policy
    from lardon.governor.reason import Fact
    from lardon.governor.shape import Asked
    from lardon.governor.snapshot import ResourceSnapshot


def never(
    estimate: ResourceEstimate,
    asked: Asked,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ram: Offer,
    offers: list[DeviceOffer],
) -> Reason | None:
    """Return why the estimate can never run here; capacity and policy alone decide."""
    if estimate.gpus and not offers:
        return Reason(
            code=ReasonCode.NO_GPU,
            facts={
                "resource": "gpu",
                "asked": estimate.gpus,
                "found": 0,
                "limit": 0,
                "limits": limits_text(snapshot, gpus=True),
                **_giver(snapshot),
            },
        )
    capacity = ram.capacity or 0
    need = asked.least_ram
    if need > capacity:
        return _beyond_ram(estimate, snapshot, need, capacity)
    if estimate.gpus:
        reason = _beyond_gpus(estimate, asked, snapshot, policy, capacity, offers)
        if reason is not None:
            return reason
    cpus = policy.cpu_capacity(snapshot.cpus)
    if estimate.min_cpus > cpus:
        return _beyond_count(ReasonCode.CPU_CAPACITY, "cpu", estimate.min_cpus, cpus, snapshot)
    if estimate.io_slots > policy.io_slots:
        slots = policy.io_slots
        return _beyond_count(ReasonCode.IO_CAPACITY, "io", estimate.io_slots, slots, snapshot)
    return None


def limits_text(snapshot: ResourceSnapshot, *, gpus: bool) -> str:
    """Return what the probe says of the GPUs, or of everything else; see `SystemProbe`."""
    return "; ".join([text for text in snapshot.limits if text.startswith("GPU") is gpus])


def _giver(snapshot: ResourceSnapshot) -> dict[str, Fact]:
    return {"giver": snapshot.giver} if snapshot.giver else {}


def _beyond_count(
    code: ReasonCode, resource: str, asked: int, limit: int, snapshot: ResourceSnapshot
) -> Reason:
    return Reason(
        code=code,
        facts={
            "resource": resource,
            "asked": asked,
            "found": limit,
            "limit": limit,
            **_giver(snapshot),
        },
    )


def _beyond_ram(
    estimate: ResourceEstimate, snapshot: ResourceSnapshot, need: int, capacity: int
) -> Reason:
    return Reason(
        code=ReasonCode.RAM_CAPACITY,
        facts={
            "resource": "ram",
            "asked": need,
            "found": capacity,
            "limit": capacity,
            "total": snapshot.ram_total_bytes,
            "batch": estimate.min_batch,
            "limits": limits_text(snapshot, gpus=False),
            **_giver(snapshot),
        },
    )


def _beyond_gpus(
    estimate: ResourceEstimate,
    asked: Asked,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ram_capacity: int,
    offers: list[DeviceOffer],
) -> Reason | None:
    need = asked.least_gpu
    shared_need = asked.least_ram + need
    discrete = [device for device in offers if not device.gpu.integrated]
    shared = len(offers) - len(discrete)
    # A card of unknown size may be large enough: only knowledge rejects.
    able = sum(
        device.offer.capacity is None or device.offer.capacity >= need for device in discrete
    )
    if not policy.tasks_per_gpu:
        discrete, able, shared = [], 0, 0
    if able >= estimate.gpus:
        return None
    if estimate.gpus == 1 and shared:
        if shared_need <= ram_capacity:
            return None
        if not discrete:
            return _beyond_ram(estimate, snapshot, shared_need, ram_capacity)
    largest = max((device.offer.capacity or 0 for device in discrete), default=0)
    return Reason(
        code=ReasonCode.GPU_CAPACITY,
        facts={
            "resource": "gpu",
            "asked": estimate.gpus,
            "found": able,
            "limit": len(offers),
            "bytes": need,
            "capacity": largest,
            "batch": estimate.min_batch,
            **_giver(snapshot),
        },
    )
