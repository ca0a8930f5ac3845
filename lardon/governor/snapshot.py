"""What a probe saw of the machine at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import attrs


@attrs.frozen(kw_only=True)
class GpuSnapshot:
    """
    One GPU as a CUDA program of this process would see it.

    Unknown is None, never 0: a free figure of 0 means that the card is full.
    """

    index: int
    """Logical index, as CUDA counts within this process."""
    uuid: str
    """The name that stays the same in CUDA, NVML and every process."""
    name: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    """What the driver says is free, foreign processes included; never total minus ours."""
    integrated: bool = False
    """True when the GPU has no memory of its own and shares the host's RAM."""

    @property
    def size_bytes(self) -> int | None:
        """The total; None when it is unknown or cannot be true."""
        total = self.total_bytes
        return total if total is not None and total > 0 else None

    @property
    def known(self) -> bool:
        """Whether the free figure can be used: present, and not contradicting the total."""
        if self.free_bytes is None or self.free_bytes < 0:
            return False
        return self.total_bytes is None or self.total_bytes > 0


@attrs.frozen(kw_only=True)
class ResourceSnapshot:
    """
    The machine at one moment, as one process of it may use it.

    Limits of containers are already taken in: totals and availability are what this
    process can reach, not what the host has. Bytes are exact; PSI figures are the
    kernel's own percentages (some avg10, 0 to 100); None is unknown.
    """

    giver: ClassVar[str] = ""
    """
    Who gives what is read here, for the sentences of a refusal; a subclass may name another.

    Empty is this machine, as far as the policy allows.
    """

    taken_at: float
    """Monotonic seconds of the clock, at the reading of the RAM figures."""
    ram_total_bytes: int
    ram_available_bytes: int
    """What can be allocated now without swapping; the governor clamps it to the total."""
    swap_total_bytes: int = 0
    swap_used_bytes: int = 0
    """For people to read: swap never adds to a budget."""
    cpus: int = 1
    """Effective CPUs: affinity and quotas taken in, at least 1."""
    load1: float | None = None
    """Load average over one minute."""
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    io_pressure: float | None = None
    gpus: tuple[GpuSnapshot, ...] = ()
    limits: tuple[str, ...] = ()
    """Which limits bound the figures above, in words, with the file that says so."""

    @property
    def contradiction(self) -> str | None:
        """What makes this reading invalid, in words, or None for a reading to decide on."""
        if self.ram_total_bytes > 0 and self.ram_available_bytes >= 0 and self.cpus >= 1:
            return None
        if not self.ram_total_bytes > 0:
            return f"ram_total_bytes is {self.ram_total_bytes}"
        if not self.ram_available_bytes >= 0:
            return f"ram_available_bytes is {self.ram_available_bytes}"
        return f"cpus is {self.cpus}"


@attrs.frozen(kw_only=True)
class OwnUse:
    """
    What this process itself uses, for telling a reservation's promise from its use.

    RAM is anonymous and shared memory (RssAnon + RssShmem), never file pages.
    """

    ram_bytes: int
    gpu_bytes: Mapping[str, int] = attrs.field(factory=dict)
    """Bytes by GPU UUID; a card that is not listed is unknown."""


class PeakWatch(Protocol):
    """The most that this process uses, from `WatchingProbe.watch_peak` to `stop`."""

    @property
    def start(self) -> OwnUse | None:
        """The use at the beginning, in the same terms; None where `own_use` tells it."""
        ...

    def stop(self) -> OwnUse | None:
        """Return the most used since; None when it is unknown or not this process's alone."""
        ...


class Probe(Protocol):
    """
    Anything that reads the machine.

    A probe may also have ``own_use() -> OwnUse | None`` (see `MeasuringProbe`) and
    ``watch_peak() -> PeakWatch | None`` (see `WatchingProbe`).
    """

    def snapshot(self) -> ResourceSnapshot:
        """Return a fresh reading; called from any thread, with no lardon lock held."""
        ...


@runtime_checkable
class MeasuringProbe(Protocol):
    """A probe that can also measure what this process uses."""

    def snapshot(self) -> ResourceSnapshot:
        """Return a fresh reading of the machine."""
        ...

    def own_use(self) -> OwnUse | None:
        """Return what this process uses now, or None when that cannot be measured."""
        ...


@runtime_checkable
class WatchingProbe(Protocol):
    """A probe that can also measure the most that this process uses during a batch."""

    def snapshot(self) -> ResourceSnapshot:
        """Return a fresh reading of the machine."""
        ...

    def watch_peak(self) -> PeakWatch | None:
        """Begin to watch, or return None when that cannot be measured."""
        ...
