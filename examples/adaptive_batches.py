"""
Batches that shrink and grow while another part of the same program uses memory.

    python examples/adaptive_batches.py

A task sums up blocks of 8 MiB, 24 at a time where it may. A viewer in a second thread needs
160 MiB of the same budget for a while. Both ask the governor, so both fit: the task's batch
shrinks to 10 while the viewer is open, and grows again when it is closed.
"""

from __future__ import annotations

import threading
import zlib

from lardon import Governor, MiB, Policy, Reservation, ResourceEstimate, TaskContext, TaskQueue

BLOCK_BYTES = 8 * MiB
# An eighth more than the block itself: what comes with it, and what memory is rounded up to.
BLOCK_NEEDS = ResourceEstimate(ram_bytes_per_item=9 * MiB, max_batch=24)
BLOCKS = 120
VIEWER_NEEDS = ResourceEstimate(ram_bytes=160 * MiB)
PATIENCE_S = 30.0


class Viewer(threading.Thread):
    """
    Somebody who comes first: a picture is to open soon, not when the batch work is over.

    The governor tells its subscribers of a release before the one who released asks again.
    So a wish that could not be granted is granted between two batches.
    """

    def __init__(self, governor: Governor) -> None:
        super().__init__(name="viewer")
        self.governor = governor
        self.wanted = threading.Event()
        self.taken = threading.Event()
        self.close_now = threading.Event()
        self.answered = threading.Event()
        self.reservation: Reservation | None = None

    def run(self) -> None:
        """Open when asked to, close when asked to."""
        self.wanted.wait(PATIENCE_S)
        decision, self.reservation = self.governor.reserve(VIEWER_NEEDS, holder="viewer")
        print(f"  viewer: asks for 160 MiB. {decision.kind}: {decision.reason}")
        if self.reservation is None:
            unsubscribe = self.governor.subscribe(self._try_again)
            self.answered.set()
            self.taken.wait(PATIENCE_S)
            unsubscribe()
        self.answered.set()
        if self.reservation is None:
            print("  viewer: gave up waiting")
            return
        pixels = bytearray(160 * MiB)
        print(f"  viewer: is open, {len(pixels) // MiB} MiB in use")
        self.close_now.wait(PATIENCE_S)
        del pixels
        self.reservation.release()
        print("  viewer: is closed, its memory given back")

    def _try_again(self) -> None:
        # On the thread that released something, with no lock held.
        if self.reservation is None:
            _, self.reservation = self.governor.reserve(VIEWER_NEEDS, holder="viewer")
            if self.reservation is not None:
                self.taken.set()


def checksums(task: TaskContext, viewer: Viewer, sizes: list[int]) -> int:
    """Sum up the blocks; the viewer comes in the first batch and goes in the third."""

    def one_batch(numbers: list[int]) -> int:
        sizes.append(len(numbers))
        print(f"batch {task.sequence}: {len(numbers)} blocks, {task.contract.ram_bytes // MiB} MiB")
        blocks = [bytes([number % 256]) * BLOCK_BYTES for number in numbers]
        total = sum(zlib.crc32(block) for block in blocks)
        if task.sequence == 0:
            viewer.wanted.set()
            viewer.answered.wait(PATIENCE_S)
        if task.sequence == 2:
            viewer.close_now.set()
            viewer.join(PATIENCE_S)
        return total

    return sum(task.map_batches(one_batch, range(BLOCKS)))


def main() -> None:
    """Run both at once under a budget of 256 MiB."""
    governor = Governor(Policy(ram_limit_bytes=256 * MiB))
    viewer = Viewer(governor)
    viewer.start()
    sizes: list[int] = []
    with TaskQueue(governor) as queue:
        task = queue.submit(checksums, viewer, sizes, estimate=BLOCK_NEEDS, name="checksums")
        total = task.result()
    viewer.join(PATIENCE_S)
    print(f"The batches were {sizes}; the sum is {total:,}.")


if __name__ == "__main__":
    main()
