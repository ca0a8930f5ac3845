"""Whether a new policy leaves room for what is reserved already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lardon.errors import InvalidPolicy

if TYPE_CHECKING:
    from lardon.governor.ledger import Ledger
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import ResourceSnapshot


def check_room(policy: Policy, snapshot: ResourceSnapshot | None, ledger: Ledger) -> None:
    """
    Raise `InvalidPolicy` when the bookings exceed a capacity under *policy*.

    Without a usable snapshot only the capacities that need no reading are checked.
    """
    for resource, reserved, capacity in _room(policy, snapshot, ledger):
        if capacity is not None and reserved > capacity:
            message = (
                f"the policy leaves a capacity of {capacity} ({resource}), and {reserved} are "
                f"reserved already; release first"
            )
            raise InvalidPolicy(
                message,
                field="policy",
                value=policy,
                rule="at least what is reserved",
                resource=resource,
                reserved=reserved,
                capacity=capacity,
            )


def _room(
    policy: Policy, snapshot: ResourceSnapshot | None, ledger: Ledger
) -> Iterator[tuple[str, int, int | None]]:
    """Yield resource, reserved and capacity; None is unknown or without limit."""
    usable = snapshot if snapshot is not None and snapshot.contradiction is None else None
    ram = policy.ram_limit_bytes
    if usable is not None:
        ram = policy.ram_capacity(usable.ram_total_bytes)
        yield "cpus", ledger.cpus, policy.cpu_capacity(usable.cpus)
    yield "ram", ledger.ram_bytes, ram
    yield "io_slots", ledger.io_slots, policy.io_slots
    cards = {gpu.uuid: gpu for gpu in usable.gpus} if usable is not None else {}
    for uuid, total in ledger.devices().items():
        card = cards.get(uuid)
        size = card.size_bytes if card is not None and not card.integrated else None
        yield uuid, total.gpu_bytes, policy.gpu_capacity(size)
        yield f"tasks on {uuid}", total.tasks, policy.tasks_per_gpu
