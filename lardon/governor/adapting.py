"""Which part of what was learned decided, and how the reason says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
    known = [capacity for capacity in capacities if capacity is not None]
    capacity = ram.capacity or 0
    if outlook.ram_ever_bytes is not None:
        capacity = min(capacity, max(0, outlook.ram_ever_bytes) * EVER // EVER_OF)
    return Shape(estimate, policy, outlook, capacity, max(known, default=None))


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
    if batch < estimate.max_batch:
        if batch < _batch(place(shape.without(zone=False))):
            return _by_zone(estimate, batch, outlook)
        if batch < _batch(place(shape.without(zone=False, forecast=False))):
            return _by_forecast(plain, estimate, shape, batch, outlook)
        if batch and batch == shape.learned_cap:
            return _by_cap(estimate, batch, lesson)
        if batch < _batch(place(estimate)) and lesson is not None:
            facts = dict(plain.facts)
            _add_lesson(facts, estimate, batch or estimate.min_batch, lesson)
            return Reason(code=ReasonCode.LEARNED, facts=facts)
    if batch and shape.differs(batch) and lesson is not None:
        facts = dict(plain.facts)
        _add_lesson(facts, estimate, batch, lesson)
        return Reason(code=plain.code, facts=facts)
    return plain


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
    facts["duration_s"] = lesson.duration_us.need(size) / MICROSECONDS
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


def _add_lesson(
    facts: dict[str, Fact], estimate: ResourceEstimate, batch: int, lesson: Lesson
) -> None:
    """Add what batches of the kind took, beside what was declared of such a batch."""
    on_gpu = facts.get("resource") == "gpu"
    envelope = lesson.gpu if on_gpu else lesson.ram
    facts["kind"], facts["batches"] = estimate.kind, lesson.batches
    facts["of_batch"] = batch
    facts["declared"] = estimate.gpu_need(batch) if on_gpu else estimate.ram_need(batch)
    if envelope is not None:
        facts["learned"] = envelope.need(batch)
