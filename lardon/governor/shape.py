"""An estimate as experience, pressure and the neighbours make it look for one decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from lardon.governor.envelope import sums
from lardon.governor.estimate import largest_batch
from lardon.governor.history import MOST
from lardon.governor.lesson import MICROSECONDS

if TYPE_CHECKING:
    from lardon.governor.envelope import Envelope, Line
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.lesson import Lesson
    from lardon.governor.offers import Offer, Outlook
    from lardon.governor.policy import Policy


class Asked(Protocol):
    """What admission wants to know of an estimate: the estimate itself, or its `Shape`."""

    @property
    def min_batch(self) -> int:
        """The smallest batch."""
        ...

    @property
    def least_ram(self) -> int:
        """The RAM without which it can never run."""
        ...

    @property
    def least_gpu(self) -> int:
        """The memory without which a GPU can never run it."""
        ...

    def needs(self, batch: int, *, shared: bool) -> tuple[int, int]:
        """
        Return the bytes of RAM to reserve for *batch* items, and those on each GPU.

        *shared* tells that the GPU memory is taken from the RAM too.
        """
        ...

    def ram_batch(self, offer: Offer) -> int:
        """Return the largest batch for which the RAM on *offer* is enough, or 0."""
        ...

    def gpu_batch(self, offer: Offer) -> int:
        """Return the largest batch for which a GPU with this on *offer* is enough, or 0."""
        ...

    def shared_batch(self, offer: Offer) -> int:
        """Return the same where the GPU memory is taken from the RAM on *offer* too."""
        ...


class Shape:
    """
    What `ResourceEstimate` offers to admission, after everything that was learned.

    Needs are maxima of lines: the declared one, the envelope of what was measured, or
    both, as the policy trusts. Batches are capped by what was measured so far, by a
    failure of a short time ago, and by the pressure zone. Never below `min_batch`: of the
    smallest batch history may say at most that it takes all that was on offer of late.

    Args:
        estimate: What was declared.
        policy: Whether to trust the declaration, and `max_batch_s`.
        outlook: The lesson of the kind, the zone's cap, the growth of foreign use.
        ram_capacity: The most that history may say of the smallest batch.
        gpu_capacity: The same on every one of as many cards as are asked for, the largest;
            None is unknown.
        forecast: Whether growth counts; False tells what it would be without.
        zone: The same for the zone.

    """

    def __init__(
        self,
        estimate: ResourceEstimate,
        policy: Policy,
        outlook: Outlook,
        ram_capacity: int,
        gpu_capacity: int | None,
        *,
        forecast: bool = True,
        zone: bool = True,
    ) -> None:
        lesson = outlook.lesson
        self._made_of = estimate, policy, outlook, ram_capacity, gpu_capacity
        self._estimate = estimate
        self._measured = policy.trust == "measured"
        self.min_batch = estimate.min_batch
        ram, gpu = (lesson.ram, lesson.gpu) if lesson is not None else (None, None)
        if not estimate.asks_gpu_memory:
            gpu = None
        self._ram = self._lines(estimate.ram_bytes, estimate.ram_bytes_per_item, ram)
        self._gpu = self._lines(estimate.gpu_bytes, estimate.gpu_bytes_per_item, gpu)
        self.least_ram = self._least(estimate.least_ram, ram)
        self.least_gpu = self._least(estimate.least_gpu, gpu)
        self._ram_capacity = ram_capacity if ram is not None else None
        self._gpu_capacity = gpu_capacity if gpu is not None else None
        self._shared_capacity = ram_capacity if ram is not None or gpu is not None else None
        self.learned_cap = learned_cap(estimate, policy, lesson)
        self.time_cap = time_cap(estimate, policy, outlook) if forecast else None
        self.zone_cap = outlook.zone_cap if zone else None
        caps = [cap for cap in (self.learned_cap, self.time_cap, self.zone_cap) if cap is not None]
        self.max_batch = max(self.min_batch, min([estimate.max_batch, *caps]))
        self._loss = self._loss_line(outlook) if forecast else None

    def without(self, *, forecast: bool = True, zone: bool = True) -> Shape:
        """Return what it would be if the growth, or the zone, did not count."""
        return Shape(*self._made_of, forecast=forecast, zone=zone)

    def _least(self, declared: int, learned: Envelope | None) -> int:
        """Return what can never be done without: what is trusted replaces the declaration."""
        if learned is None or not self._measured:
            return declared
        return min(declared, learned.need(self.min_batch))

    def _lines(self, fixed: int, per_item: int, learned: Envelope | None) -> tuple[Line, ...]:
        declared = (fixed, per_item)
        if learned is None:
            return (declared,)
        return learned.lines if self._measured else (declared, *learned.lines)

    def _loss_line(self, outlook: Outlook) -> tuple[Line, ...] | None:
        """Return lines of the RAM that others will have taken by the end of a batch."""
        lesson, growth = outlook.lesson, outlook.growth_bytes_s
        if not growth or lesson is None or lesson.duration_us is None:
            return None
        return tuple(
            (-(-growth * fixed // MICROSECONDS), -(-growth * per_item // MICROSECONDS))
            for fixed, per_item in lesson.duration_us.lines
        )

    def loss(self, batch: int) -> int:
        """Return the RAM that others are expected to take while *batch* items run."""
        return _most(self._loss, batch) if self._loss is not None else 0

    def ram_need(self, batch: int) -> int:
        """Return the bytes of RAM to reserve for *batch* items."""
        return self._clamped(_most(self._ram, batch), batch, self.least_ram, self._ram_capacity)

    def gpu_need(self, batch: int) -> int:
        """Return the bytes to reserve on each GPU."""
        return self._clamped(_most(self._gpu, batch), batch, self.least_gpu, self._gpu_capacity)

    def _clamped(self, need: int, batch: int, least: int, capacity: int | None) -> int:
        if batch > self.min_batch or capacity is None or need <= capacity:
            return need
        return max(least, capacity)

    def needs(self, batch: int, *, shared: bool) -> tuple[int, int]:
        """Return `ram_need` and `gpu_need`; where the RAM is both, it has room for both."""
        if not shared:
            return self.ram_need(batch), self.gpu_need(batch)
        ram, gpu = _most(self._ram, batch), _most(self._gpu, batch)
        capacity = self._shared_capacity
        if batch > self.min_batch or capacity is None or ram + gpu <= capacity:
            return ram, gpu
        gpu = max(self.least_gpu, capacity - ram)
        return max(self.least_ram, capacity - gpu), gpu

    def ram_batch(self, offer: Offer) -> int:
        """Return the largest batch for which the RAM on *offer* is enough, or 0."""
        return self._batch(self._ram, offer, self._loss, self.ram_need)

    def gpu_batch(self, offer: Offer) -> int:
        """Return the largest batch for which a GPU with this on *offer* is enough, or 0."""
        return self._batch(self._gpu, offer, None, self.gpu_need)

    def shared_batch(self, offer: Offer) -> int:
        """Return the same where the GPU memory is taken from the RAM on *offer* too."""
        lines = tuple(sums(self._ram, self._gpu))
        return self._batch(
            lines, offer, self._loss, lambda batch: sum(self.needs(batch, shared=True))
        )

    def _batch(
        self,
        lines: tuple[Line, ...],
        offer: Offer,
        loss: tuple[Line, ...] | None,
        need: Callable[[int], int],
    ) -> int:
        batch = self._largest(lines, offer.found or 0)
        if loss is not None and batch:
            # What takes no RAM loses none; every subtraction stops at 0.
            untouched = self._largest(lines, 0)
            batch = min(batch, max(untouched, self._largest(sums(lines, loss), offer.live)))
        if batch:
            return batch
        # Only the clamp of the smallest batch can say that it fits after all.
        least = need(self.min_batch)
        fits = least <= (offer.found or 0) and (
            loss is None or not least or least + _most(loss, self.min_batch) <= offer.live
        )
        return self.min_batch if fits else 0

    def _largest(self, lines: Iterable[Line], offer: int) -> int:
        """Return the largest batch that all *lines* leave within *offer*, or 0."""
        return min(
            largest_batch(fixed, per_item, offer, self.min_batch, self.max_batch)
            for fixed, per_item in lines
        )


def learned_cap(estimate: ResourceEstimate, policy: Policy, lesson: Lesson | None) -> int | None:
    """
    Return the largest batch that experience allows, whatever is free; None for no cap.

    Under ``trust="measured"`` a kind begins with `min_batch`, and each batch may have at
    most twice the items of the largest that was measured.
    """
    caps = []
    if policy.trust == "measured":
        caps.append(2 * lesson.largest if lesson is not None else 0)
    if lesson is not None and lesson.ceiling is not None:
        caps.append(lesson.ceiling)
    return max(estimate.min_batch, min(caps)) if caps else None


def time_cap(estimate: ResourceEstimate, policy: Policy, outlook: Outlook) -> int | None:
    """Return the largest batch that `max_batch_s` allows under growth; None for no cap."""
    lesson, limit = outlook.lesson, policy.max_batch_s
    if limit is None or not outlook.growth_bytes_s or lesson is None:
        return None
    if (duration := lesson.duration_us) is None:
        return None
    # No duration that was measured is longer than `MOST` microseconds.
    limit_us = int(min(limit * MICROSECONDS, MOST))
    cap = min(
        largest_batch(fixed, per_item, limit_us, 0, estimate.max_batch)
        for fixed, per_item in duration.lines
    )
    return max(estimate.min_batch, cap)


def _most(lines: Iterable[Line], batch: int) -> int:
    return max(fixed + per_item * batch for fixed, per_item in lines)
