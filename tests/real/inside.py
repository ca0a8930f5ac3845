"""
A program that runs inside a cgroup and does what the lines on its standard input say.

Each request and each answer is one line of JSON. It ends with its input.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from lardon import (
    Governor,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    SystemProbe,
    TaskContext,
    TaskQueue,
)
from lardon.governor.snapshot import Probe
from lardon.units import MiB


class PsutilProbe:
    """What a governor would see that asks psutil alone."""

    def snapshot(self) -> ResourceSnapshot:
        found = psutil.virtual_memory()
        return ResourceSnapshot(
            taken_at=time.monotonic(),
            ram_total_bytes=found.total,
            ram_available_bytes=found.available,
            cpus=psutil.cpu_count() or 1,
        )


class Inside:
    """The requests, each a method that returns its answer."""

    def __init__(self) -> None:
        self._system = SystemProbe()
        self._held: list[bytes | mmap.mmap] = []

    def snapshot(self) -> dict[str, Any]:
        found = self._system.snapshot()
        return {
            "total": found.ram_total_bytes,
            "available": found.ram_available_bytes,
            "cpus": found.cpus,
            "limits": found.limits,
            "levels": [level._asdict() for level in self._system.memory_levels()],
        }

    def decide(self, ram_bytes: int) -> dict[str, Any]:
        governor = Governor(Policy.unlimited(), probe=self._system)
        decision = governor.decide(ResourceEstimate(ram_bytes=ram_bytes))
        facts = dict(decision.reason.facts)
        return {"kind": decision.kind.name, "code": decision.reason.code.name, "facts": facts}

    def hold(self, ram_bytes: int) -> int:
        self._held.append(touched(ram_bytes))
        return ram_bytes

    def share(self, ram_bytes: int) -> int:
        """Hold memory that the kernel counts as cache, and cannot drop."""
        shared = mmap.mmap(-1, ram_bytes)
        shared.write(touched(ram_bytes))
        self._held.append(shared)
        return ram_bytes

    def read(self, path: str) -> int:
        count = 0
        with Path(path).open("rb", buffering=0) as file:
            while chunk := file.read(MiB):
                count += len(chunk)
        return count

    def run(self, *, probe: str, items: int, item_bytes: int, ask: bool = False) -> dict[str, Any]:
        """Run a task of touched memory; say each batch first, and if *ask* wait after it."""
        probes: dict[str, Probe] = {"system": self._system, "psutil": PsutilProbe()}
        # The pressure of the machine is that of its other work, a test that has a process
        # killed among it.
        governor = Governor(Policy(max_memory_pressure=None), probe=probes[probe])
        estimate = ResourceEstimate(ram_bytes_per_item=item_bytes, max_batch=items)
        decision = governor.decide(estimate)
        say({"decision": decision.kind.name, "code": decision.reason.code.name})

        def work(batch: list[int]) -> list[int]:
            say({"batch": len(batch)})
            done = work_on(batch, item_bytes)
            if ask:
                say({"worked": len(batch)})
                sys.stdin.readline()
            return done

        def callback(task: TaskContext) -> list[list[int]]:
            return task.map_batches(work, range(items))

        with TaskQueue(governor) as queue:
            done = queue.submit(callback, estimate=estimate).result()
        return {"done": [item for batch in done for item in batch]}

    def run_at_once(self, *, items: int, item_bytes: int) -> dict[str, Any]:
        """Do the same work in one batch, and ask nobody."""
        return {"done": work_on(list(range(items)), item_bytes)}


def touched(ram_bytes: int) -> bytes:
    """Return memory of which the kernel has had to provide every page."""
    return b"\1" * ram_bytes


def work_on(batch: list[int], item_bytes: int) -> list[int]:
    """Hold the memory of a whole batch at once."""
    held = [touched(item_bytes) for _ in batch]
    return [item for item, memory in zip(batch, held, strict=True) if memory[-1] == 1]


def say(answer: object) -> None:
    """Write one answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer until the input ends."""
    inside = Inside()
    while line := sys.stdin.readline():
        request = json.loads(line)
        say(getattr(inside, request.pop("do"))(**request))


if __name__ == "__main__":
    main()
