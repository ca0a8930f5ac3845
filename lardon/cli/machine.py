"""What `lardon info` knows: one look at the machine, whatever state it is in."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from lardon.cli.patient_probe import PatientProbe
from lardon.governor.checks import shown
from lardon.governor.governor import Governor
from lardon.governor.policy import Policy

if TYPE_CHECKING:
    from lardon.governor.probes.cgroup_memory import LevelReading
    from lardon.governor.snapshot import Probe, ResourceSnapshot

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class GpuCapacity:
    """What a policy makes of one GPU; None is unknown."""

    uuid: str
    reserve_bytes: int
    capacity_bytes: int | None
    """An integrated GPU has the RAM's."""


@attrs.frozen(kw_only=True)
class Capacities:
    """What a policy makes of a machine: what stays free, and what may ever be reserved."""

    ram_reserve_bytes: int
    ram_capacity_bytes: int
    ram_on_offer_bytes: int
    """What a first task could get now."""
    cpu_capacity: int
    io_slots: int
    gpus: tuple[GpuCapacity, ...]


@attrs.frozen(kw_only=True)
class Machine:
    """One look at the machine."""

    version: str
    at: datetime.datetime
    policy: Policy
    snapshot: ResourceSnapshot | None
    """None when the probe failed; then `error` says why."""
    error: str = ""
    gpu_error: str = ""
    """Why there is no GPU, in the driver's words."""
    memory_levels: tuple[LevelReading, ...] = ()
    files_read: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether there are figures that a governor could decide on."""
        return self.snapshot is not None and self.snapshot.contradiction is None

    def capacities(self) -> Capacities | None:
        """Return what the policy makes of it, or None when there are no figures."""
        snapshot, policy = self.snapshot, self.policy
        if snapshot is None or snapshot.contradiction is not None:
            return None
        total, reserve, capacity = policy.ram_terms(snapshot.ram_total_bytes)
        free = min(snapshot.ram_available_bytes, total) - reserve
        return Capacities(
            ram_reserve_bytes=reserve,
            ram_capacity_bytes=capacity,
            ram_on_offer_bytes=max(0, min(free, capacity)),
            cpu_capacity=policy.cpu_capacity(snapshot.cpus),
            io_slots=policy.io_slots,
            gpus=tuple(
                GpuCapacity(
                    uuid=gpu.uuid,
                    reserve_bytes=reserve if gpu.integrated else policy.gpu_reserve(gpu.size_bytes),
                    capacity_bytes=(
                        capacity if gpu.integrated else policy.gpu_capacity(gpu.size_bytes)
                    ),
                )
                for gpu in snapshot.gpus
            ),
        )


class FailedProbe:
    """Stands for a probe that could not even be made: it says why at every reading."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def snapshot(self) -> ResourceSnapshot:
        """Raise what making the probe raised."""
        raise self._error


def make_probe() -> Probe:
    """Return the probe of this machine; it never raises."""
    try:
        return PatientProbe()
    except Exception as error:  # noqa: BLE001  every state of a machine is shown, not raised
        return FailedProbe(error)


def make_governor(policy: Policy) -> Governor:
    """Return a governor of this machine, with nothing reserved."""
    return Governor(policy, probe=make_probe())


def look(probe: Probe, policy: Policy, warnings: Sequence[str] = ()) -> Machine:
    """
    Return what *probe* sees now; what it raises becomes `error`.

    The *warnings* are taken after the reading, which may add to them.
    """
    snapshot: ResourceSnapshot | None = None
    error = ""
    try:
        snapshot = probe.snapshot()
    except Exception as failure:  # noqa: BLE001  a probe may raise anything
        error = f"{type(failure).__name__}: {shown(failure)}"
    # Only the machine's own probe tells these; they are extras, and no reason to fail.
    asked: Any = probe
    return Machine(
        version=version(),
        at=datetime.datetime.now(datetime.UTC),
        policy=policy,
        snapshot=snapshot,
        error=error,
        gpu_error=_told(lambda: str(asked.gpu_error), ""),
        memory_levels=_told(lambda: tuple(asked.memory_levels()), ()),
        files_read=_told(lambda: tuple(asked.files_read()), ()),
        warnings=tuple(warnings),
    )


def _told(ask: Callable[[], T], otherwise: T) -> T:
    try:
        return ask()
    except Exception:  # noqa: BLE001  see `look`
        return otherwise


def version() -> str:
    """Return the version that is installed."""
    try:
        return importlib.metadata.version("lardon")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class _Collector(logging.Handler):
    """Hands on the sentence of each record, without its traceback."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextlib.contextmanager
def warnings_told_to(tell: Callable[[str], object]) -> Iterator[None]:
    """Inside, *tell* is called with what the library logs as a warning, and nobody else is."""
    logger = logging.getLogger("lardon")
    handler, propagate = _Collector(tell), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
