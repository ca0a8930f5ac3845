"""
The decision: a pure function of estimate, snapshot, policy, ledger and time.

No clock, probe, lock or log is used here. The order of the checks is part of the public
interface; the first that matches answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.governor.reason import Reason, ReasonCode

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.ledger import Ledger
    from lardon.governor.offers import Outlook
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import ResourceSnapshot

_PRESSURE_DIGITS = 2


def evaluate(
    estimate: ResourceEstimate,
    snapshot: ResourceSnapshot,
    policy: Policy,
    ledger: Ledger,
    now: float,
    outlook: Outlook | None = None,
    devices: Collection[str] | None = None,
) -> Decision:
    """
    Return what the governor answers to *estimate*; nothing is booked.

    Args:
        estimate: What is asked for.
        snapshot: The machine as it was read.
        policy: What the owner allows.
        ledger: The active reservations; read only.
        now: Monotonic seconds of the clock that also stamped the snapshot.
        outlook: Measured use and memory that a predecessor still holds, where known.
        devices: Consider only these GPU UUIDs; None means all that the snapshot lists.

    """
    unusable = _unusable(snapshot, policy, now)
    if unusable is not None:
        return Decision(kind=DecisionKind.WAIT, reason=unusable)
    if outlook is None and not estimate.gpus:
        at_once = _full_start(estimate, snapshot, policy, ledger)
        if at_once is not None:
            return at_once
    # Imported where it is needed: a queue of tasks that all fit does without.
    from lardon.governor.examination import examine

    return examine(estimate, snapshot, policy, ledger, outlook, devices)


def _full_start(
    estimate: ResourceEstimate, snapshot: ResourceSnapshot, policy: Policy, ledger: Ledger
) -> Decision | None:
    """
    Return START when a full batch without a GPU fits and no rule speaks against it.

    The answer that nearly every question gets, at a fraction of the cost. None means to
    go through the checks in their order; they come to the same answer where this has one.
    """
    total, reserve, capacity = policy.ram_terms(snapshot.ram_total_bytes)
    reserved = ledger.ram_bytes
    found = min(snapshot.ram_available_bytes, total) - reserve - reserved
    if found > capacity - reserved:
        found = capacity - reserved
    need = estimate.ram_most
    if (
        need > found
        or estimate.cpus > policy.cpu_capacity(snapshot.cpus) - ledger.cpus
        or (estimate.io_slots and estimate.io_slots > policy.io_slots - ledger.io_slots)
        or too_much_pressure(estimate, snapshot, policy) is not None
        or found < 0
    ):
        return None
    last = estimate._last_start
    if last is not None and last[0] == found and last[1] == capacity:
        # The same figures again, as between two tasks of a busy queue: the same answer.
        return last[2]
    # The full batch of an estimate is always the same contract.
    contract = last[2].contract if last is not None else None
    if contract is None:
        contract = Contract(
            batch_size=estimate.max_batch,
            ram_bytes=need,
            cpus=estimate.cpus,
            io_slots=estimate.io_slots,
        )
    decision = Decision(
        kind=DecisionKind.START, contract=contract, reason=granted(contract, found, capacity)
    )
    object.__setattr__(estimate, "_last_start", (found, capacity, decision))
    return decision


def granted(contract: Contract, found: int, limit: int) -> Reason:
    """Return the reason of an admission, with *found* and *limit* bytes of RAM."""
    facts = ("ram", contract.ram_bytes, found, limit, contract.batch_size, "")
    return Reason(code=ReasonCode.OK, facts=facts)


def _unusable(snapshot: ResourceSnapshot, policy: Policy, now: float) -> Reason | None:
    if (problem := snapshot.contradiction) is not None:
        return Reason(
            code=ReasonCode.INVALID_SNAPSHOT, facts={"resource": "snapshot", "problem": problem}
        )
    age = now - snapshot.taken_at
    if 0 <= age <= policy.snapshot_max_age_s:
        return None
    # NaN lands here too, and is not JSON. Not rounded: that could show an age within the limit.
    found = age if math.isfinite(age) else str(age)
    return Reason(
        code=ReasonCode.STALE_SNAPSHOT,
        facts={"resource": "snapshot", "found": found, "limit": policy.snapshot_max_age_s},
    )


def too_much_pressure(
    estimate: ResourceEstimate, snapshot: ResourceSnapshot, policy: Policy
) -> Reason | None:
    """Return the live rule that is at or above its limit; an unknown reading never is."""
    limit, load = policy.max_load_ratio, snapshot.load1
    if limit is not None and load is not None and load / snapshot.cpus >= limit:
        return _live(ReasonCode.LOAD, "load", load / snapshot.cpus, limit)
    limit, found = policy.max_cpu_pressure, snapshot.cpu_pressure
    if limit is not None and found is not None and found >= limit:
        return _live(ReasonCode.CPU_PRESSURE, "cpu", found, limit)
    limit, found = policy.max_memory_pressure, snapshot.memory_pressure
    if limit is not None and found is not None and found >= limit:
        return _live(ReasonCode.MEMORY_PRESSURE, "memory", found, limit)
    if estimate.io_slots:
        limit, found = policy.max_io_pressure, snapshot.io_pressure
        if limit is not None and found is not None and found >= limit:
            return _live(ReasonCode.IO_PRESSURE, "io", found, limit)
    return None


def _live(code: ReasonCode, resource: str, found: float, limit: float) -> Reason:
    # Rounding could bring the figure below the limit that it reached.
    shown = max(round(found, _PRESSURE_DIGITS), limit)
    return Reason(code=code, facts={"resource": resource, "found": shown, "limit": limit})
