"""What a governor says of itself."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from lardon.governor.decision import DecisionKind
from lardon.governor.ledger import DeviceTotal


@attrs.frozen(kw_only=True)
class GovernorStatistics:
    """A governor at one moment."""

    active: int
    """Reservations that are held."""
    booked: int
    """Reservations made since the start."""
    released: int
    released_again: int
    """Second releases, which changed nothing."""
    generation: int
    decisions: Mapping[DecisionKind, int]
    """How often each answer was given by `reserve`."""
    reserved_ram_bytes: int
    reserved_cpus: int
    reserved_io_slots: int
    reserved_gpus: Mapping[str, DeviceTotal]
    history: Mapping[str, int]
    """Batches known by kind."""
