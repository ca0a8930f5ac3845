"""
The shortest whole story: an estimate, a task, its batches, its result.

    python examples/quickstart.py

A hundred blocks of 8 MiB are made and summed up. A budget of 256 MiB stands in for a small
machine, so that the reduction of the batch can be seen on a large one.
"""

from __future__ import annotations

import zlib

from lardon import Governor, MiB, Policy, ResourceEstimate, TaskContext, TaskQueue
from lardon.units import format_bytes

BLOCK_BYTES = 8 * MiB
BLOCKS = 100


def checksums(task: TaskContext) -> int:
    """Sum up all blocks, as many at a time as the governor grants."""

    def one_batch(numbers: list[int]) -> int:
        contract = task.contract
        print(
            f"  batch {contract.sequence}: {len(numbers)} blocks, "
            f"{format_bytes(contract.ram_bytes)} granted"
        )
        blocks = [bytes([number % 256]) * BLOCK_BYTES for number in numbers]
        return sum(zlib.crc32(block) for block in blocks)

    # Between two batches the memory is given back, and the governor is asked anew.
    return sum(task.map_batches(one_batch, range(BLOCKS)))


def main() -> None:
    """Ask, run, and tell what happened."""
    governor = Governor(Policy(ram_limit_bytes=256 * MiB))
    machine = governor.snapshot()
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    print(
        f"This machine: {format_bytes(machine.ram_available_bytes)} of "
        f"{format_bytes(machine.ram_total_bytes)} RAM available, {machine.cpus} CPUs, {gpus}."
    )

    estimate = ResourceEstimate(ram_bytes_per_item=BLOCK_BYTES, min_batch=1, max_batch=64)
    decision = governor.decide(estimate)
    print(f"A batch of up to 64 blocks? {decision.kind}: {decision.reason}.")

    with TaskQueue(governor) as queue:
        task = queue.submit(checksums, estimate=estimate, name="checksums")
        print(f"The sum is {task.result():,}.")
    print(f"Task {task.name!r} is {task.state}; reserved now: {len(governor.reservations())}.")


if __name__ == "__main__":
    main()
