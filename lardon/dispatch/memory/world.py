"""The one truth that all views of a backend in memory share: its objects, and what is due."""

from __future__ import annotations

import contextlib
import datetime
import math
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from lardon.dispatch.enums import Capability, Cause, Shape, State, Tristate
from lardon.dispatch.errors import DispatchError, InvalidError, NotFoundError
from lardon.dispatch.memory.record import Record
from lardon.dispatch.model import Observation, Ref
from lardon.governor.checks import refuse

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.dispatch.memory.settings import MemorySettings
    from lardon.dispatch.stream import BufferedStream

# When it is due, since when that is so, and what happens then.
Due: TypeAlias = tuple[float, float, Callable[[], None]]

# What is read from pods, and gone with them. Source: the document on the memory adapter.
POD_CAUSES: Final = frozenset({Cause.NODE_LOST, Cause.OUT_OF_MEMORY, Cause.NON_ZERO_EXIT})


_NEVER: Final[Due] = (math.inf, math.inf, lambda: None)


def _when(due: Due) -> tuple[float, float]:
    return due[:2]


class World:
    """
    What the scheduler knows, and knew.

    No thread and no timer: whoever enters lets everything happen first that was due by now.
    """

    def __init__(self, settings: MemorySettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        # Guards every attribute below and every record. Held for bookkeeping alone.
        # Order: World._lock, then BufferedStream._condition.
        self._lock = threading.RLock()
        self.records: dict[Ref, Record] = {}
        # Purged, and still found in the accounting.
        self.archive: dict[Ref, Record] = {}
        # Purged or deleted, and known to nobody but the truth.
        self.departed: dict[Ref, Record] = {}
        self._streams: list[BufferedStream] = []
        self._landings: list[Due] = []
        self._created = 0
        self._last_id = 0
        # When that happens which is due, while it is caught up with.
        self._at: float | None = None

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the lock, with everything done that was due by now."""
        with self._lock:
            self.settle()
            yield

    # Objects

    def second(self) -> datetime.datetime:
        """Return the wall clock, cut to a whole second."""
        late = datetime.timedelta(seconds=self.clock.monotonic() - self.now())
        return (self.clock.wall() - late).replace(microsecond=0)

    def now(self) -> float:
        """Return the monotonic time at which things happen: now, or when they were due."""
        return self.clock.monotonic() if self._at is None else self._at

    def next_number(self) -> int:
        """Return the number of the object that is about to be created."""
        self._created += 1
        return self._created

    def next_id(self, name: str) -> int | None:
        """Return the id after the last one, 1 after the highest; None when all are taken."""
        taken = {ref.id for ref in self.records}
        highest = self.settings.max_job_id
        tries = len(taken) + len(self.archive) + len(self.departed) + 1
        for step in range(min(highest, tries)):
            candidate = (self._last_id + step) % highest + 1
            if candidate not in taken and not self._remembers(name, candidate):
                self._last_id = candidate
                return candidate
        return None

    def _remembers(self, name: str, candidate: int) -> bool:
        # Within one second an id may come round again under the same name: no two objects
        # may have one identity.
        ref = Ref(name, candidate, self.second())
        return ref in self.archive or ref in self.departed

    def record(self, ref: Ref) -> Record:
        """Return the object that matches all of *ref*, or raise `NotFoundError`."""
        found = self.present(ref)
        if found is None:
            message = f"no object matches {ref.name}, id {ref.id}, submitted {ref.submitted_at}"
            raise NotFoundError(message, ref=ref)
        return found

    def present(self, ref: Ref) -> Record | None:
        """Return the object that matches all of *ref*; `InvalidError` for what is no ref."""
        if not isinstance(ref, Ref):
            raise refuse(InvalidError, "ref", ref, "a Ref")
        return self.records.get(ref)

    def known(self, ref: Ref) -> Record | None:
        """Return the object that matches all of *ref*, also from the accounting."""
        return self.present(ref) or self.archive.get(ref)

    def every(self) -> Iterator[Record]:
        """Yield every object that ever was."""
        for place in (self.departed, self.archive, self.records):
            yield from place.values()

    def observation(self, ref: Ref) -> Observation:
        """Return what an observer sees of *ref*."""
        found = self.known(ref)
        return found.observation() if found else Observation.unknown(ref)

    def add(self, record: Record) -> None:
        """Take up a new object."""
        self.records[record.ref] = record
        self.changed(record)

    def rename(self, record: Record, ref: Ref) -> None:
        """Give an object the identity *ref*; the old one names nothing any more."""
        old = record.ref
        if ref == old:
            return
        del self.records[old]
        record.ref = ref
        self.records[ref] = record
        self._tell(Observation.unknown(old))

    def end(self, record: Record, cause: Cause, *, exit_code: int | None = None) -> None:
        """End an object."""
        record.move(State.ENDED, cause)
        record.exit_code = exit_code
        record.ended_at = self.now()
        record.gated = False
        self.changed(record)

    def delete(self, record: Record) -> None:
        """Remove an object; an execution of it ends with it."""
        if record.state is not State.ENDED:
            record.move(State.ENDED, Cause.CANCELLED)
        del self.records[record.ref]
        self.departed[record.ref] = record
        self._tell(Observation.unknown(record.ref))

    def purge(self, record: Record) -> None:
        """Forget an object that ended; only where there is accounting it is still found."""
        del self.records[record.ref]
        history = self.settings.capabilities.get(Capability.ACCOUNTING_HISTORY)
        if history is not None and history.value is Tristate.YES:
            self.archive[record.ref] = record
            return
        self.departed[record.ref] = record
        self._tell(Observation.unknown(record.ref))

    # Watchers

    def subscribe(self, make: Callable[[list[Observation]], BufferedStream]) -> BufferedStream:
        """Return the stream that *make* makes from the current observation of every object."""
        stream = make([record.observation() for record in self.records.values()])
        self._streams.append(stream)
        return stream

    def changed(self, record: Record) -> None:
        """Tell the watchers what is seen of *record* now, if it is not what they know."""
        seen = record.observation()
        if seen != record.told:
            record.told = seen
            self._tell(seen)

    def _tell(self, observation: Observation) -> None:
        for stream in self._streams:
            stream.send(observation)
        self._streams = [stream for stream in self._streams if not stream.closed]

    # Time

    def land_later(self, at: float, act: Callable[[], object]) -> None:
        """Let a call whose answer is lost take effect at the monotonic time *at*."""

        def land() -> None:
            # What it then meets refuses it or not; nobody hears of it.
            with contextlib.suppress(DispatchError):
                act()

        self._landings.append((at, self.now(), land))

    def settle(self) -> None:
        """Do everything that was due by now, in the order of time."""
        now = self.clock.monotonic()
        try:
            while True:
                # Of two at one time the one that was arranged first.
                at, _, act = min((*self._due(), *self._landings), key=_when, default=_NEVER)
                if at > now:
                    return
                self._at = at
                self._landings = [one for one in self._landings if one[2] is not act]
                act()
        finally:
            self._at = None

    def _due(self) -> Iterator[Due]:
        settings, slurm = self.settings, self.settings.shape is Shape.SLURM
        for record in self.records.values():
            lost, ended = record.lost_at, record.ended_at
            if slurm and lost is not None:
                yield (lost + settings.slurmd_timeout_s, lost, self._lost_end_of(record))
            if slurm and ended is not None:
                yield (ended + settings.min_job_age_s, ended, self._purge_of(record))
            since = lost if ended is None else ended
            fades = record.cause in POD_CAUSES and not record.evidence_gone
            if not slurm and fades and since is not None:
                yield (since + settings.evidence_window_s, since, self._fading_of(record))

    def _lost_end_of(self, record: Record) -> Callable[[], None]:
        return lambda: self.end(record, Cause.NODE_LOST)

    def _purge_of(self, record: Record) -> Callable[[], None]:
        return lambda: self.purge(record)

    def _fading_of(self, record: Record) -> Callable[[], None]:
        def fade() -> None:
            record.evidence_gone = True
            self.changed(record)

        return fade
