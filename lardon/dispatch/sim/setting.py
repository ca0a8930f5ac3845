"""What one simulated run is made of, and what came of it."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.enums import Shape, UnmatchedPolicy
from lardon.dispatch.errors import DispatchError
from lardon.dispatch.rules import apply_rules, count, member, must, number, seconds

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.supervisor import Supervisor

# Longer than the longest thing that a quiet run has to wait for: a lease that ran out, the
# delays of a policy, a node that times out, and some calls that have to settle.
QUIET_BOUND_S: Final = 7200.0

MakeSupervisor = Callable[[str, "Operator"], "Supervisor"]


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Setting:
    """
    One run, which is the same every time.

    Raises:
        InvalidError: a field breaks its rule.

    """

    seed: int = attrs.field(metadata=must(count()))
    shape: Shape = attrs.field(default=Shape.SLURM, metadata=must(member(Shape)))
    supervisors: int = attrs.field(default=2, metadata=must(count(1)))
    jobs: int = attrs.field(default=3, metadata=must(count(1)))
    steps: int = attrs.field(default=250, metadata=must(count()))
    """How many steps the faults last."""
    loss: float = attrs.field(default=0.25, metadata=must(number(0)))
    """How likely an answer is lost while they last."""
    unmatched: UnmatchedPolicy = attrs.field(
        default=UnmatchedPolicy.LEAVE, metadata=must(member(UnmatchedPolicy))
    )
    """What supervisors do with objects that no record claims."""
    quiet_bound_s: float = attrs.field(default=QUIET_BOUND_S, metadata=must(seconds(above=0)))
    """By when every job is over, and every stray that is to stop, once there are no more faults."""
    stop_at: int | None = attrs.field(default=None, metadata=must(count(), optional=True))
    """Stop after so many steps, to look at what is so; None runs to the end."""


@attrs.frozen
class Step:
    """One line of a trace."""

    number: int
    at: datetime.datetime
    text: str

    def __str__(self) -> str:
        return f"{self.number:5} {self.at:%H:%M:%S.%f} {self.text}"


@attrs.frozen(kw_only=True)
class Report:
    """What came of a run in which every invariant held."""

    setting: Setting
    trace: Sequence[Step]
    dump: str
    """What is so at the end, for people."""
    executions: int
    """How often a job was started by the scheduler."""
    unknown: int
    """How many answers were lost."""
    crashes: int
    """How many supervisors died."""
    swept: int
    """How many stops went out to objects that no record claims."""

    @property
    def fingerprint(self) -> str:
        """A short text that two runs share only if every step was the same."""
        told = "\n".join(map(str, self.trace))
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class Violation(DispatchError, AssertionError):
    """An invariant was broken: see `rule`, `setting` and `step`; `dump` says what was so."""

    rule: str
    setting: Setting
    step: int
    trace: Sequence[Step]
    dump: str

    def __str__(self) -> str:
        return f"{self.args[0]} (seed {self.setting.seed}, step {self.step})"
