"""What a task says that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from lardon.errors import InvalidEstimate
from lardon.governor.checks import refuse, shown, whole_number
from lardon.governor.decision import Decision

if TYPE_CHECKING:
    from lardon.governor.offers import Offer

# One table instead of a validator per field: field, least value, and whether None may
# stand in (then the value follows from other fields).
_COUNTS: Final = (
    ("ram_bytes", 0, False),
    ("ram_bytes_per_item", 0, False),
    ("gpu_bytes", 0, False),
    ("gpu_bytes_per_item", 0, False),
    ("min_batch", 1, False),
    ("max_batch", 1, False),
    ("cpus", 1, False),
    ("min_cpus", 1, True),
    ("gpus", 0, True),
    ("io_slots", 0, False),
)


@attrs.frozen(kw_only=True)
class ResourceEstimate:
    """
    What one batch of a task needs: a fixed part and a part per item.

    A batch of ``b`` items needs ``ram_bytes + ram_bytes_per_item * b`` of RAM, and the
    same in GPU memory on each of its GPUs. Every amount is an integer; an integer of any
    size is legal, and one above the machine's capacity is answered with REJECT.

    Raises:
        InvalidEstimate: a field breaks a rule; the error names field, value and rule.

    """

    ram_bytes: int = 0
    """RAM that a batch of any size needs."""
    ram_bytes_per_item: int = 0
    """RAM that each item of the batch adds."""
    gpu_bytes: int = 0
    """GPU memory that a batch of any size needs, on each GPU."""
    gpu_bytes_per_item: int = 0
    """GPU memory that each item adds, on each GPU."""
    min_batch: int = 1
    """The smallest batch that makes sense; the governor never grants less."""
    max_batch: int = 1
    """The batch wanted; the governor never grants more."""
    cpus: int = 1
    """CPUs wanted."""
    min_cpus: int = None  # type: ignore[assignment]  # None is given a value below
    """CPUs that the task can live with; None means all of `cpus`."""
    gpus: int = None  # type: ignore[assignment]  # None is given a value below
    """GPUs; None means 1 when any GPU memory is asked for, else 0."""
    io_slots: int = 0
    """Shares of the disk; the policy says how many there are."""
    kind: str = "general"
    """The class of work whose measured peaks are learned together."""

    # Derived once, because every decision starts from them.
    ram_least: int = attrs.field(init=False, repr=False, eq=False, default=0)
    """RAM that the smallest batch needs."""
    ram_most: int = attrs.field(init=False, repr=False, eq=False, default=0)
    """RAM that the largest batch needs."""
    # The last START for this estimate; see `lardon.governor.admission`.
    _last_start: tuple[int, int, Decision] | None = attrs.field(
        init=False, repr=False, eq=False, default=None
    )

    def __attrs_post_init__(self) -> None:
        put = object.__setattr__
        for name, minimum, optional in _COUNTS:
            value = getattr(self, name)
            if type(value) is int and value >= minimum:
                continue
            if value is None and optional:
                continue
            put(self, name, whole_number(InvalidEstimate, name, value, minimum))
        if self.min_cpus is None:
            put(self, "min_cpus", self.cpus)
        if self.gpus is None:
            put(self, "gpus", int(self.asks_gpu_memory))
        self._check_relations()
        put(self, "ram_least", self.ram_need(self.min_batch))
        put(self, "ram_most", self.ram_need(self.max_batch))

    def _check_relations(self) -> None:
        if self.min_batch > self.max_batch:
            rule = f"at most max_batch ({shown(self.max_batch)})"
            raise refuse(InvalidEstimate, "min_batch", self.min_batch, rule)
        if self.min_cpus > self.cpus:
            rule = f"at most cpus ({shown(self.cpus)})"
            raise refuse(InvalidEstimate, "min_cpus", self.min_cpus, rule)
        if self.gpus == 0 and self.asks_gpu_memory:
            raise refuse(InvalidEstimate, "gpus", 0, "at least 1 when GPU memory is asked for")
        if not isinstance(self.kind, str) or not self.kind:
            raise refuse(InvalidEstimate, "kind", self.kind, "a text that is not empty")

    @property
    def asks_gpu_memory(self) -> bool:
        """Whether any GPU memory is asked for."""
        return bool(self.gpu_bytes or self.gpu_bytes_per_item)

    def ram_need(self, batch: int) -> int:
        """Return the bytes of RAM that a batch of *batch* items needs."""
        return self.ram_bytes + self.ram_bytes_per_item * batch

    def gpu_need(self, batch: int) -> int:
        """Return the bytes of GPU memory that such a batch needs on each of its GPUs."""
        return self.gpu_bytes + self.gpu_bytes_per_item * batch

    # What admission asks; see `lardon.governor.shape.Asked`.

    @property
    def least_ram(self) -> int:
        """The RAM without which it can never run: the smallest batch's."""
        return self.ram_least

    @property
    def least_gpu(self) -> int:
        """The memory without which a GPU can never run it: the smallest batch's."""
        return self.gpu_need(self.min_batch)

    def needs(self, batch: int, *, shared: bool) -> tuple[int, int]:  # noqa: ARG002  the protocol's
        """Return `ram_need` and `gpu_need`, wherever the GPU memory is taken from."""
        return self.ram_need(batch), self.gpu_need(batch)

    def ram_batch(self, offer: Offer) -> int:
        """Return the largest batch for which the RAM on *offer* is enough, or 0."""
        return largest_batch(
            self.ram_bytes,
            self.ram_bytes_per_item,
            offer.found or 0,
            self.min_batch,
            self.max_batch,
        )

    def gpu_batch(self, offer: Offer) -> int:
        """Return the largest batch for which a GPU with this on *offer* is enough, or 0."""
        return largest_batch(
            self.gpu_bytes,
            self.gpu_bytes_per_item,
            offer.found or 0,
            self.min_batch,
            self.max_batch,
        )

    def shared_batch(self, offer: Offer) -> int:
        """Return the same where the GPU memory is taken from the RAM on *offer* too."""
        return largest_batch(
            self.ram_bytes + self.gpu_bytes,
            self.ram_bytes_per_item + self.gpu_bytes_per_item,
            offer.found or 0,
            self.min_batch,
            self.max_batch,
        )

    def evolve(self, **changes: Any) -> ResourceEstimate:
        """Return a copy with *changes*, checked like any other estimate."""
        return attrs.evolve(self, **changes)


def largest_batch(fixed: int, per_item: int, offer: int, minimum: int, maximum: int) -> int:
    """
    Return the largest batch whose need is within *offer*, or 0 when *minimum* is not.

    Exact integer arithmetic in one step, whatever the size of the numbers.
    """
    if fixed + per_item * maximum <= offer:
        return maximum
    if per_item == 0 or fixed + per_item * minimum > offer:
        return 0
    return (offer - fixed) // per_item
