"""Checks 15 to 19: requeues, preemption, why an object ended, and lost nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final

from lardon.dispatch.conformance.bench import Bench, ensure, raises
from lardon.dispatch.conformance.check import Check, check
from lardon.dispatch.conformance.harness import Lacking
from lardon.dispatch.enums import Capability, Cause, State, Tristate
from lardon.dispatch.errors import FinishedError, OutcomeUnknown, RefusedError
from lardon.dispatch.model import Observation, Ref
from lardon.dispatch.spi import Requeuer

ATTEMPT: Final = "DISPATCH_ATTEMPT"
EPOCH: Final = "DISPATCH_EPOCH"
_POD_CAUSES: Final = frozenset({Cause.NODE_LOST, Cause.OUT_OF_MEMORY, Cause.NON_ZERO_EXIT})


def _requeuer(bench: Bench) -> Requeuer:
    if not bench.slurm:
        message = "Kubeflow requeues nothing"
        raise Lacking(message)
    return bench.requeuer


@check(15)
def a_pending_object_is_not_requeued(bench: Bench) -> None:
    """A requeue of a pending object is refused, and its bit is clear afterwards."""
    requeuer = _requeuer(bench)
    ref = bench.opened()
    before = bench.see(ref)
    with raises(RefusedError, what="requeuing what is pending"):
        requeuer.requeue(ref, bench.call())
    ensure(not bench.see(ref).requeue_bit, "a refused requeue left its bit set")
    bench.unchanged(before, "a refused requeue")


@check(15)
def a_running_object_is_requeued(bench: Bench) -> None:
    """A requeue of a running object puts it back, counted, with its bit clear."""
    requeuer = _requeuer(bench)
    ref = bench.running()
    _back(bench, requeuer.requeue(ref, bench.call()), restarts=1)


@check(15)
def an_ended_object_is_revived_or_not(bench: Bench) -> None:
    """A requeue of an ended or stopped object does what `RequeueEnded` says."""
    requeuer = _requeuer(bench)
    revives = bench.backend.declarations().supports(Capability.REQUEUE_ENDED)
    for how in (bench.ended, lambda: _stopped(bench)):
        ref = how()
        before = bench.see(ref)
        if revives is Tristate.YES:
            _back(bench, requeuer.requeue(ref, bench.call()), restarts=1)
        else:
            with raises(RefusedError, FinishedError, what="requeuing what ended"):
                requeuer.requeue(ref, bench.call())
            bench.unchanged(before, "a refused requeue")


@check(16)
def a_crash_between_steps_shows(bench: Bench) -> None:
    """A requeue that is cut off leaves its bit set, for all to see and to clear."""
    requeuer = _requeuer(bench)
    ref = bench.running()
    _crash(bench, requeuer, ref)
    bench.until(ref, lambda seen: seen.requeue_bit, "shows the bit of a requeue that was cut off")
    requeuer.restore_requeue_bit(ref, bench.call())
    bench.until(ref, lambda seen: not seen.requeue_bit, "shows that the bit was cleared")
    ensure(bench.see(ref).state is State.RUNNING, "clearing the bit must not stop the object")


@check(16)
def an_ended_object_takes_no_update(bench: Bench) -> None:
    """The bit of an ended object cannot be cleared any more."""
    requeuer = _requeuer(bench)
    ref = bench.running()
    _crash(bench, requeuer, ref)
    bench.harness.finish(ref, 0)
    before = bench.until(ref, lambda seen: seen.ended, "ends when its command returns")
    with raises(FinishedError, RefusedError, what="clearing the bit of what ended"):
        requeuer.restore_requeue_bit(ref, bench.call())
    bench.unchanged(before, "a refused restoring")


@check(17)
def preemption_without_the_bit(bench: Bench) -> None:
    """Preemption ends an object (Slurm), or sends it back uncounted (Kubeflow)."""
    ref = bench.running()
    bench.harness.preempt(ref)
    if bench.slurm:
        seen = bench.until(ref, lambda seen: seen.ended, "ends by preemption")
        ensure(seen.cause is Cause.PREEMPTED, f"it was preempted; seen: {seen}")
    else:
        seen = bench.until(ref, lambda seen: seen.state is State.PENDING, "is sent back")
        ensure(seen.restarts == 0, f"a preemption is no restart; seen: {seen}")


@check(17)
def preemption_with_the_bit(bench: Bench) -> None:
    """Preemption requeues an object whose bit was left set."""
    _requeuer(bench)
    ref = bench.run(bench.harness.requeue_externally(bench.running()))
    ensure(bench.see(ref).requeue_bit, "somebody else left the bit set")
    bench.harness.preempt(ref)
    seen = bench.backend.find(ref.name)
    ensure(seen is not None and seen.state is State.PENDING, f"it is requeued; seen: {seen}")
    assert seen is not None
    ensure(seen.cause is Cause.REQUEUED, f"it is requeued; seen: {seen}")
    ensure(seen.restarts == 2, f"it was put back twice; seen: {seen}")


@check(17)
def every_execution_has_its_identity(bench: Bench) -> None:
    """Attempts differ and epochs grow from execution to execution of one job."""
    spec = bench.spec()
    ref = bench.start(spec)
    bench.backend.open(ref)
    seen = [_identity(bench, bench.run(ref))]
    for _ in range(2):
        ref = _put_back(bench, ref)
        seen.append(_identity(bench, bench.run(ref)))
    bench.backend.stop(ref)
    again = bench.start(bench.spec(id=spec.id, submission=2))
    bench.backend.open(again)
    seen.append(_identity(bench, bench.run(again)))
    attempts, epochs = [attempt for attempt, _ in seen], [epoch for _, epoch in seen]
    ensure(len(set(attempts)) == len(attempts), f"two executions are attempt {attempts}")
    grows = all(low < high for low, high in itertools.pairwise(epochs))
    ensure(grows, f"an epoch must be above those before it: {epochs}")


@check(18)
def causes_are_typed(bench: Bench) -> None:
    """An end is told with its cause and, where there is one, its exit status."""
    harness = bench.harness
    ends: Mapping[Cause, Callable[[Ref], object]] = {
        Cause.COMPLETED: lambda ref: harness.finish(ref, 0),
        Cause.NON_ZERO_EXIT: lambda ref: harness.finish(ref, 3),
        Cause.OUT_OF_MEMORY: harness.out_of_memory,
        Cause.TIMEOUT: harness.time_out,
    }
    for cause, end in ends.items():
        ref = bench.running()
        end(ref)
        seen = bench.until(ref, lambda seen: seen.ended, f"ends with {cause}")
        ensure(seen.cause is cause, f"it ended with {cause}; seen: {seen}")
        exit_code = {Cause.COMPLETED: 0, Cause.NON_ZERO_EXIT: 3}.get(cause, seen.exit_code)
        ensure(seen.exit_code == exit_code, f"it returned {exit_code}; seen: {seen}")


@check(18)
def a_cancelled_object_is_no_success(bench: Bench) -> None:
    """What somebody else stops ends Cancelled (Slurm), or is gone (Kubeflow)."""
    ref = bench.running()
    bench.harness.cancel(ref)
    if bench.slurm:
        seen = bench.until(ref, lambda seen: seen.ended, "ends when it is cancelled")
        ensure(seen.cause is Cause.CANCELLED, f"it was cancelled; seen: {seen}")
    else:
        bench.until(ref, lambda seen: not seen.known, "is gone when it is deleted")


@check(18)
def evidence_fades(bench: Bench) -> None:
    """A cause that was read from pods is unknown once they are gone; another one stays."""
    window = bench.figure("evidence_window_s")
    refs = {cause: bench.running() for cause in (*sorted(_POD_CAUSES), Cause.TIMEOUT)}
    bench.harness.lose_node(refs[Cause.NODE_LOST])
    bench.harness.out_of_memory(refs[Cause.OUT_OF_MEMORY])
    bench.harness.finish(refs[Cause.NON_ZERO_EXIT], 3)
    bench.harness.time_out(refs[Cause.TIMEOUT])
    for cause, ref in refs.items():
        bench.until(ref, _with(cause), f"tells {cause}")
    bench.harness.advance(window)
    for cause, ref in refs.items():
        told = Cause.UNKNOWN if cause in _POD_CAUSES else cause
        seen = bench.until(ref, _with(told), f"tells {told} once the evidence of {cause} is gone")
        fades = cause in _POD_CAUSES
        ensure(not fades or seen.exit_code is None, f"the exit status is from pods: {seen}")


@check(19)
def a_lost_node_ends_or_wedges(bench: Bench) -> None:
    """A lost node ends its object in time (Slurm), or wedges it for good (Kubeflow)."""
    ref = bench.running()
    bench.harness.lose_node(ref)
    if bench.slurm:
        patience = bench.figure("node_timeout_s")
        ensure(bench.see(ref).state is State.RUNNING, "a lost node ended its object at once")
        seen = bench.until(ref, lambda seen: seen.ended, "ends with its node", patience)
        ensure(seen.cause is Cause.NODE_LOST, f"its node was lost; seen: {seen}")
    else:
        bench.until(ref, _with(Cause.NODE_LOST), "shows that its node was lost")
        bench.harness.advance(bench.harness.timings.wait_s)
        bench.never(ref, lambda seen: seen.state is not State.RUNNING, "it is wedged")


@check(19)
def cessation_is_certain(bench: Bench) -> None:
    """`ceased` is True when nothing of an object can run, and says how a lost node is known."""
    signal = bench.cessation
    ended, lost = bench.ended(), bench.running()
    ensure(signal.ceased(ended).ceased, "the command returned, and is said to run on")
    answer = signal.ceased(lost)
    ensure(not answer.ceased or answer.detail, "a running object is said to have ceased")
    bench.harness.lose_node(lost)
    answer = signal.ceased(lost)
    ensure(answer.detail, f"what is known of a lost node must be said: {answer}")


def _with(cause: Cause) -> Callable[[Observation], bool]:
    return lambda seen: seen.cause is cause


def _stopped(bench: Bench) -> Ref:
    ref = bench.running()
    bench.backend.stop(ref)
    bench.until(ref, lambda seen: seen.ended, "ends by a stop")
    return ref


def _back(bench: Bench, ref: Ref, restarts: int) -> None:
    seen = bench.until(ref, lambda seen: seen.state is State.PENDING, "is pending by a requeue")
    ensure(seen.restarts == restarts, f"restarts must be {restarts}; seen: {seen}")
    ensure(not seen.requeue_bit, f"a requeue left its bit set; seen: {seen}")
    ensure(not seen.gated, f"what is requeued needs no opening; seen: {seen}")
    bench.run(ref)


def _crash(bench: Bench, requeuer: Requeuer, ref: Ref) -> None:
    meta = bench.call()
    with (
        bench.harness.crash_between_steps(),
        raises(OutcomeUnknown, what="a requeue that is cut off") as caught,
    ):
        requeuer.requeue(ref, meta)
    assert isinstance(caught[0], OutcomeUnknown)
    due = meta.deadline + bench.bound
    told = caught[0].settles_at
    ensure(told == due, f"the outcome settles at {due}, the error says {told}")


def _put_back(bench: Bench, ref: Ref) -> Ref:
    if bench.slurm:
        return bench.requeuer.requeue(ref, bench.call())
    bench.harness.preempt(ref)
    bench.until(ref, lambda seen: seen.state is State.PENDING, "is sent back by preemption")
    return ref


def _identity(bench: Bench, ref: Ref) -> tuple[str, int]:
    variables = bench.harness.environment(ref)
    attempt, epoch = variables[ATTEMPT], int(variables[EPOCH])
    seen = bench.see(ref)
    ensure(seen.attempt in {None, attempt}, f"attempt {attempt} runs; seen: {seen}")
    ensure(seen.epoch in {None, epoch}, f"epoch {epoch} runs; seen: {seen}")
    return attempt, epoch


CHECKS: Final[tuple[Check, ...]] = (
    a_pending_object_is_not_requeued,
    a_running_object_is_requeued,
    an_ended_object_is_revived_or_not,
    a_crash_between_steps_shows,
    an_ended_object_takes_no_update,
    preemption_without_the_bit,
    preemption_with_the_bit,
    every_execution_has_its_identity,
    causes_are_typed,
    a_cancelled_object_is_no_success,
    evidence_fades,
    a_lost_node_ends_or_wedges,
    cessation_is_certain,
)
