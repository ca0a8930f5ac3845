"""What jobs may still hold whose records somebody removed."""

from __future__ import annotations

import datetime
import logging
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.absorbing import absorb, is_live
from lardon.dispatch.errors import DispatchError
from lardon.dispatch.planning import settle_time

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.model import Observation
    from lardon.governor.reservation import Reservation

_log: Final = logging.getLogger("lardon.dispatch")


@attrs.define(eq=False)
class _Held:
    """The reservation of one such job."""

    record: JobRecord
    """As it was last seen, and what was seen of its objects since."""
    reservation: Reservation
    settles_at: datetime.datetime
    """From here on every call that was made for it has happened, or never will."""


class LostJobs:
    """
    Keeps the reservations of jobs without a record, until nothing of them can run.

    Nobody may act on such a job: what was begun for it, and by whom, is not known any more, and
    whoever removed the record may have meant it to go on. So its objects are only looked at. One
    that is gated counts as over, because nobody is left to open it. Called on one thread.

    Args:
        operator: Whose observer looks.

    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._held: list[_Held] = []
        self._due_at = operator.clock.wall()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, record: JobRecord, reservation: Reservation) -> None:
        """Keep the reservation of a job that was on record as *record*."""
        now = self._operator.clock.wall()
        _, settles_at = settle_time(now, self._operator.terms)
        known = [call.settles_at for call in record.calls]
        if record.starts_settle_at is not None:
            known.append(record.starts_settle_at)
        self._held.append(_Held(record, reservation, max((settles_at, *known))))
        self._due_at = now

    def turn(self) -> bool:
        """Give back what is held by nothing any more; return whether anything was."""
        now = self._operator.clock.wall()
        if not self._held or now < self._due_at:
            return False
        self._due_at = now + datetime.timedelta(seconds=self._operator.terms.poll_s)
        try:
            over = [one for one in self._held if self._is_over(one)]
        except DispatchError as error:
            _log.warning("the scheduler did not answer: %s", error)
            return False
        for one in over:
            self._held.remove(one)
            one.reservation.release()
        return bool(over)

    def _is_over(self, one: _Held) -> bool:
        sight = self._operator.observer.look(one.record)
        one.record = absorb(one.record, sight, self._operator.terms)
        may_run = [
            thing
            for thing in one.record.objects
            if not thing.over and not _waits_behind_its_gate(sight.of(thing.ref))
        ]
        return sight.looked_at > one.settles_at and not may_run


def _waits_behind_its_gate(seen: Observation | None) -> bool:
    return seen is not None and is_live(seen) and seen.gated
