"""Checks 9 to 14: holds, deadlines, and answers that never come."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from typing import Final

from lardon.dispatch.conformance.bench import Bench, ensure, raises
from lardon.dispatch.conformance.check import Check, check
from lardon.dispatch.conformance.harness import Lacking
from lardon.dispatch.enums import Cause, State
from lardon.dispatch.errors import ExpiredError, OutcomeUnknown, RefusedError
from lardon.dispatch.model import CallMeta, HoldMeta, Ref
from lardon.dispatch.spi import Requeuer

_SECOND: Final = datetime.timedelta(seconds=1)


@check(9)
def a_held_object_does_not_run(bench: Bench) -> None:
    """A hold before or after Open keeps an object from running, and Open does not lift it."""
    holder = bench.holder
    before, after = bench.started(), bench.opened()
    holder.hold(before, bench.holding(1))
    holder.hold(after, bench.holding(2))
    bench.backend.open(before)
    for ref, instance in ((before, 1), (after, 2)):
        seen = bench.see(ref)
        ensure(seen.hold_instance == instance, f"hold {instance} was placed; seen: {seen}")
        bench.does_not_run(ref, "what is held")
        ensure(bench.see(ref).hold_instance == instance, f"hold {instance} did not last")


@check(10)
def only_the_current_hold_is_released(bench: Bench) -> None:
    """A release with an old instance is refused; one with the current instance lifts the hold."""
    holder = bench.holder
    ref = bench.opened()
    holder.hold(ref, bench.holding(1))
    holder.hold(ref, bench.holding(2))
    with raises(RefusedError, what="releasing an old hold"):
        holder.release(ref, bench.holding(1))
    ensure(bench.see(ref).hold_instance == 2, "a refused release must change nothing")
    bench.does_not_run(ref, "what is held still")
    holder.release(ref, bench.holding(2))
    ensure(bench.see(ref).hold_instance is None, "what was released must not be held")
    bench.run(ref)
    with raises(RefusedError, what="releasing what is not held"):
        holder.release(ref, bench.holding(2))


@check(11)
def a_hold_meets_a_running_object(bench: Bench) -> None:
    """A hold on a running object is refused (Slurm), or ends it with the cause Held (Kubeflow)."""
    holder = bench.holder
    ref = bench.running()
    before = bench.see(ref)
    if bench.slurm:
        with raises(RefusedError, what="holding what runs"):
            holder.hold(ref, bench.holding(1))
        bench.unchanged(before, "a refused hold")
        return
    holder.hold(ref, bench.holding(1))
    seen = bench.until(ref, lambda seen: seen.ended, "is ended by its hold")
    ensure(seen.cause is Cause.HELD, f"a hold ended it; seen: {seen}")


@check(12)
def a_call_after_its_deadline_does_nothing(bench: Bench) -> None:
    """Each call that starts after its deadline raises `ExpiredError` and changes nothing."""
    _late(bench, lambda deadline: deadline + _SECOND)


@check(13)
def a_call_after_its_bound_does_nothing(bench: Bench) -> None:
    """A call that starts after its deadline and the bound never changes anything."""
    _late(bench, lambda deadline: deadline + bench.bound + _SECOND)


@check(14)
def a_lost_answer_settles_in_time(bench: Bench) -> None:
    """A call without an answer has an unknown outcome, settled by its deadline and the bound."""
    holder = bench.holder
    longest = (bench.deadline() + bench.bound - bench.harness.now()).total_seconds()
    for lands_after_s in (None, 0.0, longest / 2, longest):
        ref, meta = bench.opened(), bench.holding(1)
        with (
            bench.harness.lose_answer(lands_after_s),
            raises(OutcomeUnknown, what="a hold without an answer") as caught,
        ):
            holder.hold(ref, meta)
        _settles_at(caught[0], meta.deadline + bench.bound)
        left = (meta.deadline + bench.bound - bench.harness.now()).total_seconds()
        bench.harness.advance(left)
        settled = bench.see(ref)
        landed = settled.hold_instance == 1
        ensure(landed or settled.hold_instance is None, f"half of a hold is in place: {settled}")
        if lands_after_s is None:
            ensure(not landed, "a call that never landed has placed a hold")
        bench.unchanged(settled, "a call that has settled")


def _settles_at(error: BaseException, due: datetime.datetime) -> None:
    assert isinstance(error, OutcomeUnknown)
    told = error.settles_at
    ensure(told == due, f"the outcome settles at {due}, the error says {told}")


def _late(bench: Bench, start_of: Callable[[datetime.datetime], datetime.datetime]) -> None:
    holder = bench.holder
    free, held = bench.opened(), bench.opened()
    holder.hold(held, bench.holding(1))
    deadline = bench.deadline()

    def expires(what: str, ref: Ref, call: Callable[[], object]) -> None:
        before = bench.see(ref)
        with (
            bench.harness.late_call(start_of(deadline)),
            raises(ExpiredError, what=f"{what} that starts after its deadline"),
        ):
            call()
        bench.unchanged(before, f"{what} that starts after its deadline")

    again = HoldMeta(instance=2, deadline=deadline)
    expires("a hold", free, lambda: holder.hold(free, again))
    expires("another hold", held, lambda: holder.hold(held, again))
    first = HoldMeta(instance=1, deadline=deadline)
    expires("a release", held, lambda: holder.release(held, first))
    if bench.slurm and isinstance(bench.backend, Requeuer):
        requeuer = bench.backend
        ref = bench.running()
        meta = CallMeta(deadline)
        expires("a requeue", ref, lambda: requeuer.requeue(ref, meta))
        with contextlib.suppress(Lacking):
            _late_restore(bench, requeuer, expires, meta)
    ensure(bench.see(held).state is State.PENDING, "what is held must be pending")


def _late_restore(
    bench: Bench,
    requeuer: Requeuer,
    expires: Callable[[str, Ref, Callable[[], object]], None],
    meta: CallMeta,
) -> None:
    ref = bench.running()
    ref = bench.harness.requeue_externally(ref)
    ensure(bench.see(ref).requeue_bit, "somebody else left the bit set")
    expires("a restoring", ref, lambda: requeuer.restore_requeue_bit(ref, meta))


CHECKS: Final[tuple[Check, ...]] = (
    a_held_object_does_not_run,
    only_the_current_hold_is_released,
    a_hold_meets_a_running_object,
    a_call_after_its_deadline_does_nothing,
    a_call_after_its_bound_does_nothing,
    a_lost_answer_settles_in_time,
)
