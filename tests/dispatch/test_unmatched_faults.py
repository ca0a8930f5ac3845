"""What happens to store, stream or stop while strays are looked for wrongs no job."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from lardon.dispatch import DispatchError, JobSpec, Ref
from lardon.dispatch.enums import Shape
from lardon.dispatch.memory import answer_lost
from lardon.testing import ManualClock
from tests.dispatch.core_values import JOB, SPEC
from tests.dispatch.strays import POLL_S, REPORT, STOP, Core, refs, turns


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
