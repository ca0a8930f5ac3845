"""What every check of the core works with: a backend, an operator, and one supervisor or two."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from lardon.dispatch.conformance.bench import ensure
from lardon.dispatch.conformance.harness import Lacking
from lardon.dispatch.enums import State
from lardon.dispatch.errors import RefusedError
from lardon.dispatch.model import JobSpec, Observation, Ref
from lardon.dispatch.recovery import RecoveryPolicy
from lardon.dispatch.spi import MultiFinder, Watcher
from lardon.dispatch.ulid import new_ulid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lardon.dispatch.conformance.core import CoreHarness
    from lardon.dispatch.enums import UnmatchedPolicy
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.observer import JobView
    from lardon.dispatch.supervisor import Supervisor

Seen: TypeAlias = Callable[["JobView"], bool]


class CoreBench:
    """One check's backend and core. It looks through `Observer.get` alone."""

    def __init__(self, harness: CoreHarness) -> None:
        self.harness = harness
        self.backend = harness.backend()
        self.records = harness.records()
        self.operator = harness.operator(self.backend, self.records)
        self.gated = self.backend.declarations().gated
        self.one = self.supervisor("one")

    def supervisor(self, name: str) -> Supervisor:
        """Return one more supervisor of the same records."""
        return self.harness.supervisor(name, self.harness.operator(self.backend, self.records))

    def sweeper(self, unmatched: UnmatchedPolicy, grace_s: float) -> Supervisor:
        """Return one that looks for objects of no record; skipped where none can be shown."""
        if not isinstance(self.backend, Watcher):
            message = "the backend is no Watcher"
            raise Lacking(message)
        operator = self.harness.operator(self.backend, self.records)
        return self.harness.sweeper("sweeper", operator, unmatched, grace_s)

    def stray(self) -> JobSpec:
        """Start an object with a name of ours behind the core's back; return what it runs."""
        job = new_ulid(self.harness.now(), secrets.randbits)
        spec = JobSpec(id=job, command=self.harness.command)
        self.backend.start(spec)
        return spec

    def submit(self, policy: RecoveryPolicy | None = None, **fields: Any) -> str:
        """Submit a job, and return its id."""
        job = new_ulid(self.harness.now(), secrets.randbits)
        spec = JobSpec(**{"id": job, "command": self.harness.command, **fields})
        return self.operator.submit(spec, policy=policy).id

    # Looking

    def see(self, job: str) -> JobView:
        """Return the job as it is now."""
        return self.operator.observer.get(job)

    def record(self, job: str) -> JobRecord:
        """Return what is on record."""
        return self.see(job).record

    def objects(self, job: str) -> Sequence[Observation]:
        """Return every object of a job; the check is skipped where that cannot be told."""
        if not isinstance(self.backend, MultiFinder):
            message = "the backend is no MultiFinder"
            raise Lacking(message)
        return self.backend.find_all(job)

    def live(self, job: str) -> list[Observation]:
        """Return the objects of a job that have not ended."""
        return [one for one in self.objects(job) if not one.ended]

    # Letting it work

    def turn(self, *supervisors: Supervisor) -> None:
        """Let each supervisor do what is due, then let a look's time pass."""
        for supervisor in supervisors or (self.one,):
            supervisor.turn()
        self.harness.advance(self.harness.timings.poll_s)

    def until(self, job: str, wanted: Seen, what: str, *supervisors: Supervisor) -> JobView:
        """Return the first view that is *wanted*; fail after the time for waiting, five times."""
        timings = self.harness.timings
        for _ in range(int(5 * timings.wait_s / timings.poll_s)):
            seen = self.see(job)
            if wanted(seen):
                return seen
            self.turn(*supervisors)
        message = f"a job that {what} was due; it is {self.see(job)}"
        raise AssertionError(message)

    def quietly(self, job: str, unwanted: Seen, what: str, *supervisors: Supervisor) -> None:
        """Fail when a view is *unwanted* within the time for quiet."""
        timings = self.harness.timings
        for _ in range(int(timings.quiet_s / timings.poll_s)):
            ensure(not unwanted(self.see(job)), f"{what}, and yet: {self.see(job)}")
            self.run_all(job)
            self.turn(*supervisors)

    def run_all(self, job: str) -> None:
        """Let the cluster run every object of a job that it may run."""
        for one in self.objects(job):
            if one.state is State.PENDING:
                with contextlib.suppress(RefusedError):
                    self.harness.run(one.ref)
        with contextlib.suppress(Lacking):
            running = self.harness.executing(job)
            ensure(running <= 1, f"{running} executions of one job run at once")

    def running(self, job: str, *supervisors: Supervisor) -> Ref:
        """Return the object of a job once it runs."""

        def runs(view: JobView) -> bool:
            self.run_all(job)
            return view.kept is not None and view.kept.state is State.RUNNING

        view = self.until(job, runs, "runs", *supervisors)
        assert view.kept is not None
        return view.kept.ref

    def over(self, job: str, *supervisors: Supervisor) -> JobRecord:
        """Return the record of a job once it has an outcome."""
        view = self.until(job, lambda view: view.record.outcome is not None, "ends", *supervisors)
        return view.record


@attrs.frozen
class CoreCheck:
    """A rule that the core keeps on every backend, and the code that finds out."""

    number: int
    name: str
    work: Callable[[CoreBench], None]

    @property
    def id(self) -> str:
        """What the test is called."""
        return f"C{self.number:02}-{self.name}"

    def __call__(self, harness: CoreHarness) -> None:
        """
        Make the check on a new backend.

        Raises:
            AssertionError: the core breaks the rule on it.
            Lacking: the check cannot be made on this backend or with this harness.

        """
        bench = CoreBench(harness)
        try:
            self.work(bench)
        finally:
            bench.backend.close()


def core_check(number: int) -> Callable[[Callable[[CoreBench], None]], CoreCheck]:
    """Make a check of the function, which is named after the rule."""

    def made(work: Callable[[CoreBench], None]) -> CoreCheck:
        return CoreCheck(number, work.__name__.replace("_", "-"), work)

    return made
