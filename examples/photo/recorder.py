"""What happened while the queue ran: memory over time, batches, answers and waits."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

import attrs

from lardon import Contract, Decision, DecisionKind, Governor, ResourceEstimate
from lardon.governor.snapshot import MeasuringProbe
from lardon.units import format_bytes
from photo.high_water import HighWater

# Where the kernel does not count peaks, this often is enough to see one: the shortest stage
# of one photograph, decoding it, takes 100 ms. Reading the figure takes 12 µs.
INTERVAL_S: Final = 0.02
SAMPLE_EVERY: Final = 5
# A timeline has no more points than a wide picture has columns; beyond it every second
# one goes, so that a run of a day takes no more memory than one of a minute.
MOST_SAMPLES: Final = 4000


@attrs.frozen(kw_only=True)
class Sample:
    """The memory at one moment."""

    at_s: float
    available_bytes: int
    reserved_bytes: int
    used_bytes: int
    """What this process has gained since the recorder was made."""


@attrs.frozen(kw_only=True)
class Batch:
    """One batch that ran."""

    task: str
    size: int
    granted_batch: int
    granted_bytes: int
    peak_bytes: int
    """The most that this process used, above its use when the task began."""
    started_s: float
    ended_s: float


@attrs.frozen
class News:
    """A line for people."""

    text: str
    progress: bool = False
    """Whether it only says how far a task is, which a bar says too."""


@attrs.define
class Wait:
    """A time for which a task was told to wait."""

    task: str
    reason: str
    started_s: float
    ended_s: float | None = None


def in_words(task: str, estimate: ResourceEstimate, decision: Decision) -> str:
    """Return one line that says what the governor answered, and why where it held back."""
    contract = decision.contract
    if decision.kind is DecisionKind.START and contract is not None:
        cpus = "1 CPU" if contract.cpus == 1 else f"{contract.cpus} CPUs"
        granted = f"{format_bytes(contract.ram_bytes)} of RAM, {cpus}"
        return f"{task}: START with batches of {contract.batch_size} ({granted})"
    if decision.kind is DecisionKind.REDUCE_BATCH and contract is not None:
        sizes = f"from {estimate.max_batch} to {contract.batch_size}"
        return f"{task}: REDUCE_BATCH {sizes}, because {decision.reason}"
    return f"{task}: {decision.kind}, because {decision.reason}"


class Recorder:
    """
    Watches the governor and this process from a thread of its own, inside a ``with`` block.

    `news` fills with lines for people, from any thread; somebody should print them.
    """

    def __init__(self, governor: Governor, probe: MeasuringProbe) -> None:
        self._governor = governor
        self._probe = probe
        self._water = HighWater()
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="recorder", daemon=True)
        self._used_at_first = self._used()
        # Guards the three below, which the queue's thread sets.
        self._lock = threading.Lock()
        self._task = ""
        self._baseline = 0
        self._waiting: Wait | None = None
        self.samples: list[Sample] = []
        self.batches: list[Batch] = []
        self.waits: list[Wait] = []
        self.news: SimpleQueue[News] = SimpleQueue()

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._end_wait()
        self._sample()

    def now_s(self) -> float:
        """Return the seconds since this recorder was made."""
        return time.monotonic() - self._started

    def heard(self, task: str, estimate: ResourceEstimate, decision: Decision) -> None:
        """Take note of what the governor answered; called on the queue's own thread."""
        with self._lock:
            if task != self._task:
                self._task, self._baseline = task, self._water.now()
            if decision.kind is not DecisionKind.WAIT:
                self._end_wait()
            elif self._waiting is not None:
                return  # asked again, answered the same
            else:
                self._waiting = Wait(task, decision.reason.text, self.now_s())
                self.waits.append(self._waiting)
        self.news.put(News(in_words(task, estimate, decision)))

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.ended_s = self.now_s()
            self._waiting = None

    @contextlib.contextmanager
    def batch(self, task: str, contract: Contract, size: int, total: int) -> Iterator[None]:
        """Measure the block as one batch, with *size* of *total* items, under *contract*."""
        started_s = self.now_s()
        self._water.reset()
        try:
            yield
        finally:
            batch = Batch(
                task=task,
                size=size,
                granted_batch=contract.batch_size,
                granted_bytes=contract.ram_bytes,
                peak_bytes=max(0, self._water.peak() - self._baseline),
                started_s=started_s,
                ended_s=self.now_s(),
            )
            self.batches.append(batch)
        done = sum(batch.size for batch in self.batches if batch.task == task)
        self.news.put(News(f"{task}: {done} of {total} done", progress=True))

    def _watch(self) -> None:
        turn, every = 0, SAMPLE_EVERY
        while not self._stop.wait(INTERVAL_S):
            self._water.look()
            turn += 1
            if turn % every == 0:
                with contextlib.suppress(OSError):  # a reading that fails is a gap
                    self._sample()
            if len(self.samples) > MOST_SAMPLES:
                del self.samples[::2]
                every *= 2

    def _sample(self) -> None:
        sample = Sample(
            at_s=self.now_s(),
            available_bytes=self._governor.snapshot().ram_available_bytes,
            reserved_bytes=self._governor.statistics().reserved_ram_bytes,
            used_bytes=max(0, self._used() - self._used_at_first),
        )
        self.samples.append(sample)

    def _used(self) -> int:
        """Return the memory of this process that nobody else could have instead."""
        own = self._probe.own_use()
        return own.ram_bytes if own is not None else self._water.now()
