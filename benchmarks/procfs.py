"""Counters of processes and threads, from the kernel's own files."""

from __future__ import annotations

import os
from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class ThreadCounters:
    """What one thread has used since it started."""

    cpu_ns: int
    voluntary: int
    """Times it went to sleep, and so was woken since."""
    involuntary: int

    def __sub__(self, earlier: ThreadCounters) -> ThreadCounters:
        """Return what was used in between."""
        return ThreadCounters(
            cpu_ns=self.cpu_ns - earlier.cpu_ns,
            voluntary=self.voluntary - earlier.voluntary,
            involuntary=self.involuntary - earlier.involuntary,
        )


def numbers(text: str) -> dict[str, int]:
    """Return the ``key: number …`` lines of a status file."""
    found = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        first = rest.split(None, 1)[:1]
        if first and first[0].isdigit():
            found[key] = int(first[0])
    return found


def thread_counters(pid: int, thread: int) -> ThreadCounters:
    """Return the counters of one thread; reading them does not wake it."""
    folder = Path(f"/proc/{pid}/task/{thread}")
    status = numbers((folder / "status").read_text(encoding="ascii", errors="replace"))
    return ThreadCounters(
        cpu_ns=int((folder / "schedstat").read_text(encoding="ascii").split()[0]),
        voluntary=status["voluntary_ctxt_switches"],
        involuntary=status["nonvoluntary_ctxt_switches"],
    )


def all_threads(pid: int) -> dict[int, ThreadCounters]:
    """Return the counters of every thread of a process."""
    threads = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  names alone
    return {thread: thread_counters(pid, thread) for thread in threads}


def resident_bytes() -> int:
    """Return this process's own memory, what it shares with others taken in part (PSS)."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return numbers(text)["Pss"] * 1024
