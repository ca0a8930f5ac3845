"""What the workers of a pool are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from lardon.errors import InvalidOption
from lardon.governor.checks import refuse, whole_number

if TYPE_CHECKING:
    from lardon.locality.pinned import PoolGovernor


def _text(_: Any, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise refuse(InvalidOption, field.name, value, "a text that is not empty")


@attrs.frozen
class WorkerSpec:
    """One worker of a pool: a thread of this process, or a process of its own."""

    name: str = attrs.field(validator=_text)
    """Names it in the pool."""
    device: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))
    """The UUID of the GPU that it is pinned to; None is no GPU in particular."""
    process: bool = attrs.field(default=False, kw_only=True)
    """Whether it is a process: a GPU library or a lock of Python that jobs must not share."""


Workers: TypeAlias = int | Iterable[str | WorkerSpec] | None


def specs_of(workers: Workers, governor: PoolGovernor, *, process: bool) -> list[WorkerSpec]:
    """
    Return the workers that *workers* means.

    A number makes as many without a device; None makes one for each GPU that the governor
    sees, or one for each CPU where it sees no GPU.
    """
    if workers is None:
        snapshot = governor.snapshot()
        gpus = [WorkerSpec(f"gpu-{gpu.index}", gpu.uuid, process=process) for gpu in snapshot.gpus]
        if gpus:
            return gpus
        workers = snapshot.cpus
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        count = whole_number(InvalidOption, "workers", workers, 1)
        return [WorkerSpec(f"worker-{number}", process=process) for number in range(count)]
    specs = [
        one if isinstance(one, WorkerSpec) else WorkerSpec(one, process=process) for one in workers
    ]
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) != len(names):
        raise refuse(InvalidOption, "workers", names, "at least one worker, each with its own name")
    return specs
