"""
Which objects no record claims, and what is to be done about them: functions of values.

A record is stored before its object is started. So an object with a name of ours and no record
is one whose record was forgotten or lost, lies in another store, or cannot be seen yet. The
last of these passes, and nobody can tell it from the others but by waiting: hence the grace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.model import Declarations, Observation, Ref
from lardon.dispatch.names import job_of

SHOWN_S: Final = 60.0
"""
After so long a network file system shows a new file to every machine: the usual ceiling of its
attribute cache (acdirmax of nfs). Until then a job that another machine has just submitted
seems to have no record.
"""
# A wake time tells no smaller part of a second: what is nearer to its end has reached it.
_TICK_S: Final = 1e-6
# More stops than these would keep a supervisor from its jobs; the rest is for the next look.
_MOST_STOPS: Final = 16


@attrs.frozen(kw_only=True)
class Stray:
    """An object that no record claims, as far as one supervisor knows."""

    seen: Observation
    job: str
    """The job that its name says."""
    looked_s: float
    """When it was last looked for a record of it, in seconds of the monotonic clock."""
    waited_s: float = 0.0
    """For how long no look has found one."""
    told: bool = False
    """Whether it was logged."""
    asked_s: float | None = None
    """When its stop was last asked for."""

    @property
    def ref(self) -> Ref:
        """The one incarnation that is meant."""
        return self.seen.ref


@attrs.frozen(kw_only=True)
class SweepTerms:
    """What is done with strays, and after which periods."""

    policy: UnmatchedPolicy
    grace_s: float
    """How long an object is without a record before anything comes of it."""
    poll_s: float
    """
    How long to wait before the next look, and before a stop is asked for again. What lies
    between two looks counts for the grace up to this: a supervisor that was asleep has not
    seen what became of the store meanwhile.
    """


@attrs.frozen(kw_only=True)
class Sweep:
    """What was decided in one look."""

    strays: tuple[Stray, ...]
    """All that no record claims, the oldest object first."""
    tell: tuple[Stray, ...]
    """Those to be logged now."""
    stop: tuple[Stray, ...]
    """Those to be stopped now, if they still have no record right before."""
    again_s: float
    """In how many seconds to look again."""


def grace_of(promises: Declarations) -> float:
    """
    Return how long an object is without a record before it counts, where nobody says.

    It is the call bound, because nothing else is taken for a fact before that either: what its
    owner had asked for may still be landing. And it is no less than `SHOWN_S`.
    """
    return max(promises.call_bound_s, SHOWN_S)


def live_after(
    live: Mapping[Ref, Observation], news: Iterable[Observation], *, unique_names: bool
) -> dict[Ref, Observation]:
    """Return the objects with a name of ours that have not ended, once *news* came in."""
    now_live = dict(live)
    for seen in news:
        ours = job_of(seen.ref.name, unique_names=unique_names) is not None
        if ours and seen.known and not seen.ended:
            now_live[seen.ref] = seen
        else:
            now_live.pop(seen.ref, None)
    return now_live


def sweep(
    live: Iterable[Observation],
    before: Iterable[Stray],
    on_record: Callable[[str], bool],
    now_s: float,
    terms: SweepTerms,
    *,
    unique_names: bool,
) -> Sweep:
    """
    Return what is to be done about the objects *live*.

    Args:
        live: The objects with a name of ours that have not ended.
        before: What the last look left.
        on_record: Whether there is a record of a job. It is to be asked of a store that is
            read after *live* was: else the record of an object that is new is missed.
        now_s: The monotonic clock.
        terms: What is done, and when.
        unique_names: What the backend declares.

    """
    known = {one.ref: one for one in before}
    strays: list[Stray] = []
    for seen in sorted(live, key=_age):
        job = job_of(seen.ref.name, unique_names=unique_names)
        if job is None or on_record(job):
            continue
        old = known.get(seen.ref)
        new = Stray(seen=seen, job=job, looked_s=now_s)
        strays.append(new if old is None else _seen_again(old, seen, now_s, terms))
    ripe = [one for one in strays if one.waited_s > terms.grace_s - _TICK_S]
    to_stop = [one for one in ripe if _is_to_be_stopped(one, now_s, terms)]
    return _decided(strays, ripe, to_stop, now_s, terms)


def _decided(
    strays: list[Stray], ripe: list[Stray], to_stop: list[Stray], now_s: float, terms: SweepTerms
) -> Sweep:
    stop = to_stop[:_MOST_STOPS]
    counted, asked = {one.ref for one in ripe}, {one.ref for one in stop}
    left = tuple(
        attrs.evolve(
            one,
            told=one.told or one.ref in counted,
            asked_s=now_s if one.ref in asked else one.asked_s,
        )
        for one in strays
    )
    soon = [terms.grace_s - one.waited_s for one in strays if one.ref not in counted]
    again_s = 0.0 if len(to_stop) > len(stop) else min([terms.poll_s, *soon])
    tell = tuple(one for one in ripe if not one.told)
    return Sweep(strays=left, tell=tell, stop=tuple(stop), again_s=again_s)


def _seen_again(old: Stray, seen: Observation, now_s: float, terms: SweepTerms) -> Stray:
    waited_s = old.waited_s + min(now_s - old.looked_s, terms.poll_s)
    return attrs.evolve(old, seen=seen, looked_s=now_s, waited_s=waited_s)


def _is_to_be_stopped(one: Stray, now_s: float, terms: SweepTerms) -> bool:
    if terms.policy is not UnmatchedPolicy.STOP:
        return False
    return one.asked_s is None or now_s - one.asked_s >= terms.poll_s


def _age(seen: Observation) -> tuple[object, str, str]:
    return seen.ref.submitted_at, seen.ref.name, str(seen.ref.id)
