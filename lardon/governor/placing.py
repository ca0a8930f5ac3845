"""Which batch on which GPUs: the largest that fits, on the cards with most to offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lardon.governor.reason import ReasonCode

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.offers import DeviceOffer, Offer
    from lardon.governor.shape import Asked


class Option(NamedTuple):
    """One way to place an estimate."""

    batch: int
    """Items per batch; 0 when not even the smallest batch fits."""
    gpus: tuple[DeviceOffer, ...]
    bound: ReasonCode
    """The resource that bound the batch: RAM_SHORT or GPU_MEMORY_SHORT."""
    shared_ram: bool
    """True when the GPU memory is taken from the host's RAM."""


def place_without_gpu(asked: Asked, ram: Offer) -> Option:
    """Return the option of what asks for no GPU."""
    return Option(asked.ram_batch(ram), (), ReasonCode.RAM_SHORT, shared_ram=False)


def place_on_gpus(
    estimate: ResourceEstimate, asked: Asked, ram: Offer, candidates: list[DeviceOffer]
) -> Option | None:
    """
    Return the option with the largest batch on free *candidates*, or None without enough.

    Ties go to the cards with most memory on offer, then to the lower index. Memory is
    never added up across cards. An integrated GPU is used alone.
    """
    order = sorted(candidates, key=_most_on_offer)
    discrete = tuple(device for device in order if not device.gpu.integrated)
    options: list[tuple[int, int, int, Option]] = []
    if len(discrete) >= estimate.gpus:
        option = _on_discrete(estimate, asked, ram, discrete[: estimate.gpus])
        options.append((-option.batch, *_most_on_offer(discrete[0]), option))
    if estimate.gpus == 1:
        shared = next((device for device in order if device.gpu.integrated), None)
        if shared is not None:
            option = _on_integrated(asked, ram, shared)
            options.append((-option.batch, *_most_on_offer(shared), option))
    return min(options, key=lambda ranked: ranked[:3])[3] if options else None


def _most_on_offer(device: DeviceOffer) -> tuple[int, int]:
    found = device.offer.found
    return (1 if found is None else -found, device.gpu.index)


def _on_discrete(
    estimate: ResourceEstimate, asked: Asked, ram: Offer, chosen: tuple[DeviceOffer, ...]
) -> Option:
    by_ram = asked.ram_batch(ram)
    if not estimate.asks_gpu_memory:
        return Option(by_ram, chosen, ReasonCode.RAM_SHORT, shared_ram=False)
    weakest = chosen[-1].offer
    by_gpu = asked.gpu_batch(weakest)
    if by_ram < by_gpu or (
        by_ram == by_gpu and not _gpu_alone_is_short(estimate, asked, by_gpu, ram, weakest)
    ):
        return Option(by_ram, chosen, ReasonCode.RAM_SHORT, shared_ram=False)
    return Option(by_gpu, chosen, ReasonCode.GPU_MEMORY_SHORT, shared_ram=False)


def _gpu_alone_is_short(
    estimate: ResourceEstimate, asked: Asked, batch: int, ram: Offer, card: Offer
) -> bool:
    """
    Return whether of two resources that bind at once only the GPU's figures say so.

    A cap or a forecast may have brought the batch by RAM down to the GPU's.
    """
    if batch == estimate.max_batch:
        return False
    needs = asked.needs(estimate.max_batch if batch else estimate.min_batch, shared=False)
    return needs[0] <= (ram.found or 0) and needs[1] > (card.found or 0)


def _on_integrated(asked: Asked, ram: Offer, device: DeviceOffer) -> Option:
    return Option(asked.shared_batch(ram), (device,), ReasonCode.RAM_SHORT, shared_ram=True)
