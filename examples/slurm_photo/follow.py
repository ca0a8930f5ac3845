"""Submits the parts of a plan, adopts those that are there already, and follows them to the end."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from lardon.dispatch import (
    Cause,
    DispatchError,
    FinishedError,
    JobSpec,
    NotFoundError,
    Observation,
    OutcomeUnknown,
    Ref,
    State,
)
from lardon.dispatch.slurm import ClusterUnreachable, SlurmBackend
from lardon.units import format_bytes
from slurm_photo.plan import Part, executions, result_file
from slurm_photo.work import estimate_of, job_ram_bytes

T = TypeVar("T")

MOST_SUBMISSIONS: Final = 3
# A file that another machine has written may be seen later: the caches of NFS hold names for
# up to a minute (acdirmax of nfs(5)).
FILE_PATIENCE_S: Final = 75.0
_UNREACHABLE_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class GivenUpError(Exception):
    """A part that could not be done, in words."""


@attrs.define(eq=False)
class Follower:
    """Brings parts to their end on one cluster; it may be killed at any time and begun again."""

    backend: SlurmBackend
    output: Path
    command: Callable[[Part], Sequence[str]]
    """What the job of a part runs."""
    at_once: int
    poll_s: float
    say: Callable[[str], None] = print
    _ram_factors: dict[str, int] = attrs.field(factory=dict, init=False)
    """By how much more memory a part is given than was estimated, once it ran out of it."""
    _waiting: set[str] = attrs.field(factory=set, init=False)
    """Parts of which it was said that their last execution may be running still."""

    def bring_to_end(self, parts: Sequence[Part]) -> None:
        """Return when every part is done; raises `GivenUpError`."""
        submitted = dict.fromkeys((part.id for part in parts), 0)
        refs = {part.id: self._adopt_or_submit(part, submitted) for part in parts}
        while any(ref is not None for ref in refs.values()):
            time.sleep(self.poll_s)
            seen = self._observe([ref for ref in refs.values() if ref is not None])
            for part in parts:
                ref = refs[part.id]
                if ref is not None and seen[ref].state in {State.ENDED, State.UNKNOWN}:
                    refs[part.id] = self._ended(part, seen[ref], submitted)

    def _observe(self, refs: Sequence[Ref]) -> Mapping[Ref, Observation]:
        return self._patiently(lambda: self.backend.observe_many(refs))

    def _adopt_or_submit(self, part: Part, submitted: dict[str, int]) -> Ref | None:
        """Return the one object that does *part*, open; None when the part is done."""
        copies = list(self._patiently(lambda: self.backend.find_all(part.id)))
        # The cluster forgets what ended; a submission that has run keeps its number.
        submitted[part.id] = max(len(copies), executions(self.output, part.id))
        out_of_memory = sum(one.cause is Cause.OUT_OF_MEMORY for one in copies)
        self._ram_factors[part.id] = 2**out_of_memory
        alive = [one for one in copies if not one.ended]
        if self._is_done(part):
            self._stop(alive)
            self.say(f"{part.step} {part.id}: done before")
            return None
        if not alive:
            doubtful = [one.ref for one in copies if not self._has_ceased(part, one.ref)]
            return doubtful[-1] if doubtful else self._submit(part, submitted)
        # One that runs before one that waits, and one that is open before one that is gated.
        kept, *others = sorted(alive, key=lambda one: (one.state is State.PENDING, one.gated))
        self._stop(others)
        self.say(f"{part.step} {part.id}: adopted job {kept.ref.id} ({kept.state})")
        return self._open(part, kept.ref)

    def _stop(self, others: Sequence[Observation]) -> None:
        # A stop names one object: whether it lands late or twice, it ends no other.
        stopped = [one.ref for one in others]
        self._patiently(lambda: self.backend.stop_many(stopped), OutcomeUnknown)

    def _submit(self, part: Part, submitted: dict[str, int]) -> Ref | None:
        submitted[part.id] += 1
        ram_bytes = job_ram_bytes(estimate_of(part, self.at_once)) * self._ram_factors[part.id]
        job = JobSpec(
            id=part.id,
            submission=submitted[part.id],
            command=self.command(part),
            cpus=min(self.at_once, os.cpu_count() or 1),
            ram_bytes=ram_bytes,
            directory=str(self.output),
        )
        try:
            ref = self._patiently(lambda: self.backend.start(job))
        except OutcomeUnknown as unknown:
            # It may be there, or come until then. Only afterwards "not found" means "not there".
            self.say(f"{part.step} {part.id}: no answer; looking again at {unknown.settles_at}")
            self._wait_until(unknown.settles_at)
            return self._adopt_or_submit(part, submitted)
        self.say(f"{part.step} {part.id}: submitted job {ref.id} with {format_bytes(ram_bytes)}")
        return self._open(part, ref)

    def _open(self, part: Part, ref: Ref) -> Ref:
        # What is opened twice is open. What somebody cancelled before is looked at like any end.
        with contextlib.suppress(FinishedError, NotFoundError):
            self._patiently(lambda: self.backend.open(ref), OutcomeUnknown)
            self.say(f"{part.step} {part.id}: opened job {ref.id}")
        return ref

    def _has_ceased(self, part: Part, ref: Ref) -> bool:
        """Return whether nothing of *ref* can be running: only then another job may begin."""
        said = self._patiently(lambda: self.backend.ceased(ref))
        if not said.ceased and part.id not in self._waiting:
            self._waiting.add(part.id)
            self.say(f"{part.step} {part.id}: job {ref.id} may run still: {said.detail}")
        return said.ceased

    def _ended(self, part: Part, seen: Observation, submitted: dict[str, int]) -> Ref | None:
        """Return None when the part is done, or what does it instead of the job that ended."""
        came_to = f"{seen.cause} ({seen.detail})"
        if self._is_done(part, FILE_PATIENCE_S if seen.cause is Cause.COMPLETED else 0.0):
            self.say(f"{part.step} {part.id}: done by job {seen.ref.id}")
            return None
        if not self._has_ceased(part, seen.ref):
            return seen.ref
        self._waiting.discard(part.id)
        if seen.cause is Cause.COMPLETED:
            came_to = f"finished, and no result was seen for {FILE_PATIENCE_S:.0f} s"
        elif words := self._last_words(seen.ref):
            came_to = f"{came_to}: {words}"
        if submitted[part.id] >= MOST_SUBMISSIONS:
            message = f"{part.step} {part.id} was submitted {MOST_SUBMISSIONS} times: {came_to}"
            raise GivenUpError(message)
        self.say(f"{part.step} {part.id}: job {seen.ref.id} {came_to}; submitting it again")
        if seen.cause is Cause.OUT_OF_MEMORY:
            self._ram_factors[part.id] *= 2
        return self._submit(part, submitted)

    def _last_words(self, ref: Ref) -> str:
        """Return the last line that the job has written to its stderr, empty for none."""
        try:
            printed = self.backend.read_output(ref, name="stderr")
        except DispatchError:
            return ""
        lines = printed.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _is_done(self, part: Part, patience_s: float = 0.0) -> bool:
        file = result_file(self.output, part)
        end = time.monotonic() + patience_s
        while True:
            # Reading the folder anew is what makes a network file system look again.
            if file.name in os.listdir(file.parent):  # noqa: PTH208  names are all that is wanted
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(self.poll_s)

    def _wait_until(self, when: datetime.datetime | None) -> None:
        if when is not None:
            time.sleep(max(0.0, (when - datetime.datetime.now(datetime.UTC)).total_seconds()))

    def _patiently(self, call: Callable[[], T], *again: type[DispatchError]) -> T:
        """
        Return what *call* returns; a cluster that does not answer is asked again, ever later.

        So is one whose answer was an error of *again*, where asking twice does no harm.
        """
        asked_again: tuple[type[DispatchError], ...] = (ClusterUnreachable, *again)
        for delay_s in _UNREACHABLE_S:
            try:
                return call()
            except asked_again as error:
                self.say(f"asking again in {delay_s:.0f} s: {error}")
                time.sleep(delay_s)
        return call()
