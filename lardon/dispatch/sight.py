"""What was seen of a job, and on which promises it is judged: the other half of a decision."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import attrs

from lardon.dispatch.model import Cessation, Declarations, Observation, Ref
from lardon.dispatch.rules import apply_rules, instant, must, seconds

# How long a call may wait before it begins; long enough for a loaded login host.
CALL_TIMEOUT_S = 30.0
# One look at all jobs, as often as a Slurm controller is politely asked.
POLL_S = 15.0


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Sight:
    """
    What a look at the scheduler saw of one job.

    Every object that bears the job's name or is in its record is there once, those that
    nobody knows any more with `State.UNKNOWN`.
    """

    looked_at: datetime.datetime = attrs.field(metadata=must(instant))
    """Before the first question: a call that had settled by then has happened or never will."""
    objects: tuple[Observation, ...] = ()
    """The oldest first."""
    cessations: Mapping[Ref, Cessation] = attrs.field(factory=dict)
    """What was said about those that do not run, where the backend can tell."""

    def of(self, ref: Ref | None) -> Observation | None:
        """Return what was seen of *ref*; None where nobody looked."""
        return next((one for one in self.objects if one.ref == ref), None)


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Terms:
    """What a decision may count on: the backend's promises, its abilities, and two periods."""

    promises: Declarations
    can_hold: bool = False
    can_requeue: bool = False
    tells_cessation: bool = False
    """Whether the backend says when an execution has certainly ceased."""
    call_timeout_s: float = attrs.field(default=CALL_TIMEOUT_S, metadata=must(seconds(above=0)))
    """How long after a decision its call may still begin."""
    poll_s: float = attrs.field(default=POLL_S, metadata=must(seconds(above=0)))
    """How long to wait before looking again, and before trying again what was refused."""
