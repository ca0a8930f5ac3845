"""The lines of an explanation, completed by what the snapshot tells of each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lardon.governor.explanation import ResourceLine
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import GpuSnapshot, ResourceSnapshot


def total_of(line: ResourceLine, snapshot: ResourceSnapshot | None, policy: Policy) -> int | None:
    """Return all that there is of the line's resource; None is unknown."""
    if line.resource == "io_slots":
        return policy.io_slots
    if snapshot is None:
        return None
    gpu = card_of(line, snapshot)
    if gpu is not None:
        return snapshot.ram_total_bytes if gpu.integrated else gpu.size_bytes
    totals = {
        "ram": snapshot.ram_total_bytes,
        "cpus": snapshot.cpus,
        "gpus": len(snapshot.gpus),
    }
    return totals.get(line.resource)


def card_of(line: ResourceLine, snapshot: ResourceSnapshot | None) -> GpuSnapshot | None:
    """Return the GPU that the line is about, if it is about one."""
    gpus = snapshot.gpus if snapshot is not None else ()
    return next((gpu for gpu in gpus if gpu.uuid == line.resource), None)
