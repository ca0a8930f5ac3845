"""Checks C17 and C18: what becomes of objects that no record claims."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from lardon.dispatch.conformance.bench import ensure
from lardon.dispatch.conformance.core_bench import core_check
from lardon.dispatch.enums import State, UnmatchedPolicy

if TYPE_CHECKING:
    from lardon.dispatch.conformance.core_bench import CoreBench, CoreCheck


@core_check(17)
def objects_of_no_record_are_listed_and_left_alone(bench: CoreBench) -> None:
    """Where they are to be reported, all of them are listed, no others, and none is touched."""
    sweeper = bench.sweeper(UnmatchedPolicy.REPORT, 0)
    job, stray = bench.submit(), bench.stray()
    bench.running(job, sweeper)
    bench.until(job, lambda _: bool(sweeper.unmatched()), "has a stray beside it", sweeper)
    bench.quietly(job, lambda _: not bench.live(stray.id), "it is only reported", sweeper)
    listed = [one.ref for one in sweeper.unmatched()]
    there = [one.ref for one in bench.objects(stray.id)]
    ensure(listed == there, f"the object of no record is listed, and no other one: {listed}")
    sweeper.close()
    ensure(not sweeper.unmatched(), "who looks no more lists nothing")


@core_check(18)
def objects_of_no_record_are_stopped_after_the_grace(bench: CoreBench) -> None:
    """An object of which no record comes within the grace is stopped, and no other one."""
    grace_s = 3 * bench.harness.timings.poll_s
    sweeper = bench.sweeper(UnmatchedPolicy.STOP, grace_s)
    job = bench.submit()
    ref = bench.running(job, sweeper)
    stray, late = bench.stray(), bench.stray()
    ends = bench.harness.now() + datetime.timedelta(seconds=grace_s)
    bench.turn(sweeper)
    bench.operator.submit(late)  # as a store does that is seen late
    while bench.harness.now() < ends:
        ensure(len(bench.live(stray.id)) == 1, "within the grace it is left alone")
        bench.turn(sweeper)
    bench.until(job, lambda _: not bench.live(stray.id), "has no stray beside it", sweeper)
    bench.running(late.id, sweeper)
    ensure(len(bench.objects(late.id)) == 1, "what is on record by then is not stopped")
    kept = bench.see(job).kept
    running = kept is not None and (kept.ref, kept.state) == (ref, State.RUNNING)
    ensure(running, f"what is on record goes on: {kept}")
    sweeper.close()


UNMATCHED: Final[tuple[CoreCheck, ...]] = (
    objects_of_no_record_are_listed_and_left_alone,
    objects_of_no_record_are_stopped_after_the_grace,
)
