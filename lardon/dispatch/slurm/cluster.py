"""What is known of one cluster: its facts, its queue, and what has left the queue."""

from __future__ import annotations

import datetime
import shlex
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import attrs

from lardon.clock import Clock
from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.model import Observation, Ref
from lardon.dispatch.slurm.accounting import history_script, parse_history
from lardon.dispatch.slurm.bound import LandingTerms
from lardon.dispatch.slurm.facts import SCRIPT, ClusterFacts, facts_of
from lardon.dispatch.slurm.host import Host
from lardon.dispatch.slurm.listing import Listing, parse_listing
from lardon.dispatch.slurm.output import evidence_script, out_of_memory_in
from lardon.dispatch.slurm.rows import JobRow, absent, observed
from lardon.dispatch.slurm.settings import SlurmSettings
from lardon.governor.checks import refuse

K = TypeVar("K")
V = TypeVar("V")

SQUEUE: Final = "TZ=UTC0 timeout -s KILL {bound}s squeue --json --me --states=all </dev/null\n"
"""
One call for all jobs. The versions that heed the options print fewer rows for them; 22.05
prints every job of the cluster all the same.
"""
_KILLED: Final = 9
# What is remembered of jobs that have ended; enough for all that a queue shows of one user.
_MOST_REMEMBERED: Final = 10_000


class Cluster:
    """Reads one cluster through its host; it changes nothing. Any thread may call."""

    def __init__(self, host: Host, settings: SlurmSettings, clock: Clock) -> None:
        self.host = host
        self.settings = settings
        self._clock = clock
        # Guards the two below. Held while the cluster is asked for its facts, which is once.
        self._lock = threading.Lock()
        self._facts: ClusterFacts | None = None
        self._terms: LandingTerms | None = None
        self.on_listing: Callable[[int, Listing], None] = _nobody_listens
        # Guards the three below; held for bookkeeping alone.
        self._seen_lock = threading.Lock()
        self._questions = 0
        # Whether a killed job ran out of memory, by id and submit time.
        self._out_of_memory: dict[tuple[int, int], bool] = {}
        self._absent_since: dict[Ref, float] = {}

    def facts(self) -> ClusterFacts:
        """Return what the cluster says about itself; it is asked once, by the first call."""
        with self._lock:
            return self._known()[0]

    def terms(self) -> LandingTerms:
        """
        Return the terms of the landing bound, measured by the first call and kept.

        Raises:
            InvalidError: B does not exceed the cluster's MessageTimeout, or the life of its
                credentials is not known and was not given.
            ClusterUnreachable, UnreadableAnswer: it could not be asked.

        """
        with self._lock:
            return self._known()[1]

    def _known(self) -> tuple[ClusterFacts, LandingTerms]:
        if self._facts is None or self._terms is None:
            bound = f"{self.settings.bound_s:g}"
            facts = facts_of(self.host.ask(SCRIPT.format(bound=bound)))
            self._terms = self._measured(facts)
            self._facts = facts
        return self._facts, self._terms

    def _measured(self, facts: ClusterFacts) -> LandingTerms:
        settings = self.settings
        longest_s = facts.message_timeout_s
        if longest_s is not None and settings.bound_s <= longest_s:
            rule = f"more than the cluster's MessageTimeout, which is {longest_s:g} s"
            raise refuse(InvalidError, "bound_s", settings.bound_s, rule)
        ttl_s = settings.ttl_s if settings.ttl_s is not None else facts.ttl_s
        if ttl_s is None:
            rule = f"given, because the life of a credential of {facts.auth_type} is not known"
            raise refuse(InvalidError, "ttl_s", None, rule)
        clock = self.host.read_clock() if self.host.transport.remote else None
        return LandingTerms(
            bound_s=settings.bound_s,
            ttl_s=ttl_s,
            skew_s=settings.skew_s,
            offset_s=None if clock is None else clock.offset_s,
            rtt_s=None if clock is None else clock.rtt_s,
            apply_slack_s=settings.apply_slack_s,
        )

    # The queue ---------------------------------------------------------------------

    def listing(self) -> Listing:
        """Ask for the whole queue, and return the jobs of ours in it; watchers hear of it."""
        user_id = self.facts().user_id
        with self._seen_lock:
            self._questions += 1
            question = self._questions
        printed = self.host.ask(SQUEUE.format(bound=f"{self.settings.bound_s:g}"))
        listing = parse_listing(printed, user_id)
        self.on_listing(question, listing)
        return listing

    def row(self, ref: Ref) -> JobRow | None:
        """Return the row that matches all of *ref*, None when the queue has none."""
        return next((row for row in self.listing().rows if row.ref == ref), None)

    def history(self, names: Iterable[str], since: datetime.datetime) -> tuple[JobRow, ...]:
        """Return what the accounting has of jobs of these names; nothing where there is none."""
        facts = self.facts()
        if not facts.accounting:
            return ()
        script = history_script(names, since, self.settings.bound_s)
        return parse_history(self.host.ask(script), facts.user_id).rows

    def node_states(self, nodes: Iterable[str]) -> dict[str, str]:
        """Return the state of each of *nodes*, a list as Slurm writes it; a star is silence."""
        wanted = shlex.quote(",".join(nodes))
        bound = f"{self.settings.bound_s:g}"
        script = f"timeout -s KILL {bound}s sinfo -h -N -n {wanted} -o '%N %T' </dev/null\n"
        lines = [line.split() for line in self.host.ask(script).splitlines()]
        return {columns[0]: columns[1] for columns in lines if len(columns) > 1}

    # Observations ------------------------------------------------------------------

    def observations(self, rows: Sequence[JobRow]) -> list[Observation]:
        """Return what *rows* say, and the jobs' own stderr where a row leaves it open."""
        self._look_for_evidence(rows)
        return [self._with_evidence(row, observed(row)) for row in rows]

    def observe(self, refs: Sequence[Ref]) -> dict[Ref, Observation]:
        """Return one observation for each of *refs*, with one question for all of them."""
        rows = {row.ref: row for row in self.listing().rows}
        missing = [ref for ref in refs if ref not in rows]
        if missing:
            since = min(ref.submitted_at for ref in missing)
            past = self.history({ref.name for ref in missing}, since)
            rows.update({row.ref: row for row in past if row.ref not in rows})
        there = [rows[ref] for ref in dict.fromkeys(refs) if ref in rows]
        seen = {one.ref: one for one in self.observations(there)}
        self._note_absence(refs, seen.keys())
        return {ref: seen.get(ref) or absent(ref, self._absence(ref)) for ref in refs}

    def absent_for(self, ref: Ref) -> float | None:
        """Return for how many seconds nobody has known of *ref*; None when somebody does."""
        with self._seen_lock:
            since = self._absent_since.get(ref)
        return None if since is None else self._clock.monotonic() - since

    def _note_absence(self, refs: Iterable[Ref], seen: Iterable[Ref]) -> None:
        now, there = self._clock.monotonic(), set(seen)
        with self._seen_lock:
            for ref in refs:
                if ref in there:
                    self._absent_since.pop(ref, None)
                else:
                    self._absent_since.setdefault(ref, now)
            _keep_newest(self._absent_since)

    def _absence(self, ref: Ref) -> str:
        seconds = self.absent_for(ref) or 0.0
        where = "queue and accounting" if self.facts().accounting else "queue, and no accounting"
        return f"absent from {where}, for {seconds:.0f} s as far as was asked"

    # Memory ------------------------------------------------------------------------

    def _look_for_evidence(self, rows: Iterable[JobRow]) -> None:
        with self._seen_lock:
            known = set(self._out_of_memory)
        doubtful = [
            row
            for row in rows
            if row.signal == _KILLED
            and (row.job_id, row.submit_time) not in known
            and observed(row).cause is Cause.NON_ZERO_EXIT
        ]
        if not doubtful:
            return
        printed = self.host.ask(evidence_script(doubtful, self.settings.output_folder))
        found = out_of_memory_in(printed)
        with self._seen_lock:
            for row in doubtful:
                self._out_of_memory[row.job_id, row.submit_time] = row.job_id in found
            _keep_newest(self._out_of_memory)

    def _with_evidence(self, row: JobRow, observation: Observation) -> Observation:
        if observation.state is not State.ENDED:
            return observation
        with self._seen_lock:
            out_of_memory = self._out_of_memory.get((row.job_id, row.submit_time), False)
        if not out_of_memory:
            return observation
        detail = f"{observation.detail}: its stderr says that it exceeded its memory"
        return attrs.evolve(observation, cause=Cause.OUT_OF_MEMORY, detail=detail)


def _nobody_listens(_question: int, _listing: Listing) -> None:
    """Stand for the one who wants to hear of every listing, until there is one."""


def _keep_newest(remembered: dict[K, V]) -> None:
    while len(remembered) > _MOST_REMEMBERED:
        del remembered[next(iter(remembered))]
