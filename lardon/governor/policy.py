"""What the owner of the machine allows."""

from __future__ import annotations

from typing import Final, Literal, Self

import attrs

from lardon.errors import InvalidPolicy
from lardon.governor.checks import finite_number, refuse, whole_number
from lardon.units import GiB, MiB

# Left free by default for the desktop, the page cache and the estimate's own error: an
# eighth of the machine, at most 2 GiB; on a GPU a sixteenth, at most 512 MiB, about what
# a CUDA context and its libraries take (core design, section 4).
RAM_RESERVE_MAX_BYTES: Final = 2 * GiB
RAM_RESERVE_DIVISOR: Final = 8
GPU_RESERVE_MAX_BYTES: Final = 512 * MiB
GPU_RESERVE_DIVISOR: Final = 16

# A machine has cards of few sizes; only a made-up one has more.
_SIZES_KEPT: Final = 64

_COUNTS: Final = ("cpu_reserve", "io_slots", "tasks_per_gpu")
_OPTIONAL_BYTES: Final = (
    "ram_reserve_bytes",
    "gpu_reserve_bytes",
    "ram_limit_bytes",
    "gpu_limit_bytes",
)
_PRESSURES: Final = ("max_memory_pressure", "max_io_pressure", "max_cpu_pressure")
_PERCENT: Final = 100.0
_TRUSTS: Final = ("declared", "measured")


@attrs.frozen(kw_only=True)
class Policy:
    """
    How much of the machine lardon may use, and when it must hold back.

    None means: for a reserve its default, for `recheck_s` never, for a limit or a
    ``max_…`` rule no limit. Everywhere else None is refused. 0 means zero.

    Raises:
        InvalidPolicy: a field breaks a rule; the error names field, value and rule.

    """

    ram_reserve_bytes: int | None = None
    """RAM that stays free; None is ``min(2 GiB, total // 8)``."""
    gpu_reserve_bytes: int | None = None
    """GPU memory that stays free on each card; None is ``min(512 MiB, total // 16)``."""
    cpu_reserve: int = 0
    """CPUs left to others; never the last one."""
    ram_limit_bytes: int | None = None
    """A budget: what may be reserved in all, on top of every other rule."""
    gpu_limit_bytes: int | None = None
    """The same for each GPU with memory of its own."""
    io_slots: int = 1
    """How many shares of the disk there are."""
    tasks_per_gpu: int = 1
    """How many reservations may share one GPU."""
    max_memory_pressure: float | None = 10.0
    """PSI (some avg10, percent) at which every task waits."""
    max_io_pressure: float | None = 80.0
    """PSI at which tasks with IO slots wait."""
    max_cpu_pressure: float | None = None
    """PSI at which every task waits; off, because a queue's own work raises it."""
    max_load_ratio: float | None = None
    """Load average per effective CPU at which every task waits; off, as above."""
    recheck_s: float | None = 0.5
    """How often a wait on live readings is examined again; None means on news only."""
    snapshot_max_age_s: float = 1.0
    """Older snapshots are not decided on."""
    trust: Literal["declared", "measured"] = "declared"
    """
    What a batch is said to need: ``"declared"`` is the larger of the declaration and what
    batches of the kind were measured to take. ``"measured"`` is the measured need alone,
    where there is one: a kind begins with `min_batch`, and each batch may have at most
    twice the items of the largest measured.
    """
    max_batch_s: float | None = None
    """While others take more and more RAM: the longest that a batch may be expected to last."""

    _ram_terms: tuple[int, int, int] = attrs.field(
        init=False, repr=False, eq=False, default=(-1, 0, 0)
    )
    _gpu_terms: dict[int | None, tuple[int, int | None]] = attrs.field(
        init=False, repr=False, eq=False, factory=dict
    )

    def __attrs_post_init__(self) -> None:
        put = object.__setattr__
        for name in _COUNTS:
            put(self, name, whole_number(InvalidPolicy, name, getattr(self, name), 0))
        for name in _OPTIONAL_BYTES:
            if (value := getattr(self, name)) is not None:
                put(self, name, whole_number(InvalidPolicy, name, value, 0))
        for name in _PRESSURES:
            if (value := getattr(self, name)) is not None:
                number = finite_number(InvalidPolicy, name, value, maximum=_PERCENT)
                put(self, name, number)
        if (ratio := self.max_load_ratio) is not None:
            put(self, "max_load_ratio", finite_number(InvalidPolicy, "max_load_ratio", ratio))
        if (recheck := self.recheck_s) is not None:
            # A period of 0 would be a busy loop over the probe.
            number = finite_number(InvalidPolicy, "recheck_s", recheck, above=0.0)
            put(self, "recheck_s", number)
        if self.trust not in _TRUSTS:
            rule = "one of " + ", ".join(map(repr, _TRUSTS))
            raise refuse(InvalidPolicy, "trust", self.trust, rule)
        if (longest := self.max_batch_s) is not None:
            put(
                self, "max_batch_s", finite_number(InvalidPolicy, "max_batch_s", longest, above=0.0)
            )
        age = self.snapshot_max_age_s
        put(self, "snapshot_max_age_s", finite_number(InvalidPolicy, "snapshot_max_age_s", age))

    @classmethod
    def interactive(cls, **changes: object) -> Self:
        """
        Return a policy for a desktop that somebody is working on.

        These are the figures of the design that lardon started from: load 0.90 per CPU,
        PSI 20 (cpu), 1 (memory) and 80 (io), one CPU kept free.
        """
        figures: dict[str, object] = {
            "max_load_ratio": 0.90,
            "max_cpu_pressure": 20.0,
            "max_memory_pressure": 1.0,
            "max_io_pressure": 80.0,
            "cpu_reserve": 1,
        }
        return cls(**{**figures, **changes})  # type: ignore[arg-type]  # checked by the class

    @classmethod
    def unlimited(cls, **changes: object) -> Self:
        """Return a policy without reserves and pressure rules; slots stay 1."""
        figures: dict[str, object] = {
            "ram_reserve_bytes": 0,
            "gpu_reserve_bytes": 0,
            "max_memory_pressure": None,
            "max_io_pressure": None,
        }
        return cls(**{**figures, **changes})  # type: ignore[arg-type]  # checked by the class

    def ram_terms(self, total_bytes: int) -> tuple[int, int, int]:
        """Return total, reserve and capacity of the RAM of such a machine."""
        terms = self._ram_terms
        if terms[0] != total_bytes:
            reserve, capacity = self.ram_reserve(total_bytes), self.ram_capacity(total_bytes)
            terms = (total_bytes, reserve, capacity)
            # The total is nearly always the same from one decision to the next.
            object.__setattr__(self, "_ram_terms", terms)
        return terms

    def gpu_terms(self, total_bytes: int | None) -> tuple[int, int | None]:
        """Return reserve and capacity of such a card; see `gpu_reserve` and `gpu_capacity`."""
        terms = self._gpu_terms.get(total_bytes)
        if terms is None:
            terms = (self.gpu_reserve(total_bytes), self.gpu_capacity(total_bytes))
            if len(self._gpu_terms) >= _SIZES_KEPT:
                self._gpu_terms.clear()
            self._gpu_terms[total_bytes] = terms
        return terms

    def ram_reserve(self, total_bytes: int) -> int:
        """Return the bytes of RAM that stay free on a machine of *total_bytes*."""
        if self.ram_reserve_bytes is not None:
            return self.ram_reserve_bytes
        return min(RAM_RESERVE_MAX_BYTES, total_bytes // RAM_RESERVE_DIVISOR)

    def gpu_reserve(self, total_bytes: int | None) -> int:
        """Return the bytes that stay free on a card of *total_bytes* (None: unknown)."""
        if self.gpu_reserve_bytes is not None:
            return self.gpu_reserve_bytes
        if total_bytes is None:
            return GPU_RESERVE_MAX_BYTES
        return min(GPU_RESERVE_MAX_BYTES, total_bytes // GPU_RESERVE_DIVISOR)

    def ram_capacity(self, total_bytes: int) -> int:
        """Return the most RAM that may ever be reserved in all."""
        return _capped(total_bytes - self.ram_reserve(total_bytes), self.ram_limit_bytes)

    def gpu_capacity(self, total_bytes: int | None) -> int | None:
        """
        Return the most that may ever be reserved on such a card; None is unknown.

        A limit binds a card of unknown size as well.
        """
        if total_bytes is None:
            return self.gpu_limit_bytes
        return _capped(total_bytes - self.gpu_reserve(total_bytes), self.gpu_limit_bytes)

    def cpu_capacity(self, cpus: int) -> int:
        """Return the CPUs that may ever be reserved in all: at least one."""
        return max(1, cpus - self.cpu_reserve)


def _capped(amount: int, limit: int | None) -> int:
    return max(0, amount if limit is None else min(amount, limit))


def check_policy(policy: object) -> Policy:
    """Return *policy*, or raise `InvalidPolicy` when it is none."""
    if not isinstance(policy, Policy):
        raise refuse(InvalidPolicy, "policy", policy, "a lardon.Policy")
    return policy
