"""A seeded run: several supervisors, a cluster, people and crashes, one step at a time."""

from __future__ import annotations

import datetime
import functools
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.enums import State, UnmatchedPolicy
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.sim.agenda import Agenda
from lardon.dispatch.sim.cluster import Cluster
from lardon.dispatch.sim.cluster_settings import cluster_settings
from lardon.dispatch.sim.faults import CallLog, FaultyBackend
from lardon.dispatch.sim.invariants import Judge
from lardon.dispatch.sim.people import People
from lardon.dispatch.sim.setting import MakeSupervisor, Report, Setting, Step, Violation
from lardon.dispatch.sim.store import SimRecords
from lardon.dispatch.sim.strays import Strays
from lardon.dispatch.sim.sweep_judge import SweepJudge
from lardon.dispatch.supervisor import Supervisor
from lardon.testing import ManualClock

if TYPE_CHECKING:
    from lardon.dispatch.job_record import JobRecord
    from lardon.dispatch.model import Ref

# Short, so that a run of few steps sees leases change hands.
_LEASE_S: Final = 60.0
_SKEW_S: Final = 2.0
_CALL_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 5.0
# Three looks long.
_GRACE_S: Final = 2 * _POLL_S
# How often a supervisor looks for objects that no record claims, if it does at all.
_SWEEP: Final = 0.2
# How likely a record comes back where the race is: right before its object is stopped.
_IN_THE_RACE: Final = 20
# Every so many seeds all that is known passes through text; that makes a run twice as long.
_WRITTEN: Final = 8


@attrs.define(eq=False)
class _Serving:
    """One supervisor, and what it is in the middle of."""

    backend: FaultyBackend
    supervisor: Supervisor
    job: str = ""
    steps: Iterator[str] | None = None
    next: str = ""


class Simulation:
    """
    One run. `run` makes all of it; nothing outside is touched, and no thread is started.

    Args:
        setting: What the run is made of.
        make_supervisor: Makes each supervisor from its name and operator; None makes
            `Supervisor`. A test that plants a fault gives another one.
        make_operator: The same for operators.

    """

    def __init__(
        self,
        setting: Setting,
        *,
        make_supervisor: MakeSupervisor | None = None,
        make_operator: Callable[..., Operator] = Operator,
    ) -> None:
        self.setting = setting
        self.rng = random.Random(setting.seed)  # noqa: S311  the same every time is the point
        self.clock = ManualClock()
        self.agenda = Agenda(self.clock)
        self.records = SimRecords(written=setting.seed % _WRITTEN == 0)
        self.trace: list[Step] = []
        self._make_supervisor = make_supervisor or functools.partial(
            Supervisor,
            unmatched=setting.unmatched,
            unmatched_grace_s=_GRACE_S,
            lease_s=_LEASE_S,
            skew_s=_SKEW_S,
        )
        self._make_operator = make_operator
        self._backend = MemoryBackend(clock=self.clock, **cluster_settings(setting.shape, self.rng))
        self.log = CallLog(self._called)
        env = self._backend.env()
        self.sweeps = SweepJudge(self.records, env, self.clock, setting.unmatched, _GRACE_S)
        self.judge = Judge(self.records, env, self.log, self.clock, self.sweeps)
        self.cluster = Cluster(
            self._backend, self.rng, self.judge.ran, self._may_requeue, self._is_known
        )
        operator = self._operator(self._backend)
        self._people = People(operator, self.rng, self.judge, setting.jobs)
        looked_for = setting.unmatched is not UnmatchedPolicy.LEAVE
        self._strays = Strays(
            self._backend, operator, self.records, self.rng, self.judge, looked_for=looked_for
        )
        self._serving = [self._served(place) for place in range(setting.supervisors)]
        self._loss = setting.loss
        self._crashes = 0

    # Making

    def _operator(self, backend: object) -> Operator:
        return self._make_operator(
            backend, self.records, self.clock, call_timeout_s=_CALL_TIMEOUT_S, poll_s=_POLL_S
        )

    def _served(self, place: int, life: int = 0) -> _Serving:
        name = f"s{place}.{life}"
        backend = FaultyBackend(self._backend.view(), name, self.log, self.rng, self.clock)
        return _Serving(backend, self._make_supervisor(name, self._operator(backend)))

    # Running

    def run(self) -> Report:
        """
        Make the run, and return what came of it.

        Raises:
            Violation: an invariant was broken.

        """
        for _ in range(self.setting.steps):
            if self._halted():
                return self._report()
            self._step(self._chaos())
        if not self._settle_down():
            return self._report()
        ends = self.clock.wall() + datetime.timedelta(seconds=self.setting.quiet_bound_s)
        while (left := self._left()) is not None:
            if self.clock.wall() > ends:
                self._violated(f"{left} long after the last fault")
            if self._halted():
                return self._report()
            self._step(self._quiet())
        self._check(self.judge.left_over())
        self._check_lists()
        return self._report()

    def _left(self) -> str | None:
        """Return what is to come to an end yet, or None."""
        if self._people.unfinished():
            return "a job is not over"
        stops = self.setting.unmatched is UnmatchedPolicy.STOP
        return "an object of no record is not stopped" if stops and self._strays.live() else None

    def _check_lists(self) -> None:
        """Let every supervisor look once more, and compare what it lists with the truth."""
        self.clock.advance(_POLL_S)
        for serving in self._serving:
            for _ in serving.supervisor.sweep():
                pass
            self._check(self.judge.verdict())
            self._check(self.sweeps.end(self._strays.live(), serving.supervisor.unmatched()))

    def _halted(self) -> bool:
        return self.setting.stop_at is not None and len(self.trace) >= self.setting.stop_at

    def _step(self, text: str | None) -> None:
        if text is not None:
            self.trace.append(Step(len(self.trace) + 1, self.clock.wall(), text))
        self._check(self.judge.verdict())

    def _check(self, broken: str | None) -> None:
        if broken is not None:
            self._violated(broken)

    def _violated(self, rule: str) -> None:
        raise Violation(
            rule,
            rule=rule,
            setting=self.setting,
            step=len(self.trace),
            trace=tuple(self.trace),
            dump=self.dump(),
        )

    # One step while there are faults

    def _chaos(self) -> str | None:
        kinds: dict[Callable[[], str | None], int] = {
            self._supervise: 24,
            self.cluster.happens: 8,
            self._people.act: 2,
            self._time_passes: 4,
            self._crash: 1,
            self._strays.act: 1,
            # The race: a record comes back right before its object is stopped.
            self._strays.show: _IN_THE_RACE if self._is_about_to_stop() else 0,
        }
        return self.rng.choices(list(kinds), weights=list(kinds.values()))[0]()

    def _supervise(self) -> str | None:
        serving = self.rng.choice(self._serving)
        serving.backend.loss = self._loss
        if serving.steps is None and not self._begin(serving):
            return None
        assert serving.steps is not None
        done = f"{serving.supervisor.name}: {serving.next} {serving.job[-8:] or 'strays'}"
        try:
            serving.next = next(serving.steps)
        except StopIteration:
            serving.steps, serving.next = None, ""
        return done

    def _begin(self, serving: _Serving) -> bool:
        """Let a supervisor begin with a job, or look for strays; return whether it did."""
        looks = self.setting.unmatched is not UnmatchedPolicy.LEAVE
        if looks and self.rng.random() < _SWEEP:
            serving.job, serving.next = "", "begin"
            serving.steps = serving.supervisor.sweep()
            return True
        waiting = self._people.unfinished()
        if not waiting:
            return False
        serving.job, serving.next = self.rng.choice(waiting), "begin"
        serving.steps = serving.supervisor.steps(serving.job)
        return True

    def _is_about_to_stop(self) -> bool:
        """Whether a supervisor is about to stop an object that no record claims."""
        return any(one.next == "stop" for one in self._serving if one.steps is not None)

    def _crash(self) -> str | None:
        place = self.rng.randrange(len(self._serving))
        serving = self._serving[place]
        name, _, life = serving.supervisor.name.partition(".")
        if serving.steps is not None:
            serving.steps.close()  # type: ignore[attr-defined]  # a generator's
        self._crashes += 1
        self._serving[place] = self._served(place, int(life) + 1)
        return f"{name}.{life}: crashes before {serving.next or 'anything'}"

    def _time_passes(self) -> str:
        seconds = self.rng.choice([0.5, 3.0, 10.0, 30.0, 70.0])
        self.clock.advance(seconds)
        return f"{seconds:g} s pass"

    # One step afterwards

    def _settle_down(self) -> bool:
        """End the faults: nodes come back, holds are lifted, what was begun goes on."""
        self._loss = 0.0
        for serving in self._serving:
            serving.backend.loss = 0.0
        self._step(self._strays.settle_down())
        while (text := self._people.submit()) is not None:
            self._step(text)
        self.cluster.settle_down()
        self._people.release_all()
        for serving in self._serving:
            self.agenda.add(0.0, functools.partial(self._turn, serving), "turn")
        self.agenda.add(1.0, self._work_off, "work")
        self._step("the faults are over")
        return not self._halted()

    def _quiet(self) -> str | None:
        timer = self.agenda.fire_next()
        assert timer is not None
        return timer.text

    def _turn(self, serving: _Serving) -> None:
        if serving.steps is not None:
            for _ in serving.steps:
                pass
            serving.steps = None
        serving.supervisor.turn()
        self.agenda.add(_POLL_S, lambda: self._turn(serving), f"{serving.supervisor.name}: turn")

    def _work_off(self) -> None:
        # What no record claims would go on for ever.
        self.cluster.work_off(self._strays.live())
        self.agenda.add(_POLL_S, self._work_off, "cluster: work")

    # Looking

    def _called(self, who: str, job: str, operation: str, ref: Ref | None) -> None:
        self.judge.called(who, job, operation, ref)

    def _may_requeue(self, job: str, ref: Ref, state: State) -> bool:
        """Whether somebody outside may put an object back: see `Cluster`."""
        record = self.records.truth(job)
        if record is None:
            return True  # nobody counts on what becomes of it
        if record.kept != ref or record.outcome is not None or record.stop_asked_at is not None:
            return False
        if state is State.RUNNING:
            return True
        busy = any(one.job == job and one.steps is not None for one in self._serving)
        return not (busy or record.calls or record.hold or record.due)

    def _is_known(self, job: str, ref: Ref) -> bool:
        record = self.records.truth(job)
        return record is None or record.object(ref) is not None

    def dump(self) -> str:
        """Return what is so now: the records, and the truth."""
        lines = [f"at {self.clock.wall().isoformat()}"]
        for job in self._people.jobs:
            record = self.records.truth(job)
            lines.append(f"job {job} was removed" if record is None else _told(record))
            lines.append(f"  executing: {self.cluster.env.executing(job)}")
        lines += [f"  truth: {self.cluster.env.truth(ref)}" for ref in self.cluster.env.refs()]
        lines += [f"  out of sight: {job}" for job in sorted(self.records.hidden)]
        lines += [f"  unknown: {one}" for one in self.log.unknown]
        return "\n".join(lines)

    def _report(self) -> Report:
        return Report(
            setting=self.setting,
            trace=tuple(self.trace),
            dump=self.dump(),
            executions=self.cluster.executions,
            unknown=self.log.lost,
            crashes=self._crashes,
            swept=self.sweeps.stopped,
        )


def simulate(setting: Setting) -> Report:
    """Make one run of the real core, and return what came of it, or raise `Violation`."""
    return Simulation(setting).run()


def _told(record: JobRecord) -> str:
    lines = [f"job {record.id} version {record.version}"]
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if field.name in ("spec", "policy", "version") or value in (None, (), "", 0):
            continue
        entries = value if isinstance(value, tuple) else (value,)
        lines += [f"    {field.name}: {entry}" for entry in entries]
    return "\n".join(lines)
