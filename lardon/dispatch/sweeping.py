"""Looks for objects that no record claims: one stream, and one look at the store after it."""

from __future__ import annotations

import datetime
import logging
import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lardon.dispatch.enums import UnmatchedPolicy
from lardon.dispatch.errors import DispatchError, InvalidError, UnsupportedError, WatchClosed
from lardon.dispatch.records import StoreAway
from lardon.dispatch.rules import member, seconds
from lardon.dispatch.spi import Watcher
from lardon.dispatch.unmatched import Stray, Sweep, SweepTerms, grace_of, live_after, sweep

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.model import Observation, Ref
    from lardon.dispatch.spi import WatchStream

_log: Final = logging.getLogger("lardon.dispatch")

# A stream that ended, and the one that takes its place.
_STREAMS: Final = 2


class Sweeper:
    """
    A supervisor's eye for the objects of no job; see `UnmatchedPolicy`.

    All but `unmatched` is called from one thread at a time. `steps` blocks as long as store
    and scheduler take.

    Args:
        name: The supervisor's.
        operator: Whose backend is watched, and whose records claim.
        policy: What to do; `UnmatchedPolicy.LEAVE` looks at nothing, ever.
        grace_s: How long an object is without a record before it counts; None is what
            `grace_of` says.

    Raises:
        InvalidError: the policy or the grace is none.
        UnsupportedError: the backend is no `Watcher`, and the policy asks for one.

    """

    def __init__(
        self, name: str, operator: Operator, policy: UnmatchedPolicy, grace_s: float | None
    ) -> None:
        promises = operator.terms.promises
        checked = seconds()("unmatched_grace_s", grace_of(promises) if grace_s is None else grace_s)
        self.terms = SweepTerms(
            policy=member(UnmatchedPolicy)("unmatched", policy),
            grace_s=checked,
            poll_s=operator.terms.poll_s,
        )
        self.wake_at: datetime.datetime | None = None
        """When to look next; None is never."""
        self._watcher: Watcher | None = None
        if self.terms.policy is not UnmatchedPolicy.LEAVE:
            self._watcher = _watcher(operator, self.terms.policy)
            self.wake_at = operator.clock.wall()
        self._name = name
        self._operator = operator
        self._unique_names = promises.unique_names
        self._stream: WatchStream | None = None
        self._live: dict[Ref, Observation] = {}
        # Replaced whole, so that another thread may read it.
        self._strays: tuple[Stray, ...] = ()
        # Whether the store had a job at any look, and whether it had none at the last.
        self._had_jobs = False
        self._away = False

    def unmatched(self) -> tuple[Observation, ...]:
        """Return what the last look found that no record claims; any thread may call."""
        return tuple(one.seen for one in self._strays)

    def is_due(self) -> bool:
        """Return whether it is time for a look."""
        return self.wake_at is not None and self.wake_at <= self._operator.clock.wall()

    def close(self) -> None:
        """Let go of the stream, and look no more; closing twice is harmless."""
        self._watcher, self.wake_at, self._strays = None, None, ()
        self._let_go()

    def steps(self) -> Iterator[str]:
        """
        Make one look, and stop before every step that others can see.

        It yields the name of the step that comes next: ``watch``, ``match``, and ``stop`` for
        each object that is to be stopped.
        """
        if self._watcher is None:
            return
        yield "watch"
        if not self._watch():
            self._again_in(self.terms.poll_s)
            return
        yield "match"
        try:
            decided = self._match()
        except StoreAway as error:
            self._goes_away(str(error))
            self._again_in(self.terms.poll_s)
            return
        self._again_in(decided.again_s)
        for one in decided.tell:
            self._tell(one)
        for one in decided.stop:
            yield "stop"
            self._stop(one)

    # The stream

    def _watch(self) -> bool:
        """Take in what is new; return whether that is all there is to know."""
        for _ in range(_STREAMS):
            try:
                if self._watcher is None:
                    return False
                if self._stream is None:
                    self._stream = self._watcher.watch()
                    self._live = {}  # the new one begins with all that is there
                self._read(self._stream)
            except WatchClosed:
                self._let_go()
            except DispatchError as error:
                self._let_go()
                _log.warning("%s: the scheduler shows no objects: %s", self._name, error)
                return False
            else:
                return True
        return True  # the last one ended too, and had told all that was there when it began

    def _read(self, stream: WatchStream) -> None:
        news: list[Observation] = []
        try:
            while True:
                news.append(stream.get_nowait())
        except queue.Empty:
            pass
        finally:
            self._live = live_after(self._live, news, unique_names=self._unique_names)

    def _let_go(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # The store

    def _match(self) -> Sweep:
        """Decide; the store is read here, after the stream, so that no new job is missed."""
        listed = frozenset(self._operator.records.jobs())
        away = self._had_jobs and not listed
        self._had_jobs = self._had_jobs or bool(listed)
        if away:
            self._goes_away("the store has no job any more")
        self._away = away
        decided = sweep(
            () if away else self._live.values(),
            self._strays,
            lambda job: job in listed or self._is_on_record(job),
            self._operator.clock.monotonic(),
            self.terms,
            unique_names=self._unique_names,
        )
        self._strays = decided.strays
        return decided

    def _is_on_record(self, job: str) -> bool:
        try:
            return self._operator.records.load(job) is not None
        except InvalidError:
            return True  # there is one, though nobody can read it

    def _goes_away(self, why: str) -> None:
        """Judge nothing, and let what was seen wait anew once the store is back."""
        if not self._away:
            _log.warning("%s: %s: no object is judged", self._name, why)
        self._away, self._strays = True, ()

    def _tell(self, one: Stray) -> None:
        stopped = self.terms.policy is UnmatchedPolicy.STOP
        _log.warning(
            "%s: no record claims object %s (%s, %s)%s",
            self._name,
            one.ref.id,
            one.ref.name,
            one.seen.state.value.lower(),
            ": it is stopped" if stopped else "",
        )

    def _stop(self, one: Stray) -> None:
        """Stop this incarnation, unless its job is on record by now."""
        if self._watcher is None:
            return  # it was closed since
        try:
            claimed = self._is_on_record(one.job)
        except StoreAway as error:
            self._goes_away(str(error))
            return
        if claimed:
            self._strays = tuple(other for other in self._strays if other.ref != one.ref)
            return
        try:
            self._operator.backend.stop(one.ref)
        except DispatchError as error:
            _log.warning("%s: the stop of object %s: %s", self._name, one.ref.id, error)
        except Exception:  # noqa: BLE001  whatever a backend raises; the next look goes on
            _log.exception("%s: the stop of object %s raised", self._name, one.ref.id)

    def _again_in(self, seconds_on: float) -> None:
        if self._watcher is not None:
            on = datetime.timedelta(seconds=seconds_on)
            self.wake_at = self._operator.clock.wall() + on


def _watcher(operator: Operator, policy: UnmatchedPolicy) -> Watcher:
    backend = operator.backend
    if isinstance(backend, Watcher):
        return backend
    adapter = operator.terms.promises.adapter
    message = f"unmatched must be leave, not {policy.value}: {adapter} is no Watcher"
    raise UnsupportedError(message, operation="watch")
