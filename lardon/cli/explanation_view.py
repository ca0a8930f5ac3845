"""`lardon explain` for people, and the sentences of `lardon run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lardon.cli.arithmetic import card_of, total_of
from lardon.cli.documents import as_json, stamp
from lardon.cli.durations import format_duration
from lardon.cli.machine_view import UNKNOWN
from lardon.cli.sections import Section
from lardon.governor.decision import DecisionKind
from lardon.units import format_bytes

if TYPE_CHECKING:
    import datetime

    from lardon.governor.decision import Contract, Decision
    from lardon.governor.explanation import Explanation, ResourceLine
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import ResourceSnapshot

_HEADER = (
    "resource", "asked", "total", "reserve", "capacity", "promised", "available", "on offer",
    "verdict",
)  # fmt: skip
# The resources that are counted; all others are memory.
_COUNTED = frozenset({"cpus", "io_slots", "gpus"})
_TITLES = {
    DecisionKind.REDUCE_BATCH: "For the full batch",
    DecisionKind.WAIT: "To become START",
    DecisionKind.REJECT: "What stands against it",
}


def sections_of_explanation(
    explanation: Explanation, policy: Policy, at: datetime.datetime
) -> tuple[Section, ...]:
    """Return the decision, the arithmetic of every resource, and what would change it."""
    decision = explanation.decision
    lines = [decision.reason.text]
    if decision.contract is not None:
        lines.append(f"granted: {contract_text(decision.contract)}")
    title = f"{decision.kind} ({decision.reason.code}) at {stamp(at)}"
    sections = [Section(title=title, lines=tuple(lines))]
    if explanation.lines:
        rows = [_row(line, explanation.snapshot, policy) for line in explanation.lines]
        sections.append(Section(title="Arithmetic", header=_HEADER, rows=tuple(rows)))
    if explanation.to_start:
        title = _TITLES.get(decision.kind, "")
        sections.append(Section(title=title, lines=explanation.to_start))
    return tuple(sections)


def _row(line: ResourceLine, snapshot: ResourceSnapshot | None, policy: Policy) -> tuple[str, ...]:
    counted = line.resource in _COUNTED
    total = total_of(line, snapshot, policy)
    reserve = line.reserve
    if line.resource == "cpus" and total is not None and line.capacity is not None:
        reserve = total - line.capacity
    amounts = (total, reserve, line.capacity, line.promised, line.available, line.found)
    gpu = card_of(line, snapshot)
    return (
        line.resource if gpu is None else f"gpu {gpu.index}: {gpu.uuid}",
        _asked(line, counted=counted),
        # A slot has no live figure, and an IO slot no reserve: there is nothing to know.
        *("-" if counted and amount is None else _amount(amount, counted=counted)
          for amount in amounts),
        line.verdict,
    )  # fmt: skip


def _asked(line: ResourceLine, *, counted: bool) -> str:
    least = _amount(line.asked_least, counted=counted)
    if line.asked_most == line.asked_least:
        return least
    return f"{least} to {_amount(line.asked_most, counted=counted)}"


def _amount(amount: int | None, *, counted: bool) -> str:
    if amount is None:
        return UNKNOWN
    return str(as_json(amount)) if counted else format_bytes(amount)


def contract_text(contract: Contract) -> str:
    """Return what is granted in one line."""
    parts = [
        f"batch size {as_json(contract.batch_size)}",
        f"{format_bytes(contract.ram_bytes)} of RAM",
        f"{contract.cpus} CPUs" if contract.cpus != 1 else "1 CPU",
    ]
    if contract.gpus:
        cards = ", ".join(contract.gpus)
        parts.append(f"{format_bytes(contract.gpu_bytes)} on GPU {cards}")
    if contract.io_slots:
        parts.append(f"{contract.io_slots} IO slots" if contract.io_slots != 1 else "1 IO slot")
    return ", ".join(parts)


def waiting_text(name: str, decision: Decision, since: datetime.datetime, waited_s: float) -> str:
    """Return why *name* waits, since when, and the figures: state, resource, needed, available."""
    so_far = f" ({format_duration(waited_s)})" if waited_s >= 1 else ""
    return (
        f"{name} waits since {stamp(since)}{so_far}: "
        f"{decision.kind} ({decision.reason.code}): {decision.reason.text}"
    )


def started_text(name: str, contract: Contract, waited_s: float) -> str:
    """Return what *name* got after it had waited."""
    return f"{name} starts after {format_duration(waited_s)}: {contract_text(contract)}"


def timed_out_text(name: str, decision: Decision, timeout_s: float) -> str:
    """Return why *name* was not started in time."""
    return (
        f"{name} was not admitted within {format_duration(timeout_s)}: "
        f"{decision.kind} ({decision.reason.code}): {decision.reason.text}"
    )


def rejected_text(name: str, decision: Decision) -> str:
    """Return why *name* will never start here."""
    return f"{name} is refused: REJECT ({decision.reason.code}): {decision.reason.text}"
