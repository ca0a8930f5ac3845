"""What the governor must answer, worked out the slow and obvious way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lardon import DecisionKind, Policy, ReasonCode, ResourceSnapshot
from tests.invariants.recorder import total

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from lardon import Contract, ResourceEstimate

    Reading = ResourceSnapshot | BaseException

# A wait for one of these ends by a release, and by no timer.
SLOTS_ONLY = frozenset({ReasonCode.CPUS_BUSY, ReasonCode.GPUS_BUSY, ReasonCode.IO_SLOTS_BUSY})


@attrs.frozen
class Answer:
    kind: DecisionKind
    code: ReasonCode
    batch: int = 0


def usable(reading: Reading) -> bool:
    return isinstance(reading, ResourceSnapshot) and reading.ram_available_bytes >= 0


def capacities(policy: Policy, snapshot: ResourceSnapshot) -> dict[str, int]:
    """Return what may be reserved in all, by resource; every GPU has memory of its own."""
    room = {
        "ram": _capped(
            snapshot.ram_total_bytes - _reserve(policy.ram_reserve_bytes, snapshot),
            policy.ram_limit_bytes,
        ),
        "cpus": max(1, snapshot.cpus - policy.cpu_reserve),
        "io": policy.io_slots,
    }
    assert policy.gpu_reserve_bytes is not None
    for gpu in snapshot.gpus:
        assert gpu.total_bytes is not None
        room[gpu.uuid] = _capped(gpu.total_bytes - policy.gpu_reserve_bytes, policy.gpu_limit_bytes)
        room[f"tasks on {gpu.uuid}"] = policy.tasks_per_gpu
    return room


def _reserve(chosen: int | None, snapshot: ResourceSnapshot) -> int:
    return snapshot.ram_total_bytes // 8 if chosen is None else chosen


def _capped(amount: int, limit: int | None) -> int:
    return max(0, amount if limit is None else min(amount, limit))


def policy_fits(policy: Policy, reading: Reading, book: Iterable[Contract]) -> bool:
    """Return whether *policy* may come into force while *book* is reserved."""
    sums = total(book)
    if usable(reading):
        assert isinstance(reading, ResourceSnapshot)
        room = capacities(policy, reading)
    else:
        room = {"io": policy.io_slots}
        if policy.ram_limit_bytes is not None:
            room["ram"] = policy.ram_limit_bytes
    for resource in sums:
        if resource.startswith("tasks on "):
            room[resource] = policy.tasks_per_gpu
        elif resource.startswith("GPU") and policy.gpu_limit_bytes is not None:
            room.setdefault(resource, policy.gpu_limit_bytes)
    return all(sums[resource] <= limit for resource, limit in room.items())


def answer(
    estimate: ResourceEstimate, reading: Reading, policy: Policy, book: Iterable[Contract]
) -> Answer:
    """Return what `Governor.reserve` must answer while *book* is reserved."""
    if not usable(reading):
        failed = isinstance(reading, BaseException)
        code = ReasonCode.PROBE_FAILED if failed else ReasonCode.INVALID_SNAPSHOT
        return Answer(DecisionKind.WAIT, code)
    assert isinstance(reading, ResourceSnapshot)
    room, sums = capacities(policy, reading), total(book)
    never = _never(estimate, reading, policy, room)
    if never is not None:
        return Answer(DecisionKind.REJECT, never)
    busy = _busy(estimate, reading, policy, room, sums)
    if busy is not None:
        return Answer(DecisionKind.WAIT, busy)
    by_ram = _largest_by_ram(estimate, reading, policy, room, sums)
    by_gpu = _largest_by_gpu(estimate, reading, policy, room, sums)
    batch = min(by_ram, by_gpu)
    short = ReasonCode.RAM_SHORT if by_ram <= by_gpu else ReasonCode.GPU_MEMORY_SHORT
    if not batch:
        return Answer(DecisionKind.WAIT, short)
    if batch < estimate.max_batch:
        return Answer(DecisionKind.REDUCE_BATCH, short, batch)
    return Answer(DecisionKind.START, ReasonCode.OK, batch)


def _never(
    estimate: ResourceEstimate, snapshot: ResourceSnapshot, policy: Policy, room: dict[str, int]
) -> ReasonCode | None:
    if estimate.gpus and not snapshot.gpus:
        return ReasonCode.NO_GPU
    if estimate.ram_bytes + estimate.ram_bytes_per_item * estimate.min_batch > room["ram"]:
        return ReasonCode.RAM_CAPACITY
    need = estimate.gpu_bytes + estimate.gpu_bytes_per_item * estimate.min_batch
    able = [gpu for gpu in snapshot.gpus if room[gpu.uuid] >= need and policy.tasks_per_gpu]
    if len(able) < estimate.gpus:
        return ReasonCode.GPU_CAPACITY
    if estimate.min_cpus > room["cpus"]:
        return ReasonCode.CPU_CAPACITY
    if estimate.io_slots > room["io"]:
        return ReasonCode.IO_CAPACITY
    return None


def _busy(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    room: dict[str, int],
    sums: Counter[str],
) -> ReasonCode | None:
    pressure, limit = snapshot.memory_pressure, policy.max_memory_pressure
    if pressure is not None and limit is not None and pressure >= limit:
        return ReasonCode.MEMORY_PRESSURE
    if room["cpus"] - sums["cpus"] < estimate.min_cpus:
        return ReasonCode.CPUS_BUSY
    free = [
        gpu for gpu in snapshot.gpus if sums[f"tasks on {gpu.uuid}"] < room[f"tasks on {gpu.uuid}"]
    ]
    if len(free) < estimate.gpus:
        return ReasonCode.GPUS_BUSY
    if estimate.io_slots > max(0, room["io"] - sums["io"]):
        return ReasonCode.IO_SLOTS_BUSY
    known = [gpu for gpu in free if gpu.free_bytes is not None]
    if (estimate.gpu_bytes or estimate.gpu_bytes_per_item) and len(known) < estimate.gpus:
        return ReasonCode.GPU_MEMORY_UNKNOWN
    return None


def _largest_by_ram(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    room: dict[str, int],
    sums: Counter[str],
) -> int:
    available = min(snapshot.ram_available_bytes, snapshot.ram_total_bytes)
    reserve = _reserve(policy.ram_reserve_bytes, snapshot)
    offer = min(available - reserve, room["ram"]) - sums["ram"]
    for batch in range(estimate.max_batch, estimate.min_batch - 1, -1):
        if estimate.ram_bytes + estimate.ram_bytes_per_item * batch <= max(0, offer):
            return batch
    return 0


def _largest_by_gpu(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    room: dict[str, int],
    sums: Counter[str],
) -> int:
    if not (estimate.gpu_bytes or estimate.gpu_bytes_per_item):
        return estimate.max_batch
    assert policy.gpu_reserve_bytes is not None
    offers = []
    for gpu in snapshot.gpus:
        if gpu.free_bytes is None or sums[f"tasks on {gpu.uuid}"] >= policy.tasks_per_gpu:
            continue
        free = min(gpu.free_bytes - policy.gpu_reserve_bytes, room[gpu.uuid])
        offers.append(max(0, free - sums[gpu.uuid]))
    for batch in range(estimate.max_batch, estimate.min_batch - 1, -1):
        need = estimate.gpu_bytes + estimate.gpu_bytes_per_item * batch
        if sum(need <= offer for offer in offers) >= estimate.gpus:
            return batch
    return 0
