"""Values as JSON: exact figures, under the names of their fields."""

from __future__ import annotations

import datetime
import enum
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lardon.cli.arithmetic import total_of
from lardon.cli.statuses import status_of

if TYPE_CHECKING:
    from lardon.cli.machine import Machine
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.explanation import Explanation
    from lardon.governor.policy import Policy

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# As for the facts of a reason: no reader gains from more digits, and Python refuses to
# write very many.
_MAX_BITS: Final = 1024


def as_json(value: Any) -> Json:  # noqa: PLR0911  one return per kind of value
    """
    Return *value* as what `json.dumps` takes.

    Fields keep their names. A float that is not finite is unknown (None); an integer of
    more than 1024 bits is a text that says about how large it is.
    """
    if isinstance(value, enum.Enum):
        return as_json(value.value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        bits = value.bit_length()
        return value if bits <= _MAX_BITS else f"about 2^{bits - 1}"
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.datetime):
        return stamp(value)
    if attrs.has(type(value)):
        fields = [field.alias for field in attrs.fields(type(value)) if field.init]
        return {name: as_json(getattr(value, name)) for name in fields if name is not None}
    if hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [as_json(item) for item in value]
    return str(value)


def stamp(at: datetime.datetime) -> str:
    """Return a time of day in UTC, to the second, such as ``2026-01-31T12:00:00Z``."""
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def written(document: Json, *, one_line: bool = False) -> str:
    """Return the text of *document*: ASCII alone, so that every terminal and file takes it."""
    return json.dumps(document, indent=None if one_line else 2, allow_nan=False)


def document_of_machine(machine: Machine) -> dict[str, Json]:
    """Return what `lardon info --json` prints."""
    levels = [
        {**level._asdict(), "headroom_bytes": level.headroom_bytes}
        for level in machine.memory_levels
    ]
    return {
        "version": machine.version,
        "at": as_json(machine.at),
        "error": as_json(machine.error),
        "snapshot": _snapshot(machine.snapshot),
        "contradiction": machine.snapshot.contradiction if machine.snapshot else None,
        "memory_levels": as_json(levels),
        "files_read": as_json(machine.files_read),
        "gpu_error": as_json(machine.gpu_error),
        "policy": as_json(machine.policy),
        "capacities": as_json(machine.capacities()),
        "warnings": as_json(machine.warnings),
    }


def document_of_explanation(
    explanation: Explanation,
    estimate: ResourceEstimate,
    policy: Policy,
    at: datetime.datetime,
) -> dict[str, Json]:
    """Return what `lardon explain --json` prints."""
    lines = [
        {
            **attrs.asdict(line),
            "total": total_of(line, explanation.snapshot, policy),
            "verdict": line.verdict,
        }
        for line in explanation.lines
    ]
    return {
        "at": as_json(at),
        "exit_status": int(status_of(explanation.decision)),
        "estimate": as_json(estimate),
        "policy": as_json(policy),
        "decision": as_json(explanation.decision),
        "lines": as_json(lines),
        "to_start": as_json(explanation.to_start),
        "snapshot": _snapshot(explanation.snapshot),
    }


def _snapshot(snapshot: Any) -> Json:
    document = as_json(snapshot)
    if isinstance(document, dict) and isinstance(gpus := document.get("gpus"), list):
        for gpu in gpus:
            if isinstance(gpu, dict):
                gpu["mig"] = is_mig(str(gpu.get("uuid")))
    return document


def is_mig(uuid: str) -> bool:
    """Whether this is the UUID of a MIG instance: every driver's form starts so."""
    return uuid.startswith("MIG-")
