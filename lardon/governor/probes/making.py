"""Making readings without the generated constructors."""

from __future__ import annotations

from typing import Any

from lardon.governor.snapshot import GpuSnapshot, OwnUse, ResourceSnapshot

# The constructor that attrs generates for a frozen class sets each field by its name, which
# takes longer than parsing all the files. The slots' own descriptors take half the time; a
# test compares the two.
_new = object.__new__
_slots: Any = ResourceSnapshot
_set_taken_at = _slots.taken_at.__set__
_set_ram_total = _slots.ram_total_bytes.__set__
_set_ram_available = _slots.ram_available_bytes.__set__
_set_swap_total = _slots.swap_total_bytes.__set__
_set_swap_used = _slots.swap_used_bytes.__set__
_set_cpus = _slots.cpus.__set__
_set_load1 = _slots.load1.__set__
_set_cpu_pressure = _slots.cpu_pressure.__set__
_set_memory_pressure = _slots.memory_pressure.__set__
_set_io_pressure = _slots.io_pressure.__set__
_set_gpus = _slots.gpus.__set__
_set_limits = _slots.limits.__set__

_use_slots: Any = OwnUse
_set_own_ram = _use_slots.ram_bytes.__set__
_set_own_gpu = _use_slots.gpu_bytes.__set__


def make_own_use(ram_bytes: int, gpu_bytes: dict[str, int]) -> OwnUse:
    """Return ``OwnUse`` of these fields."""
    made = _new(OwnUse)
    _set_own_ram(made, ram_bytes)
    _set_own_gpu(made, gpu_bytes)
    return made


def make_snapshot(  # noqa: PLR0913, PLR0917  one argument per field
    taken_at: float,
    ram_total_bytes: int,
    ram_available_bytes: int,
    swap_total_bytes: int,
    swap_used_bytes: int,
    cpus: int,
    load1: float | None,
    cpu_pressure: float | None,
    memory_pressure: float | None,
    io_pressure: float | None,
    gpus: tuple[GpuSnapshot, ...],
    limits: tuple[str, ...],
) -> ResourceSnapshot:
    """Return ``ResourceSnapshot`` of these fields, in the order in which it has them."""
    made = _new(ResourceSnapshot)
    _set_taken_at(made, taken_at)
    _set_ram_total(made, ram_total_bytes)
    _set_ram_available(made, ram_available_bytes)
    _set_swap_total(made, swap_total_bytes)
    _set_swap_used(made, swap_used_bytes)
    _set_cpus(made, cpus)
    _set_load1(made, load1)
    _set_cpu_pressure(made, cpu_pressure)
    _set_memory_pressure(made, memory_pressure)
    _set_io_pressure(made, io_pressure)
    _set_gpus(made, gpus)
    _set_limits(made, limits)
    return made
