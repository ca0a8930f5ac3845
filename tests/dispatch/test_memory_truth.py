"""The views of a cluster in memory, the one truth behind them, and who plays the scheduler."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import InvalidError, NotFoundError, RefusedError
from lardon.dispatch.memory import MemoryBackend, MemoryEnvironment
from lardon.dispatch.model import Observation, Ref
from lardon.testing import ManualClock
from tests.dispatch.jobs import (
    JOB,
    OTHER,
    SHAPES,
    call,
    drained,
    holding,
    running,
    see,
    slurm,
    spec,
)

VERBS_OF_THE_DESIGN: Final = (
    "run", "finish", "out_of_memory", "time_out", "boot_fail", "preempt", "lose_node",
    "recover_node", "admin_hold", "admin_release", "purge", "cancel", "requeue_externally",
    "environment", "truth",
)  # fmt: skip


def test_the_environment_has_every_verb_of_the_design_and_the_page_lists_them() -> None:
    """dispatch.md, rule 6."""
    page = (Path(__file__).parents[2] / "docs" / "dispatch.md").read_text(encoding="utf-8")
    for verb in VERBS_OF_THE_DESIGN:
        assert callable(getattr(MemoryEnvironment, verb, None)), verb
        assert f"`{verb}`" in page, verb


@SHAPES
def test_views_share_one_truth_and_a_read_only_one_changes_nothing(
    clock: ManualClock, shape: Shape
) -> None:
    """Seed 000, E1: what one view or its environment does, all see."""
    backend = MemoryBackend(shape=shape, clock=clock)
    writer, reader = backend.view(), backend.view(read_only=True)
    ref = writer.start(spec())
    writer.open(ref)
    reader.env().run(ref)

    assert see(backend, ref) == see(reader, ref) == see(writer, ref)
    assert reader.env().truth(ref) == writer.env().truth(ref)
    assert reader.watch().get_nowait().ref == ref
    changes: list[Callable[[], object]] = [
        lambda: reader.start(spec(OTHER)),
        lambda: reader.open(ref),
        lambda: reader.stop(ref),
        lambda: reader.hold(ref, holding(clock)),
        lambda: reader.release(ref, holding(clock)),
    ]
    if shape is Shape.SLURM:
        changes += [
            lambda: reader.requeue(ref, call(clock)),
            lambda: reader.restore_requeue_bit(ref, call(clock)),
        ]
    before = backend.env().truth(ref)
    for change in changes:
        with pytest.raises(RefusedError, match="read-only"):
            change()
    assert backend.env().truth(ref) == before
    assert backend.env().refs() == [ref]


def test_any_thread_may_call(clock: ManualClock) -> None:
    """dispatch.md, section 1.3: no two threads get one identity, and none gets lost."""
    backend = slurm(clock)
    found: queue.Queue[Ref] = queue.Queue()
    together = threading.Barrier(4, timeout=10)

    def work() -> None:
        together.wait()
        for _ in range(50):
            ref = running(backend)
            backend.env().finish(ref)
            found.put(ref)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    refs = {found.get_nowait() for _ in range(200)}
    assert len(refs) == 200
    assert {see(backend, ref).cause for ref in refs} == {Cause.COMPLETED}


@SHAPES
def test_each_execution_has_its_attempt_and_epoch(clock: ManualClock, shape: Shape) -> None:
    """Seed 000, B1: in its environment and in the observation; none before the first."""
    backend = MemoryBackend(shape=shape, clock=clock)
    env = backend.env()
    ref = backend.start(spec(submission=7))
    assert env.environment(ref) == {}
    assert see(backend, ref).attempt is None

    backend.open(ref)
    env.run(ref)

    variables = env.environment(ref)
    assert set(variables) == {"DISPATCH_ATTEMPT", "DISPATCH_EPOCH"}
    assert variables["DISPATCH_EPOCH"] == "7000000"
    assert variables["DISPATCH_ATTEMPT"] == see(backend, ref).attempt
    assert see(backend, ref).epoch == 7_000_000
    env.finish(ref)
    assert env.environment(ref) == variables


def test_what_runs_on_a_lost_node_is_counted_until_it_is_back(clock: ManualClock) -> None:
    """dispatch.md, rule 6: the truth tells of two executions where an observer sees one."""
    backend = slurm(clock, slurmd_timeout_s=10)
    ref, env = running(backend), backend.env()
    node = see(backend, ref).nodes[0]
    env.lose_node(ref)
    clock.advance(10)
    backend.requeue(ref, call(clock))
    env.run(ref, node="another")

    assert len(env.executing(JOB)) == 2
    env.recover_node(node)
    assert env.executing(JOB) == [see(backend, ref).attempt]
    assert env.truth(ref).adrift == ()


@pytest.mark.parametrize("shape", list(Shape))
def test_the_setting_answers_whether_it_has_ceased(clock: ManualClock, shape: Shape) -> None:
    """dispatch.md, rule 7: the setting is the answer, whatever is so."""
    fenced = {"ceased": True, "detail": "node fenced"}
    backend = MemoryBackend.from_settings({"shape": shape.value, "cessation": fenced}, clock=clock)
    ref = running(backend)
    backend.env().lose_node(ref)

    assert (backend.ceased(ref).ceased, backend.ceased(ref).detail) == (True, "node fenced")


def test_without_the_setting_it_is_worked_out(clock: ManualClock) -> None:
    """dispatch.md, rule 7: certain is what waits or ended on a node that answers."""
    backend = slurm(clock)
    env = backend.env()
    waits, runs, lost, done = (running(backend) for _ in range(4))
    env.preempt(waits)
    backend.requeue(waits, call(clock))
    env.lose_node(lost)
    env.finish(done)
    nobody = Ref("nobody", 99, clock.wall())

    answers = [backend.ceased(ref) for ref in (waits, runs, lost, done, nobody)]

    assert [one.ceased for one in answers] == [True, False, False, True, False]
    assert all(one.detail for one in answers)
    clock.advance(10_000)
    assert not backend.ceased(lost).ceased
    assert backend.ceased(done).ceased


@pytest.mark.parametrize(
    ("verb", "cause"),
    [
        ("out_of_memory", Cause.OUT_OF_MEMORY),
        ("time_out", Cause.TIMEOUT),
        ("boot_fail", Cause.BOOT_FAIL),
    ],
)
@SHAPES
def test_the_environment_ends_an_execution(
    clock: ManualClock, shape: Shape, verb: str, cause: Cause
) -> None:
    """Seed 000, E1: with the cause that the verb is named after; what does not run refuses."""
    backend = MemoryBackend(shape=shape, clock=clock)
    ref = running(backend)

    getattr(backend.env(), verb)(ref)

    assert (see(backend, ref).state, see(backend, ref).cause) == (State.ENDED, cause)
    waits = backend.start(spec(OTHER))
    with pytest.raises(RefusedError, match="pending execution"):
        getattr(backend.env(), verb)(waits)


@SHAPES
def test_somebody_else_cancels(clock: ManualClock, shape: Shape) -> None:
    """Seed 000, E1: cancelled on Slurm, gone on Kubeflow."""
    backend = MemoryBackend(shape=shape, clock=clock)
    ref = running(backend)

    backend.env().cancel(ref)

    assert see(backend, ref).cause is (Cause.CANCELLED if shape is Shape.SLURM else Cause.UNKNOWN)
    assert backend.env().truth(ref).state is see(backend, ref).state


def test_an_administrator_holds_what_waits_only(clock: ManualClock) -> None:
    """dispatch.md, 4.8.8: what runs is refused; the hold of a user is another one."""
    backend = slurm(clock)
    ref = running(backend)
    with pytest.raises(RefusedError):
        backend.env().admin_hold(ref)
    waits = backend.start(spec(OTHER))
    backend.env().admin_hold(waits)

    backend.hold(waits, holding(clock))

    assert see(backend, waits).hold_instance == 1
    assert see(backend, waits).held
    assert see(backend, waits).cause is Cause.ADMIN_HELD


@pytest.mark.parametrize("history", ["yes", "no", "unknown"])
def test_a_purge_by_hand_is_the_purge_of_the_clock(clock: ManualClock, history: str) -> None:
    """dispatch.md, rules 6 and 16: the verb does at once what `min_job_age_s` does later."""

    def purged(by_hand: bool) -> list[Any]:
        backend = slurm(clock, capabilities={"AccountingHistory": {"value": history}})
        ref, env = running(backend), backend.env()
        stream = backend.watch()
        env.finish(ref, 2)
        if by_hand:
            env.purge(ref)
        else:
            clock.advance(300)
        told = [(one.state, one.cause) for one in drained(stream, backend)]
        seen = see(backend, ref)
        assert told[-1] == (seen.state, seen.cause)
        found = [(one.state, one.exit_code) for one in backend.find_all(JOB)]
        return [told, seen.state, seen.exit_code, found, env.truth(ref).state, env.refs()]

    assert purged(by_hand=True) == purged(by_hand=False)


@SHAPES
def test_what_has_not_ended_is_not_purged(clock: ManualClock, shape: Shape) -> None:
    backend = MemoryBackend(shape=shape, clock=clock)
    env, ref = backend.env(), backend.start(spec())
    stream = backend.watch()
    backend.open(ref)
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: env.run(ref),
        lambda: env.lose_node(ref),
    ]
    for prepare in steps:
        prepare()
        before = env.truth(ref)
        drained(stream, backend)
        with pytest.raises(RefusedError, match="only what ended is purged"):
            env.purge(ref)
        assert env.truth(ref) == before
        assert drained(stream, backend) == []


@SHAPES
def test_what_was_purged_is_gone_for_every_view_and_is_not_purged_again(
    clock: ManualClock, shape: Shape
) -> None:
    backend = MemoryBackend(shape=shape, clock=clock)
    ref, env = running(backend), backend.env()
    env.finish(ref, 3)
    other = backend.view(read_only=True)
    stream = other.watch()
    stream.get_nowait()

    env.purge(ref)

    assert stream.get_nowait() == Observation.unknown(ref)
    assert see(other, ref) == Observation.unknown(ref)
    assert (other.find(JOB), env.refs()) == (None, [])
    with pytest.raises(NotFoundError):
        env.purge(ref)
    # Neither its own purge nor the end of its evidence comes a second time.
    clock.advance(100_000)
    assert drained(stream, other) == []


def test_a_purge_leaves_what_may_run_on_a_lost_node(clock: ManualClock) -> None:
    backend = slurm(clock)
    ref, env = running(backend), backend.env()
    env.lose_node(ref)
    clock.advance(300)
    assert see(backend, ref).cause is Cause.NODE_LOST

    env.purge(ref)

    assert len(env.executing(JOB)) == 1
    assert not backend.ceased(ref).ceased


@pytest.mark.parametrize(
    "verb",
    [
        "run",
        "finish",
        "out_of_memory",
        "preempt",
        "lose_node",
        "admin_hold",
        "admin_release",
        "cancel",
        "requeue_externally",
        "purge",
        "environment",
        "truth",
    ],
)
@pytest.mark.parametrize("value", [3, None, "dj-x", Ref])
def test_what_is_no_ref_is_refused_by_name(clock: ManualClock, verb: str, value: object) -> None:
    environment = slurm(clock).env()
    with pytest.raises(InvalidError, match="ref must be a Ref"):
        getattr(environment, verb)(value)


def test_what_is_no_job_and_no_node_is_refused_by_name(clock: ManualClock) -> None:
    environment: Any = slurm(clock).env()
    with pytest.raises(InvalidError, match="job must be a ULID"):
        environment.executing(3)
    with pytest.raises(InvalidError, match="node must be a text"):
        environment.recover_node(3)


def test_what_is_no_ref_is_refused_by_the_calls_too(clock: ManualClock) -> None:
    backend: Any = slurm(clock)
    for use in (
        backend.open,
        backend.stop,
        backend.ceased,
        lambda ref: backend.observe_many([ref]),
    ):
        with pytest.raises(InvalidError, match="ref must be a Ref"):
            use(3)
