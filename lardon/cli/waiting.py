"""Waiting until the governor admits a command."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from lardon.governor.decision import DecisionKind

if TYPE_CHECKING:
    from lardon.governor.decision import Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.governor import Governor
    from lardon.governor.reservation import Reservation

# Why somebody waits is said again after this, so that a log shows that it still does.
REMIND_S: Final = 60.0
# The longest sleep where the policy has no recheck, for the sake of signals.
_LONGEST_S: Final = 0.5


class Outcome(enum.Enum):
    """How the wait for admission ended."""

    ADMITTED = enum.auto()
    REJECTED = enum.auto()
    TIMED_OUT = enum.auto()
    INTERRUPTED = enum.auto()


@attrs.frozen(kw_only=True)
class Admission:
    """The end of a wait; the reservation is there exactly when it was admitted."""

    outcome: Outcome
    decision: Decision
    waited_s: float
    reservation: Reservation | None = None


def wait_for_admission(
    governor: Governor,
    estimate: ResourceEstimate,
    *,
    holder: str,
    timeout_s: float | None,
    interrupted: Callable[[], bool],
    tell: Callable[[Decision, float], object],
) -> Admission:
    """
    Reserve *estimate* as soon as the governor admits it.

    The governor is asked at once, again at each of its changes, and every `recheck_s`,
    since nobody reports what other processes release. The last question comes when the
    time is up.

    Args:
        governor: who is asked.
        estimate: what is asked for.
        holder: who asks, for the reasons that others are given.
        timeout_s: seconds to wait at most; None waits as long as it takes.
        interrupted: whether to give up; looked at twice a second.
        tell: called with the decision and the seconds waited so far, when the wait
            begins, when its reason changes, and once a minute.

    """
    clock, recheck_s = governor.clock, governor.policy.recheck_s
    pause_s = _LONGEST_S if recheck_s is None else min(recheck_s, _LONGEST_S)
    began = clock.monotonic()
    told_at = began
    told: object = None
    while True:
        seen = governor.generation
        decision, reservation = governor.reserve(estimate, holder=holder)
        now = clock.monotonic()
        waited_s = now - began
        if reservation is not None:
            return Admission(
                outcome=Outcome.ADMITTED,
                decision=decision,
                waited_s=waited_s,
                reservation=reservation,
            )
        outcome = _ended(decision, waited_s, timeout_s, interrupted=interrupted())
        if outcome is not None:
            return Admission(outcome=outcome, decision=decision, waited_s=waited_s)
        if decision.reason.code != told or now - told_at >= REMIND_S:
            told, told_at = decision.reason.code, now
            tell(decision, waited_s)
        rest = pause_s if timeout_s is None else min(pause_s, timeout_s - waited_s)
        governor.wait_for_change(seen, rest)


def _ended(
    decision: Decision, waited_s: float, timeout_s: float | None, *, interrupted: bool
) -> Outcome | None:
    if decision.kind is DecisionKind.REJECT:
        return Outcome.REJECTED
    if interrupted:
        return Outcome.INTERRUPTED
    if timeout_s is not None and waited_s >= timeout_s:
        return Outcome.TIMED_OUT
    return None
