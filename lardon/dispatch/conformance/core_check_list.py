"""Checks C1 and on: what holds of every job, whatever becomes of its calls."""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any, Final

from lardon.dispatch.conformance.bench import ensure
from lardon.dispatch.conformance.core_bench import CoreBench, CoreCheck, core_check
from lardon.dispatch.conformance.harness import Lacking
from lardon.dispatch.conformance.unmatched_checks import UNMATCHED
from lardon.dispatch.enums import Action, Cause, State
from lardon.dispatch.model import JobSpec
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.spi import CessationSignal, Holder

if TYPE_CHECKING:
    from lardon.dispatch.observer import JobView

_AT_ONCE: Final[dict[str, Any]] = {"delay_s": 0.0}
_AGAIN_AFTER_A_FAILURE: Final = RecoveryPolicy(
    [RecoveryRule(Cause.NON_ZERO_EXIT, Action.RESTART, limit=2, **_AT_ONCE)]
)


@core_check(1)
def duplicates_are_stopped_and_one_is_opened(bench: CoreBench) -> None:
    """Of several objects of one job one is kept, one is opened, and the others are stopped."""
    if not bench.gated:
        message = "names are unique here, so there are no duplicates"
        raise Lacking(message)
    job = bench.submit()
    spec = JobSpec(id=job, command=bench.harness.command)
    for _ in range(2):
        bench.backend.start(spec)
    bench.running(job)
    ensure(len(bench.objects(job)) >= 2, "the duplicates were there")
    bench.until(job, lambda _: len(bench.live(job)) == 1, "has one object left")
    ensure(bench.live(job)[0].state is State.RUNNING, "the one that is left runs")
    bench.quietly(job, lambda _: bench.harness.executing(job) > 1, "one execution at a time")


@core_check(2)
def a_start_that_comes_late_makes_no_second_execution(bench: CoreBench) -> None:
    """A start whose answer is lost, and that takes effect late, runs the job once."""
    job = bench.submit()
    bound = bench.backend.declarations().call_bound_s
    with bench.harness.lose_answer(bound * 0.8):
        bench.one.turn()
    bench.running(job)
    bench.quietly(job, lambda _: bench.harness.executing(job) != 1, "it runs once")


@core_check(3)
def nothing_is_decided_on_an_unknown_outcome_before_its_bound(bench: CoreBench) -> None:
    """While a start may still take effect no other one goes out; afterwards one does."""
    job = bench.submit()
    with bench.harness.lose_answer(None):
        bench.one.turn()
    pending = bench.record(job).calls
    ensure(len(pending) == 1, f"one call is pending; found {pending}")
    bound = datetime.timedelta(seconds=bench.backend.declarations().call_bound_s)
    ensure(
        pending[0].settles_at >= pending[0].begun_at + bound,
        "it settles no sooner than the bound after it began",
    )
    while bench.harness.now() <= pending[0].settles_at:
        bench.turn()
        if bench.harness.now() <= pending[0].settles_at:
            made = bench.record(job).calls_made
            ensure(made == 1, f"a decision on an unknown outcome: {made} calls were made")
    bench.running(job)


@core_check(4)
def two_supervisors_do_not_both_act(bench: CoreBench) -> None:
    """One supervisor holds the lease of a job; another takes it over only when it ran out."""
    job, other = bench.submit(), bench.supervisor("two")
    bench.one.turn()
    other.turn()
    lease = bench.record(job).lease
    ensure(lease is not None and lease.holder == "one", f"the first one holds it: {lease}")
    for _ in range(3):
        bench.turn(bench.one, other)
    record = bench.record(job)
    assert record.lease is not None
    ensure(record.lease.fence == 1, "the lease did not change hands")
    ensure(len(bench.objects(job)) == 1, "only one of the two has started it")

    def taken(view: JobView) -> bool:
        lease = view.record.lease
        return lease is not None and lease.holder == "two"

    taken_at = bench.until(job, taken, "is taken over", other).record
    ensure(taken_at.fence == 2, f"its fence is higher: {taken_at.lease}")
    ensure(
        bench.harness.now() >= record.lease.expires_at,
        f"the first one's lease ran out before: {record.lease}",
    )
    bench.running(job, bench.one, other)
    bench.quietly(
        job, lambda _: bench.harness.executing(job) != 1, "it runs once", bench.one, other
    )


@core_check(5)
def a_policy_recovers_as_often_as_it_says(bench: CoreBench) -> None:
    """After so many recoveries the next failure is final; every execution is on record."""
    job = bench.submit(_AGAIN_AFTER_A_FAILURE)
    for _ in range(3):
        bench.harness.finish(bench.running(job), 3)
    record = bench.over(job)
    outcome = record.outcome
    assert outcome is not None
    ensure(outcome.cause is Cause.NON_ZERO_EXIT, f"it failed for good: {outcome}")
    ensure(outcome.exit_code == 3, f"its exit code is told: {outcome}")
    ensure(len(record.recoveries) == 2, f"two recoveries were allowed: {record.recoveries}")
    epochs = [one.epoch for one in record.attempts]
    ensure(len(set(epochs)) == 3, f"three executions, each with an epoch of its own: {epochs}")
    ensure(epochs == sorted(epochs, key=lambda one: one or 0), f"epochs grow: {epochs}")
    ensure(not bench.live(job), "nothing of it is left")


@core_check(6)
def a_job_that_ran_out_of_memory_gets_more(bench: CoreBench) -> None:
    """The next submission asks for the memory that the policy says."""
    rule = RecoveryRule(Cause.OUT_OF_MEMORY, Action.RESTART, ram_factor=1.5, **_AT_ONCE)
    job = bench.submit(RecoveryPolicy([rule]), ram_bytes=1000)
    bench.harness.out_of_memory(bench.running(job))
    bench.until(job, lambda view: view.record.spec.submission == 2, "is submitted again")
    ensure(bench.record(job).spec.ram_bytes == 1500, f"it gets more: {bench.record(job).spec}")
    bench.harness.finish(bench.running(job), 0)
    outcome = bench.over(job).outcome
    ensure(outcome is not None and outcome.succeeded, "it completes with it")


@core_check(7)
def a_job_without_a_rule_ends_with_its_cause(bench: CoreBench) -> None:
    """An end that no rule names is final, with its cause."""
    job = bench.submit()
    bench.harness.time_out(bench.running(job))
    outcome = bench.over(job).outcome
    ensure(outcome is not None and outcome.cause is Cause.TIMEOUT, f"it timed out: {outcome}")


@core_check(8)
def a_held_job_does_not_start(bench: CoreBench) -> None:
    """Held before it starts, it does not run until it is released, whatever is tried."""
    job = bench.submit()
    bench.operator.hold(job, placed_by="conformance", reason="a check")
    bench.one.wake(job)
    bench.quietly(job, lambda _: bench.harness.executing(job) > 0, "it is held")
    hold = bench.record(job).hold
    ensure(hold is not None and hold.in_force_at is not None, f"the hold is in force: {hold}")
    bench.operator.release(job)
    bench.running(job)


@core_check(9)
def a_held_job_does_not_start_again(bench: CoreBench) -> None:
    """A hold that meets a running job keeps the next execution from starting."""
    if not isinstance(bench.backend, Holder):
        message = "the backend is no Holder"
        raise Lacking(message)
    job = bench.submit(_AGAIN_AFTER_A_FAILURE)
    ref = bench.running(job)
    bench.operator.hold(job)
    bench.one.wake(job)
    bench.turn()
    if bench.harness.executing(job):
        bench.harness.finish(ref, 1)
    bench.until(job, lambda _: bench.harness.executing(job) == 0, "ends")
    bench.quietly(job, lambda _: bench.harness.executing(job) > 0, "it is held")
    ensure(bench.record(job).outcome is None, "a held job is not over")
    bench.operator.release(job)
    bench.harness.finish(bench.running(job), 0)
    bench.over(job)


@core_check(10)
def a_stop_wins_over_a_restart(bench: CoreBench) -> None:
    """A stop that comes while a restart is due ends the job; nothing of it starts again."""
    rule = RecoveryRule(
        Cause.NON_ZERO_EXIT, Action.RESTART, delay_s=3 * bench.harness.timings.poll_s
    )
    job = bench.submit(RecoveryPolicy([rule]))
    bench.harness.finish(bench.running(job), 1)
    bench.until(job, lambda view: view.record.due is not None, "has a restart due")
    bench.operator.stop(job)
    bench.one.wake(job)
    made = bench.record(job).calls_made
    record = bench.over(job)
    ensure(record.outcome is not None and record.outcome.cause is Cause.CANCELLED, "it was stopped")
    bench.quietly(job, lambda view: view.record.calls_made > made, "nothing is started again")


@core_check(11)
def a_stop_ends_what_runs(bench: CoreBench) -> None:
    """A stopped job is over once its object is seen ended, and it is not before."""
    job = bench.submit()
    bench.running(job)
    bench.operator.stop(job)
    bench.one.wake(job)
    outcome = bench.over(job).outcome
    ensure(outcome is not None and outcome.cause is Cause.CANCELLED, f"it was stopped: {outcome}")
    ensure(bench.harness.executing(job) == 0, "it is over, so nothing runs")


@core_check(12)
def a_stop_waits_for_a_start_that_may_still_come(bench: CoreBench) -> None:
    """A job is not over while a start of it may still take effect; what comes is stopped."""
    job = bench.submit()
    bound = bench.backend.declarations().call_bound_s
    lands_at = bench.harness.now() + datetime.timedelta(seconds=bound * 0.8)
    with bench.harness.lose_answer(bound * 0.8):
        bench.one.turn()
    bench.operator.stop(job)
    bench.one.wake(job)
    outcome = bench.over(job).outcome
    ensure(outcome is not None and outcome.ended_at >= lands_at, f"over too soon: {outcome}")
    ensure(not bench.live(job), f"what came late was stopped: {bench.live(job)}")


def _not_once(bench: CoreBench, job: str, _view: object) -> bool:
    return bench.harness.executing(job) != 1


@core_check(13)
def a_crash_between_any_two_steps_loses_nothing(bench: CoreBench) -> None:
    """Wherever a supervisor dies, the next one finishes the job from its record."""
    dropped_at = 0
    while True:
        job = bench.submit()
        died = _dies_after(bench, job, dropped_at)
        next_one = bench.supervisor(f"after-{dropped_at}")
        ref = bench.running(job, next_one)
        bench.quietly(job, functools.partial(_not_once, bench, job), "once", next_one)
        bench.harness.finish(ref, 0)
        outcome = bench.over(job, next_one).outcome
        ensure(outcome is not None and outcome.succeeded, f"it completed: {outcome}")
        if not died:
            return
        dropped_at += 1


def _dies_after(bench: CoreBench, job: str, count: int) -> bool:
    """Let a supervisor die after *count* steps; return whether it had steps left."""
    doomed = bench.supervisor(f"doomed-{count}")
    done = 0
    for _ in range(6):
        for _step in doomed.steps(job):
            if done == count:
                return True
            done += 1
    return False


@core_check(14)
def a_call_is_not_made_after_its_deadline(bench: CoreBench) -> None:
    """A supervisor that slept between its decision and its call does not make it any more."""
    job, asleep = bench.submit(), bench.supervisor("asleep")
    steps = asleep.steps(job)
    while next(steps) != "call":
        pass
    call = bench.record(job).calls[0]
    while bench.harness.now() <= call.deadline:
        bench.harness.advance(bench.harness.timings.poll_s)
    for _ in steps:
        pass
    ensure(not bench.objects(job), "a call that came too late was made")
    bench.running(job)


@core_check(15)
def a_job_on_a_lost_node_starts_again_once_it_has_ceased(bench: CoreBench) -> None:
    """While an execution on a lost node may go on no other one starts; then one does."""
    if not isinstance(bench.backend, CessationSignal):
        message = "the backend is no CessationSignal"
        raise Lacking(message)
    rules = [
        RecoveryRule(cause, Action.RESTART, **_AT_ONCE)
        for cause in (Cause.NODE_LOST, Cause.UNKNOWN)
    ]
    job = bench.submit(RecoveryPolicy(rules))
    ref = bench.running(job)
    bench.harness.lose_node(ref)
    if bench.backend.ceased(ref).ceased:
        message = "the backend says of every execution that it has ceased"
        raise Lacking(message)
    bench.harness.advance(bench.harness.node_timeout_s or 0)
    for _ in range(3):
        bench.quietly(
            job, lambda _: bench.harness.executing(job) > 1, "the first one may run still"
        )
    bench.harness.recover_node(ref)
    again = bench.running(job)
    bench.harness.finish(again, 0)
    bench.over(job)


@core_check(16)
def a_preempted_job_runs_again(bench: CoreBench) -> None:
    """A preemption is followed by another execution, with another attempt and a larger epoch."""
    job = bench.submit(RecoveryPolicy([RecoveryRule(Cause.PREEMPTED, Action.RESTART, **_AT_ONCE)]))
    ref = bench.running(job)
    bench.turn()
    first = bench.record(job).attempts[-1]
    bench.harness.preempt(ref)
    bench.turn()
    bench.running(job)
    bench.turn()
    second = bench.record(job).attempts[-1]
    ensure(second.attempt != first.attempt, f"another execution: {bench.record(job).attempts}")
    ensure((second.epoch or 0) > (first.epoch or 0), f"a larger epoch: {first}, {second}")


CHECKS: Final[tuple[CoreCheck, ...]] = tuple(
    sorted(
        (*UNMATCHED, *(one for one in globals().values() if isinstance(one, CoreCheck))),
        key=lambda one: one.number,
    )
)
