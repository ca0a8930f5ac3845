"""Which GPUs a CUDA program started from here would see, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"

# CUDA reads an entry as C's strtol does: digits, and whatever follows is ignored.
_LEADING_NUMBER: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)


class Instance(NamedTuple):
    """A MIG instance of a card: a device of its own."""

    uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Card(NamedTuple):
    """One card as the driver lists it, in bus order."""

    uuid: str
    name: str = ""
    in_mig_mode: bool = False
    instances: tuple[Instance, ...] = ()


class Device(NamedTuple):
    """What CUDA counts as one device."""

    card: int
    """Place of the card in bus order."""
    instance: int | None = None
    """Place of the MIG instance on its card; None for a whole card."""


class Visibility(NamedTuple):
    """The devices in CUDA's order, and what a user should know about that."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()


def visible_devices(cards: Sequence[Card], environ: Mapping[str, str]) -> Visibility:
    """
    Return what CUDA would enumerate, by its own rules.

    Unset means all, empty means none; the list gives the order; it ends at the first
    entry that names no device; a UUID may be shortened as long as it is unique; a device
    that is named twice hides all; of MIG instances only one can be used.

    Args:
        cards: every card, in bus order.
        environ: where the two variables are looked up.

    """
    listed = environ.get(VARIABLE)
    if listed is None:
        found = Visibility(_all_devices(cards))
        by_number = len(cards) > 1
    else:
        found = _listed_devices(cards, [entry.strip() for entry in listed.split(",")])
        by_number = any(_LEADING_NUMBER.match(entry.strip()) for entry in listed.split(","))
    if by_number and found.devices and _order_unknown(cards, environ):
        return Visibility(found.devices, (*found.notes, _ORDER_NOTE))
    return found


_ORDER_NOTE: Final = (
    f"GPU numbers are taken in bus order; CUDA puts the fastest card first unless {ORDER} is "
    "PCI_BUS_ID"
)


def _order_unknown(cards: Sequence[Card], environ: Mapping[str, str]) -> bool:
    if environ.get(ORDER, "").strip() == "PCI_BUS_ID":
        return False
    return len({card.name for card in cards if card.name}) > 1


def _all_devices(cards: Sequence[Card]) -> tuple[Device, ...]:
    whole = tuple(Device(place) for place, card in enumerate(cards) if not card.in_mig_mode)
    if whole or not cards:
        return whole
    first = next((place for place, card in enumerate(cards) if card.instances), None)
    # A card in MIG mode whose instances cannot be read is something, not nothing.
    return (Device(0),) if first is None else (Device(first, 0),)


def _listed_devices(cards: Sequence[Card], entries: Sequence[str]) -> Visibility:
    devices: list[Device] = []
    notes: list[str] = []
    for entry in entries:
        device = _device(cards, entry)
        if device is None:
            if entry and not entry.startswith("-"):
                notes.append(
                    f"GPU {entry!r} in {VARIABLE} is none of this machine: it and what follows "
                    "it are hidden"
                )
            break
        if device in devices:
            return Visibility((), (f"GPU {entry!r} is named twice in {VARIABLE}: all are hidden",))
        devices.append(device)
    if len(devices) > 1 and any(device.instance is not None for device in devices):
        # CUDA enumerates a single instance, and none beside whole cards.
        notes.append(f"GPU list in {VARIABLE}: CUDA can use one MIG instance, and that alone")
        whole = [device for device in devices if device.instance is None]
        devices = devices[:1] if devices[0].instance is not None else whole
    return Visibility(tuple(devices), tuple(notes))


def _device(cards: Sequence[Card], entry: str) -> Device | None:
    if entry.startswith("GPU-"):
        place = _only(place for place, card in enumerate(cards) if card.uuid.startswith(entry))
        return None if place is None else _card_device(cards, place)
    if entry.startswith("MIG-"):
        return _only(
            Device(place, number)
            for place, card in enumerate(cards)
            for number, instance in enumerate(card.instances)
            if _names(entry, card, instance)
        )
    number = _LEADING_NUMBER.match(entry)
    if number is None or not 0 <= int(number[0]) < len(cards):
        return None
    return _card_device(cards, int(number[0]))


def _card_device(cards: Sequence[Card], place: int) -> Device:
    """Return a card by its number or UUID: in MIG mode its first instance."""
    return Device(place, 0 if cards[place].instances else None)


def _names(entry: str, card: Card, instance: Instance) -> bool:
    if instance.uuid.startswith(entry):
        return True
    # The older form: MIG-GPU-<UUID of the card>/<GPU instance>/<compute instance>.
    place = f"MIG-{card.uuid}/{instance.gpu_instance}/{instance.compute_instance}"
    return entry == place


def _only(items: Iterable[T]) -> T | None:
    found = list(items)
    return found[0] if len(found) == 1 else None
