"""Objects that no record claims, on a cluster: what becomes of them under each policy."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lardon.dispatch import InvalidError, State, UnmatchedPolicy, UnsupportedError
from lardon.dispatch.enums import Shape
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import PoolTimings
from lardon.dispatch.supervisor import Supervisor
from lardon.testing import ManualClock
from tests.dispatch.core_values import JOB, SPEC
from tests.dispatch.remote_cluster import ONE, RemoteCluster
from tests.dispatch.strays import LEAVE, POLL_S, REPORT, STOP, Core, refs, turns

# What a supervisor does with them


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
