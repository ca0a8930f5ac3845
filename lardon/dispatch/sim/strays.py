"""What goes wrong with a store in a simulated run, and the objects that no record claims then."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lardon.dispatch.enums import State
from lardon.dispatch.errors import DispatchError
from lardon.dispatch.model import JobSpec
from lardon.dispatch.sim.faults import job_of
from lardon.dispatch.ulid import new_ulid

if TYPE_CHECKING:
    from lardon.dispatch.job_operator import Operator
    from lardon.dispatch.memory import MemoryBackend
    from lardon.dispatch.model import Ref
    from lardon.dispatch.sim.invariants import Judge
    from lardon.dispatch.sim.store import SimRecords

# One of these for a whole run. So few that there are ids left for the jobs, and that one job
# at least is on record; and fewer where nobody looks for them, so that the jobs matter.
_MOST_STARTED: Final = {True: (1, 2), False: (0, 0, 1)}
_MOST_FORGOTTEN: Final = {True: (0, 0, 1), False: (0, 0, 0, 0, 1)}
# How often what is out of sight comes back, where something happens to the store.
_RETURN: Final = 0.5


class Strays:
    """
    Starts objects behind the core's back, removes records, and lets them be out of sight.

    A record is hidden only while none of its calls is pending and all of its live objects are
    in it. Else a start of it could land meanwhile, and be stopped on a lost node as nobody's:
    the core would look for that object, and there would be nothing left to ask about. And each
    record goes once: what comes back and goes again between two looks nobody can see.

    Args:
        backend: The cluster.
        operator: Whose clock it is.
        records: The store.
        rng: What goes wrong next.
        judge: Told of each record that is gone for good.
        looked_for: Whether supervisors look for such objects: else no record is hidden.

    """

    def __init__(
        self,
        backend: MemoryBackend,
        operator: Operator,
        records: SimRecords,
        rng: random.Random,
        judge: Judge,
        *,
        looked_for: bool,
    ) -> None:
        self._backend = backend
        self._env = backend.env()
        self._clock = operator.clock
        self._records = records
        self._rng = rng
        self._judge = judge
        self._started: list[Ref] = []
        self._looked_for = looked_for
        self._most_started = rng.choice(_MOST_STARTED[looked_for])
        self._most_forgotten = rng.choice(_MOST_FORGOTTEN[looked_for])
        self._gone: set[str] = set()
        self._forgotten = 0

    def act(self) -> str | None:
        """Do one of these; return what, or None where nothing could be done."""
        if self._rng.random() < _RETURN and (shown := self.show()) is not None:
            return shown
        acts: tuple[Callable[[], str | None], ...] = (
            self._start, self._open, self._hide, self._hide, self._forget
        )  # fmt: skip
        return self._rng.choice(acts)()

    def show(self) -> str | None:
        """Let one record be seen again; None where none is out of sight."""
        if not self._records.hidden:
            return None
        job = self._rng.choice(sorted(self._records.hidden))
        self._records.hidden.discard(job)
        return f"store: the record of {job[-8:]} is seen again"

    def settle_down(self) -> str | None:
        """Let every record be seen again, and start one object more where they are looked for."""
        self._records.hidden.clear()
        self._most_started += int(self._looked_for)
        return self._start()

    def live(self) -> list[Ref]:
        """Return the objects that no record claims and that have not ended."""
        return [ref for ref in self._env.refs() if self._is_live(ref) and not self._job_seen(ref)]

    def _start(self) -> str | None:
        if len(self._started) >= self._most_started:
            return None
        job = new_ulid(self._clock.wall(), self._rng.getrandbits)
        try:
            ref = self._backend.start(JobSpec(id=job, command=["stray"]))
        except DispatchError:
            return None  # no id is free
        self._started.append(ref)
        return f"stray: {job[-8:]} is started"

    def _open(self) -> str | None:
        gated = [ref for ref in self._started if self._env.truth(ref).gated]
        if not gated:
            return None
        ref = self._rng.choice(gated)
        try:
            self._backend.open(ref)
        except DispatchError:
            return None  # an administrator holds it
        return f"stray: {job_of(ref.name)[-8:]} is opened"

    def _hide(self) -> str | None:
        jobs = [job for job in self._records.jobs() if self._may_hide(job)]
        if not (jobs and self._looked_for):
            return None
        job = self._rng.choice(jobs)
        self._gone.add(job)
        self._records.hidden.add(job)
        return f"store: the record of {job[-8:]} is out of sight"

    def _forget(self) -> str | None:
        jobs = list(self._records.jobs())
        there = {job_of(ref.name) for ref in self._env.refs()} - self._gone
        mine = [job for job in jobs if job in there]
        # The last one stays: a store without any job would be taken for one that is away.
        if self._forgotten >= self._most_forgotten or len(jobs) <= 1 or not mine:
            return None
        job = self._rng.choice(mine)
        self._judge.forgotten(job)
        self._records.forget(job)
        self._forgotten += 1
        return f"store: the record of {job[-8:]} is removed"

    def _may_hide(self, job: str) -> bool:
        record = self._records.truth(job)
        assert record is not None
        live = [ref for ref in self._env.refs() if job_of(ref.name) == job and self._is_live(ref)]
        known = all(record.object(ref) is not None for ref in live)
        return bool(live) and known and not record.calls and job not in self._gone

    def _is_live(self, ref: Ref) -> bool:
        return self._env.truth(ref).state in (State.PENDING, State.RUNNING)

    def _job_seen(self, ref: Ref) -> bool:
        return self._records.load(job_of(ref.name)) is not None
