"""What a backend in memory can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from lardon.dispatch.decoding import Seconds
from lardon.dispatch.enums import Action, Capability, Shape, Source, Tristate
from lardon.dispatch.model import Cessation, Declarations, Support
from lardon.dispatch.rules import apply_rules, count, flag, member, must, one, seconds, table

# Slurm's own defaults: MaxJobId, MinJobAge and SlurmdTimeout of slurm.conf.
MAX_JOB_ID: Final = 67_043_328
MIN_JOB_AGE_S: Final = 300.0
SLURMD_TIMEOUT_S: Final = 300.0
# Longer than Slurm's MessageTimeout of 10 s, so that plain slowness is no unknown outcome.
CALL_BOUND_S: Final = 25.0
# What an API server of Kubernetes keeps events for (--event-ttl).
EVIDENCE_WINDOW_S: Final = 3600.0
WATCH_BUFFER: Final = 64


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class MemorySettings:
    """
    What a backend in memory behaves like.

    Raises:
        InvalidError: a setting breaks its rule; the error names path, value and rule.

    """

    shape: Shape = attrs.field(default=Shape.SLURM, metadata=must(member(Shape)))
    max_job_id: int = attrs.field(default=MAX_JOB_ID, metadata=must(count(1)))
    """Slurm shape: the highest id; 1 follows it."""
    min_job_age_s: Seconds = attrs.field(default=MIN_JOB_AGE_S, metadata=must(seconds(above=0)))
    """Slurm shape: how long an ended object is kept; Kubeflow keeps it until it is deleted."""
    call_bound_s: Seconds = attrs.field(default=CALL_BOUND_S, metadata=must(seconds()))
    """How long after its deadline a call may still land."""
    slurmd_timeout_s: Seconds = attrs.field(default=SLURMD_TIMEOUT_S, metadata=must(seconds()))
    """Slurm shape: how long a lost node keeps its jobs running."""
    watch_buffer: int = attrs.field(default=WATCH_BUFFER, metadata=must(count(1)))
    """How many changes a watcher may be behind, besides the observations it began with."""
    evidence_window_s: Seconds = attrs.field(default=EVIDENCE_WINDOW_S, metadata=must(seconds()))
    """Kubeflow shape: how long a cause that was read from pods can be told."""
    capabilities: Mapping[Capability, Support] = attrs.field(
        factory=dict, metadata=must(table(Capability, Support))
    )
    """`ACCOUNTING_HISTORY` yes finds purged objects; `REQUEUE_ENDED` no revives none."""
    rules: Mapping[Action, Support] = attrs.field(
        factory=dict, metadata=must(table(Action, Support))
    )
    native: Mapping[Action, Support] = attrs.field(
        factory=dict, metadata=must(table(Action, Support))
    )
    cessation: Cessation | None = attrs.field(
        default=None, metadata=must(one(Cessation), optional=True)
    )
    """What `ceased` answers for every object; None works it out from what is known."""
    requeue_resets_submit_time: bool = attrs.field(default=False, metadata=must(flag))
    """Slurm shape: whether a requeue sets the submit time anew, as a real Slurm does."""

    def __attrs_post_init__(self) -> None:
        """Refuse what the declarations would refuse: a native yes without its rule."""
        self.declarations()

    def declarations(self) -> Declarations:
        """Return what a backend with these settings promises."""
        slurm = self.shape is Shape.SLURM
        revives = Tristate.YES if slurm else Tristate.NO
        unless_said = {
            Capability.REQUEUE_ENDED: Support(revives, Source.ASSUMED),
            Capability.ACCOUNTING_HISTORY: Support(Tristate.NO, Source.ASSUMED),
        }
        return Declarations(
            adapter="memory",
            call_bound_s=self.call_bound_s,
            gated=slurm,
            unique_names=not slurm,
            capabilities={**unless_said, **self.capabilities},
            rules=self.rules,
            native=self.native,
        )
