"""What every check works with: one new backend, and words for what must and must not happen."""

from __future__ import annotations

import contextlib
import datetime
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from lardon.dispatch.conformance.harness import Harness, Lacking
from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import DispatchError, RefusedError
from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref
from lardon.dispatch.spi import CessationSignal, Holder, MultiFinder, Requeuer, Watcher
from lardon.dispatch.ulid import new_ulid

Seen: TypeAlias = Callable[[Observation], bool]

# Far enough for a call to start in time, near enough for a check to wait for it.
_DEADLINE_S: Final = 60


def ensure(condition: object, message: str) -> None:
    """Fail the check with *message*, unless *condition*."""
    if not condition:
        raise AssertionError(message)


@contextlib.contextmanager
def raises(*kinds: type[DispatchError], what: str) -> Iterator[list[DispatchError]]:
    """Fail the check unless one of *kinds* is raised inside; the list holds it afterwards."""
    caught: list[DispatchError] = []
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        yield caught
    except kinds as error:
        caught.append(error)
    except DispatchError as error:
        message = f"{what} raised {type(error).__name__} ({error}), not {names}"
        raise AssertionError(message) from error
    ensure(caught, f"{what} raised nothing; {names} was due")


def _no(interface: str) -> NoReturn:
    message = f"the backend is no {interface}"
    raise Lacking(message)


class Bench:
    """One check's backend, and the harness that it came from."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.backend = harness.backend()
        self.slurm = harness.shape is Shape.SLURM
        self._jobs: set[str] = set()

    # Having

    @property
    def holder(self) -> Holder:
        """The backend as `Holder`; the check is skipped where it is none."""
        return self.backend if isinstance(self.backend, Holder) else _no(Holder.__name__)

    @property
    def requeuer(self) -> Requeuer:
        """The backend as `Requeuer`; the check is skipped where it is none."""
        return self.backend if isinstance(self.backend, Requeuer) else _no(Requeuer.__name__)

    @property
    def watcher(self) -> Watcher:
        """The backend as `Watcher`; the check is skipped where it is none."""
        return self.backend if isinstance(self.backend, Watcher) else _no(Watcher.__name__)

    @property
    def finder(self) -> MultiFinder:
        """The backend as `MultiFinder`; the check is skipped where it is none."""
        return self.backend if isinstance(self.backend, MultiFinder) else _no(MultiFinder.__name__)

    @property
    def cessation(self) -> CessationSignal:
        """The backend as `CessationSignal`; the check is skipped where it is none."""
        return (
            self.backend
            if isinstance(self.backend, CessationSignal)
            else _no(CessationSignal.__name__)
        )

    def figure(self, name: str) -> float:
        """Return a figure of the harness, or skip the check."""
        value = getattr(self.harness, name)
        if value is None:
            message = f"the harness does not say {name}"
            raise Lacking(message)
        return float(value)

    # Making

    def spec(self, **fields: Any) -> JobSpec:
        """Return a job that nobody has started yet."""
        name = new_ulid(self.harness.now(), secrets.randbits)
        return JobSpec(**{"id": name, "command": self.harness.command, **fields})

    def start(self, spec: JobSpec) -> Ref:
        """Start *spec*; what is left of it is stopped when the check is over."""
        self._jobs.add(spec.id)
        return self.backend.start(spec)

    def started(self) -> Ref:
        """Return an object, gated where starting is."""
        return self.start(self.spec())

    def opened(self) -> Ref:
        """Return an object that may run."""
        ref = self.started()
        self.backend.open(ref)
        return ref

    def running(self) -> Ref:
        """Return an object that runs."""
        return self.run(self.opened())

    def ended(self) -> Ref:
        """Return an object that ended by itself."""
        ref = self.running()
        self.harness.finish(ref, 0)
        self.until(ref, lambda seen: seen.ended, "ends when its command returns")
        return ref

    def run(self, ref: Ref) -> Ref:
        """Return *ref* once it runs."""
        with contextlib.suppress(RefusedError):
            self.harness.run(ref)
        self.until(ref, lambda seen: seen.state is State.RUNNING, "runs")
        return ref

    def call(self) -> CallMeta:
        """Return what a call carries that has time enough."""
        return CallMeta(self.deadline())

    def holding(self, instance: int) -> HoldMeta:
        """Return what a hold or a release of *instance* carries."""
        return HoldMeta(
            instance=instance, deadline=self.deadline(), placed_by="conformance", reason="a check"
        )

    def deadline(self) -> datetime.datetime:
        """Return a deadline that a call made now keeps."""
        return self.harness.now() + datetime.timedelta(seconds=_DEADLINE_S)

    @property
    def bound(self) -> datetime.timedelta:
        """How long after its deadline a call may still land."""
        return datetime.timedelta(seconds=self.backend.declarations().call_bound_s)

    # Looking

    def see(self, ref: Ref) -> Observation:
        """Return what the backend sees of *ref* now."""
        seen = self.backend.observe_many([ref])
        ensure(set(seen) == {ref}, f"observe_many was asked for {ref} and told of {set(seen)}")
        ensure(seen[ref].ref == ref, f"the observation for {ref} is of {seen[ref].ref}")
        return seen[ref]

    def until(self, ref: Ref, wanted: Seen, what: str, patience_s: float = 0) -> Observation:
        """Return the first observation that is *wanted*; fail after the time for waiting."""
        timings = self.harness.timings
        left = timings.wait_s + patience_s
        while True:
            seen = self.see(ref)
            if wanted(seen):
                return seen
            ensure(left > 0, f"an object that {what} was due; seen: {seen}")
            self.harness.advance(timings.poll_s)
            left -= timings.poll_s

    def never(self, ref: Ref, unwanted: Seen, what: str) -> None:
        """Fail when an observation is *unwanted* within the time for quiet."""
        timings = self.harness.timings
        left = timings.quiet_s
        while left > 0:
            seen = self.see(ref)
            ensure(not unwanted(seen), f"{what}, and yet: {seen}")
            self.harness.advance(timings.poll_s)
            left -= timings.poll_s

    def does_not_run(self, ref: Ref, what: str) -> None:
        """Fail when *ref* runs, though the cluster has room for it."""
        with contextlib.suppress(RefusedError):
            self.harness.run(ref)
        self.never(ref, lambda seen: seen.state is State.RUNNING, f"{what} must not run")

    def unchanged(self, before: Observation, what: str) -> None:
        """Fail when anything about an object differs from *before* within the time for quiet."""
        self.never(
            before.ref, lambda seen: _facts(seen) != _facts(before), f"{what} must change nothing"
        )

    def clean(self) -> None:
        """Stop what the check has left, as far as the backend lets it, and close."""
        with contextlib.suppress(DispatchError):
            for job in self._jobs:
                for seen in self._of(job):
                    self.backend.stop(seen.ref)
        self.backend.close()

    def _of(self, job: str) -> Sequence[Observation]:
        if isinstance(self.backend, MultiFinder):
            return self.backend.find_all(job)
        found = self.backend.find(job)
        return [found] if found else []


def _facts(seen: Observation) -> Observation:
    # The scheduler's own words, and why an object waits for its turn, change by themselves.
    cause = None if seen.cause is Cause.NO_CAPACITY else seen.cause
    return attrs.evolve(seen, cause=cause, detail="")
