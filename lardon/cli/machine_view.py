"""`lardon info` for people: what the governor sees, and which limits bound it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from lardon.cli.documents import is_mig, stamp
from lardon.cli.sections import Section
from lardon.units import format_bytes

if TYPE_CHECKING:
    from lardon.cli.machine import Capacities, Machine
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import GpuSnapshot, ResourceSnapshot

UNKNOWN = "unknown"


def sections_of_machine(machine: Machine) -> tuple[Section, ...]:
    """Return what `lardon info` shows, whatever could be read."""
    title = f"lardon {machine.version} at {stamp(machine.at)}"
    sections: list[Section] = []
    snapshot, capacities = machine.snapshot, machine.capacities()
    if snapshot is None:
        sections.append(
            Section(title=title, lines=(f"the machine could not be read: {machine.error}",))
        )
    else:
        sections += [
            Section(title=title, rows=_host_rows(snapshot, capacities), lines=_trouble(snapshot)),
            Section(
                title="Limits that bind",
                lines=snapshot.limits or ("none: these are the machine's own figures",),
            ),
        ]
        if machine.memory_levels:
            sections.append(_levels(machine))
        sections.append(_gpus(machine, snapshot, capacities))
    sections.append(_policy(machine.policy, capacities))
    if machine.warnings:
        sections.append(Section(title="Warnings", lines=machine.warnings))
    return tuple(sections)


def size_or_unknown(count: int | None) -> str:
    """Return bytes as a text; None is unknown."""
    return UNKNOWN if count is None else format_bytes(count)


def _trouble(snapshot: ResourceSnapshot) -> tuple[str, ...]:
    problem = snapshot.contradiction
    return (f"this reading cannot be used: {problem}",) if problem is not None else ()


def _host_rows(
    snapshot: ResourceSnapshot, capacities: Capacities | None
) -> tuple[tuple[str, str], ...]:
    rows = [
        ("RAM total", format_bytes(snapshot.ram_total_bytes)),
        ("RAM available", format_bytes(snapshot.ram_available_bytes)),
    ]
    if capacities is not None:
        rows += [
            ("RAM reserve", format_bytes(capacities.ram_reserve_bytes)),
            ("RAM capacity", format_bytes(capacities.ram_capacity_bytes)),
            ("RAM on offer", format_bytes(capacities.ram_on_offer_bytes)),
        ]
    swap = f"{format_bytes(snapshot.swap_used_bytes)} of {format_bytes(snapshot.swap_total_bytes)}"
    rows += [
        ("Swap used", f"{swap} (never counts)"),
        ("CPUs", str(snapshot.cpus)),
        ("Load (1 min)", _number(snapshot.load1)),
        ("CPU pressure", _percent(snapshot.cpu_pressure)),
        ("Memory pressure", _percent(snapshot.memory_pressure)),
        ("IO pressure", _percent(snapshot.io_pressure)),
    ]
    return tuple(rows)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f} %"


def _levels(machine: Machine) -> Section:
    rows = [
        (
            level.ceiling_source,
            format_bytes(level.ceiling_bytes),
            format_bytes(level.usage_bytes),
            format_bytes(level.reclaimable_bytes),
            format_bytes(level.headroom_bytes),
        )
        for level in machine.memory_levels
    ]
    header = ("file", "limit", "used", "reclaimable", "headroom")
    return Section(title="Cgroups that limit RAM", header=header, rows=tuple(rows))


def _gpus(machine: Machine, snapshot: ResourceSnapshot, capacities: Capacities | None) -> Section:
    if not snapshot.gpus:
        why = f"none: {machine.gpu_error}" if machine.gpu_error else "none is visible here"
        return Section(title="GPUs", lines=(why,))
    policy = {gpu.uuid: gpu for gpu in capacities.gpus} if capacities is not None else {}
    rows = []
    for gpu in snapshot.gpus:
        ours = policy.get(gpu.uuid)
        rows.append(
            (
                str(gpu.index),
                gpu.uuid,
                gpu.name or UNKNOWN,
                kind_of(gpu),
                "as RAM" if gpu.integrated else size_or_unknown(gpu.total_bytes),
                "as RAM" if gpu.integrated else size_or_unknown(gpu.free_bytes),
                size_or_unknown(ours.reserve_bytes if ours is not None else None),
                size_or_unknown(ours.capacity_bytes if ours is not None else None),
            )
        )
    header = ("index", "UUID", "name", "kind", "total", "free", "reserve", "capacity")
    return Section(title="GPUs", header=header, rows=tuple(rows))


def kind_of(gpu: GpuSnapshot) -> str:
    """Return ``integrated``, ``MIG`` or ``discrete``."""
    if gpu.integrated:
        return "integrated"
    return "MIG" if is_mig(gpu.uuid) else "discrete"


def _policy(policy: Policy, capacities: Capacities | None) -> Section:
    rows = []
    for field in attrs.fields(type(policy)):
        if not field.init:
            continue
        value = getattr(policy, field.name)
        if value is None:
            shown = _without_value(field.name, capacities)
        elif isinstance(value, str):
            shown = value
        else:
            shown = format_bytes(value) if field.name.endswith("_bytes") else f"{value:g}"
        rows.append((field.name, shown))
    return Section(title="Policy", rows=tuple(rows))


def _without_value(name: str, capacities: Capacities | None) -> str:
    if name == "ram_reserve_bytes":
        here = f" ({format_bytes(capacities.ram_reserve_bytes)} here)" if capacities else ""
        return f"an eighth of the RAM, at most 2 GiB{here}"
    if name == "gpu_reserve_bytes":
        return "a sixteenth of each card, at most 512 MiB"
    return "never" if name == "recheck_s" else "no limit"
