"""Changes on the cluster as streams: one thread asks, for all watchers together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lardon.clock import Clock
from lardon.dispatch.errors import BackendClosed, DispatchError
from lardon.dispatch.model import Observation, Ref
from lardon.dispatch.slurm.detached import begin
from lardon.dispatch.stream import BufferedStream

SLOWEST: Final = 20
"""A cluster that does not answer is asked ever less, down to once in so many intervals."""

_log: Final = logging.getLogger(__name__)

Seen = dict[Ref, Observation]


class Poller:
    """
    Asks what there is, at every interval while somebody watches, and tells each what changed.

    Whatever else asks for the queue tells the watchers too, see `heard`.

    Args:
        look: Returns the observation of every object; given refs that a watcher has seen
            before, it says what became of those too.
        poll_s: Seconds between two questions.
        clock: What the intervals are measured with.

    """

    def __init__(
        self,
        look: Callable[[frozenset[Ref]], Mapping[Ref, Observation]],
        poll_s: float,
        clock: Clock,
    ) -> None:
        self._look = look
        self._poll_s = poll_s
        self._clock = clock
        # Guards the attributes below; notified on close. Taken before a stream's own lock; the
        # cluster is asked with it released.
        self._changed = threading.Condition()
        self._watchers: list[tuple[BufferedStream, Seen]] = []
        self._polls = False
        self._closed = False
        # Which question was told of last: an older answer that comes later is old news.
        self._told = 0

    @property
    def watched(self) -> bool:
        """Whether there is anybody to tell."""
        with self._changed:
            return bool(self._watchers)

    def add(self, make: Callable[[list[Observation]], BufferedStream]) -> BufferedStream:
        """Return a new stream that begins with everything there is; it asks the cluster."""
        seen = dict(self._look(frozenset()))
        stream = make(list(seen.values()))
        with self._changed:
            if self._closed:
                stream.close()
                return stream
            self._watchers.append((stream, seen))
            if not self._polls:
                self._polls = True
                begin(self._run, "slurm-poll")
        return stream

    def heard(self, question: int, observations: Iterable[Observation]) -> None:
        """Tell every watcher what is new in the answer to that *question*; numbers grow."""
        with self._changed:
            if question < self._told:
                return
            self._told = question
            for stream, seen in self._watchers:
                for one in observations:
                    if seen.get(one.ref) != one:
                        seen[one.ref] = one
                        stream.send(one)

    def close(self) -> None:
        """End every stream, and the thread."""
        with self._changed:
            self._closed = True
            watchers, self._watchers = self._watchers, []
            self._changed.notify_all()
        for stream, _ in watchers:
            stream.close()

    def _run(self) -> None:
        delay_s = self._poll_s
        while self._pause(delay_s):
            try:
                self._poll()
                delay_s = self._poll_s
            except BackendClosed:
                continue
            except DispatchError as error:
                # What was seen last stands: an outage says nothing about a job.
                delay_s = min(2 * delay_s, SLOWEST * self._poll_s)
                _log.warning("asking again in %.0f s: %s", delay_s, error)

    def _pause(self, delay_s: float) -> bool:
        """Wait; return whether somebody still watches. The thread ends when nobody does."""
        with self._changed:
            self._clock.wait_for(self._changed, lambda: self._closed, delay_s)
            self._watchers = [one for one in self._watchers if not one[0].closed]
            if self._closed or not self._watchers:
                self._polls = False
                return False
            return True

    def _poll(self) -> None:
        """Ask, which tells what is there, and tell what became of what is not there any more."""
        with self._changed:
            before = frozenset(ref for _, seen in self._watchers for ref in seen)
        now = self._look(before)
        gone = [one for ref, one in now.items() if ref in before and not one.known]
        with self._changed:
            for stream, seen in self._watchers:
                for one in gone:
                    if seen.pop(one.ref, None) is not None:
                        stream.send(one)
