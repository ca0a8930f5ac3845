"""Which batch on which GPUs: the largest that fits, on the cards with most to offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lardon.governor.offers import largest_batch
from lardon.governor.reason import ReasonCode

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.offers import DeviceOffer, Offer


class Option(NamedTuple):
    """One way to place an estimate."""

    batch: int
    """Items per batch; 0 when not even the smallest batch fits."""
    gpus: tuple[DeviceOffer, ...]
    bound: ReasonCode
    """The resource that bound the batch: RAM_SHORT or GPU_MEMORY_SHORT."""
    shared_ram: bool
    """True when the GPU memory is taken from the host's RAM."""


def place_without_gpu(estimate: ResourceEstimate, ram: Offer) -> Option:
    """Return the option of an estimate that asks for no GPU."""
    batch = largest_batch(
        estimate.ram_bytes,
        estimate.ram_bytes_per_item,
        ram.found or 0,
        estimate.min_batch,
        estimate.max_batch,
    )
    return Option(batch, (), ReasonCode.RAM_SHORT, shared_ram=False)


def place_on_gpus(
    estimate: ResourceEstimate, ram: Offer, candidates: list[DeviceOffer]
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
        option = _on_discrete(estimate, ram, discrete[: estimate.gpus])
        options.append((-option.batch, *_most_on_offer(discrete[0]), option))
    if estimate.gpus == 1:
        shared = next((device for device in order if device.gpu.integrated), None)
        if shared is not None:
            option = _on_integrated(estimate, ram, shared)
            options.append((-option.batch, *_most_on_offer(shared), option))
    return min(options, key=lambda ranked: ranked[:3])[3] if options else None


def _most_on_offer(device: DeviceOffer) -> tuple[int, int]:
    found = device.offer.found
    return (1 if found is None else -found, device.gpu.index)


def _on_discrete(estimate: ResourceEstimate, ram: Offer, chosen: tuple[DeviceOffer, ...]) -> Option:
    by_ram = place_without_gpu(estimate, ram).batch
    if not estimate.asks_gpu_memory:
        return Option(by_ram, chosen, ReasonCode.RAM_SHORT, shared_ram=False)
    by_gpu = largest_batch(
        estimate.gpu_bytes,
        estimate.gpu_bytes_per_item,
        chosen[-1].offer.found or 0,
        estimate.min_batch,
        estimate.max_batch,
    )
    if by_ram <= by_gpu:
        return Option(by_ram, chosen, ReasonCode.RAM_SHORT, shared_ram=False)
    return Option(by_gpu, chosen, ReasonCode.GPU_MEMORY_SHORT, shared_ram=False)


def _on_integrated(estimate: ResourceEstimate, ram: Offer, device: DeviceOffer) -> Option:
    batch = largest_batch(
        estimate.ram_bytes + estimate.gpu_bytes,
        estimate.ram_bytes_per_item + estimate.gpu_bytes_per_item,
        ram.found or 0,
        estimate.min_batch,
        estimate.max_batch,
    )
    return Option(batch, (device,), ReasonCode.RAM_SHORT, shared_ram=True)
