"""Deadlines, lost answers and streams of the backend in memory: what happens when."""

from __future__ import annotations

import datetime
import gc
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import (
    BackendClosed,
    ExpiredError,
    InvalidError,
    NotFoundError,
    OutcomeUnknown,
    RefusedError,
    WatchClosed,
)
from lardon.dispatch.memory import (
    MemoryBackend,
    MemoryEnvironment,
    answer_lost,
    call_started_at,
)
from lardon.dispatch.model import HOLD_BASE, CallMeta, HoldMeta, Observation, Ref
from lardon.dispatch.stream import BufferedStream
from lardon.testing import ManualClock
from tests.dispatch.jobs import JOB, OTHER, call, holding, kubeflow, running, see, slurm, spec

SECOND = datetime.timedelta(seconds=1)
SHAPES = pytest.mark.parametrize("shape", list(Shape))
CALLS = ["hold", "release", "requeue", "restore_requeue_bit"]


def made(backend: MemoryBackend, verb: str, ref: Ref, deadline: datetime.datetime) -> object:
    call = getattr(backend, verb)
    holds = verb in {"hold", "release"}
    return call(ref, HoldMeta(instance=1, deadline=deadline) if holds else CallMeta(deadline))


def ready_for(backend: MemoryBackend, verb: str, clock: ManualClock) -> Ref:
    """Return an object on which *verb* would do something."""
    if verb in {"hold", "release"}:
        ref = backend.start(spec())
        backend.open(ref)
        if verb == "release":
            backend.hold(ref, holding(clock))
        return ref
    ref = running(backend)
    if verb == "restore_requeue_bit":
        backend.env().requeue_externally(ref)
    return ref


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_after_its_deadline_does_nothing(clock: ManualClock, verb: str) -> None:
    """Seed 000, D1: each of the four; the error says deadline and start."""
    backend = slurm(clock)
    ref = ready_for(backend, verb, clock)
    deadline = clock.wall()
    clock.advance(0.001)
    before = backend.env().truth(ref)

    with pytest.raises(ExpiredError) as caught:
        made(backend, verb, ref, deadline)

    assert (caught.value.deadline, caught.value.started_at) == (deadline, clock.wall())
    assert backend.env().truth(ref) == before
    clock.advance(1000)
    assert backend.env().truth(ref) == before


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_exactly_at_its_deadline_acts(clock: ManualClock, verb: str) -> None:
    """Seed 000, D1: late is after the deadline, not at it."""
    backend = slurm(clock)
    ref = ready_for(backend, verb, clock)
    before = backend.env().truth(ref)

    made(backend, verb, ref, clock.wall())

    assert backend.env().truth(ref) != before


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_holds_on_kubeflow_have_deadlines_too(clock: ManualClock, verb: str) -> None:
    """Seed 000, D1: every hold and release, in both shapes."""
    backend = kubeflow(clock)
    ref = ready_for(backend, verb, clock)
    before = backend.env().truth(ref)

    with pytest.raises(ExpiredError):
        made(backend, verb, ref, clock.wall() - SECOND)

    assert backend.env().truth(ref) == before


def test_the_context_says_when_a_call_starts(clock: ManualClock) -> None:
    """Seed 000, D2 and F2: later than the clock, or earlier; and only inside."""
    backend = slurm(clock)
    ref = backend.start(spec())
    meta = holding(clock)

    with call_started_at(meta.deadline + 25 * SECOND + SECOND), pytest.raises(ExpiredError):
        backend.hold(ref, meta)
    backend.hold(ref, meta)
    clock.advance(100)
    with pytest.raises(ExpiredError):
        backend.release(ref, meta)
    with call_started_at(meta.deadline):
        backend.release(ref, meta)


def test_the_context_belongs_to_one_thread(clock: ManualClock) -> None:
    """Seed 000, D2: what one caller plays does not reach another one."""
    backend = slurm(clock)
    ref = backend.start(spec())
    meta = holding(clock)

    with call_started_at(meta.deadline + SECOND):
        other = threading.Thread(target=backend.hold, args=(ref, meta))
        other.start()
        other.join(10)

    assert see(backend, ref).hold_instance == 1


def test_start_open_and_stop_have_no_deadline(clock: ManualClock) -> None:
    """Seed 000, D1: the four, and no other call."""
    backend = slurm(clock)

    with call_started_at(clock.wall() + datetime.timedelta(days=1)):
        ref = backend.start(spec())
        backend.open(ref)
        backend.stop(ref)

    assert see(backend, ref).state is State.ENDED


def test_a_start_time_must_be_aware() -> None:
    naive = datetime.datetime(2026, 1, 1)  # noqa: DTZ001  that is what is refused

    with pytest.raises(InvalidError, match="started_at must be an aware datetime"):
        call_started_at(naive).__enter__()


@SHAPES
def test_it_starts_no_thread_and_the_clock_drives_everything(
    clock: ManualClock, shape: Shape
) -> None:
    """Seed 000, D5: purges, lost nodes and evidence, by nothing but the clock."""
    before = threading.active_count()
    backend = MemoryBackend(shape=shape, clock=clock, evidence_window_s=100)
    ref, env = running(backend), backend.env()
    env.lose_node(ref)
    stream = backend.watch()
    other = backend.start(spec(OTHER))
    backend.stop(other)

    clock.advance(10_000)

    assert threading.active_count() == before
    seen = drained(stream, backend)
    if shape is Shape.SLURM:
        # Lost at 0, ended at 300 and purged at 600; the other purged at 300.
        assert [(one.ref, one.state) for one in seen][-4:] == [
            (other, State.ENDED),
            (ref, State.ENDED),
            (other, State.UNKNOWN),
            (ref, State.UNKNOWN),
        ]
    else:
        assert (seen[-1].state, seen[-1].cause) == (State.RUNNING, Cause.UNKNOWN)


def drained(stream: BufferedStream, backend: MemoryBackend) -> list[Observation]:
    # Any call lets happen what was due.
    backend.find(JOB)
    found = []
    while True:
        try:
            found.append(stream.get_nowait())
        except (queue.Empty, WatchClosed):
            return found


def test_a_jump_of_the_wall_clock_purges_nothing(clock: ManualClock) -> None:
    """Seed 000, D5: durations come from the clock that does not jump."""
    backend = slurm(clock)
    ref = running(backend)
    backend.env().finish(ref)

    clock.set_wall(clock.wall() + datetime.timedelta(days=365))

    assert see(backend, ref).state is State.ENDED


def test_ten_years_pass_in_one_step(clock: ManualClock) -> None:
    """Seed 000, D5: a hold, a purge and a new object, ten Julian years later."""
    backend = slurm(clock)
    held, done = backend.start(spec()), running(backend, OTHER)
    backend.hold(held, holding(clock))
    backend.env().finish(done)

    clock.advance(HOLD_BASE + 1)

    assert see(backend, held).hold_instance == 1
    assert not see(backend, done).known
    assert backend.start(spec()).submitted_at == clock.wall()


# Answers that are lost


@pytest.mark.parametrize("lands_after_s", [None, 0.0, 30.0, 85.0])
def test_a_call_without_an_answer_lands_in_its_time_or_never(
    clock: ManualClock, lands_after_s: float | None
) -> None:
    """dispatch.md, check 14: unknown until the deadline plus the bound, and certain from then."""
    backend = slurm(clock)
    ref, meta = backend.start(spec()), holding(clock)

    with answer_lost(lands_after_s), pytest.raises(OutcomeUnknown) as caught:
        backend.hold(ref, meta)

    assert caught.value.settles_at == meta.deadline + 25 * SECOND
    if lands_after_s:
        clock.advance(lands_after_s - 0.5)
        assert see(backend, ref).hold_instance is None
        clock.advance(0.5)
    assert see(backend, ref).hold_instance == (None if lands_after_s is None else 1)


def test_a_call_cannot_land_after_its_bound(clock: ManualClock) -> None:
    """dispatch.md, 4.6: that is what the bound promises, so a test may not play it."""
    backend = slurm(clock)
    ref = backend.start(spec())

    with answer_lost(85.5), pytest.raises(InvalidError, match="at most 85, the deadline plus"):
        backend.hold(ref, holding(clock))

    clock.advance(100)
    assert see(backend, ref).hold_instance is None


def test_a_submission_without_an_answer_is_found_by_name(clock: ManualClock) -> None:
    """dispatch.md, 4.8.13: it may be there later, gated, so that a second one does no harm."""
    backend = slurm(clock)
    with answer_lost(20), pytest.raises(OutcomeUnknown) as caught:
        backend.start(spec())
    assert caught.value.settles_at == clock.wall() + 25 * SECOND
    assert backend.find(JOB) is None
    second = backend.start(spec())

    clock.advance(24)

    found = backend.find_all(JOB)
    assert [one.ref.id for one in found] == [second.id, 2]
    assert all(one.gated for one in found)
    # It was submitted when it landed, not when somebody looked.
    assert found[1].ref.submitted_at == clock.wall() - 4 * SECOND


def test_a_call_that_lands_is_judged_by_what_it_meets(clock: ManualClock) -> None:
    """dispatch.md, 4.6: a hold that lands on an object which runs by then is refused unheard."""
    backend = slurm(clock)
    ref = backend.start(spec())
    backend.open(ref)
    with answer_lost(10), pytest.raises(OutcomeUnknown):
        backend.hold(ref, holding(clock))
    backend.env().run(ref)

    clock.advance(20)

    assert see(backend, ref).state is State.RUNNING
    assert see(backend, ref).hold_instance is None


def test_what_was_due_first_happens_first(clock: ManualClock) -> None:
    """dispatch.md, rule 4: a hold that lands before the node is given up meets a running job."""
    backend = slurm(clock, slurmd_timeout_s=30)
    early, late = running(backend), running(backend, OTHER)
    for ref, lands_after_s in ((early, 20), (late, 40)):
        with answer_lost(lands_after_s), pytest.raises(OutcomeUnknown):
            backend.requeue(ref, call(clock))
        backend.env().lose_node(ref)

    clock.advance(50)

    # One was requeued while it ran, the other revived after its end: both are back once.
    assert [see(backend, ref).restarts for ref in (early, late)] == [1, 1]
    assert backend.env().truth(late).adrift


# Streams


@SHAPES
def test_a_stream_begins_with_every_object_and_tells_each_change(
    clock: ManualClock, shape: Shape
) -> None:
    """Seed 000, D6: it is sent before the call that changed the object returns."""
    backend = MemoryBackend(shape=shape, clock=clock)
    ref = backend.start(spec())
    stream = backend.watch()
    assert stream.get_nowait() == see(backend, ref)
    with pytest.raises(queue.Empty):
        stream.get_nowait()

    backend.env().run(ref) if shape is Shape.KUBEFLOW else backend.open(ref)

    assert stream.get_nowait() == see(backend, ref)
    backend.open(ref)
    with pytest.raises(queue.Empty):
        stream.get(timeout=0)


@SHAPES
def test_everything_that_shows_is_told(clock: ManualClock, shape: Shape) -> None:
    """Seed 000, D6: whoever changes it, the cluster and its people included."""
    backend = MemoryBackend(shape=shape, clock=clock)
    env = backend.env()
    ref = backend.start(spec())
    stream = backend.watch()
    steps: list[Callable[[], object]] = [
        lambda: env.admin_hold(ref),
        lambda: env.admin_release(ref),
        lambda: backend.hold(ref, holding(clock)),
        lambda: backend.release(ref, holding(clock)),
        lambda: backend.open(ref),
        lambda: env.run(ref),
        lambda: env.lose_node(ref),
        lambda: env.recover_node(see(backend, ref).nodes[0]),
        lambda: env.finish(ref, 3),
    ]
    stream.get_nowait()
    told = see(backend, ref)
    for step in steps:
        step()
        seen = see(backend, ref)
        if seen != told:
            assert stream.get_nowait() == seen
            told = seen
        with pytest.raises(queue.Empty):
            stream.get_nowait()
    assert told.exit_code == 3


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


def test_a_full_buffer_ends_a_stream_with_what_is_in_it(clock: ManualClock) -> None:
    """Seed 000, D7: the reader gets what was buffered, then the end, and begins anew."""
    backend = slurm(clock, watch_buffer=2)
    first = [backend.start(spec()) for _ in range(5)]
    stream = backend.watch()
    for ref in first[:2]:
        backend.stop(ref)
    assert not stream.closed

    backend.stop(first[2])

    assert stream.closed
    seen = [stream.get_nowait() for _ in range(7)]
    assert [one.state for one in seen] == [State.PENDING] * 5 + [State.ENDED] * 2
    with pytest.raises(WatchClosed):
        stream.get()
    again = backend.watch()
    assert [again.get().state for _ in first] == [State.ENDED] * 3 + [State.PENDING] * 2


@pytest.mark.parametrize("how", ["closed", "cancelled", "backend closed"])
def test_nothing_comes_after_the_end(clock: ManualClock, how: str) -> None:
    """Seed 000, D7: a cancelled context and a close; what was buffered goes with it."""
    backend, cancel = slurm(clock), threading.Event()
    other = backend.view()
    ref = backend.start(spec())
    stream = backend.watch(cancel)
    end: dict[str, Callable[[], None]] = {
        "closed": stream.close,
        "cancelled": cancel.set,
        "backend closed": backend.close,
    }

    end[how]()
    other.open(ref)

    assert stream.closed
    for read in (stream.get, stream.get_nowait):
        with pytest.raises(WatchClosed):
            read()
    stream.close()


def test_closing_one_view_leaves_the_streams_of_another(clock: ManualClock) -> None:
    """Seed 000, D7: each view ends its own."""
    backend = slurm(clock)
    view = backend.view()
    stream = view.watch()

    backend.close()
    backend.close()

    ref = view.start(spec())
    assert stream.get_nowait().ref == ref
    for refused in (backend.watch, lambda: backend.find(JOB), lambda: backend.start(spec())):
        with pytest.raises(BackendClosed):
            refused()


def test_a_blocked_reader_wakes_for_a_change_and_for_the_end(clock: ManualClock) -> None:
    """Seed 000, D6 and D7: no polling is needed on the reader's side."""
    backend = slurm(clock)
    stream = backend.watch()
    found: queue.Queue[object] = queue.Queue()

    def read() -> None:
        try:
            while True:
                found.put(stream.get().ref)
        except WatchClosed as error:
            found.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    ref = backend.start(spec())
    assert found.get(timeout=10) == ref
    backend.close()

    assert isinstance(found.get(timeout=10), WatchClosed)
    reader.join(10)


def test_a_blocked_reader_sees_its_cancel_event(clock: ManualClock) -> None:
    """Seed 000, D7: also one that somebody sets who knows nothing of the stream."""
    cancel = threading.Event()
    stream = slurm(clock).watch(cancel)
    found: queue.Queue[BaseException] = queue.Queue()

    def read() -> None:
        try:
            stream.get()
        except WatchClosed as error:
            found.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    cancel.set()

    assert isinstance(found.get(timeout=10), WatchClosed)
    reader.join(10)


@pytest.mark.parametrize("cancel", [None, threading.Event()], ids=["no event", "an event"])
def test_a_reader_waits_in_the_time_of_the_clock(cancel: threading.Event | None) -> None:
    """dispatch.md, decisions: `get(timeout)` raises `queue.Empty` when the clock says so."""
    clock = ManualClock()
    stream = slurm(clock).watch(cancel)
    found: queue.Queue[BaseException] = queue.Queue()

    def read() -> None:
        try:
            stream.get(timeout=3600)
        except queue.Empty as error:
            found.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    while found.empty():
        clock.advance(3600)

    assert isinstance(found.get(), queue.Empty)
    reader.join(10)


def test_a_stream_that_nobody_reads_is_let_go(clock: ManualClock) -> None:
    """A watcher that ended is not sent to, nor kept, for as long as the cluster lives."""
    backend = slurm(clock)
    backend.watch().close()
    ref = backend.start(spec())
    backend.open(ref)

    gc.collect()
    assert backend._world._streams == []


# Views and truth


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
