"""
Governed work from an asyncio program.

    python examples/asyncio_app.py

The event loop stays free while the queue's worker thread runs the tasks: a task is awaited
like anything else, its progress is read at any time, and a timeout cancels it.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib

from lardon import Governor, MiB, ResourceEstimate, Task, TaskCancelled, TaskContext, TaskQueue

BLOCK_BYTES = 4 * MiB
ESTIMATE = ResourceEstimate(ram_bytes_per_item=BLOCK_BYTES, max_batch=8)


def checksums(task: TaskContext, blocks: int) -> int:
    """Sum up blocks of bytes, batch by batch."""

    def one_batch(numbers: list[int]) -> int:
        return sum(zlib.crc32(bytes([number % 256]) * BLOCK_BYTES) for number in numbers)

    return sum(task.map_batches(one_batch, range(blocks)))


async def show_progress(task: Task) -> None:
    """Tell each time that the task is further, while the loop does other things."""
    seen = None
    while not task.state.terminal:
        if seen != (seen := task.progress.done):
            print(f"  the loop is free: {task.name} has done {seen}")
        await asyncio.sleep(0.02)


async def main() -> None:
    """Await three tasks, and cancel one that takes too long."""
    with TaskQueue(Governor()) as queue:
        tasks = [
            queue.submit(checksums, blocks, estimate=ESTIMATE, name=f"{blocks} blocks")
            for blocks in (16, 8, 24)
        ]
        ticker = asyncio.create_task(show_progress(tasks[-1]))
        for task, total in zip(tasks, await asyncio.gather(*tasks), strict=True):
            print(f"{task.name}: {total:,}")
        await ticker

        slow = queue.submit(checksums, 100_000, estimate=ESTIMATE, name="100,000 blocks")
        try:
            async with asyncio.timeout(0.3):
                await slow
        except TimeoutError:
            # Only the waiting ended; the task goes on until it is told to stop.
            print(f"{slow.name}: takes too long, still {slow.state}")
            slow.cancel()
            with contextlib.suppress(TaskCancelled):
                await slow
            print(f"{slow.name}: {slow.state} after {slow.progress.done} blocks: {slow.reason}")


if __name__ == "__main__":
    asyncio.run(main())
