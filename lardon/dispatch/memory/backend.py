"""A whole cluster in memory, for tests: every interface but the one that reads output."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from lardon.clock import Clock
from lardon.dispatch.decoding import Document, decode
from lardon.dispatch.enums import Shape, State, Tristate
from lardon.dispatch.errors import (
    BackendClosed,
    ExpiredError,
    InvalidError,
    OutcomeUnknown,
    RefusedError,
    UnsupportedError,
)
from lardon.dispatch.memory.environment import MemoryEnvironment
from lardon.dispatch.memory.hooks import check_landing, lost_answer, started
from lardon.dispatch.memory.kubeflow import KubeflowScheduler
from lardon.dispatch.memory.settings import MemorySettings
from lardon.dispatch.memory.slurm import SlurmScheduler
from lardon.dispatch.memory.world import World
from lardon.dispatch.model import (
    CallMeta,
    Cessation,
    Declarations,
    HoldMeta,
    JobSpec,
    Observation,
    Ref,
)
from lardon.dispatch.parts import checked_clock
from lardon.dispatch.recovery import NativePolicy, RecoveryPolicy, RecoveryRule
from lardon.dispatch.stream import BufferedStream
from lardon.governor.checks import refuse

if TYPE_CHECKING:
    from lardon.dispatch.memory.scheduler import Scheduler

T = TypeVar("T")


class MemoryBackend:
    """
    A view of a cluster that exists in memory alone, and behaves like Slurm or like Kubeflow.

    It implements every interface of `lardon.dispatch.spi` but `OutputReader`, starts no
    thread and sets no timer: what happens with time is worked out from the clock inside each
    call. Any thread may call; nothing blocks but a stream's `get`. Not for production.

    Args:
        clock: What time it is; None is the machine's, a `ManualClock` drives everything.
        settings: The fields of `MemorySettings`, in snake_case: ``shape="kubeflow"``,
            ``min_job_age_s=60``.

    Raises:
        InvalidError: a setting breaks its rule, or is none; the clock is none.

    """

    def __init__(self, *, clock: Clock | None = None, **settings: Any) -> None:
        known = {field.name for field in attrs.fields(MemorySettings)}
        for name in sorted(set(settings) - known):
            raise refuse(InvalidError, name, settings[name], "one of the settings of a backend")
        checked = MemorySettings(**settings)
        world = World(checked, checked_clock(clock))
        slurm = checked.shape is Shape.SLURM
        self._enter(world, SlurmScheduler(world) if slurm else KubeflowScheduler(world))

    def _enter(self, world: World, scheduler: Scheduler, *, read_only: bool = False) -> None:
        self._world = world
        self._scheduler = scheduler
        self._read_only = read_only
        # The two below are guarded by the world's lock.
        self._streams: list[BufferedStream] = []
        self._closed = False

    @classmethod
    def from_settings(
        cls, settings: Document | None = None, *, clock: Clock | None = None
    ) -> MemoryBackend:
        """Return a backend as a JSON document describes it; see `lardon.dispatch.registry`."""
        decoded = decode(MemorySettings, settings)
        return cls(clock=clock, **attrs.asdict(decoded, recurse=False))

    @property
    def settings(self) -> MemorySettings:
        """What it was made with."""
        return self._world.settings

    def env(self) -> MemoryEnvironment:
        """Return the cluster's side: what happens to the jobs, and what is so."""
        return MemoryEnvironment(self._world, self._scheduler)

    def view(self, *, read_only: bool = False) -> MemoryBackend:
        """Return another view of the same cluster; a read-only one refuses every change."""
        other = object.__new__(type(self))
        other._enter(self._world, self._scheduler, read_only=read_only)
        return other

    # Backend

    def start(self, spec: JobSpec) -> Ref:
        """Create the object of *spec*; on Kubeflow its name must be new."""
        if not isinstance(spec, JobSpec):
            raise refuse(InvalidError, "spec", spec, "a JobSpec")
        return self._change("start", lambda: self._scheduler.start(spec))

    def open(self, ref: Ref) -> None:
        """Lift the gate."""
        self._change("open", lambda: self._scheduler.open(ref))

    def stop(self, ref: Ref) -> None:
        """Cancel (Slurm) or delete (Kubeflow) the object that matches all of *ref*."""
        self._change("stop", lambda: self._scheduler.stop(ref))

    def observe_many(self, refs: Iterable[Ref]) -> dict[Ref, Observation]:
        """Return one observation for each of *refs*."""
        return self._read(lambda: {ref: self._world.observation(ref) for ref in refs})

    def find(self, name: str) -> Observation | None:
        """Return the newest object of a job, or None."""
        found = self.find_all(name)
        return found[-1] if found else None

    def declarations(self) -> Declarations:
        """Return what the settings promise."""
        return self._world.settings.declarations()

    def close(self) -> None:
        """End this view's streams; other views and the objects live on."""
        with self._world.entered():
            self._closed = True
            streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()

    # Holder, Requeuer

    def hold(self, ref: Ref, meta: HoldMeta) -> None:
        """Place the hold *meta*."""
        self._change("hold", lambda: self._scheduler.hold(ref, meta), meta)

    def release(self, ref: Ref, meta: HoldMeta) -> None:
        """Lift the hold that *meta* names."""
        self._change("release", lambda: self._scheduler.release(ref, meta), meta)

    def requeue(self, ref: Ref, meta: CallMeta) -> Ref:
        """Put the object back to pending (Slurm), and return the ref it has now."""
        requeuing = self._scheduler.requeuing("requeue")
        return self._change("requeue", lambda: requeuing.requeue(ref, meta), meta)

    def restore_requeue_bit(self, ref: Ref, meta: CallMeta) -> None:
        """Clear the requeue bit (Slurm)."""
        operation = "restore_requeue_bit"
        requeuing = self._scheduler.requeuing(operation)
        self._change(operation, lambda: requeuing.restore_requeue_bit(ref), meta)

    # The others

    def compile_policy(self, policy: RecoveryPolicy) -> NativePolicy:
        """Divide the rules of *policy* as the settings `rules` and `native` say."""
        settings = self._world.settings
        native: list[RecoveryRule] = []
        supervised: list[RecoveryRule] = []
        for rule in policy.rules:
            expressed = settings.rules.get(rule.action)
            if expressed is not None and expressed.value is Tristate.NO:
                message = f"the rule for {rule.cause} asks for {rule.action}, which is no rule here"
                raise UnsupportedError(message, operation=f"compile_policy({rule.action})")
            enforced = settings.native.get(rule.action)
            is_native = enforced is not None and enforced.value is Tristate.YES
            (native if is_native else supervised).append(rule)
        return NativePolicy(native, supervised)

    def watch(self, cancel: threading.Event | None = None) -> BufferedStream:
        """Return a stream that begins with the current observation of every object."""
        world = self._world

        def make(first: list[Observation]) -> BufferedStream:
            room = world.settings.watch_buffer
            return BufferedStream(first, room=room, clock=world.clock, cancel=cancel)

        def subscribe() -> BufferedStream:
            stream = world.subscribe(make)
            self._streams = [*(one for one in self._streams if not one.closed), stream]
            return stream

        return self._read(subscribe)

    def ceased(self, ref: Ref) -> Cessation:
        """Return what the setting `cessation` says, or what is known."""
        return self._read(lambda: self._cessation(ref))

    def weakened(self, ref: Ref) -> frozenset[str]:  # noqa: ARG002  the same for every object
        """Return nothing: what is read back confirms name, id and submit time."""
        return self._read(frozenset)

    def find_all(self, name: str) -> Sequence[Observation]:
        """Return every object of a job, by its id or their name, oldest first."""
        return self._read(lambda: [one.observation() for one in self._scheduler.matching(name)])

    # Shared

    def _cessation(self, ref: Ref) -> Cessation:
        self._world.present(ref)  # refuses what is no ref
        if self._world.settings.cessation is not None:
            return self._world.settings.cessation
        record = next((one for one in self._world.every() if one.ref == ref), None)
        if record is None:
            return Cessation(ceased=False, detail="nobody knows of such an object")
        if record.adrift or record.lost_at is not None:
            return Cessation(ceased=False, detail="its node is lost, and may run it still")
        if record.state is State.RUNNING:
            return Cessation(ceased=False, detail="it runs")
        return Cessation(ceased=True, detail="no execution of it runs")

    def _read(self, act: Callable[[], T]) -> T:
        with self._world.entered():
            self._check_open()
            return act()

    def _check_open(self) -> None:
        if self._closed:
            message = "the backend is closed"
            raise BackendClosed(message)

    def _change(self, operation: str, act: Callable[[], T], meta: CallMeta | None = None) -> T:
        world = self._world
        with world.entered():
            self._check_open()
            if self._read_only:
                message = f"this view is read-only, and does not {operation}"
                raise RefusedError(message)
            now = world.clock.wall()
            begun = now if meta is None else started(now)
            if meta is not None and begun > meta.deadline:
                message = f"{operation} started at {begun}, after its deadline {meta.deadline}"
                raise ExpiredError(message, deadline=meta.deadline, started_at=begun)
            if lost_answer() is not None:
                self._lose_answer(operation, act, now if meta is None else meta.deadline)
            return act()

    def _lose_answer(
        self, operation: str, act: Callable[[], object], deadline: datetime.datetime
    ) -> None:
        world, lost = self._world, lost_answer()
        assert lost is not None
        bound = datetime.timedelta(seconds=world.settings.call_bound_s)
        settles_at = deadline + bound
        if lost.lands_after_s is not None:
            check_landing(lost.lands_after_s, (settles_at - world.clock.wall()).total_seconds())
            world.land_later(world.clock.monotonic() + lost.lands_after_s, act)
            world.settle()
        message = f"the answer to {operation} is lost; it settles at {settles_at}"
        raise OutcomeUnknown(message, settles_at=settles_at)
