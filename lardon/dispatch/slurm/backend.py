"""Slurm behind the interfaces of `lardon.dispatch.spi`."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from lardon.clock import Clock
from lardon.dispatch.decoding import Document, decode
from lardon.dispatch.enums import Action, Capability, Source, State, Tristate
from lardon.dispatch.errors import BackendClosed, InvalidError, NotFoundError, RefusedError
from lardon.dispatch.model import (
    CallMeta,
    Cessation,
    Declarations,
    HoldMeta,
    JobSpec,
    Observation,
    Ref,
    Support,
)
from lardon.dispatch.parts import checked_clock
from lardon.dispatch.recovery import NativePolicy, RecoveryPolicy
from lardon.dispatch.slurm.accounting import named_at
from lardon.dispatch.slurm.acting import Actor
from lardon.dispatch.slurm.bound import LandingTerms
from lardon.dispatch.slurm.cessation import cessation
from lardon.dispatch.slurm.cluster import Cluster
from lardon.dispatch.slurm.facts import ClusterFacts
from lardon.dispatch.slurm.host import Host
from lardon.dispatch.slurm.listing import PREFIX, Listing
from lardon.dispatch.slurm.output import output_path, read_part, reading_script
from lardon.dispatch.slurm.rows import observed
from lardon.dispatch.slurm.settings import SlurmDocument, SlurmSettings
from lardon.dispatch.slurm.transport import LocalTransport, Transport, checked_transport
from lardon.dispatch.slurm.watching import Poller
from lardon.dispatch.spi import OutputName
from lardon.dispatch.stream import BufferedStream
from lardon.governor.checks import refuse, whole_number


class SlurmBackend:
    """
    Jobs of one user on one Slurm cluster.

    Every method may block as long as the cluster takes, and may be called from any thread.
    Reads raise `ClusterUnreachable` or `UnreadableAnswer`, and nothing is to be concluded from
    those. Calls that change a job begin before their deadline or not at all, and run to their
    own end whoever still waits for them. The first call asks the cluster about itself.

    Args:
        transport: Where Slurm's commands run; None is this machine.
        clock: What time it is here; None is the machine's.
        nonce: Gives 32 new lower-case hex digits; None draws them.
        settings: The fields of `SlurmSettings`, such as ``options={"partition": "gpu"}``.

    Raises:
        InvalidError: a setting breaks its rule, or is none; another argument is not what its
            place asks for.

    """

    def __init__(
        self,
        transport: Transport | None = None,
        *,
        clock: Clock | None = None,
        nonce: Callable[[], str] | None = None,
        **settings: Any,
    ) -> None:
        known = {field.name for field in attrs.fields(SlurmSettings)}
        for name in sorted(set(settings) - known):
            raise refuse(InvalidError, name, settings[name], "one of the settings of a backend")
        self.settings = SlurmSettings(**settings)
        self._clock = checked_clock(clock)
        if nonce is not None and not callable(nonce):
            raise refuse(InvalidError, "nonce", nonce, "callable, or None")
        self._draw: Callable[[], str] = nonce or (lambda: secrets.token_hex(16))
        self._host = Host(
            LocalTransport() if transport is None else checked_transport(transport),
            bound_s=self.settings.bound_s,
            clock=self._clock,
            nonce=self._draw,
        )
        self._cluster = Cluster(self._host, self.settings, self._clock)
        self._actor = Actor(self._cluster, self._clock, self._draw, self._pause)
        self._read_only = False
        self._poller = Poller(self._look, self.settings.poll_s, self._clock)
        self._cluster.on_listing = self._tell_watchers
        # Guards the flag; notified on close, so that who waits between two looks goes at once.
        self._closing = threading.Condition()
        self._closed = False

    @classmethod
    def from_settings(
        cls, settings: Document | None = None, *, clock: Clock | None = None
    ) -> SlurmBackend:
        """Return a backend as a JSON document describes it; see `lardon.dispatch.registry`."""
        document = decode(SlurmDocument, settings)
        return cls(document.transport(), clock=clock, **document.settings())

    def view(self, *, read_only: bool = False) -> SlurmBackend:
        """Return another backend for the same cluster; a read-only one refuses every change."""
        settings = attrs.asdict(self.settings, recurse=False)
        other = SlurmBackend(
            self._host.transport, clock=self._clock, nonce=self._draw, **settings
        )  # fmt: skip
        other._read_only = read_only
        return other

    # Backend

    def start(self, spec: JobSpec) -> Ref:
        """
        Submit *spec*: gated, and never restarted by Slurm itself.

        Raises:
            RefusedError: the controller took no such job.
            OutcomeUnknown: it may be there, or is there and its id could not be read: after
                `settles_at`, `find_all` shows every copy. Stop all but one, and open that.
            ExpiredError, ClusterUnreachable: it was not submitted.

        """
        if not isinstance(spec, JobSpec):
            raise refuse(InvalidError, "spec", spec, "a JobSpec")
        return self._actor_if_open().start(spec)

    def open(self, ref: Ref) -> None:
        """Lift the gate; an object that is open stays so."""
        self._actor_if_open().open(ref)

    def stop(self, ref: Ref) -> None:
        """Cancel the object that matches all of *ref*; one that ended or is unknown is left."""
        self._actor_if_open().stop_many([ref])

    def stop_many(self, refs: Iterable[Ref]) -> None:
        """
        Cancel every object that matches one of *refs*, with few calls for many jobs.

        One listing says which of them are there, and each call cancels up to a hundred.
        """
        self._actor_if_open().stop_many(refs)

    def observe_many(self, refs: Iterable[Ref]) -> Mapping[Ref, Observation]:
        """Return one observation for each of *refs*, with one `squeue --json` for all."""
        self._check_open()
        return self._cluster.observe(list(refs))

    def find(self, name: str) -> Observation | None:
        """Return the newest object of a job, or None where nobody knows one."""
        found = self.find_all(name)
        return found[-1] if found else None

    def declarations(self) -> Declarations:
        """Return what the cluster was found to be, and the landing bound of its calls."""
        self._check_open()
        accounting = Tristate.YES if self._cluster.facts().accounting else Tristate.NO
        expressed = Support(Tristate.YES, Source.ASSUMED)
        left_to_us = Support(Tristate.NO, Source.ASSUMED)
        return Declarations(
            adapter="slurm",
            call_bound_s=self._cluster.terms().total_s,
            gated=True,
            unique_names=False,
            capabilities={
                Capability.ACCOUNTING_HISTORY: Support(accounting, Source.PROBED),
                # The update that sets the bit is refused for a job that ended.
                Capability.REQUEUE_ENDED: Support(Tristate.NO, Source.ASSUMED),
            },
            rules=dict.fromkeys(Action, expressed),
            native=dict.fromkeys(Action, left_to_us),
        )

    def close(self) -> None:
        """End the watch streams; who waits for a call is told that its outcome is unknown."""
        with self._closing:
            self._closed = True
            self._closing.notify_all()
        self._poller.close()
        self._host.close()

    # Holder, Requeuer

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Hold *ref* by a start time ten years on; who placed it and why is not kept."""
        self._actor_if_open().hold(ref, meta)

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        """Lift the hold that *meta* names; the gate stays."""
        self._actor_if_open().release(ref, meta)

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """
        Put a running object back, and return the ref it has once its execution has ended.

        Raises:
            RefusedError: it is pending, or ended.
            OutcomeUnknown: besides what `Requeuer.requeue` says: it was put back, and the old
                execution did not end within `requeue_wait_s`, so that its new submit time is
                not known yet.

        """
        return self._actor_if_open().requeue(ref, meta)

    def restore_requeue_bit(self, ref: Ref, meta: CallMeta) -> None:
        """Clear the requeue bit."""
        self._actor_if_open().restore_requeue_bit(ref, meta)

    # The others

    def compile_policy(self, policy: RecoveryPolicy) -> NativePolicy:
        """Leave every rule to a supervisor: with --no-requeue, every start is somebody's."""
        detail = "Slurm restarts nothing by itself: every job has --no-requeue"
        return NativePolicy(supervised=policy.rules, detail=detail)

    def watch(self, cancel: threading.Event | None = None) -> BufferedStream:
        """Return a stream that begins with everything in the queue; one poll serves all."""
        self._check_open()

        def make(first: list[Observation]) -> BufferedStream:
            room = self.settings.watch_buffer
            return BufferedStream(first, room=room, clock=self._clock, cancel=cancel)

        return self._poller.add(make)

    def ceased(self, ref: Ref) -> Cessation:
        """
        Return whether no execution of *ref* can be running any more.

        One whose node was lost may run on there: only that the node answers again ends the
        doubt. One that nobody has known of for `lost_after_s` has ceased.
        """
        seen = self.observe_many([ref])[ref]
        return cessation(self._cluster, seen)

    def weakened(self, ref: Ref) -> frozenset[str]:
        """Return ``{"sluid"}`` where the ref has one and the cluster's listing shows none."""
        self._check_open()
        row = None if ref.sluid is None else self._cluster.row(ref)
        confirmed = ref.sluid is None or (row is not None and row.sluid is not None)
        return frozenset() if confirmed else frozenset({"sluid"})

    def find_all(self, name: str) -> Sequence[Observation]:
        """Return every object of a job, by its id or their name, oldest first."""
        self._check_open()
        wanted = name if name.startswith(PREFIX) else f"{PREFIX}{name.upper()}"
        rows = {row.ref: row for row in self._cluster.listing().rows if row.name == wanted}
        since = named_at(wanted, self._clock.wall())
        for row in self._cluster.history([wanted], since):
            if row.name == wanted:
                rows.setdefault(row.ref, row)
        oldest_first = sorted(rows.values(), key=lambda row: (row.submit_time, row.job_id))
        return self._cluster.observations(oldest_first)

    def read_output(
        self, ref: Ref, *, name: OutputName = "stdout", offset: int = 0, limit: int | None = None
    ) -> bytes:
        """Return up to *limit* bytes of what the job has written, from *offset* on."""
        self._check_open()
        whole_number(InvalidError, "offset", offset, 0)
        if limit is not None:
            whole_number(InvalidError, "limit", limit, 0)
        row = self._cluster.row(ref)
        folder = self.settings.output_folder or (row.directory if row is not None else "")
        if not folder:
            message = f"job {ref.id} is gone, and with it the folder that it wrote to"
            raise NotFoundError(message, ref=ref)
        path = output_path(ref.name, ref.id, name, folder)
        part = read_part(self._host.ask(reading_script(path, offset, limit)))
        if part is None and (row is None or observed(row).state is State.ENDED):
            message = f"there is no file {path}"
            raise NotFoundError(message, ref=ref)
        return part or b""

    # About the cluster

    def facts(self) -> ClusterFacts:
        """Return what the cluster says about itself."""
        self._check_open()
        return self._cluster.facts()

    def landing_terms(self) -> LandingTerms:
        """Return what the landing bound is the sum of, as it was measured."""
        self._check_open()
        return self._cluster.terms()

    # Shared

    def _check_open(self) -> None:
        if self._closed:
            message = "the backend is closed"
            raise BackendClosed(message)

    def _actor_if_open(self) -> Actor:
        self._check_open()
        if self._read_only:
            message = "this view is read-only, and changes nothing"
            raise RefusedError(message)
        return self._actor

    def _pause(self, seconds: float) -> None:
        with self._closing:
            self._clock.wait_for(self._closing, lambda: self._closed, seconds)
        self._check_open()

    def _tell_watchers(self, question: int, listing: Listing) -> None:
        if self._poller.watched:
            self._poller.heard(question, self._cluster.observations(listing.rows))

    def _look(self, before: frozenset[Ref]) -> dict[Ref, Observation]:
        """Return what there is, and what became of what was there before."""
        there = {one.ref: one for one in self._cluster.observations(self._cluster.listing().rows)}
        gone = [ref for ref in before if ref not in there]
        return there | (self._cluster.observe(gone) if gone else {})
