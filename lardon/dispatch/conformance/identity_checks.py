"""Checks 1 to 8: settings, names, gates, and which object is which."""

from __future__ import annotations

import datetime
import json
from typing import Any, Final

import attrs

from lardon.dispatch.conformance.bench import Bench, ensure, raises
from lardon.dispatch.conformance.check import Check, check
from lardon.dispatch.conformance.harness import Lacking
from lardon.dispatch.enums import (
    Action,
    Capability,
    Cause,
    ClosedEnum,
    Shape,
    Source,
    State,
    Tristate,
)
from lardon.dispatch.errors import (
    DuplicateError,
    FinishedError,
    InvalidError,
    NotFoundError,
    RefusedError,
)
from lardon.dispatch.model import Ref
from lardon.dispatch.registry import create
from lardon.dispatch.spi import Holder

_WORDS: Final[tuple[type[ClosedEnum], ...]] = (
    State, Cause, Capability, Action, Source, Tristate, Shape,
)  # fmt: skip
_WRONG: Final[dict[str, dict[str, Any]]] = {
    "an unknown field": {"noSuchField": 1},
    "an unknown field inside": {"capabilities": {"AccountingHistory": {"value": "no", "x": 1}}},
    "an unknown capability": {"capabilities": {"NoSuchThing": {"value": "yes"}}},
    "an unknown action": {"rules": {"explode": {"value": "yes"}}},
    "an unknown tristate": {"rules": {"restart": {"value": "maybe"}}},
    "a native yes without its rule": {
        "rules": {"restart": {"value": "no"}},
        "native": {"restart": {"value": "yes"}},
    },
}


@check(1)
def settings_are_strict(bench: Bench) -> None:
    """The factory refuses what it does not know, and what follows the end."""
    adapter, settings = bench.harness.adapter, bench.harness.settings
    if adapter is None or settings is None:
        message = "the harness does not say adapter and settings"
        raise Lacking(message)
    create(adapter, dict(settings)).close()
    for what, wrong in _WRONG.items():
        with raises(InvalidError, what=f"settings with {what}"):
            create(adapter, {**settings, **wrong})
    with raises(InvalidError, what="settings with something after the end"):
        create(adapter, json.dumps(dict(settings)) + " {}")


@check(2)
def words_are_closed(_: Bench) -> None:
    """Every enumeration is its text, and refuses another one."""
    for kind in _WORDS:
        for member in kind:
            ensure(kind(str(member)) is member, f"{member!r} is not what its text says")
        with raises(InvalidError, what=f"an unknown {kind.__name__}"):
            kind("no such word")


@check(3)
def started_is_found_and_gated(bench: Bench) -> None:
    """Start, then find: the same identity, and nothing runs before it is opened."""
    spec = bench.spec()
    ref = bench.start(spec)
    ensure(ref.submitted_at.microsecond == 0, f"submitted at {ref.submitted_at}, no whole second")
    for name in (spec.id, ref.name):
        found = bench.backend.find(name)
        ensure(found is not None and found.ref == ref, f"{name} finds {found}, not {ref}")
    ensure(bench.see(ref).state is State.PENDING, "what was started must be pending")
    if bench.backend.declarations().gated:
        bench.does_not_run(ref, "what was not opened")
    else:
        bench.run(ref)


@check(4)
def duplicates_are_seen_or_refused(bench: Bench) -> None:
    """A second object of one name is found beside the first, or refused."""
    finder = bench.finder
    spec = bench.spec()
    first = bench.start(spec)
    if bench.backend.declarations().unique_names:
        with raises(DuplicateError, what="a second object of one name"):
            bench.start(spec)
        expected = [first]
    else:
        expected = [first, bench.start(spec)]
        ensure(expected[0] != expected[1], "two objects have one identity")
    found = [seen.ref for seen in finder.find_all(spec.id)]
    ensure(found == expected, f"{found} was found, {expected} is there")


@check(5)
def open_runs_it(bench: Bench) -> None:
    """Open lifts the gate, and once more does no harm."""
    ref = bench.running()
    before = bench.see(ref)
    bench.backend.open(ref)
    bench.unchanged(before, "opening what is open")


@check(5)
def open_of_an_ended_object_is_finished(bench: Bench) -> None:
    """Open of an ended object raises `FinishedError`."""
    ref = bench.ended()
    with raises(FinishedError, what="opening what ended"):
        bench.backend.open(ref)


@check(5)
def an_administrators_hold_refuses_open(bench: Bench) -> None:
    """What the people of the cluster hold cannot be opened."""
    ref = bench.started()
    bench.harness.admin_hold(ref)
    with raises(RefusedError, what="opening what an administrator holds"):
        bench.backend.open(ref)
    bench.does_not_run(ref, "what an administrator holds")


@check(6)
def stop_ends_the_one_that_is_meant(bench: Bench) -> None:
    """Stop needs all of the identity; with it, it ends the object, and twice does no harm."""
    ref = bench.running()
    before = bench.see(ref)
    for other in _others(ref):
        bench.backend.stop(other)
        ensure(not bench.see(other).known, f"{other} names an object, as {ref} does")
        bench.unchanged(before, f"a stop of {other}")
    bench.backend.stop(ref)
    gone = State.ENDED if bench.slurm else State.UNKNOWN
    bench.until(ref, lambda seen: seen.state is gone, f"is {gone} after a stop")
    bench.backend.stop(ref)
    bench.until(ref, lambda seen: seen.state is gone, f"is {gone} after a second stop")


@check(7)
def a_reused_id_is_another_object(bench: Bench) -> None:
    """An id that comes round again is never read, stopped or held as the old object."""
    spec = bench.spec()
    old, new = _came_round(bench, spec) if bench.slurm else _came_back(bench, spec)
    ensure(new != old, f"two objects have the identity {new}")
    before = bench.see(new)
    ensure(not before.ended, f"a new object is {before}")
    ensure(bench.see(old).state is not before.state, "the old identity reads the new object")
    bench.backend.stop(old)
    if isinstance(bench.backend, Holder):
        with raises(NotFoundError, FinishedError, what="a hold of an object that is gone"):
            bench.backend.hold(old, bench.holding(1))
    bench.unchanged(before, "what is done to the old object")


@check(8)
def absent_is_no_success(bench: Bench) -> None:
    """An object that was purged is unknown, or told from the accounting; never made up."""
    ref = bench.ended()
    history = bench.backend.declarations().supports(Capability.ACCOUNTING_HISTORY)
    if bench.slurm:
        bench.harness.advance(bench.figure("min_job_age_s") + bench.harness.timings.wait_s)
    else:
        bench.backend.stop(ref)
        bench.until(ref, lambda seen: not seen.known, "is deleted by a stop")
    seen, found = bench.see(ref), bench.backend.find(ref.name)
    if bench.slurm and history is Tristate.YES:
        ensure(seen.cause is Cause.COMPLETED, f"the accounting says {seen}")
        ensure(found is not None and found.ref == ref, f"the accounting finds {found}")
    else:
        ensure(not seen.known, f"the record is gone, and yet: {seen}")
        ensure(seen.cause in {None, Cause.UNKNOWN}, f"a cause is told of what is gone: {seen}")
        ensure(found is None, f"the record is gone, and yet {found} is found")
    with raises(NotFoundError, FinishedError, what="opening what is gone"):
        bench.backend.open(ref)


def _others(ref: Ref) -> list[Ref]:
    later = ref.submitted_at + datetime.timedelta(seconds=1)
    another_id = ref.id + 1 if isinstance(ref.id, int) else ref.id + "-other"
    return [
        attrs.evolve(ref, submitted_at=later),
        attrs.evolve(ref, id=another_id),
        attrs.evolve(ref, name=ref.name + "-other"),
    ]


def _came_round(bench: Bench, spec: Any) -> tuple[Ref, Ref]:
    highest = int(bench.figure("max_job_id"))
    age = bench.figure("min_job_age_s")
    old = bench.start(spec)
    bench.backend.stop(old)
    bench.until(old, lambda seen: seen.ended, "ends by a stop")
    bench.harness.advance(age + bench.harness.timings.wait_s)
    for _ in range(2 * highest):
        new = bench.start(spec)
        if new.id == old.id:
            return old, new
        bench.backend.stop(new)
    message = f"the id {old.id} did not come round within {2 * highest} objects"
    raise AssertionError(message)


def _came_back(bench: Bench, spec: Any) -> tuple[Ref, Ref]:
    # Where ids do not come round, names do.
    old = bench.start(spec)
    bench.backend.stop(old)
    bench.until(old, lambda seen: not seen.known, "is gone by a stop")
    bench.harness.advance(1)
    return old, bench.start(spec)


CHECKS: Final[tuple[Check, ...]] = (
    settings_are_strict,
    words_are_closed,
    started_is_found_and_gated,
    duplicates_are_seen_or_refused,
    open_runs_it,
    open_of_an_ended_object_is_finished,
    an_administrators_hold_refuses_open,
    stop_ends_the_one_that_is_meant,
    a_reused_id_is_another_object,
    absent_is_no_success,
)
