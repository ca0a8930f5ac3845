"""The governor's answer, and what it grants."""

from __future__ import annotations

import enum

import attrs

from lardon.governor.reason import Reason


class DecisionKind(enum.StrEnum):
    """The four answers."""

    START = "START"
    """The full batch may run."""
    WAIT = "WAIT"
    """Not now; it can run when something changes."""
    REDUCE_BATCH = "REDUCE_BATCH"
    """A smaller batch than the estimate's largest may run."""
    REJECT = "REJECT"
    """It can never run on this machine under this policy."""


@attrs.frozen(kw_only=True)
class Contract:
    """
    What one reservation grants, copied out for a callback to read.

    A contract never changes: a sequence break hands the callback a new one.
    ``ram_bytes`` is exactly what the estimate asks for a batch of `batch_size`.
    """

    batch_size: int
    """Items per batch: between the estimate's smallest and largest."""
    ram_bytes: int
    gpu_bytes: int = 0
    """GPU memory on each GPU of `gpus`."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs granted."""
    cpus: int = 1
    io_slots: int = 0
    sequence: int = 0
    """0 for the contract that a task starts with, one more after each break."""


@attrs.frozen(kw_only=True)
class Decision:
    """One answer of the governor. A refusal is a value, not an exception."""

    kind: DecisionKind
    contract: Contract | None = None
    """What is granted; None for WAIT and REJECT."""
    reason: Reason

    @property
    def admitted(self) -> bool:
        """Whether the work may run: START or REDUCE_BATCH."""
        return self.contract is not None
