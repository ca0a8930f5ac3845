"""What one card says of itself, through any module with pynvml's names."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from lardon.governor.probes.gpu_visibility import Card, Instance

# Cards without memory of their own: they share the host's, and their drivers say "not
# supported" when asked how much is free. Whole words of the names that NVML gives:
# DGX Spark, Jetson Orin, Thor and Xavier, and Tegra in general.
INTEGRATED_NAMES: Final = ("GB10", "Orin", "Thor", "Xavier", "Tegra", "Jetson")

# NVML writes this where it has no value (NVML_VALUE_NOT_AVAILABLE).
_NOT_AVAILABLE: Final = (1 << 64) - 1


class KnownCard(NamedTuple):
    """A card with the driver's handles for it; both stay valid until the driver goes."""

    card: Card
    handle: Any
    """None when the driver would not give one; then `error` says why."""
    instances: tuple[Any, ...] = ()
    """Handles of the card's MIG instances."""
    error: str = ""


class Memory(NamedTuple):
    """Figures of one device in bytes; None is unknown, and `error` may say why."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    error: str = ""


def described(error: BaseException) -> str:
    """Return an error of the driver or of its binding as one line, whatever it is."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the binding asks the driver for the text
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def unavailable(place: int, error: str) -> KnownCard:
    """Return what stands for a card of which only its place in bus order is known."""
    return KnownCard(card=Card(uuid=f"unavailable-{place}"), handle=None, error=error)


def identify(nvml: Any, place: int, known: KnownCard | None) -> KnownCard:
    """
    Return the card at *place* in bus order.

    A card that does not answer keeps the name by which it was *known*.
    """
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(place)
    except Exception as error:  # noqa: BLE001  whatever it raises, the others are read
        card = known.card if known is not None else unavailable(place, "").card
        return KnownCard(card=card, handle=None, error=described(error))
    uuid = _text(nvml, "nvmlDeviceGetUUID", handle)
    if uuid is None and known is not None:
        uuid = known.card.uuid
    name = _text(nvml, "nvmlDeviceGetName", handle)
    in_mig_mode = _in_mig_mode(nvml, handle)
    found = list(_instances(nvml, handle)) if in_mig_mode else []
    return KnownCard(
        card=Card(
            uuid=uuid or f"unavailable-{place}",
            name=name or "",
            in_mig_mode=in_mig_mode,
            instances=tuple(instance for instance, _ in found),
        ),
        handle=handle,
        instances=tuple(handle for _, handle in found),
        error="" if uuid is not None else "it does not tell its UUID",
    )


def _text(nvml: Any, function: str, handle: Any) -> str | None:
    """Return a text that is bytes with one binding and str with another, None if unusable."""
    try:
        answer = getattr(nvml, function)(handle)
        return answer.decode() if isinstance(answer, bytes) else str(answer)
    except Exception:  # noqa: BLE001  not UTF-8, not supported, lost: there is no text
        return None


def _in_mig_mode(nvml: Any, handle: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except Exception:  # noqa: BLE001  nearly every card says that this is not supported
        return False
    return bool(current)


def _instances(nvml: Any, handle: Any) -> list[tuple[Instance, Any]]:
    try:
        places = range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except Exception:  # noqa: BLE001  then there is no instance that could be used
        return []
    found = []
    for place in places:
        try:
            child = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except Exception:  # noqa: BLE001, S112  an empty place is "not found"
            continue
        uuid = _text(nvml, "nvmlDeviceGetUUID", child)
        if uuid is None:
            continue
        instance = Instance(
            uuid=uuid,
            gpu_instance=_number(nvml, "nvmlDeviceGetGpuInstanceId", child),
            compute_instance=_number(nvml, "nvmlDeviceGetComputeInstanceId", child),
        )
        found.append((instance, child))
    return found


def _number(nvml: Any, function: str, handle: Any) -> int | None:
    try:
        return int(getattr(nvml, function)(handle))
    except Exception:  # noqa: BLE001  only the older way to name an instance needs it
        return None


def read_memory(nvml: Any, handle: Any) -> Memory:
    """Return what the driver says is there and free; it never raises."""
    try:
        answer = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = int(answer.total), int(answer.free)
    except Exception as error:  # noqa: BLE001  whatever it raises, the figures are unknown
        return Memory(error=described(error))
    if _NOT_AVAILABLE in (total, free) or total <= 0 or free < 0:
        return Memory(error=f"the driver says {free} of {total} bytes are free")
    # The two figures are not of the same instant: free may be a page above the total.
    return Memory(total, min(free, total))


def own_bytes(nvml: Any, handle: Any, pid: int) -> int | None:
    """Return what process *pid* uses on a device, None when the driver does not tell."""
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        mine = [process.usedGpuMemory for process in processes if process.pid == pid]
    except Exception:  # noqa: BLE001  not supported, or not permitted in a container
        return None
    if not mine or any(used is None or used == _NOT_AVAILABLE for used in mine):
        return None
    return sum(int(used) for used in mine)


def is_integrated(name: str, integrated_names: tuple[str, ...]) -> bool:
    """Return whether one of *integrated_names* is a whole word of the card's *name*."""
    words = {word.casefold() for word in re.findall(r"\w+", name)}
    return any(listed.casefold() in words for listed in integrated_names)
