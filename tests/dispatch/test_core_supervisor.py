"""Operator, Observer and Supervisor on a cluster in memory: what each one promises."""

from __future__ import annotations

from typing import Any

import pytest

from lardon.dispatch import (
    Cause,
    DispatchError,
    FinishedError,
    InvalidError,
    JobSpec,
    NotFoundError,
    RecoveryPolicy,
    RecoveryRule,
    UnsupportedError,
)
from lardon.dispatch.enums import Action, Shape, State
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend, answer_lost
from lardon.dispatch.model import Declarations
from lardon.dispatch.observer import Observer
from lardon.dispatch.records import MemoryRecords
from lardon.dispatch.supervisor import Supervisor
from lardon.testing import ManualClock
from tests.dispatch.core_values import JOB

SPEC = JobSpec(id=JOB, command=["work"])


class Core:
    """One of everything."""

    def __init__(self, clock: ManualClock, shape: Shape = Shape.SLURM, **settings: Any) -> None:
        self.clock = clock
        self.backend = MemoryBackend(clock=clock, shape=shape, **settings)
        self.env = self.backend.env()
        self.records = MemoryRecords()
        self.operator = Operator(self.backend, self.records, clock)
        self.one = Supervisor("one", self.operator)

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.one.turn()


@pytest.fixture
def core(clock: ManualClock) -> Core:
    return Core(clock)


def test_a_wish_is_written_down_and_the_scheduler_is_not_asked(core: Core) -> None:
    core.operator.submit(SPEC, label="mine")
    core.operator.hold(JOB, placed_by="me", reason="later")
    core.operator.release(JOB)
    core.operator.stop(JOB)

    assert not core.env.refs()
    record = core.records.load(JOB)
    assert record is not None
    assert record.stop_asked_at == core.clock.wall()
    assert record.version == 4
    # Asked again, nothing is new.
    assert core.operator.stop(JOB).version == 4


def test_a_job_is_submitted_once(core: Core) -> None:
    core.operator.submit(SPEC)
    with pytest.raises(InvalidError, match="an id that no other job has"):
        core.operator.submit(SPEC)
    with pytest.raises(InvalidError, match="1 for a new job"):
        core.operator.submit(JobSpec(id=JOB, command=["work"], submission=2))


@pytest.mark.parametrize("verb", ["stop", "hold", "release", "allow_open", "vouch"])
def test_a_job_that_is_not_on_record_is_not_found(core: Core, verb: str) -> None:
    with pytest.raises(NotFoundError):
        getattr(core.operator, verb)(JOB)


def test_a_job_that_is_over_is_neither_held_nor_released(core: Core) -> None:
    core.operator.submit(SPEC)
    core.operator.stop(JOB)
    core.turn()
    with pytest.raises(FinishedError):
        core.operator.hold(JOB)
    with pytest.raises(FinishedError):
        core.operator.release(JOB)
    before = core.operator.stop(JOB)
    assert before.outcome is not None


def test_the_observer_reads_a_job_and_changes_nothing(core: Core) -> None:
    core.operator.submit(SPEC)
    core.turn()
    (ref,) = core.env.refs()
    observer = Observer(core.backend.view(read_only=True), core.records, core.clock)
    view = observer.get(JOB)
    assert view.state is State.PENDING
    assert view.kept is not None
    assert view.kept.ref == ref
    core.env.run(ref)
    assert observer.get(JOB).state is State.RUNNING
    core.env.finish(ref)
    # The record does not know yet; the scheduler does.
    assert observer.get(JOB).state is State.ENDED
    assert observer.get(JOB).record.outcome is None
    core.turn(15)
    assert observer.get(JOB).state is State.ENDED
    with pytest.raises(NotFoundError):
        observer.get("01ARZ3NDEKTSV4RRFFQ69G5FAW")


def test_a_backend_on_which_a_lost_answer_could_run_a_job_twice_is_refused(
    clock: ManualClock,
) -> None:
    class Careless(MemoryBackend):
        def declarations(self) -> Declarations:
            return Declarations(adapter="careless", call_bound_s=1, gated=False)

    with pytest.raises(UnsupportedError, match="neither gates nor unique names"):
        Operator(Careless(clock=clock), MemoryRecords(), clock)


def test_a_turn_says_when_to_come_again_and_when_nothing_is_left(core: Core) -> None:
    assert core.one.turn() is None
    core.operator.submit(SPEC)
    wake_at = core.one.turn()
    assert wake_at is not None
    assert wake_at > core.clock.wall()
    (ref,) = core.env.refs()
    core.env.run(ref)
    core.env.finish(ref)
    core.turn(15)
    assert core.operator.observer.get(JOB).record.outcome is not None
    # A duplicate of its start may still come, until that has settled.
    assert core.one.turn() is not None
    core.turn(600)
    assert core.one.turn() is None


def test_a_scheduler_that_does_not_answer_is_asked_again(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    core.operator.submit(SPEC)
    real = core.backend.find_all

    def down(name: str) -> Any:
        raise DispatchError("Unable to contact slurm controller")

    core.backend.find_all = down  # type: ignore[method-assign]  # the place for the fault
    core.turn()
    assert "Unable to contact" in caplog.text
    assert not core.env.refs()
    core.backend.find_all = real  # type: ignore[method-assign]
    core.turn(1)
    assert not core.env.refs()
    core.turn(15)
    assert len(core.env.refs()) == 1


def test_an_error_that_no_backend_should_raise_is_logged_and_waited_for(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(spec: JobSpec) -> Any:
        raise ZeroDivisionError

    core.operator.submit(SPEC)
    real, core.backend.start = core.backend.start, broken  # type: ignore[method-assign]
    core.turn()
    assert "start of job" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    core.backend.start = real  # type: ignore[method-assign]
    core.turn(50)
    assert not core.env.refs()
    core.turn(10)
    assert len(core.env.refs()) == 1


def test_a_backend_without_optional_interfaces_is_enough(clock: ManualClock) -> None:
    """The page: "Optional means: the core does a type test and reports unsupported otherwise"."""

    class Plain:
        """The seven methods that every backend has."""

        def __init__(self, inner: MemoryBackend) -> None:
            for name in ("start", "open", "stop", "observe_many", "find", "declarations", "close"):
                setattr(self, name, getattr(inner, name))

    core = Core(clock)
    operator = Operator(Plain(core.backend), core.records, clock)  # type: ignore[arg-type]
    assert not operator.terms.can_hold
    assert not operator.terms.can_requeue
    supervisor = Supervisor("plain", operator)
    operator.submit(SPEC)
    operator.hold(JOB)
    supervisor.turn()
    assert not core.env.refs()
    operator.release(JOB)
    supervisor.wake(JOB)
    supervisor.turn()
    (ref,) = core.env.refs()
    core.env.run(ref)
    core.env.finish(ref)
    clock.advance(15)
    supervisor.turn()
    outcome = operator.observer.get(JOB).record.outcome
    assert outcome is not None
    assert outcome.succeeded


def test_a_backend_that_has_an_interface_its_cluster_has_not_is_enough(core: Core) -> None:
    def unsupported(*_: object) -> Any:
        raise UnsupportedError("not here")

    every = core.backend.find_all
    setattr(core.backend, "find", lambda name: next(iter(every(name)), None))  # noqa: B010
    for name in ("find_all", "ceased"):
        setattr(core.backend, name, unsupported)
    core.operator.submit(SPEC)
    core.turn()
    assert len(core.env.refs()) == 1


def test_a_person_may_say_that_what_is_gone_has_ceased(clock: ManualClock) -> None:
    core = Core(clock, Shape.KUBEFLOW)
    rule = RecoveryRule(Cause.UNKNOWN, Action.RESTART, delay_s=0)
    core.operator.submit(SPEC, policy=RecoveryPolicy([rule]))
    core.turn()
    (ref,) = core.env.refs()
    core.env.run(ref)
    core.turn(60)
    core.env.lose_node(ref)
    core.env.cancel(ref)
    core.turn(3600)
    assert not core.env.refs()
    plan = core.one.last_plan(JOB)
    assert plan is not None
    assert "may run somewhere still" in plan.why
    core.operator.vouch(JOB)
    core.one.wake(JOB)
    core.turn()
    assert len(core.env.refs()) == 1


def test_holds_are_numbered_so_that_an_old_release_lifts_no_new_one(core: Core) -> None:
    core.operator.submit(SPEC)
    core.turn()
    (ref,) = core.env.refs()
    for number in (1, 2):
        core.operator.hold(JOB)
        core.one.wake(JOB)
        core.turn()
        assert core.env.truth(ref).hold_instance == number
        core.operator.release(JOB)
        core.one.wake(JOB)
        core.turn()
        assert core.env.truth(ref).hold_instance is None


def test_a_lost_hold_is_placed_again_once_it_has_settled(core: Core) -> None:
    core.operator.submit(SPEC)
    core.turn()
    (ref,) = core.env.refs()
    core.operator.hold(JOB)
    core.one.wake(JOB)
    with answer_lost(None):
        core.turn()
    record = core.records.load(JOB)
    assert record is not None
    (call,) = record.calls
    assert record.hold is not None
    assert record.hold.in_force_at is None
    core.turn((call.settles_at - core.clock.wall()).total_seconds())
    assert core.env.truth(ref).hold_instance is None
    core.turn(1)
    assert core.env.truth(ref).hold_instance == 1
    core.turn(15)
    record = core.records.load(JOB)
    assert record is not None
    assert record.hold is not None
    assert record.hold.in_force_at is not None


def test_a_look_that_finds_no_news_writes_nothing(core: Core) -> None:
    core.operator.submit(SPEC)
    core.turn()
    core.env.run(core.env.refs()[0])
    core.turn(61)
    record = core.records.load(JOB)
    assert record is not None
    for _ in range(3):
        core.turn(15)
        assert core.records.load(JOB) == record
    # But for the lease, before half of it is gone.
    core.turn(60)
    renewed = core.records.load(JOB)
    assert renewed is not None
    assert renewed.lease is not None
    assert record.lease is not None
    assert renewed.lease.fence == record.lease.fence
    assert renewed.lease.expires_at > record.lease.expires_at


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("name", {"name": ""}),
        ("name", {"name": None}),
        ("lease_s", {"lease_s": 0}),
        ("lease_s", {"lease_s": "60"}),
        ("lease_s", {"lease_s": 1e300}),
        ("skew_s", {"skew_s": -1}),
        ("skew_s", {"skew_s": float("nan")}),
    ],
)
def test_a_supervisor_that_could_never_act_is_refused(
    core: Core, field: str, wrong: dict[str, Any]
) -> None:
    """A lease that has run out when it is taken lets no call be made, for ever."""
    with pytest.raises(InvalidError) as caught:
        Supervisor(**{"name": "two", "operator": core.operator, **wrong})
    assert caught.value.path == field


def test_what_is_no_job_is_refused(core: Core) -> None:
    with pytest.raises(InvalidError, match="spec must be a JobSpec"):
        core.operator.submit("python train.py")  # type: ignore[arg-type]  # that is the point
