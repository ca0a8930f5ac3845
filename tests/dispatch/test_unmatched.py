"""Objects that no record claims: which they are, and what becomes of them under each policy."""

from __future__ import annotations

import logging
import secrets
from typing import Any, Final

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest

from lardon.dispatch import (
    DispatchError,
    InvalidError,
    JobSpec,
    Observation,
    Ref,
    State,
    UnmatchedPolicy,
    UnsupportedError,
    new_ulid,
)
from lardon.dispatch.enums import Shape
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend, answer_lost
from lardon.dispatch.model import Declarations
from lardon.dispatch.names import job_of
from lardon.dispatch.records import MemoryRecords
from lardon.dispatch.remote import PoolTimings
from lardon.dispatch.supervisor import Supervisor
from lardon.dispatch.unmatched import SHOWN_S, Stray, SweepTerms, grace_of, live_after, sweep
from lardon.testing import ManualClock
from tests.dispatch.core_values import JOB, NOW, SPEC, ref, seen
from tests.dispatch.remote_cluster import ONE, RemoteCluster

LEAVE, REPORT, STOP = UnmatchedPolicy
POLL_S: Final = 15.0
GRACE_S: Final = 40.0
TERMS: Final = SweepTerms(policy=STOP, grace_s=GRACE_S, poll_s=POLL_S)


# Names


@pytest.mark.parametrize("unique_names", [False, True])
def test_the_name_of_an_object_tells_its_job(unique_names: bool) -> None:
    spec = JobSpec(id=JOB, submission=12, command=["work"])
    name = spec.submission_name if unique_names else spec.name

    assert job_of(name, unique_names=unique_names) == JOB
    # A name of the other form is none of ours: that scheduler never got it from us.
    assert job_of(name, unique_names=not unique_names) is None


@pytest.mark.parametrize(
    "name",
    [
        "", "dj-", "dj-photo", f"dj-{JOB[:-1]}", f"dj-{JOB}0", f"dj-{JOB}-s1", f" dj-{JOB}",
        f"dj-{JOB}\n", f"dj-{JOB.lower()}", f"DJ-{JOB}", f"dj-8{JOB[1:]}", f"dj-{JOB[:-1]}U",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_name_of_a_job_is_none(name: str) -> None:
    assert job_of(name, unique_names=False) is None


@pytest.mark.parametrize("end", ["", "-s", "-s0", "-s01", "-s1000000", "-s-1", "-s1\n", "-s1-s2"])
def test_what_only_looks_like_a_name_of_a_submission_is_none(end: str) -> None:
    assert job_of(f"dj-{JOB.lower()}{end}", unique_names=True) is None


# The decision


def decided(
    before: Any = (), *, live: Any = None, now_s: float = 0.0, terms: SweepTerms = TERMS
) -> Any:
    objects = [seen(1)] if live is None else live
    return sweep(objects, before, lambda _: False, now_s, terms, unique_names=False)


def test_a_stray_is_stopped_after_the_grace_and_asked_for_again() -> None:
    strays: tuple[Stray, ...] = ()
    stops = []
    for step in range(8):
        now_s = step * POLL_S
        found = decided(strays, now_s=now_s)
        strays = found.strays
        stops += [now_s] * len(found.stop)
        assert len(found.tell) == (now_s == 45)
    assert stops == [45, 60, 75, 90, 105]


def test_it_comes_again_when_a_grace_ends() -> None:
    first = decided()
    assert first.again_s == POLL_S
    second = decided(first.strays, now_s=15)
    third = decided(second.strays, now_s=30)
    assert third.again_s == 10
    fourth = decided(third.strays, now_s=40)
    assert [one.ref for one in fourth.stop] == [ref(1)]
    # It is asked for again after a whole period, not at once because the last wake was early.
    assert not decided(fourth.strays, now_s=45).stop
    assert decided(fourth.strays, now_s=55).stop


def test_a_supervisor_that_slept_through_the_grace_does_not_know_what_it_missed() -> None:
    found = decided(decided().strays, now_s=3600)
    assert found.strays[0].waited_s == POLL_S
    assert not found.stop
    assert not found.tell


def test_a_record_that_was_seen_once_begins_the_grace_anew() -> None:
    found = decided(decided().strays, now_s=15)
    back = sweep([seen(1)], found.strays, lambda _: True, 30, TERMS, unique_names=False)
    assert back.strays == ()
    again = decided(back.strays, now_s=45)
    assert again.strays[0].waited_s == 0


def test_another_incarnation_has_a_grace_of_its_own() -> None:
    """A requeue gives the same id another submit time; only the first was seen for so long."""
    found = decided(attrs.evolve(one, waited_s=99.0) for one in decided().strays)
    other = attrs.evolve(seen(1), ref=Ref(SPEC.name, 1, NOW.replace(microsecond=0)))
    assert found.stop
    assert not decided(found.strays, live=[other], now_s=1).stop


@pytest.mark.parametrize("policy", [LEAVE, REPORT])
def test_only_the_policy_stop_stops(policy: UnmatchedPolicy) -> None:
    terms = attrs.evolve(TERMS, policy=policy, grace_s=0)
    found = decided(terms=terms)
    assert not found.stop
    assert len(found.tell) == 1
    # Once is enough.
    assert not decided(found.strays, now_s=15, terms=terms).tell


def test_many_stops_are_shared_out_over_looks_so_that_jobs_are_served_between() -> None:
    terms = attrs.evolve(TERMS, grace_s=0)
    live = [seen(number) for number in range(1, 41)]
    found, asked = decided(live=live, terms=terms), []
    asked += found.stop
    assert found.again_s == 0
    for _ in range(2):
        found = decided(found.strays, live=live, terms=terms)
        asked += found.stop
    assert len({one.ref for one in asked}) == len(asked) == 40
    assert found.again_s == POLL_S


def test_a_grace_that_is_over_but_for_a_rounding_is_over() -> None:
    """Else it would be looked again at once, for ever, on a clock that does not move."""
    terms = attrs.evolve(TERMS, grace_s=0.3, poll_s=0.1)
    strays: tuple[Stray, ...] = ()
    for step in range(4):
        found = decided(strays, now_s=step * 0.1, terms=terms)
        strays = found.strays
    assert found.stop
    assert found.again_s == 0.1


def test_what_ended_is_gone_or_is_not_ours_is_no_longer_live() -> None:
    live = live_after({}, [seen(1), seen(2), seen(3)], unique_names=False)
    other = Observation(ref=Ref("dj-photo", 4, ref(1).submitted_at), state=State.RUNNING)
    news = [seen(1, State.ENDED), Observation.unknown(ref(2)), seen(3, State.RUNNING), other]
    assert live_after(live, news, unique_names=False) == {ref(3): seen(3, State.RUNNING)}


@hypothesis.given(
    looks=st.lists(
        st.tuples(st.floats(0, 100), st.sets(st.integers(1, 3)), st.booleans()), max_size=12
    ),
    grace_s=st.floats(0, 60),
)
def test_nothing_is_stopped_that_was_not_seen_for_the_grace_without_a_record(
    looks: list[tuple[float, set[int], bool]], grace_s: float
) -> None:
    terms = attrs.evolve(TERMS, grace_s=grace_s)
    strays: tuple[Stray, ...] = ()
    now_s, since = 0.0, dict[Ref, float]()
    for pause_s, there, recorded in looks:
        now_s += pause_s
        live = [seen(number) for number in sorted(there)]
        found = sweep(
            live, strays, {SPEC.id: recorded}.__getitem__, now_s, terms, unique_names=False
        )
        strays = found.strays
        refs = set() if recorded else {one.ref for one in live}
        since = {one: since.get(one, now_s) for one in refs}
        assert {one.ref for one in strays} == refs
        assert all(now_s - since[one.ref] > grace_s - 1e-3 for one in found.stop)


def test_the_grace_is_the_call_bound_and_no_shorter_than_a_file_takes_to_show() -> None:
    assert grace_of(Declarations(adapter="test", call_bound_s=328.0)) == 328
    assert grace_of(Declarations(adapter="test", call_bound_s=0.0)) == SHOWN_S == 60


# On a cluster


class Core:
    """A cluster, a store, and who looks after it."""

    def __init__(self, clock: ManualClock, shape: Shape = Shape.SLURM, **settings: Any) -> None:
        self.clock = clock
        self.backend = MemoryBackend(clock=clock, shape=shape, **settings)
        self.env = self.backend.env()
        self.records = MemoryRecords()
        self.operator = Operator(self.backend, self.records, clock)

    def supervisor(self, unmatched: Any, grace_s: float | None = GRACE_S) -> Supervisor:
        how: dict[str, Any] = {"unmatched": unmatched, "unmatched_grace_s": grace_s}
        return Supervisor("one", self.operator, **how)

    def stray(self) -> Ref:
        job = new_ulid(self.clock.wall(), secrets.randbits)
        return self.backend.start(JobSpec(id=job, command=["stray"]))

    def stands(self, stray: Ref) -> bool:
        return self.env.truth(stray).state in (State.PENDING, State.RUNNING)


@pytest.fixture
def core(clock: ManualClock) -> Core:
    return Core(clock)


def refs(supervisor: Supervisor) -> list[Ref]:
    return [one.ref for one in supervisor.unmatched()]


def turns(core: Core, supervisor: Supervisor, count: int) -> None:
    for _ in range(count):
        supervisor.turn()
        core.clock.advance(POLL_S)


def test_by_default_strays_are_neither_looked_for_nor_touched(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Any:
        raise AssertionError("nobody is to watch")

    monkeypatch.setattr(core.backend, "watch", refused)
    one = Supervisor("one", core.operator)
    stray = core.stray()
    assert one.turn() is None
    assert list(one.sweep()) == []
    assert refs(one) == []
    assert core.stands(stray)


@pytest.mark.parametrize("shape", list(Shape))
def test_reported_strays_are_listed_at_once_logged_once_and_left(
    clock: ManualClock, shape: Shape, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core(clock, shape)
    one = core.supervisor("report")
    core.operator.submit(SPEC)
    stray = core.stray()
    turns(core, one, 1)
    assert refs(one) == [stray]
    assert not caplog.records
    turns(core, one, 8)
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"no record claims object {stray.id}" in told
    assert "stopped" not in told
    assert core.stands(stray)
    core.env.cancel(stray)
    turns(core, one, 1)
    assert refs(one) == []


@pytest.mark.parametrize("shape", list(Shape))
def test_strays_are_stopped_after_the_grace_and_jobs_are_not(
    clock: ManualClock, shape: Shape, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core(clock, shape)
    one = core.supervisor(STOP)
    core.operator.submit(SPEC)
    one.turn()
    mine = core.env.refs()
    stray = core.stray()
    clock.advance(POLL_S)
    turns(core, one, 3)
    assert core.stands(stray)
    turns(core, one, 1)
    assert not core.stands(stray)
    assert all(core.stands(other) for other in mine)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "it is stopped" in caplog.text
    turns(core, one, 1)
    assert refs(one) == []


def test_objects_of_a_job_that_is_over_are_on_record(core: Core) -> None:
    """Somebody puts it back after its end: that is for the plan to see, and for nobody else."""
    one = core.supervisor(STOP, 0)
    core.operator.submit(SPEC)
    one.turn()
    (mine,) = core.env.refs()
    core.env.run(mine)
    core.env.finish(mine)
    turns(core, one, 8)
    record = core.records.load(JOB)
    assert record is not None
    assert record.closed
    core.env.requeue_externally(mine)
    turns(core, one, 3)
    assert refs(one) == []
    assert core.stands(mine)


def test_a_job_whose_record_is_removed_leaves_strays_and_no_wake(core: Core) -> None:
    """What was removed is never due again; else every turn would say: come back at once."""
    plain, one = Supervisor("plain", core.operator), core.supervisor(STOP, 0)
    core.operator.submit(SPEC)
    plain.turn()
    (mine,) = core.env.refs()
    core.records.forget(JOB)
    assert plain.turn() is None
    assert plain.last_plan(JOB) is None
    one.turn()
    assert not core.stands(mine)


def test_a_record_that_goes_while_a_call_is_made_ends_no_turn(
    core: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = core.backend.start

    def start(spec: JobSpec) -> Ref:
        core.records.forget(spec.id)
        return real(spec)

    core.operator.submit(SPEC)
    monkeypatch.setattr(core.backend, "start", start)
    one = core.supervisor(REPORT)
    one.turn()
    assert "was removed meanwhile" in caplog.text
    assert refs(one) == core.env.refs()


def test_a_turn_comes_again_as_long_as_strays_are_looked_for(core: Core) -> None:
    one = core.supervisor(REPORT)
    wake_at = one.turn()
    assert wake_at is not None
    assert (wake_at - core.clock.wall()).total_seconds() == POLL_S
    # Not looked for before that, whatever else a turn is made for.
    stray = core.stray()
    one.turn()
    assert refs(one) == []
    core.clock.advance(POLL_S)
    one.turn()
    assert refs(one) == [stray]


def test_a_turn_comes_again_when_the_grace_of_a_stray_ends(core: Core) -> None:
    one = core.supervisor(STOP, 20)
    core.stray()
    turns(core, one, 1)
    wake_at = one.turn()
    assert wake_at is not None
    assert (wake_at - core.clock.wall()).total_seconds() == 5


def test_a_job_that_is_submitted_while_the_stream_is_read_is_no_stray(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is read after the stream: then whatever was seen started is in it."""
    real = core.backend.watch

    def watch(*_: object) -> Any:
        core.operator.submit(SPEC)
        core.backend.start(SPEC)
        return real()

    monkeypatch.setattr(core.backend, "watch", watch)
    one = core.supervisor(STOP, 0)
    list(one.sweep())
    assert refs(one) == []
    assert [core.stands(mine) for mine in core.env.refs()] == [True]


def test_a_record_that_a_listing_has_missed_counts(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is read while a file in it is replaced may not show that file."""
    other = attrs.evolve(SPEC, id=f"{JOB[:-1]}W")
    core.operator.submit(SPEC)
    core.operator.submit(other)
    core.backend.start(SPEC)
    monkeypatch.setattr(core.records, "jobs", lambda: [other.id])
    one = core.supervisor(REPORT, 0)
    list(one.sweep())
    assert refs(one) == []


def test_a_record_that_comes_back_right_before_the_stop_prevents_it(core: Core) -> None:
    one = core.supervisor(STOP, 0)
    mine = core.backend.start(SPEC)
    steps = one.sweep()
    assert [next(steps) for _ in range(3)] == ["watch", "match", "stop"]
    core.operator.submit(SPEC)
    assert list(steps) == []
    assert core.stands(mine)
    assert refs(one) == []


def test_a_supervisor_may_die_between_look_and_stop(core: Core) -> None:
    stray = core.stray()
    dying = core.supervisor(STOP, 0).sweep()
    assert [next(dying) for _ in range(3)] == ["watch", "match", "stop"]
    del dying
    assert core.stands(stray)
    list(core.supervisor(STOP, 0).sweep())
    assert not core.stands(stray)


def test_a_stop_whose_answer_is_lost_is_asked_for_again(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    one = core.supervisor(STOP, 0)
    stray = core.stray()
    with answer_lost(None):
        one.turn()
    assert core.stands(stray)
    assert refs(one) == [stray]
    assert "the answer to stop is lost" in caplog.text
    core.clock.advance(POLL_S)
    one.turn()
    assert not core.stands(stray)


def test_a_stop_that_raises_what_no_backend_should_does_not_end_the_turn(
    core: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Ref) -> None:
        raise ZeroDivisionError

    one = core.supervisor(STOP, 0)
    stray = core.stray()
    with monkeypatch.context() as patch:
        patch.setattr(core.backend, "stop", broken)
        one.turn()
    assert "ZeroDivisionError" in caplog.text
    core.clock.advance(POLL_S)
    one.turn()
    assert not core.stands(stray)


@pytest.mark.parametrize("shape", list(Shape))
def test_a_stream_that_ended_is_replaced_by_one_that_tells_all(
    clock: ManualClock, shape: Shape
) -> None:
    """On Kubeflow nothing tells of what was deleted meanwhile, but that it is not there."""
    core = Core(clock, shape, watch_buffer=1)
    one = core.supervisor(REPORT)
    gone = core.stray()
    one.turn()
    stays = core.stray()
    core.env.cancel(gone)  # which the stream has no room for
    clock.advance(POLL_S)
    one.turn()
    assert refs(one) == [stays]


def test_a_scheduler_that_shows_nothing_is_asked_again_and_nothing_is_concluded(
    core: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*_: object) -> Any:
        raise DispatchError("Unable to contact slurm controller")

    one = core.supervisor(STOP, 0)
    stray = core.stray()
    core.operator.submit(SPEC)
    with monkeypatch.context() as patch:
        patch.setattr(core.backend, "watch", down)
        wake_at = one.turn()
    assert wake_at is not None
    assert wake_at > core.clock.wall()
    assert "Unable to contact" in caplog.text
    assert len(core.env.refs()) == 2  # the job was served all the same
    assert core.stands(stray)
    core.clock.advance(POLL_S)
    one.turn()
    assert not core.stands(stray)


def test_a_store_that_has_lost_every_job_judges_nobody(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that is not mounted any more holds no record, for longer than any grace."""
    one = core.supervisor(STOP, 0)
    core.operator.submit(SPEC)
    one.turn()
    (mine,) = core.env.refs()
    record = core.records.load(JOB)
    assert record is not None
    core.records.forget(JOB)
    core.clock.advance(POLL_S)
    turns(core, one, 30)
    assert core.stands(mine)
    assert refs(one) == []
    assert caplog.text.count("no object is judged") == 1
    core.records.save(attrs.evolve(record, version=0))
    stray = core.stray()
    turns(core, one, 2)
    assert core.stands(mine)
    assert not core.stands(stray)


def test_who_let_go_looks_no_more_and_serves_jobs_still(core: Core) -> None:
    one = core.supervisor(STOP, 0)
    one.turn()
    streams = core.backend._streams
    assert [stream.closed for stream in streams] == [False]
    stray = core.stray()
    one.close()
    one.close()
    assert [stream.closed for stream in streams] == [True]
    core.clock.advance(POLL_S)
    assert one.turn() is None
    assert list(one.sweep()) == []
    assert core.stands(stray)
    core.operator.submit(SPEC)
    assert one.turn() is not None
    assert len(core.env.refs()) == 2


def test_who_lets_go_in_the_middle_of_a_look_stops_nothing_more(core: Core) -> None:
    one = core.supervisor(STOP, 0)
    stray = core.stray()
    steps = one.sweep()
    assert [next(steps) for _ in range(3)] == ["watch", "match", "stop"]
    one.close()
    assert list(steps) == []
    assert core.stands(stray)
    assert one.turn() is None


def test_who_hands_its_jobs_over_looks_for_no_strays(core: Core) -> None:
    one = core.supervisor(STOP, 0)
    one.turn()
    one.hand_over()
    assert [stream.closed for stream in core.backend._streams] == [True]
    stray = core.stray()
    core.clock.advance(POLL_S)
    assert one.turn() is None
    assert core.stands(stray)


class Blind:
    """A backend that is no Watcher."""

    def __init__(self, inner: MemoryBackend) -> None:
        for name in ("start", "open", "stop", "observe_many", "find", "declarations", "close"):
            setattr(self, name, getattr(inner, name))


@pytest.mark.parametrize("policy", [REPORT, STOP])
def test_a_backend_that_shows_no_objects_is_refused_by_name(
    core: Core, policy: UnmatchedPolicy
) -> None:
    operator = Operator(Blind(core.backend), core.records, core.clock)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match=f"unmatched must be leave, not {policy}") as caught:
        Supervisor("one", operator, unmatched=policy)
    assert caught.value.operation == "watch"
    Supervisor("one", operator, unmatched=LEAVE)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("unmatched", {"unmatched": "adopt"}),
        ("unmatched", {"unmatched": None}),
        ("unmatched", {"unmatched": True}),
        ("unmatched_grace_s", {"unmatched_grace_s": -1}),
        ("unmatched_grace_s", {"unmatched_grace_s": "60"}),
    ],
)
def test_a_policy_or_a_grace_that_is_none_is_refused(
    core: Core, field: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidError) as caught:
        Supervisor("one", core.operator, **wrong)
    assert caught.value.path == field


# In a pool


def test_a_pool_stops_strays_and_lets_go_at_its_end(cluster: RemoteCluster) -> None:
    stray = cluster.backend.start(SPEC)
    pool = cluster.pool(unmatched="stop", timings=PoolTimings(unmatched_grace_s=20))
    handle = pool.submit(["work"], estimate=ONE)
    cluster.passes()
    assert [one.ref for one in pool.unmatched()] == [stray]
    cluster.passes(5)
    assert cluster.env.truth(stray).state is State.ENDED
    assert cluster.env.truth(cluster.ref(handle)).state is State.PENDING
    pool.close(wait=False)
    assert [stream.closed for stream in cluster.backend._streams] == [True]


@pytest.mark.parametrize("wrong", ["adopt", None, 3])
def test_a_pool_refuses_a_policy_that_is_none(cluster: RemoteCluster, wrong: Any) -> None:
    with pytest.raises(InvalidError, match="unmatched must be one of leave, report, stop"):
        cluster.pool(unmatched=wrong)
