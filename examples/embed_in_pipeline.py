"""
A producer/consumer application that owns the governor and its memory.

    python examples/embed_in_pipeline.py

The application has a pool of 96 MiB for frames, of which the operating system knows nothing.
Its own probe tells the governor how much of the pool is free. The queue's tasks fill frames;
the consumer sums them up and gives them back to the pool. Since nobody else can know of that,
it says so: `resources_changed()`.

A producer that is too fast is held back by the queue's capacity.
"""

from __future__ import annotations

import queue
import sys
import threading
import zlib
from dataclasses import dataclass, field

from lardon import (
    Governor,
    MiB,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.clock import MachineClock
from lardon.queue.views import TaskEvent

POOL_BYTES = 96 * MiB
FRAME_BYTES = 8 * MiB
FRAMES_PER_CLIP = 4
CLIPS = 12
PATIENCE_S = 30.0


@dataclass
class Pool:
    """The application's own memory: it counts what is taken, and is a probe for lardon."""

    clock: MachineClock = field(default_factory=MachineClock)
    taken_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, amount_bytes: int) -> None:
        """Take frames from the pool, or give them back with a negative amount."""
        with self.lock:
            self.taken_bytes += amount_bytes

    @property
    def free_bytes(self) -> int:
        """What nobody has taken."""
        with self.lock:
            return POOL_BYTES - self.taken_bytes

    def snapshot(self) -> ResourceSnapshot:
        """Return what is free now; this is all that the governor asks of a probe."""
        return ResourceSnapshot(
            taken_at=self.clock.monotonic(),
            ram_total_bytes=POOL_BYTES,
            ram_available_bytes=self.free_bytes,
            limits=("the frame pool",),
        )


def say(text: str) -> None:
    """Print one line whole: two threads print here."""
    sys.stdout.write(f"{text}\n")


@dataclass
class Clip:
    """What a task hands to the consumer: frames, which are still in the pool."""

    name: str
    frames: list[bytearray]


def grab(task: TaskContext, name: str, pool: Pool, finished: queue.Queue[Clip | None]) -> None:
    """Fill frames from the pool; they go on to the consumer, so the pool stays taken."""
    frames = [bytearray(FRAME_BYTES) for _ in range(task.contract.batch_size)]
    pool.change(len(frames) * FRAME_BYTES)
    finished.put(Clip(name, frames))


def consume(tasks: TaskQueue, pool: Pool, finished: queue.Queue[Clip | None]) -> None:
    """Sum up the frames, give them back, and say that the pool has changed."""
    while (clip := finished.get(timeout=PATIENCE_S)) is not None:
        count = len(clip.frames)
        total = sum(zlib.crc32(frame) for frame in clip.frames)
        waits = [one for one in tasks.tasks() if one.waiting_since is not None]
        for one in waits:
            assert one.reason is not None
            say(f"    {one.name} waits, {one.reason.code}: {pool.free_bytes // MiB} MiB free")
        clip.frames.clear()
        pool.change(-count * FRAME_BYTES)
        tasks.resources_changed()
        say(f"  consumer: {clip.name} is {total:,}; {count} frames back in the pool")


def main() -> None:
    """Run twelve clips through the pipeline."""
    pool = Pool()
    # No reserve, since the pool is all ours; and no timer: the application says when to look.
    policy = Policy.unlimited(recheck_s=None)
    governor = Governor(policy, probe=pool, clock=pool.clock)
    finished: queue.Queue[Clip | None] = queue.Queue()
    estimate = ResourceEstimate(ram_bytes_per_item=FRAME_BYTES, max_batch=FRAMES_PER_CLIP)

    def tell(event: TaskEvent) -> None:
        if event.state is TaskState.FAILED:
            say(f"  {event.name} failed: {event.reason}")

    with TaskQueue(governor, name="grabber", capacity=3) as tasks:
        tasks.subscribe(tell)
        consumer = threading.Thread(target=consume, args=(tasks, pool, finished), name="consumer")
        consumer.start()
        for number in range(CLIPS):
            # Waits while three clips are pending already.
            name = f"clip {number}"
            tasks.submit(grab, name, pool, finished, estimate=estimate, name=name)
        say(f"producer: all {CLIPS} clips are submitted")
        tasks.join(PATIENCE_S)
        finished.put(None)
        consumer.join(PATIENCE_S)
        counts = tasks.statistics()
    say(f"{counts.completed} clips done, {pool.taken_bytes} bytes of the pool still taken.")


if __name__ == "__main__":
    main()
