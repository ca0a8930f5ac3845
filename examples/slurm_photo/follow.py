"""Submits the parts of a plan, adopts those that are there already, and follows them to the end."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs

from lardon.dispatch import Cause, JobSpec, Observation, OutcomeUnknown, Ref, State
from lardon.dispatch.slurm import ClusterUnreachable, SlurmBackend
from lardon.units import format_bytes
from slurm_photo.plan import Part, result_file
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
        submitted[part.id] = len(copies)
        alive = [one for one in copies if one.state in {State.PENDING, State.RUNNING}]
        if self._is_done(part):
            self._patiently(lambda: self.backend.stop_many(one.ref for one in alive))
            self.say(f"{part.step} {part.id}: done before")
            return None
        if not alive:
            return self._submit(part, submitted)
        # One that runs before one that waits, and one that is open before one that is gated.
        kept, *others = sorted(alive, key=lambda one: (one.state is State.PENDING, one.gated))
        self._patiently(lambda: self.backend.stop_many(one.ref for one in others))
        self.say(f"{part.step} {part.id}: adopted job {kept.ref.id} ({kept.state})")
        return self._open(part, kept.ref)

    def _submit(self, part: Part, submitted: dict[str, int], ram_factor: int = 1) -> Ref | None:
        submitted[part.id] += 1
        ram_bytes = job_ram_bytes(estimate_of(part, self.at_once)) * ram_factor
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
        self._patiently(lambda: self.backend.open(ref))
        self.say(f"{part.step} {part.id}: opened job {ref.id}")
        return ref

    def _ended(self, part: Part, seen: Observation, submitted: dict[str, int]) -> Ref | None:
        """Return None when the part is done, or what does it instead of the job that ended."""
        came_to = f"{seen.cause} ({seen.detail})"
        if self._is_done(part, FILE_PATIENCE_S if seen.cause is Cause.COMPLETED else 0.0):
            self.say(f"{part.step} {part.id}: done by job {seen.ref.id}")
            return None
        if seen.cause is Cause.COMPLETED:
            came_to = f"finished, and no result was seen for {FILE_PATIENCE_S:.0f} s"
        if submitted[part.id] >= MOST_SUBMISSIONS:
            message = f"{part.step} {part.id} was submitted {MOST_SUBMISSIONS} times: {came_to}"
            raise GivenUpError(message)
        self.say(f"{part.step} {part.id}: job {seen.ref.id} {came_to}; submitting it again")
        more = 2 ** submitted[part.id] if seen.cause is Cause.OUT_OF_MEMORY else 1
        return self._submit(part, submitted, more)

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

    def _patiently(self, call: Callable[[], T]) -> T:
        """Return what *call* returns; a cluster that does not answer is asked again, ever later."""
        for delay_s in _UNREACHABLE_S:
            try:
                return call()
            except ClusterUnreachable as error:
                self.say(f"asking again in {delay_s:.0f} s: {error}")
                time.sleep(delay_s)
        return call()
