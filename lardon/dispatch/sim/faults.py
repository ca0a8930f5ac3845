"""A backend whose answers get lost, and the list of what really went out."""

from __future__ import annotations

import contextlib
import datetime
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from lardon.dispatch.errors import DispatchError
from lardon.dispatch.memory import MemoryBackend, answer_lost, crash_between_steps
from lardon.dispatch.model import (
    CallMeta,
    Cessation,
    Declarations,
    HoldMeta,
    JobSpec,
    Observation,
    Ref,
)

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.dispatch.stream import BufferedStream

T = TypeVar("T")

_ULID_LENGTH: Final = 26


def job_of(name: str) -> str:
    """Return the id of the job whose object has this name, in either shape."""
    return name.removeprefix("dj-")[:_ULID_LENGTH].upper()


@attrs.frozen(kw_only=True)
class Unknown:
    """A call whose answer was lost."""

    job: str
    operation: str
    settles_at: datetime.datetime
    lands_at: datetime.datetime | None
    """When it takes effect; None is never."""

    def open_at(self, now: datetime.datetime) -> bool:
        """Return whether nobody could know at *now* what becomes of it."""
        landed = self.lands_at is not None and self.lands_at <= now
        return not landed and now <= self.settles_at


@attrs.define(eq=False)
class CallLog:
    """What went out to the scheduler, from whomever."""

    on_call: Callable[[str, str, str, Ref | None], None]
    """
    Told of each call before it is made: who makes it, which job, which operation, and on which
    object, None for a start.
    """
    unknown: list[Unknown] = attrs.field(factory=list)
    lost: int = 0
    """How many answers were lost."""

    def lose(self, unknown: Unknown) -> None:
        """Note a call whose answer is about to be lost."""
        self.unknown.append(unknown)
        self.lost += 1

    def open_for(self, job: str, now: datetime.datetime) -> list[Unknown]:
        """Return the calls of a job of which nobody can know yet what becomes of them."""
        self.unknown = [one for one in self.unknown if one.open_at(now)]
        return [one for one in self.unknown if one.job == job]


class FaultyBackend:
    """
    One supervisor's way to the scheduler: what it asks may come back without an answer.

    Args:
        inner: Its view of the cluster.
        who: The supervisor, for the log.
        log: What went out.
        rng: Decides what is lost.
        clock: What time it is.

    """

    def __init__(
        self, inner: MemoryBackend, who: str, log: CallLog, rng: random.Random, clock: Clock
    ) -> None:
        self.inner = inner
        self.who = who
        self.loss = 0.0
        """How likely it is that an answer is lost."""
        self._log = log
        self._rng = rng
        self._clock = clock
        self._bound = datetime.timedelta(seconds=inner.declarations().call_bound_s)

    def start(self, spec: JobSpec) -> Ref:
        """Start, perhaps twice: what sends it may send it again when it hears nothing."""
        if self._rng.random() < self.loss / 2 and self.inner.declarations().gated:
            late = self._rng.uniform(0, self._bound.total_seconds())
            with contextlib.suppress(DispatchError), answer_lost(late):
                self.inner.start(spec)
            again_at = self._clock.wall() + datetime.timedelta(seconds=late)
            return self._make(spec.id, "start", lambda: self.inner.start(spec), again_at=again_at)
        return self._make(spec.id, "start", lambda: self.inner.start(spec))

    def open(self, ref: Ref) -> None:
        """Open."""
        self._make(ref, "open", lambda: self.inner.open(ref))

    def stop(self, ref: Ref) -> None:
        """Stop."""
        self._make(ref, "stop", lambda: self.inner.stop(ref))

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Hold."""
        self._make(ref, "hold", lambda: self.inner.hold(ref, meta), meta)

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        """Release."""
        self._make(ref, "release", lambda: self.inner.release(ref, meta), meta)

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """Requeue, perhaps no further than to the bit."""
        cut = self._rng.random() < self.loss / 2

        def act() -> Ref:
            with crash_between_steps() if cut else contextlib.nullcontext():
                return self.inner.requeue(ref, meta)

        return self._make(ref, "requeue", act, meta)

    def restore_requeue_bit(self, ref: Ref, meta: CallMeta) -> None:
        """Clear the bit."""
        self._make(ref, "restore", lambda: self.inner.restore_requeue_bit(ref, meta), meta)

    def observe_many(self, refs: Iterable[Ref]) -> Mapping[Ref, Observation]:
        """Look."""
        return self.inner.observe_many(refs)

    def find(self, name: str) -> Observation | None:
        """Look."""
        return self.inner.find(name)

    def find_all(self, name: str) -> Sequence[Observation]:
        """Look."""
        return self.inner.find_all(name)

    def ceased(self, ref: Ref) -> Cessation:
        """Look."""
        return self.inner.ceased(ref)

    def watch(self, cancel: threading.Event | None = None) -> BufferedStream:
        """Watch, or hear nothing."""
        if self._rng.random() < self.loss:
            message = "the cluster does not answer"
            raise DispatchError(message)
        return self.inner.watch(cancel)

    def declarations(self) -> Declarations:
        """Return the cluster's."""
        return self.inner.declarations()

    def close(self) -> None:
        """Let go."""
        self.inner.close()

    def _make(
        self,
        what: str | Ref,
        operation: str,
        act: Callable[[], T],
        meta: CallMeta | None = None,
        *,
        again_at: datetime.datetime | None = None,
    ) -> T:
        ref = what if isinstance(what, Ref) else None
        job = job_of(ref.name) if ref is not None else str(what)
        self._log.on_call(self.who, job, operation, ref)
        if self._rng.random() >= self.loss:
            return act()
        now = self._clock.wall()
        settles_at = (now if meta is None else meta.deadline) + self._bound
        longest = (settles_at - now).total_seconds()
        lands_after_s = self._rng.choice([0.0, None, self._rng.uniform(0, longest)])
        lands_at = (
            None if lands_after_s is None else now + datetime.timedelta(seconds=lands_after_s)
        )
        if again_at is not None:
            # One that was sent twice is seen as soon as one of the two is there.
            lands_at = again_at if lands_at is None else min(again_at, lands_at)
        self._log.lose(
            Unknown(job=job, operation=operation, settles_at=settles_at, lands_at=lands_at)
        )
        with answer_lost(lands_after_s):
            return act()
