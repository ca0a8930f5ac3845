"""What a user allows himself on a cluster, as a governor sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from lardon.dispatch.rules import apply_rules, count, must
from lardon.environment import VISIBLE_DEVICES, environment_of
from lardon.governor.governor import Governor
from lardon.governor.policy import Policy
from lardon.governor.snapshot import GpuSnapshot, ResourceSnapshot

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.decision import Contract
    from lardon.governor.estimate import ResourceEstimate

# A GPU of a cluster is given out whole, and how much memory it has is the cluster's to know.
_WHOLE_GPU_BYTES: Final = 1 << 50


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Limits:
    """
    The most that the jobs of one pool may hold together on the cluster.

    Raises:
        InvalidError: a field breaks its rule; the error names path, value and rule.

    """

    jobs: int = attrs.field(metadata=must(count(1)))
    """How many jobs may be with the scheduler at a time."""
    cpus: int = attrs.field(metadata=must(count(1)))
    gpus: int = attrs.field(default=0, metadata=must(count()))
    ram_bytes: int = attrs.field(metadata=must(count(1)))

    def governor(self, clock: Clock) -> Governor:
        """Return a governor for these limits alone; what this machine has does not matter."""
        policy = Policy.unlimited(recheck_s=None)
        return Governor(policy, probe=_ConstantProbe(self, clock), clock=clock)


@attrs.frozen(kw_only=True)
class _LimitsSnapshot(ResourceSnapshot):
    """What a user allows himself, in the shape of a machine."""

    giver: ClassVar[str] = "the limits of this pool"


class _ConstantProbe:
    """Reads the same at any time: what is free is what no reservation holds."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._clock = clock
        self._reading = _LimitsSnapshot(
            taken_at=0.0,
            ram_total_bytes=limits.ram_bytes,
            ram_available_bytes=limits.ram_bytes,
            cpus=limits.cpus,
            gpus=tuple(
                GpuSnapshot(
                    index=place,
                    uuid=f"remote-{place}",
                    name="a GPU of the cluster",
                    total_bytes=_WHOLE_GPU_BYTES,
                    free_bytes=_WHOLE_GPU_BYTES,
                )
                for place in range(limits.gpus)
            ),
        )

    def snapshot(self) -> ResourceSnapshot:
        """Return the limits, as read now."""
        return attrs.evolve(self._reading, taken_at=self._clock.monotonic())


def in_all(estimate: ResourceEstimate, nodes: int) -> ResourceEstimate:
    """
    Return what all nodes of a job need together, of an estimate for each of them.

    GPUs are given out whole, so their memory is not counted; disks of a cluster are not the
    pool's to share out.
    """
    return estimate.evolve(
        ram_bytes=estimate.ram_bytes * nodes,
        ram_bytes_per_item=estimate.ram_bytes_per_item * nodes,
        cpus=estimate.cpus * nodes,
        min_cpus=estimate.min_cpus * nodes,
        gpus=(estimate.gpus or 0) * nodes,
        gpu_bytes=0,
        gpu_bytes_per_item=0,
        io_slots=0,
    )


def as_granted(contract: Contract, nodes: int) -> dict[str, Any]:
    """Return the fields of a `JobSpec` that say what *contract* grants to each node."""
    return {
        "cpus": max(1, contract.cpus // nodes),
        "gpus": len(contract.gpus) // nodes,
        "ram_bytes": contract.ram_bytes // nodes or None,
    }


def told_to_the_command(contract: Contract, nodes: int) -> dict[str, str]:
    """Return the environment variables that tell a command what its node has."""
    each = attrs.evolve(
        contract, cpus=max(1, contract.cpus // nodes), ram_bytes=contract.ram_bytes // nodes
    )
    told = environment_of(each, {})
    # Which GPUs they are is the scheduler's to say.
    del told[VISIBLE_DEVICES]
    del told["LARDON_GPU_BYTES"]
    return told
