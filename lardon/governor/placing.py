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
        with_memory = estimate.asks_gpu_memory
        option = _on_discrete(asked, ram, discrete[: estimate.gpus], with_memory=with_memory)
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
    asked: Asked, ram: Offer, chosen: tuple[DeviceOffer, ...], *, with_memory: bool
) -> Option:
    by_ram = asked.ram_batch(ram)
    if not with_memory:
        return Option(by_ram, chosen, ReasonCode.RAM_SHORT, shared_ram=False)
    by_gpu = asked.gpu_batch(chosen[-1].offer)
    if by_ram <= by_gpu:
        return Option(by_ram, chosen, ReasonCode.RAM_SHORT, shared_ram=False)
    return Option(by_gpu, chosen, ReasonCode.GPU_MEMORY_SHORT, shared_ram=False)


def _on_integrated(asked: Asked, ram: Offer, device: DeviceOffer) -> Option:
    return Option(asked.shared_batch(ram), (device,), ReasonCode.RAM_SHORT, shared_ram=True)
