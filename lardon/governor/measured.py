"""Telling what is promised from what is used already, by measuring this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lardon.governor.snapshot import OwnUse
from lardon.units import MiB

if TYPE_CHECKING:
    from lardon.governor.decision import Contract
    from lardon.governor.offers import Outlook
    from lardon.governor.reservation import Reservation

# An interpreter's own arenas come and go by a few MiB between two readings; growth below
# this is no leftover of a batch (core design, section 7).
SLACK_BYTES: Final = 8 * MiB


def outlook_for(sole: Reservation | None, own: OwnUse | None) -> Outlook | None:
    """
    Return the measured use of *sole*, the only active reservation, or None if unknown.

    With several holders in one process the use belongs to none of them.
    """
    if sole is None or own is None or (baseline := sole._baseline) is None:
        return None
    # Imported here, as all that a queue of small tasks does without.
    from lardon.governor.offers import Outlook

    ram_bytes = max(0, own.ram_bytes - baseline.ram_bytes)
    gpu_bytes = {
        uuid: max(0, used - baseline.gpu_bytes.get(uuid, 0)) for uuid, used in own.gpu_bytes.items()
    }
    return Outlook(used={sole.id: OwnUse(ram_bytes=ram_bytes, gpu_bytes=gpu_bytes)})


def credit_for(released: Contract, baseline: OwnUse, own: OwnUse) -> Outlook | None:
    """
    Return what the successor of a *released* contract may count as free.

    That is the memory gained under it and still held, less a slack for noise and at most
    its size. None when there is nothing to credit.
    """
    ram_credit = _credit(own.ram_bytes - baseline.ram_bytes, released.ram_bytes)
    gpu_credit = {
        uuid: credit
        for uuid in released.gpus
        if uuid in own.gpu_bytes
        and (
            credit := _credit(
                own.gpu_bytes[uuid] - baseline.gpu_bytes.get(uuid, 0), released.gpu_bytes
            )
        )
    }
    if not ram_credit and not gpu_credit:
        return None
    from lardon.governor.offers import Outlook

    return Outlook(ram_credit_bytes=ram_credit, gpu_credit_bytes=gpu_credit)


def _credit(gained: int, size: int) -> int:
    return max(0, min(gained - SLACK_BYTES, size))
