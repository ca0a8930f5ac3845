"""The Kubeflow shape of the backend in memory, rule by rule."""

from __future__ import annotations

import datetime

import pytest

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import (
    DuplicateError,
    FinishedError,
    NotFoundError,
    RefusedError,
    UnsupportedError,
)
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.model import Ref
from lardon.testing import ManualClock
from tests.dispatch.jobs import JOB, call, holding, kubeflow, running, see, spec


@pytest.fixture
def backend(clock: ManualClock) -> MemoryBackend:
    return kubeflow(clock)


def test_names_tell_the_submission_and_are_unique(backend: MemoryBackend) -> None:
    """Seed 000, K1: dj-, the ULID in small letters, and the submission; no duplicates."""
    first = backend.start(spec(submission=1))
    second = backend.start(spec(submission=2))

    assert first.name == f"dj-{JOB.lower()}-s1"
    assert second.name == f"dj-{JOB.lower()}-s2"
    with pytest.raises(DuplicateError, match="exists already") as caught:
        backend.start(spec(submission=2))
    assert caught.value.name == second.name
    assert [one.ref for one in backend.find_all(JOB)] == [first, second]


def test_a_job_is_found_by_its_id_and_its_names(backend: MemoryBackend) -> None:
    """dispatch.md, section 1.3: find by the name that all have in common, or by one of them."""
    first, second = (backend.start(spec(submission=number)) for number in (1, 2))

    for name in (JOB, JOB.lower(), f"dj-{JOB}", f"dj-{JOB.lower()}"):
        assert [one.ref for one in backend.find_all(name)] == [first, second]
    assert [one.ref for one in backend.find_all(first.name)] == [first]
    found = backend.find(first.name)
    assert found is not None
    assert found.ref == first
    assert backend.find("dj-nothing") is None


@pytest.mark.parametrize("state", ["pending", "running", "ended"])
def test_a_stop_deletes(backend: MemoryBackend, state: str) -> None:
    """Seed 000, K1: what is stopped is gone, and its name is free again."""
    ref = backend.start(spec())
    if state != "pending":
        backend.env().run(ref)
    if state == "ended":
        backend.env().finish(ref)

    backend.stop(ref)
    backend.stop(ref)

    assert see(backend, ref).state is State.UNKNOWN
    assert backend.ceased(ref).ceased
    again = backend.start(spec())
    assert again.name == ref.name
    assert again != ref
    backend.stop(ref)
    assert see(backend, again).state is State.PENDING


def test_nothing_is_gated(backend: MemoryBackend) -> None:
    """Seed 000, S2: gates are Slurm's; here open has nothing to lift, and does no harm."""
    ref = backend.start(spec())
    backend.env().run(ref)

    backend.open(ref)

    assert not backend.declarations().gated
    assert see(backend, ref).state is State.RUNNING
    backend.env().finish(ref)
    with pytest.raises(FinishedError):
        backend.open(ref)


def test_preemption_sends_back_and_counts_nothing(backend: MemoryBackend) -> None:
    """Seed 000, K2: pending, and the restart counter is what it was."""
    ref = running(backend)

    backend.env().preempt(ref)

    seen = see(backend, ref)
    assert (seen.state, seen.cause, seen.restarts) == (State.PENDING, Cause.PREEMPTED, 0)
    backend.env().run(ref)


def test_the_epoch_counts_executions(backend: MemoryBackend) -> None:
    """Seed 000, B2: preemption is no restart, and the epoch grows all the same."""
    ref, env = running(backend, submission=3), backend.env()
    epochs = [env.environment(ref)["DISPATCH_EPOCH"]]
    for _ in range(2):
        env.preempt(ref)
        env.run(ref)
        epochs.append(env.environment(ref)["DISPATCH_EPOCH"])

    assert epochs == ["3000000", "3000001", "3000002"]
    assert see(backend, ref).restarts == 0


def test_a_lost_node_wedges(clock: ManualClock) -> None:
    """Seed 000, K3: running, with the cause NodeLost, for as long as nobody stops it."""
    backend = kubeflow(clock, evidence_window_s=10**9)
    ref, env = running(backend), backend.env()

    env.lose_node(ref)
    for _ in range(10):
        clock.advance(10**7)
        seen = see(backend, ref)
        assert (seen.state, seen.cause) == (State.RUNNING, Cause.NODE_LOST)

    for verb in (env.finish, env.preempt, env.out_of_memory):
        with pytest.raises(RefusedError):
            verb(ref)
    backend.stop(ref)
    assert see(backend, ref).state is State.UNKNOWN
    assert not backend.ceased(ref).ceased


def test_a_wedged_object_takes_a_hold_and_is_ended_when_its_node_is_back(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """Seed 000, K3 and K5 together: a hold cannot end what nobody reaches, and is not forgotten."""
    ref, env = running(backend), backend.env()
    env.lose_node(ref)

    backend.hold(ref, holding(clock, 2))
    assert (see(backend, ref).state, see(backend, ref).hold_instance) == (State.RUNNING, 2)

    env.recover_node(see(backend, ref).nodes[0])
    assert (see(backend, ref).state, see(backend, ref).cause) == (State.ENDED, Cause.HELD)


@pytest.mark.parametrize("passed_s", [0, 10_000])
def test_a_node_that_comes_back_frees_what_was_wedged(
    backend: MemoryBackend, clock: ManualClock, passed_s: float
) -> None:
    """dispatch.md, rule 6: it runs on, and can end by itself again, with new evidence."""
    ref, env = running(backend), backend.env()
    env.lose_node(ref)
    clock.advance(passed_s)
    assert see(backend, ref).cause is (Cause.UNKNOWN if passed_s else Cause.NODE_LOST)

    env.recover_node(see(backend, ref).nodes[0])

    assert (see(backend, ref).state, see(backend, ref).cause) == (State.RUNNING, None)
    env.finish(ref)
    assert see(backend, ref).cause is Cause.COMPLETED


def test_causes_from_pods_fade(clock: ManualClock) -> None:
    """Seed 000, K4: NodeLost, OutOfMemory and NonZeroExit are unknown after evidenceWindow."""
    backend = kubeflow(clock, evidence_window_s=60)
    env = backend.env()
    clock.advance(1000)
    refs = {name: running(backend, submission=at) for at, name in enumerate("abcd", start=1)}
    env.lose_node(refs["a"])
    env.out_of_memory(refs["b"])
    env.finish(refs["c"], 9)
    env.time_out(refs["d"])
    pods = [Cause.NODE_LOST, Cause.OUT_OF_MEMORY, Cause.NON_ZERO_EXIT]

    clock.advance(59)
    assert [see(backend, ref).cause for ref in refs.values()] == [*pods, Cause.TIMEOUT]
    clock.advance(1)

    assert [see(backend, ref).cause for ref in refs.values()] == [
        *[Cause.UNKNOWN] * 3,
        Cause.TIMEOUT,
    ]
    assert see(backend, refs["c"]).exit_code is None
    assert see(backend, refs["a"]).state is State.RUNNING
    assert [env.truth(ref).cause for ref in refs.values()] == [*pods, Cause.TIMEOUT]


def test_evidence_never_fades_on_slurm(clock: ManualClock) -> None:
    """Seed 000, K4: the window is Kubeflow's."""
    backend = MemoryBackend(clock=clock, evidence_window_s=1)
    ref = running(backend)
    backend.env().out_of_memory(ref)

    clock.advance(100)

    assert see(backend, ref).cause is Cause.OUT_OF_MEMORY


def test_a_hold_ends_what_runs(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, K5: the execution ends with the cause Held, and nothing starts by itself."""
    ref, env = running(backend), backend.env()

    backend.hold(ref, holding(clock, 1))

    seen = see(backend, ref)
    assert (seen.state, seen.cause, seen.hold_instance) == (State.ENDED, Cause.HELD, 1)
    assert env.executing(JOB) == []
    backend.release(ref, holding(clock, 1))
    assert see(backend, ref).state is State.ENDED
    with pytest.raises(FinishedError):
        env.run(ref)


def test_a_hold_keeps_what_is_pending(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, K5: a deactivated object is not started; a release of its instance frees it."""
    ref = backend.start(spec())
    backend.hold(ref, holding(clock, 2))

    with pytest.raises(RefusedError):
        backend.env().run(ref)
    with pytest.raises(RefusedError):
        backend.release(ref, holding(clock, 1))
    backend.release(ref, holding(clock, 2))
    backend.env().run(ref)


def test_who_until_when_and_why_are_kept_until_the_release(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """Seed 000, D3: in the truth, beside the hold."""
    until = clock.wall() + datetime.timedelta(days=1)
    ref, env = backend.start(spec()), backend.env()

    backend.hold(ref, holding(clock, placed_by="ops", until=until, reason="a full disk"))
    truth = env.truth(ref)
    assert (truth.held_by, truth.held_until, truth.hold_reason) == ("ops", until, "a full disk")
    assert truth.start_time is None

    backend.release(ref, holding(clock))
    truth = env.truth(ref)
    assert (truth.held_by, truth.held_until, truth.hold_reason) == ("", None, "")


def test_slurm_keeps_the_instance_alone(clock: ManualClock) -> None:
    """Seed 000, D4: a start time has no room for more."""
    backend = MemoryBackend(clock=clock)
    ref = backend.start(spec())

    backend.hold(ref, holding(clock, placed_by="ops", until=clock.wall(), reason="a full disk"))

    truth = backend.env().truth(ref)
    assert truth.hold_instance == 1
    assert (truth.held_by, truth.held_until, truth.hold_reason) == ("", None, "")


def test_a_requeue_is_unsupported(backend: MemoryBackend, clock: ManualClock) -> None:
    """Seed 000, K6: nothing is done, known or not, in time or not."""
    ref = running(backend)
    before = backend.env().truth(ref)
    nobody = Ref("nobody", "uid-9", ref.submitted_at)
    late = call(clock)
    clock.advance(120)

    for one in (ref, nobody):
        for refused in (backend.requeue, backend.restore_requeue_bit):
            with pytest.raises(UnsupportedError) as caught:
                refused(one, late)
            assert caught.value.operation in {"requeue", "restore_requeue_bit"}
    with pytest.raises(UnsupportedError):
        backend.env().requeue_externally(ref)

    assert backend.env().truth(ref) == before


def test_an_ended_object_is_kept_until_it_is_deleted(
    backend: MemoryBackend, clock: ManualClock
) -> None:
    """dispatch.md, rule 16: minJobAge is Slurm's; here nothing is purged."""
    ref = running(backend)
    backend.env().finish(ref)
    clock.advance(10**9)

    assert see(backend, ref).cause is Cause.COMPLETED
    with pytest.raises(RefusedError):
        backend.start(spec())
    backend.stop(ref)
    with pytest.raises(NotFoundError):
        backend.release(ref, holding(clock))
