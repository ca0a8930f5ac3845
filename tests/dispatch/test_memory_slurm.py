"""The Slurm shape of the backend in memory, rule by rule."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import (
    CrashedError,
    FinishedError,
    InvalidError,
    NotFoundError,
    OutcomeUnknown,
    RefusedError,
)
from lardon.dispatch.holds import hold_start, instance_held
from lardon.dispatch.memory import MemoryBackend, crash_between_steps
from lardon.dispatch.model import EPOCH_BOUND, HOLD_BASE, Observation, Ref
from lardon.testing import ManualClock
from tests.dispatch.jobs import JOB, OTHER, call, holding, running, see, slurm, spec

SECOND = datetime.timedelta(seconds=1)


@pytest.fixture
def backend(clock: ManualClock) -> MemoryBackend:
    return slurm(clock)


def test_a_name_is_constant_and_a_submit_time_is_in_whole_seconds() -> None:
    """Seed 000, S1: dj- and the ULID, whatever the submission; the second is cut off."""
    clock = ManualClock(wall=datetime.datetime(2026, 5, 4, 3, 2, 1, 999_999, tzinfo=datetime.UTC))
    backend = slurm(clock)

    first = backend.start(spec(submission=1))
    second = backend.start(spec(submission=2))

    assert first.name == second.name == f"dj-{JOB}"
    assert first.submitted_at == datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
    assert (first.id, second.id) == (1, 2)


def test_ids_wrap_and_skip_what_is_still_known(clock: ManualClock) -> None:
    """Seed 000, S1: ids come round after maxJobId; dispatch.md, 4.8.10: known ones are skipped."""
    backend = slurm(clock, max_job_id=3)
    kept, first, second = (backend.start(spec()) for _ in range(3))
    backend.stop(first)
    backend.stop(second)
    clock.advance(300)

    again = [backend.start(spec()) for _ in range(2)]

    assert [ref.id for ref in again] == [2, 3]
    assert kept.id == 1
    with pytest.raises(RefusedError, match="no job id up to 3 is free"):
        backend.start(spec())


def test_a_reused_id_is_not_the_old_object(clock: ManualClock) -> None:
    """dispatch.md, rule 11 and check 7: id and submit time together name one object."""
    backend = slurm(clock, max_job_id=1)
    old = backend.start(spec())
    backend.stop(old)
    clock.advance(300)
    new = backend.start(spec())

    backend.stop(old)

    assert old.id == new.id
    assert see(backend, new).state is State.PENDING
    assert see(backend, old).state is State.UNKNOWN
    with pytest.raises(NotFoundError):
        backend.hold(old, holding(clock))
    assert see(backend, new).hold_instance is None


@hypothesis.given(
    highest=st.integers(1, 5),
    steps=st.lists(
        st.tuples(st.sampled_from(["start", "stop", "age", "tick"]), st.integers(0, 9)),
        max_size=40,
    ),
)
def test_no_two_objects_ever_share_an_identity(highest: int, steps: list[tuple[str, int]]) -> None:
    """dispatch.md, section 1.5: name, id and submit time, also when ids come round in a second."""
    clock = ManualClock()
    backend = slurm(clock, max_job_id=highest, min_job_age_s=0.25)
    seen: list[Ref] = []
    for verb, which in steps:
        if verb == "start":
            try:
                seen.append(backend.start(spec()))
            except RefusedError:
                continue
        elif verb == "stop" and seen:
            backend.stop(seen[which % len(seen)])
        else:
            clock.advance(0.25 if verb == "tick" else 300)

    assert len(set(seen)) == len(seen)
    assert all(1 <= int(ref.id) <= highest for ref in seen)
    alive = [ref for ref in seen if see(backend, ref).known]
    assert len({ref.id for ref in alive}) == len(alive)


def test_what_is_started_is_gated(backend: MemoryBackend) -> None:
    """Seed 000, S2: it exists, and does not run before it is opened."""
    ref = backend.start(spec())

    assert see(backend, ref).gated
    with pytest.raises(RefusedError, match="was not opened"):
        backend.env().run(ref)
    backend.open(ref)
    backend.open(ref)
    backend.env().run(ref)

    assert see(backend, ref).state is State.RUNNING


def test_open_of_an_ended_object_is_finished(backend: MemoryBackend) -> None:
    """Seed 000, S3: whether it ended by itself or was stopped."""
    done, stopped = running(backend), backend.start(spec())
    backend.env().finish(done)
    backend.stop(stopped)

    for ref in (done, stopped):
        with pytest.raises(FinishedError) as caught:
            backend.open(ref)
        assert caught.value.ref == ref


def test_an_administrators_hold_refuses_open(backend: MemoryBackend) -> None:
    """Seed 000, S3: only the administrator lifts it, and the gate stays until it is opened."""
    ref, env = backend.start(spec()), backend.env()
    env.admin_hold(ref)

    with pytest.raises(RefusedError) as caught:
        backend.open(ref)
    assert "administrator" in caught.value.reason
    assert see(backend, ref).cause is Cause.ADMIN_HELD

    env.admin_release(ref)
    assert see(backend, ref).gated
    backend.open(ref)
    env.run(ref)


@pytest.mark.parametrize(
    "other",
    [
        lambda ref: attrs.evolve(ref, submitted_at=ref.submitted_at + SECOND),
        lambda ref: attrs.evolve(ref, id=ref.id + 1),
        lambda ref: attrs.evolve(ref, name=f"dj-{OTHER}"),
    ],
    ids=["submit time", "id", "name"],
)
def test_a_stop_needs_the_whole_identity(
    backend: MemoryBackend, clock: ManualClock, other: object
) -> None:
    """Seed 000, S4: a mismatch touches nothing, and is no error."""
    assert callable(other)
    ref = running(backend)
    before = backend.env().truth(ref)

    backend.stop(other(ref))

    assert backend.env().truth(ref) == before
    with pytest.raises(NotFoundError):
        backend.requeue(other(ref), call(clock))


def test_a_stop_ends_cancelled_and_twice_does_no_harm(backend: MemoryBackend) -> None:
    """Seed 000, S4: the right identity ends it, running or not."""
    pending, runs = backend.start(spec()), running(backend, OTHER)

    for ref in (pending, runs, pending, runs):
        backend.stop(ref)
        assert see(backend, ref).state is State.ENDED
        assert see(backend, ref).cause is Cause.CANCELLED


def test_a_hold_is_a_start_time(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, S5: the submit time, ten Julian years, and one second for each instance."""
    ref = backend.start(spec())

    backend.hold(ref, holding(clock, 7))

    truth = backend.env().truth(ref)
    assert truth.start_time == ref.submitted_at + datetime.timedelta(seconds=HOLD_BASE + 7)
    assert truth.hold_instance == see(backend, ref).hold_instance == 7
    assert HOLD_BASE == 10 * 365.25 * 86400


@hypothesis.given(
    submitted_at=st.datetimes(
        min_value=datetime.datetime(1970, 1, 1),  # noqa: DTZ001  a bound of the strategy
        max_value=datetime.datetime(2100, 1, 1),  # noqa: DTZ001  a bound of the strategy
        timezones=st.just(datetime.UTC),
    ).map(lambda one: one.replace(microsecond=0)),
    instance=st.integers(1, EPOCH_BOUND - 1),
    other=st.integers(0, HOLD_BASE),
)
def test_an_instance_is_read_back_and_no_other_start_time_is_a_hold(
    submitted_at: datetime.datetime, instance: int, other: int
) -> None:
    """dispatch.md, rule 12: what is not above the hold base is somebody's begin time, no hold."""
    ref = Ref("dj", 1, submitted_at)

    assert instance_held(ref, hold_start(ref, instance)) == instance
    assert instance_held(ref, submitted_at + datetime.timedelta(seconds=other)) is None
    assert instance_held(ref, None) is None
    assert instance_held(ref, hold_start(ref, EPOCH_BOUND)) is None


def test_a_hold_of_a_running_object_is_refused(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, S6: and it runs on as it did."""
    ref = running(backend)
    before = backend.env().truth(ref)

    with pytest.raises(RefusedError, match="no longer pending"):
        backend.hold(ref, holding(clock))

    assert backend.env().truth(ref) == before


def test_a_hold_survives_open(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, S6: a gate and a hold are two things."""
    ref = backend.start(spec())
    backend.hold(ref, holding(clock, 3))
    backend.open(ref)

    assert see(backend, ref).cause is Cause.HELD
    assert not see(backend, ref).gated
    with pytest.raises(RefusedError, match="held under number 3"):
        backend.env().run(ref)


def test_only_a_release_of_the_current_instance_lifts_a_hold(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """Seed 000, S6: an older one is refused, and a newer one that was never placed."""
    ref = backend.start(spec())
    backend.open(ref)
    backend.hold(ref, holding(clock, 1))
    backend.hold(ref, holding(clock, 2))

    for wrong in (1, 3):
        with pytest.raises(RefusedError, match=f"hold {wrong} is not in place"):
            backend.release(ref, holding(clock, wrong))
        assert see(backend, ref).hold_instance == 2

    backend.release(ref, holding(clock, 2))
    backend.env().run(ref)
    assert see(backend, ref).state is State.RUNNING


@pytest.mark.parametrize("years", [1, 10, 11, 300])
def test_a_hold_lasts_until_it_is_released(
    backend: MemoryBackend, clock: ManualClock, years: int
) -> None:
    """Seed 000, S6: only a release lifts it, also when the start time itself has come."""
    ref = backend.start(spec())
    backend.open(ref)
    backend.hold(ref, holding(clock))

    clock.advance(years * 366 * 86400)

    assert see(backend, ref).hold_instance == 1
    with pytest.raises(RefusedError):
        backend.env().run(ref)
    backend.release(ref, holding(clock))
    backend.env().run(ref)


@pytest.mark.parametrize("how", ["finished", "cancelled", "running"])
def test_a_requeue_puts_back_ungated_and_counted(
    backend: MemoryBackend, clock: ManualClock, how: str
) -> None:
    """Seed 000, S7: finished or cancelled; dispatch.md, check 15: running too."""
    ref = running(backend)
    if how == "finished":
        backend.env().finish(ref, 1)
    elif how == "cancelled":
        backend.stop(ref)

    assert backend.requeue(ref, call(clock)) == ref

    seen = see(backend, ref)
    assert (seen.state, seen.cause, seen.restarts) == (State.PENDING, Cause.REQUEUED, 1)
    assert (seen.gated, seen.requeue_bit, seen.exit_code) == (False, False, None)
    backend.env().run(ref)


def test_a_stopped_gated_object_is_revived_ungated(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """Seed 000, S7: also one that was never opened."""
    ref = backend.start(spec())
    backend.stop(ref)

    backend.requeue(ref, call(clock))

    assert not see(backend, ref).gated
    backend.env().run(ref)


def test_a_hold_survives_a_requeue(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, S6: nothing but a release lifts a hold, so a held job does not run again."""
    ref = backend.start(spec())
    backend.hold(ref, holding(clock, 4))
    backend.stop(ref)

    backend.requeue(ref, call(clock))

    assert see(backend, ref).hold_instance == 4
    with pytest.raises(RefusedError):
        backend.env().run(ref)


@pytest.mark.parametrize("left_set", [False, True])
def test_a_pending_object_refuses_a_requeue(
    backend: MemoryBackend, clock: ManualClock, left_set: bool
) -> None:
    """Seed 000, S8: and the bit is clear afterwards, also one that was left set before."""
    ref = backend.start(spec())
    backend.open(ref)
    if left_set:
        backend.env().requeue_externally(ref)
        assert see(backend, ref).requeue_bit

    with pytest.raises(RefusedError, match="pending execution"):
        backend.requeue(ref, call(clock))

    seen = see(backend, ref)
    assert (seen.state, seen.restarts, seen.requeue_bit) == (State.PENDING, 0, False)


def test_preemption_ends_without_the_bit_and_requeues_with_it(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """Seed 000, S9: on Slurm's own authority, once somebody else has left the bit set."""
    env = backend.env()
    ref = running(backend)
    env.preempt(ref)
    assert (see(backend, ref).state, see(backend, ref).cause) == (State.ENDED, Cause.PREEMPTED)

    env.requeue_externally(ref)
    assert see(backend, ref).requeue_bit
    env.run(ref)
    env.preempt(ref)

    seen = see(backend, ref)
    assert (seen.state, seen.cause, seen.restarts) == (State.PENDING, Cause.REQUEUED, 2)
    assert seen.requeue_bit

    backend.restore_requeue_bit(ref, call(clock))
    env.run(ref)
    env.preempt(ref)
    assert see(backend, ref).cause is Cause.PREEMPTED


def test_restoring_clears_the_bit_and_an_ended_object_refuses(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """Seed 000, S10: the bit of an ended object stays as it is."""
    ref = running(backend)
    backend.env().requeue_externally(ref)
    backend.restore_requeue_bit(ref, call(clock))
    assert not see(backend, ref).requeue_bit

    backend.env().requeue_externally(ref)
    backend.stop(ref)
    with pytest.raises(FinishedError):
        backend.restore_requeue_bit(ref, call(clock))
    assert see(backend, ref).requeue_bit


def test_a_crash_between_steps_leaves_the_bit(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, F2: a requeue sets the bit and raises `CrashedError`, an unknown outcome."""
    ref = running(backend)
    meta = call(clock)

    with crash_between_steps(), pytest.raises(CrashedError) as caught:
        backend.requeue(ref, meta)

    assert isinstance(caught.value, OutcomeUnknown)
    assert caught.value.settles_at == meta.deadline + datetime.timedelta(seconds=25)
    seen = see(backend, ref)
    assert (seen.state, seen.restarts, seen.requeue_bit) == (State.RUNNING, 0, True)
    backend.requeue(ref, meta)
    assert not see(backend, ref).requeue_bit


def test_a_lost_node_ends_its_job_when_slurmd_is_silent_too_long(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """dispatch.md, rule 16: NodeLost after slurmdTimeout, and no moment before."""
    ref = running(backend)
    backend.env().lose_node(ref)

    clock.advance(299)
    assert (see(backend, ref).state, see(backend, ref).cause) == (State.RUNNING, None)
    clock.advance(1)
    assert (see(backend, ref).state, see(backend, ref).cause) == (State.ENDED, Cause.NODE_LOST)


def test_a_node_that_comes_back_in_time_ends_nothing(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """dispatch.md, rule 16: the time-out begins anew with each loss."""
    env = backend.env()
    ref = running(backend)
    env.lose_node(ref)
    clock.advance(200)
    env.recover_node(see(backend, ref).nodes[0])
    clock.advance(200)
    assert see(backend, ref).state is State.RUNNING

    env.lose_node(ref)
    clock.advance(299)
    assert see(backend, ref).state is State.RUNNING


def test_a_node_that_is_lost_already_is_not_lost_again(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """dispatch.md, rule 16: the time-out runs from the first loss."""
    ref = running(backend)
    backend.env().lose_node(ref)
    clock.advance(200)

    backend.env().lose_node(ref)

    clock.advance(100)
    assert see(backend, ref).cause is Cause.NODE_LOST


def test_a_lost_node_takes_everything_on_it(backend: MemoryBackend, clock: ManualClock) -> None:
    """dispatch.md, rule 6: two jobs of one node are lost together, one elsewhere is not."""
    env = backend.env()
    refs = [backend.start(spec(job)) for job in (JOB, OTHER, JOB)]
    for ref, node in zip(refs, ("n1", "n1", "n2"), strict=True):
        backend.open(ref)
        env.run(ref, node=node)

    env.lose_node(refs[0])
    clock.advance(300)

    causes = [see(backend, ref).cause for ref in refs]
    assert causes == [Cause.NODE_LOST, Cause.NODE_LOST, None]
    assert see(backend, refs[1]).nodes == ("n1",)


def test_nobody_learns_what_happens_on_a_lost_node(backend: MemoryBackend) -> None:
    """dispatch.md, rule 16: until the time-out the job counts as running, whatever it does."""
    ref = running(backend)
    backend.env().lose_node(ref)

    with pytest.raises(RefusedError, match="node of job 1 is lost"):
        backend.env().finish(ref)


def test_an_ended_object_is_purged_and_absent_is_no_success(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """dispatch.md, rule 16: after minJobAge nobody knows of it; its cause is not told."""
    ref = running(backend)
    backend.env().finish(ref)

    clock.advance(299)
    assert see(backend, ref).cause is Cause.COMPLETED
    clock.advance(1)

    assert see(backend, ref) == Observation.unknown(ref)
    assert see(backend, ref).cause is Cause.UNKNOWN
    assert backend.find(JOB) is None
    assert backend.find_all(JOB) == []
    with pytest.raises(NotFoundError):
        backend.open(ref)
    backend.stop(ref)


def test_the_accounting_still_finds_what_was_purged(clock: ManualClock) -> None:
    """dispatch.md, rule 16: with AccountingHistory yes it is found, and takes no call."""
    backend = MemoryBackend.from_settings(
        {"capabilities": {"AccountingHistory": {"value": "yes"}}}, clock=clock
    )
    ref = running(backend)
    backend.env().finish(ref, 2)
    clock.advance(300)
    newer = backend.start(spec())

    seen = see(backend, ref)
    assert (seen.state, seen.cause, seen.exit_code) == (State.ENDED, Cause.NON_ZERO_EXIT, 2)
    assert [one.ref for one in backend.find_all(JOB)] == [ref, newer]
    found = backend.find(ref.name)
    assert found is not None
    assert found.ref == newer
    assert backend.env().refs() == [newer]
    with pytest.raises(FinishedError):
        backend.open(ref)
    with pytest.raises(NotFoundError):
        backend.requeue(ref, call(clock))


@pytest.mark.parametrize("value", ["no", "unknown"])
def test_without_accounting_nothing_is_found(clock: ManualClock, value: str) -> None:
    """dispatch.md, rule 16: only a yes promises that what was purged is found."""
    backend = MemoryBackend(clock=clock, capabilities={"AccountingHistory": {"value": value}})
    ref = running(backend)
    backend.env().finish(ref)
    clock.advance(300)

    assert not see(backend, ref).known


def test_the_newest_object_is_found_also_in_the_accounting(clock: ManualClock) -> None:
    """dispatch.md, section 1.3: find tells of the newest, which may be the one that was purged."""
    backend = MemoryBackend(clock=clock, capabilities={"AccountingHistory": {"value": "yes"}})
    older, newer = backend.start(spec()), backend.start(spec())
    backend.stop(newer)
    clock.advance(300)

    assert backend.env().refs() == [older]
    assert [one.ref for one in backend.find_all(JOB)] == [older, newer]


def test_an_end_that_was_due_is_dated_back(backend: MemoryBackend, clock: ManualClock) -> None:
    """dispatch.md, rule 4: the job ended when its node timed out, not when somebody looked."""
    ref = running(backend)
    backend.env().lose_node(ref)

    clock.advance(300 + 300)

    assert see(backend, ref).state is State.UNKNOWN


def test_a_real_slurm_revives_no_ended_object(clock: ManualClock) -> None:
    """dispatch.md, decisions and 4.8.1: with RequeueEnded no the requeue is refused."""
    backend = MemoryBackend.from_settings(
        {"capabilities": {"RequeueEnded": {"value": "no", "source": "probed"}}}, clock=clock
    )
    ref = running(backend)
    backend.env().finish(ref)

    with crash_between_steps(), pytest.raises(RefusedError, match="already finished"):
        backend.requeue(ref, call(clock))

    assert not see(backend, ref).requeue_bit
    assert see(backend, ref).state is State.ENDED


def test_a_real_slurm_sets_the_submit_time_anew(clock: ManualClock) -> None:
    """dispatch.md, decisions and 4.8.2: the new ref names the object, the old one nothing."""
    backend = slurm(clock, requeue_resets_submit_time=True)
    old = backend.start(spec())
    backend.hold(old, holding(clock, 5))
    backend.stop(old)
    clock.advance(10)

    new = backend.requeue(old, call(clock))

    assert new == attrs.evolve(old, submitted_at=old.submitted_at + 10 * SECOND)
    assert see(backend, old).state is State.UNKNOWN
    assert see(backend, new).hold_instance == 5
    assert backend.env().truth(new).start_time == hold_start(new, 5)
    backend.stop(old)
    assert see(backend, new).state is State.PENDING


def test_within_one_second_a_requeue_keeps_the_ref(clock: ManualClock) -> None:
    """dispatch.md, decisions: the submit time is in whole seconds, so it may not move."""
    backend = slurm(clock, requeue_resets_submit_time=True)
    ref = running(backend)

    assert backend.requeue(ref, call(clock)) == ref
    assert see(backend, ref).restarts == 1


@pytest.mark.parametrize(
    ("field", "happens"),
    [
        ("exit_code", lambda env, ref: env.finish(ref, -9)),
        ("exit_code", lambda env, ref: env.finish(ref, None)),
        ("node", lambda env, ref: env.run(ref, node=5)),
        ("node", lambda env, ref: env.run(ref, node="")),
    ],
)
def test_what_no_execution_has_changes_nothing(
    backend: MemoryBackend, field: str, happens: Callable[[Any, Ref], object]
) -> None:
    """The environment: what is refused "changes nothing", so the object can still be seen."""
    ref = running(backend)
    before = see(backend, ref)
    with pytest.raises(InvalidError) as caught:
        happens(backend.env(), ref)

    assert caught.value.path == field
    assert see(backend, ref) == before
