"""Which part of what was learned decided, and how the reason says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lardon.governor.history import MOST
from lardon.governor.lesson import MICROSECONDS, RETRY_AFTER
from lardon.governor.reason import Fact, Reason, ReasonCode
from lardon.governor.shape import Shape
from lardon.governor.zones import HEALTHY_PER_STEP, Pressure

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.lesson import Lesson
    from lardon.governor.offers import DeviceOffer, Offer, Outlook
    from lardon.governor.placing import Option
    from lardon.governor.policy import Policy
    from lardon.governor.shape import Asked

# Of the smallest batch history says at most that it takes so much of what was on offer of
# late: availability comes and goes by a few percent, and its maximum may not come back.
EVER: Final = 15
EVER_OF: Final = 16

_Place = Callable[["Asked"], "Option | Reason"]


def shape_of(
    estimate: ResourceEstimate,
    policy: Policy,
    outlook: Outlook,
    ram: Offer,
    offers: list[DeviceOffer],
) -> Shape:
    """Return what *estimate* looks like under *outlook*."""
    capacities = [device.offer.capacity for device in offers if not device.gpu.integrated]
    known = sorted((one for one in capacities if one is not None), reverse=True)
    # What several cards must each hold is at most what the smallest of them can.
    together = known[: estimate.gpus]
    capacity = ram.capacity or 0
    if outlook.ram_ever_bytes is not None:
        capacity = min(capacity, max(0, outlook.ram_ever_bytes) * EVER // EVER_OF)
    return Shape(estimate, policy, outlook, capacity, together[-1] if together else None)


def red_zone(pressure: Pressure) -> Reason:
    """Return the reason of a WAIT in the RED zone."""
    facts: dict[str, Fact] = {"resource": "memory", "zone": pressure.zone.value}
    facts.update(found=pressure.healthy, asked=HEALTHY_PER_STEP, limit=HEALTHY_PER_STEP)
    return Reason(code=ReasonCode.ZONE, facts=facts)


def adapted(
    plain: Reason,
    estimate: ResourceEstimate,
    shape: Shape,
    option: Option,
    outlook: Outlook,
    place: _Place,
) -> Reason:
    """
    Return *plain* as it is, or what says which experience changed the answer.

    Args:
        plain: The reason by the core's rules for the needs of *shape*.
        estimate: What was declared.
        shape: What was asked for instead.
        option: The answer for *shape*.
        outlook: What *shape* was made of.
        place: Returns the answer for other shapes of the same estimate.

    """
    batch, lesson = option.batch, outlook.lesson
    reason = plain
    if batch < estimate.max_batch:
        if batch < _batch(place(shape.without(zone=False))):
            reason = _by_zone(estimate, batch, outlook)
        elif batch < _batch(place(shape.without(zone=False, forecast=False))):
            reason = _by_forecast(plain, estimate, shape, batch, outlook)
        elif batch and batch == shape.learned_cap:
            reason = _by_cap(estimate, batch, lesson)
        elif batch < _batch(place(estimate)):
            reason = Reason(code=ReasonCode.LEARNED, facts=plain.facts)
    learned = _by_experience(reason, estimate, shape, option, lesson)
    return Reason(code=reason.code, facts={**reason.facts, **learned}) if learned else reason


def _batch(option: Option | Reason) -> int:
    return 0 if isinstance(option, Reason) else option.batch


def _cap(estimate: ResourceEstimate, batch: int) -> dict[str, Fact]:
    return {"resource": "batch", "asked": estimate.max_batch, "found": batch, "limit": batch}


def _by_zone(estimate: ResourceEstimate, batch: int, outlook: Outlook) -> Reason:
    pressure = outlook.pressure
    facts = _cap(estimate, batch)
    facts["zone"] = pressure.zone.value
    if pressure.doublings is not None and estimate.min_batch << pressure.doublings == batch:
        facts["doublings"] = pressure.doublings
    return Reason(code=ReasonCode.ZONE, facts=facts)


def _by_forecast(
    plain: Reason, estimate: ResourceEstimate, shape: Shape, batch: int, outlook: Outlook
) -> Reason:
    lesson = outlook.lesson
    assert lesson is not None, "a forecast rests on the duration of earlier batches"
    assert lesson.duration_us is not None, "as above"
    if batch and batch == shape.time_cap:
        facts = _cap(estimate, batch)
        size = estimate.max_batch
    else:
        facts = dict(plain.facts)
        size = estimate.max_batch if batch else estimate.min_batch
        facts["forecast"] = shape.loss(size)
    facts["growth_bytes_s"] = outlook.growth_bytes_s
    microseconds = lesson.duration_us.need(size)
    # Of more items than a float can count the fraction of a second says nothing.
    huge = microseconds > MOST
    facts["duration_s"] = microseconds // MICROSECONDS if huge else microseconds / MICROSECONDS
    return Reason(code=ReasonCode.FORECAST, facts=facts)


def _by_cap(estimate: ResourceEstimate, batch: int, lesson: Lesson | None) -> Reason:
    facts = _cap(estimate, batch)
    facts["kind"] = estimate.kind
    facts["batches"] = lesson.batches if lesson is not None else 0
    if lesson is not None and lesson.ceiling is not None and lesson.ceiling <= batch:
        facts["retry_after"] = RETRY_AFTER
    else:
        facts["largest"] = lesson.largest if lesson is not None else 0
    return Reason(code=ReasonCode.LEARNED, facts=facts)


def _by_experience(
    reason: Reason,
    estimate: ResourceEstimate,
    shape: Shape,
    option: Option,
    lesson: Lesson | None,
) -> dict[str, Fact]:
    """
    Return what batches of the kind took, if another amount than the declared was asked.

    It is said of the batch that *reason* speaks of, else of the one that is granted.
    """
    if lesson is None:
        return {}
    shared, granted = option.shared_ram, option.batch or estimate.min_batch
    of_largest = option.batch and reason.facts["resource"] != "batch"
    for batch in (estimate.max_batch if of_largest else granted, granted):
        declared, asked = estimate.needs(batch, shared=shared), shape.needs(batch, shared=shared)
        if declared != asked:
            break
    else:
        return {}
    ram = declared[0] if lesson.ram is None else lesson.ram.need(batch)
    gpu = declared[1] if lesson.gpu is None else lesson.gpu.need(batch)
    facts: dict[str, Fact] = {"kind": estimate.kind, "batches": lesson.batches}
    facts["of_batch"] = batch
    if shared:
        facts.update(of="RAM", learned=ram + gpu, declared=sum(declared))
    elif declared[0] == asked[0] or (reason.facts["resource"] == "gpu" and declared[1] != asked[1]):
        facts.update(of="GPU memory", learned=gpu, declared=declared[1])
    else:
        facts.update(of="RAM", learned=ram, declared=declared[0])
    return facts
