"""Which objects no record claims, and which of them a look stops: names and a pure decision."""

from __future__ import annotations

from typing import Any, Final

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest

from lardon.dispatch import JobSpec, Observation, Ref, State, UnmatchedPolicy
from lardon.dispatch.model import Declarations
from lardon.dispatch.names import job_of
from lardon.dispatch.unmatched import SHOWN_S, Stray, SweepTerms, grace_of, live_after, sweep
from tests.dispatch.core_values import JOB, NOW, SPEC, ref, seen
from tests.dispatch.strays import GRACE_S, LEAVE, POLL_S, REPORT, STOP

TERMS: Final = SweepTerms(policy=STOP, grace_s=GRACE_S, poll_s=POLL_S)


# Names


@pytest.mark.parametrize("unique_names", [False, True])
def test_the_name_of_an_object_tells_its_job(unique_names: bool) -> None:
    spec = JobSpec(id=JOB, submission=12, command=["work"])
    name = spec.submission_name if unique_names else spec.name

    assert job_of(name, unique_names=unique_names) == JOB
    # A name of the other form is none of ours: that scheduler never got it from us.
    assert job_of(name, unique_names=not unique_names) is None


@pytest.mark.parametrize(
    "name",
    [
        "", "dj-", "dj-photo", f"dj-{JOB[:-1]}", f"dj-{JOB}0", f"dj-{JOB}-s1", f" dj-{JOB}",
        f"dj-{JOB}\n", f"dj-{JOB.lower()}", f"DJ-{JOB}", f"dj-8{JOB[1:]}", f"dj-{JOB[:-1]}U",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_name_of_a_job_is_none(name: str) -> None:
    assert job_of(name, unique_names=False) is None


@pytest.mark.parametrize("end", ["", "-s", "-s0", "-s01", "-s1000000", "-s-1", "-s1\n", "-s1-s2"])
def test_what_only_looks_like_a_name_of_a_submission_is_none(end: str) -> None:
    assert job_of(f"dj-{JOB.lower()}{end}", unique_names=True) is None


# The decision


def decided(
    before: Any = (), *, live: Any = None, now_s: float = 0.0, terms: SweepTerms = TERMS
) -> Any:
    objects = [seen(1)] if live is None else live
    return sweep(objects, before, lambda _: False, now_s, terms, unique_names=False)


def test_a_stray_is_stopped_after_the_grace_and_asked_for_again() -> None:
    strays: tuple[Stray, ...] = ()
    stops = []
    for step in range(8):
        now_s = step * POLL_S
        found = decided(strays, now_s=now_s)
        strays = found.strays
        stops += [now_s] * len(found.stop)
        assert len(found.tell) == (now_s == 45)
    assert stops == [45, 60, 75, 90, 105]


def test_it_comes_again_when_a_grace_ends() -> None:
    first = decided()
    assert first.again_s == POLL_S
    second = decided(first.strays, now_s=15)
    third = decided(second.strays, now_s=30)
    assert third.again_s == 10
    fourth = decided(third.strays, now_s=40)
    assert [one.ref for one in fourth.stop] == [ref(1)]
    # It is asked for again after a whole period, not at once because the last wake was early.
    assert not decided(fourth.strays, now_s=45).stop
    assert decided(fourth.strays, now_s=55).stop


def test_a_supervisor_that_slept_through_the_grace_does_not_know_what_it_missed() -> None:
    found = decided(decided().strays, now_s=3600)
    assert found.strays[0].waited_s == POLL_S
    assert not found.stop
    assert not found.tell


def test_a_record_that_was_seen_once_begins_the_grace_anew() -> None:
    found = decided(decided().strays, now_s=15)
    back = sweep([seen(1)], found.strays, lambda _: True, 30, TERMS, unique_names=False)
    assert back.strays == ()
    again = decided(back.strays, now_s=45)
    assert again.strays[0].waited_s == 0


def test_another_incarnation_has_a_grace_of_its_own() -> None:
    """A requeue gives the same id another submit time; only the first was seen for so long."""
    found = decided(attrs.evolve(one, waited_s=99.0) for one in decided().strays)
    other = attrs.evolve(seen(1), ref=Ref(SPEC.name, 1, NOW.replace(microsecond=0)))
    assert found.stop
    assert not decided(found.strays, live=[other], now_s=1).stop


@pytest.mark.parametrize("policy", [LEAVE, REPORT])
def test_only_the_policy_stop_stops(policy: UnmatchedPolicy) -> None:
    terms = attrs.evolve(TERMS, policy=policy, grace_s=0)
    found = decided(terms=terms)
    assert not found.stop
    assert len(found.tell) == 1
    # Once is enough.
    assert not decided(found.strays, now_s=15, terms=terms).tell


def test_many_stops_are_shared_out_over_looks_so_that_jobs_are_served_between() -> None:
    terms = attrs.evolve(TERMS, grace_s=0)
    live = [seen(number) for number in range(1, 41)]
    found, asked = decided(live=live, terms=terms), []
    asked += found.stop
    assert found.again_s == 0
    for _ in range(2):
        found = decided(found.strays, live=live, terms=terms)
        asked += found.stop
    assert len({one.ref for one in asked}) == len(asked) == 40
    assert found.again_s == POLL_S


def test_a_grace_that_is_over_but_for_a_rounding_is_over() -> None:
    """Else it would be looked again at once, for ever, on a clock that does not move."""
    terms = attrs.evolve(TERMS, grace_s=0.3, poll_s=0.1)
    strays: tuple[Stray, ...] = ()
    for step in range(4):
        found = decided(strays, now_s=step * 0.1, terms=terms)
        strays = found.strays
    assert found.stop
    assert found.again_s == 0.1


def test_what_ended_is_gone_or_is_not_ours_is_no_longer_live() -> None:
    live = live_after({}, [seen(1), seen(2), seen(3)], unique_names=False)
    other = Observation(ref=Ref("dj-photo", 4, ref(1).submitted_at), state=State.RUNNING)
    news = [seen(1, State.ENDED), Observation.unknown(ref(2)), seen(3, State.RUNNING), other]
    assert live_after(live, news, unique_names=False) == {ref(3): seen(3, State.RUNNING)}


@hypothesis.given(
    looks=st.lists(
        st.tuples(st.floats(0, 100), st.sets(st.integers(1, 3)), st.booleans()), max_size=12
    ),
    grace_s=st.floats(0, 60),
)
def test_nothing_is_stopped_that_was_not_seen_for_the_grace_without_a_record(
    looks: list[tuple[float, set[int], bool]], grace_s: float
) -> None:
    terms = attrs.evolve(TERMS, grace_s=grace_s)
    strays: tuple[Stray, ...] = ()
    now_s, since = 0.0, dict[Ref, float]()
    for pause_s, there, recorded in looks:
        now_s += pause_s
        live = [seen(number) for number in sorted(there)]
        found = sweep(
            live, strays, {SPEC.id: recorded}.__getitem__, now_s, terms, unique_names=False
        )
        strays = found.strays
        refs = set() if recorded else {one.ref for one in live}
        since = {one: since.get(one, now_s) for one in refs}
        assert {one.ref for one in strays} == refs
        assert all(now_s - since[one.ref] > grace_s - 1e-3 for one in found.stop)


def test_the_grace_is_the_call_bound_and_no_shorter_than_a_file_takes_to_show() -> None:
    assert grace_of(Declarations(adapter="test", call_bound_s=328.0)) == 328
    assert grace_of(Declarations(adapter="test", call_bound_s=0.0)) == SHOWN_S == 60
