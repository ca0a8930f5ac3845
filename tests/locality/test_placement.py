"""Placement against a naive recomputation of every queue, for random histories."""

from __future__ import annotations

import random
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lardon.locality import Job, PendingJob, Placement, Stage, UnknownWorker, WorkerLost
from lardon.locality.options import Options

CACHE_S: Final = 3
DEPS_S: Final = 5
LEASE_S: Final = 9

WORKERS: Final = st.sampled_from(["w0", "w1", "w2"])
ARTIFACTS: Final = st.sampled_from("abcdefg")
OPTIONS: Final = st.fixed_dictionaries(
    {
        "order": st.sampled_from(["random", "local-first"]),
        "cold": st.sampled_from(["wait", "now"]),
        "max_age_s": st.sampled_from([None, 4]),
        "lease_s": st.sampled_from([None, LEASE_S]),
    }
)


def emptied(placement: Placement) -> bool:
    """Whether no index of *placement* holds a job."""
    queues = [placement._global]
    for worker in placement._workers.values():
        queues += [worker.first, worker.second]
        assert worker.running == {}
    lanes = [placement._cache_lane, placement._deps_lane]
    assert placement._leases is None or placement._leases._workers == {}
    assert all(lane._live == 0 and lane.next_deadline() is None for lane in lanes)
    return (
        not placement._live
        and not placement._dependents
        and all(not queue.members and queue.head() is None and not len(queue) for queue in queues)
    )


class Naive:
    """A waiting job as the table of the page has it."""

    def __init__(self, handle: PendingJob, number: int, now: float) -> None:
        self.handle, self.number, self.scheduled_at = handle, number, now
        self.stage = Stage.DEPS
        self.since = now
        self.worker: str | None = None
        self.again = False


class Histories(RuleBasedStateMachine):
    """Any history of schedules, news, picks, reports, losses and time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.placement: Placement
        self.jobs: dict[str, Naive] = {}
        self.held: dict[str, set[str]] = {}
        self.before: dict[str, set[str]] = {}
        self.seen: dict[str, float] = {}
        self.count = 0
        self.picks: dict[int, int] = {}
        self.options: dict[str, Any] = {}
        self.started = False

    @precondition(lambda self: not self.started)
    @rule(options=OPTIONS)
    def start(self, options: dict[str, Any]) -> None:
        self.started, self.options = True, options
        self.placement = Placement(
            Options(cache_timeout_s=CACHE_S, deps_timeout_s=DEPS_S, **options), random.Random(0)
        )

    # What happens ---------------------------------------------------------------

    @precondition(lambda self: self.started)
    @rule(worker=WORKERS)
    def register(self, worker: str) -> None:
        self.placement.register(worker, self.now)
        self.seen[worker] = self.now
        if worker not in self.held:
            self.held[worker] = self.before.pop(worker, set())

    @precondition(lambda self: self.started)
    @rule(name=ARTIFACTS, deps=st.lists(ARTIFACTS, max_size=3))
    def schedule(self, name: str, deps: list[str]) -> None:
        handle, new = self.placement.schedule(Job(name, deps), self.now)
        assert new == (name not in self.jobs)
        if not new:
            assert handle is self.jobs[name].handle
            return
        self.count += 1
        self.picks[self.count] = 0
        job = self.jobs[name] = Naive(handle, self.count, self.now)
        known = set().union(*self.held.values())
        if name in known:
            job.stage = Stage.CACHE
        elif self.options["cold"] == "now" and not known & set(deps):
            job.stage = Stage.GLOBAL

    @precondition(lambda self: self.started)
    @rule(worker=WORKERS, artifacts=st.lists(ARTIFACTS, max_size=3))
    def learn(self, worker: str, artifacts: list[str]) -> None:
        self.placement.learn(worker, artifacts)
        if worker in self.held:
            self.held[worker] |= set(artifacts)
        else:
            self.before.setdefault(worker, set()).update(artifacts)

    @precondition(lambda self: self.started)
    @rule(worker=WORKERS, artifacts=st.lists(ARTIFACTS, max_size=3))
    def forget(self, worker: str, artifacts: list[str]) -> None:
        self.placement.forget(worker, artifacts)
        for known in (self.held, self.before):
            known.get(worker, set()).difference_update(artifacts)
        if not self.before.get(worker, True):
            del self.before[worker]

    @precondition(lambda self: self.started)
    @rule(seconds=st.integers(0, 6))
    def advance(self, seconds: int) -> None:
        self.now += seconds
        self.placement.tick(self.now)
        for job in self.jobs.values():
            if job.stage is Stage.CACHE and job.since + CACHE_S <= self.now:
                job.stage, job.since = Stage.DEPS, self.now
        for job in self.jobs.values():
            if job.stage is Stage.DEPS and job.since + DEPS_S <= self.now:
                job.stage = Stage.GLOBAL
        if self.options["lease_s"] is not None:
            for worker, seen in sorted(self.seen.items(), key=lambda item: item[1]):
                if worker in self.held and seen + LEASE_S <= self.now:
                    self._lose(worker)

    def _lose(self, worker: str) -> None:
        for name, job in list(self.jobs.items()):
            if job.worker == worker:
                job.worker = None
                if job.again:
                    assert isinstance(job.handle.error, WorkerLost)
                    del self.jobs[name]
                else:
                    job.again, job.stage = True, Stage.GLOBAL

    @precondition(lambda self: self.started)
    @rule(worker=WORKERS, unfit=st.sets(ARTIFACTS, max_size=4), ask=st.booleans())
    def pick(self, worker: str, unfit: set[str], ask: bool) -> None:
        if worker not in self.held:
            with pytest.raises(UnknownWorker):
                self.placement.pick(worker, self.now)
            return
        asked: list[PendingJob] = []

        def fits(handle: PendingJob) -> bool:
            asked.append(handle)
            return handle.job.id not in unfit

        self.seen[worker] = self.now
        queues = [
            [name for name in queue if not ask or name not in unfit]
            for queue in self.expected(worker)
        ]
        handle = self.placement.pick(worker, self.now, fits if ask else None)
        assert len(asked) == len(set(asked))
        if handle is None:
            assert not any(queues)
            return
        name = handle.job.id
        assert isinstance(name, str)
        heads = [queue[0] for queue in queues if queue]
        assert name in heads
        age = self.options["max_age_s"]
        oldest = min(heads, key=lambda head: self.jobs[head].number)
        if age is not None and self.jobs[oldest].scheduled_at + age <= self.now:
            assert name == oldest
        elif self.options["order"] == "local-first":
            assert name == heads[0]
        job = self.jobs[name]
        self.picks[job.number] += 1
        assert self.picks[job.number] <= 1 + job.again
        job.stage, job.worker = Stage.PICKED, worker

    @precondition(lambda self: self.started)
    @rule(worker=WORKERS, name=ARTIFACTS, failed=st.booleans())
    def complete(self, worker: str, name: str, failed: bool) -> None:
        error = ValueError() if failed else None
        finished, _ = self.placement.complete(worker, name, self.now, name.upper(), error)
        if worker in self.held:
            self.seen[worker] = self.now
        job = self.jobs.pop(name, None)
        assert finished is (None if job is None else job.handle)
        if finished is not None:
            assert finished.finished
            assert (finished.result, finished.error) == (name.upper(), error)
        if not failed:
            where = self.held if worker in self.held else self.before
            where.setdefault(worker, set()).add(name)

    @precondition(lambda self: self.started)
    @rule(worker=WORKERS)
    def remove(self, worker: str) -> None:
        if worker not in self.held and worker not in self.before:
            with pytest.raises(UnknownWorker):
                self.placement.remove(worker)
            return
        self.placement.remove(worker)
        if self.before.pop(worker, None) is None:
            del self.held[worker]
            self._lose(worker)

    # What holds -----------------------------------------------------------------

    def expected(self, worker: str) -> tuple[list[str], list[str], list[str]]:
        """Return the three queues of *worker* by the table of the page."""
        held = self.held[worker]
        waiting = [job for job in self.jobs.values() if job.stage is not Stage.PICKED]
        waiting.sort(key=lambda job: job.number)
        past = {Stage.DEPS, Stage.GLOBAL}
        return (
            [str(j.handle.job.id) for j in waiting if j.handle.job.id in held],
            [
                str(j.handle.job.id)
                for j in waiting
                if j.stage in past and held & set(j.handle.job.deps)
            ],
            [str(j.handle.job.id) for j in waiting if j.stage is Stage.GLOBAL],
        )

    @precondition(lambda self: self.started)
    @invariant()
    def every_queue_is_what_the_page_says(self) -> None:
        for worker in self.held:
            assert self.placement.queues(worker) == tuple(map(tuple, self.expected(worker)))
        for name, job in self.jobs.items():
            assert job.handle.stage is job.stage, name

    @precondition(lambda self: self.started)
    @invariant()
    def the_counts_agree(self) -> None:
        seen = self.placement.statistics()
        running = sum(job.stage is Stage.PICKED for job in self.jobs.values())
        assert (seen.running, seen.waiting) == (running, len(self.jobs) - running)
        assert seen.scheduled == self.count
        assert seen.finished + seen.failed == self.count - len(self.jobs)
        assert seen.artifacts == sum(map(len, self.held.values()))
        for artifact in "abcdefg":
            holders = {worker for worker, held in self.held.items() if artifact in held}
            found = self.placement.locate(artifact)
            assert found in holders or (found is None and not holders)

    @precondition(lambda self: self.started)
    @invariant()
    def the_next_deadline_is_the_next(self) -> None:
        """`tick` before it moves nothing."""
        due = [
            job.since + delay
            for job in self.jobs.values()
            for stage, delay in ((Stage.CACHE, CACHE_S), (Stage.DEPS, DEPS_S))
            if job.stage is stage
        ]
        if self.options["lease_s"] is not None:
            busy = {job.worker for job in self.jobs.values() if job.stage is Stage.PICKED}
            due += [self.seen[worker] + LEASE_S for worker in busy if worker in self.held]
        assert self.placement.next_deadline() == min(due, default=None)

    def teardown(self) -> None:
        if not self.started:
            return
        for name, job in list(self.jobs.items()):
            finished, _ = self.placement.complete("w0", name, self.now)
            assert finished is job.handle
        assert emptied(self.placement)


Histories.TestCase.settings = settings(stateful_step_count=60)
TestHistories = pytest.mark.slow(Histories.TestCase)


# Order of the news ----------------------------------------------------------------------

NEWS: Final = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from("abcd"), st.sets(st.sampled_from("xyz"))),
    st.tuples(st.just("learn"), WORKERS, st.sets(st.sampled_from("xyz"))),
    st.tuples(st.just("learn"), WORKERS, st.sets(st.sampled_from("abcd"))),
    st.tuples(st.just("complete"), WORKERS, st.sampled_from("xyz")),
    st.tuples(st.just("register"), WORKERS, st.none()),
)


def told(news: list[tuple[str, str, Any]]) -> Placement:
    """Return what has heard *news*, with all delays over."""
    placement = Placement(Options(cache_timeout_s=1, deps_timeout_s=2), random.Random(0))
    for kind, who, what in news:
        if kind == "schedule":
            placement.schedule(Job(who, sorted(what)), 0)
        elif kind == "learn":
            placement.learn(who, sorted(what))
        elif kind == "complete":
            placement.complete(who, what, 0)
        else:
            placement.register(who, 0)
    for worker in ("w0", "w1", "w2"):
        placement.register(worker, 0)
    return placement


def membership(placement: Placement) -> list[tuple[set[Any], ...]]:
    return [tuple(map(set, placement.queues(worker))) for worker in ("w0", "w1", "w2")]


@given(news=st.lists(NEWS, max_size=14), seed=st.randoms(use_true_random=False))
def test_any_permutation_of_the_news_gives_the_same_membership(
    news: list[tuple[str, str, Any]], seed: random.Random
) -> None:
    # One id with two sets of dependencies is the job that came first.
    ids = [who for kind, who, _ in news if kind == "schedule"]
    assume(len(ids) == len(set(ids)))
    shuffled = list(news)
    seed.shuffle(shuffled)
    one, other = told(news), told(shuffled)

    # Whether a job starts at CACHE depends on when it was scheduled; the rest does not.
    stages = [{job.job.id: job.stage for job in each.unfinished()} for each in (one, other)]
    if stages[0] == stages[1]:
        assert membership(one) == membership(other)
    for placement in (one, other):
        placement.tick(10)
        placement.tick(20)
    assert membership(one) == membership(other)
    assert all(job.stage is Stage.GLOBAL for job in one.unfinished())


@given(
    jobs=st.lists(st.tuples(ARTIFACTS, st.sets(ARTIFACTS)), min_size=1, max_size=60),
    seed=st.integers(0, 99),
)
def test_every_job_is_picked_once_and_nothing_is_left(
    jobs: list[tuple[str, set[str]]], seed: int
) -> None:
    rng = random.Random(seed)
    placement = Placement(Options(cache_timeout_s=1, deps_timeout_s=2), rng)
    workers = ["w0", "w1", "w2"]
    for worker in workers:
        placement.register(worker, 0)
        placement.learn(worker, rng.sample("abcdefg", 3))
    scheduled = [
        placement.schedule(Job((number, name), sorted(deps)), number / 10)[0]
        for number, (name, deps) in enumerate(jobs)
    ]
    picked: list[PendingJob] = []
    now = len(jobs) / 10
    while len(picked) < len(scheduled):
        now += 0.5
        placement.tick(now)
        handle = placement.pick(rng.choice(workers), now)
        if handle is not None:
            picked.append(handle)
            placement.complete("w0", handle.job.id, now)

    assert sorted(picked, key=id) == sorted(scheduled, key=id)
    assert emptied(placement)
