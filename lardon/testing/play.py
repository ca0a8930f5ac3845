"""A whole run of batches on a machine model, as a queue would make it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.governor import Governor
    from lardon.governor.reason import Reason
    from lardon.governor.reservation import Reservation
    from lardon.testing.machine import MachineModel

# A queue asks again after `Policy.recheck_s`, whose default this is.
RECHECK_S: Final = 0.5


class Stuck(AssertionError):
    """A run was refused for longer than it was allowed to wait; `reason` is the last answer."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the run does not go on: {reason}")
        self.reason = reason


def play_batches(
    governor: Governor,
    machine: MachineModel,
    estimate: ResourceEstimate,
    costs: Sequence[int],
    *,
    item_s: float = 0.02,
    batch_s: float = 0.03,
    fixed_bytes: int = 0,
    patience_s: float = 60.0,
) -> list[int]:
    """
    Work on items of these *costs* in bytes, as `TaskContext.map_batches` does.

    *governor* has *machine* for its probe, and the machine's clock. Every batch is measured
    and recorded. Blocks for no real time.

    Args:
        governor: Who is asked before each batch.
        machine: Where the batches are played.
        estimate: What is asked for.
        costs: RAM of each item, in order.
        item_s: How long each item takes.
        batch_s: How long a batch takes on top of its items.
        fixed_bytes: RAM of a batch on top of its items.
        patience_s: How long a run may wait without a single batch.

    Returns:
        The sizes of the batches.

    Raises:
        Stuck: no batch was admitted for *patience_s*, or the governor rejects the rest.

    """
    sizes: list[int] = []
    done = 0
    waited = 0.0
    last: Reservation | None = None
    while done < len(costs):
        decision, reservation = governor.reserve(estimate, replaces=last)
        if reservation is None:
            if waited >= patience_s or decision.kind == "REJECT":
                raise Stuck(decision.reason)
            machine.idle(RECHECK_S)
            waited += RECHECK_S
            continue
        waited = 0.0
        with reservation:
            size = min(reservation.contract.batch_size, len(costs) - done)
            watch = governor.watch_batch(reservation)
            machine.run(
                reservation.contract,
                costs[done : done + size],
                batch_s + item_s * size,
                fixed_bytes=fixed_bytes,
            )
            duration, ram, gpu = watch.stop(estimate.kind, size)
            governor.record_batch(estimate.kind, size, duration, ram, gpu)
        last = reservation
        sizes.append(size)
        done += size
    return sizes
