"""Whatever is called in whatever order, what must never happen does not."""

from __future__ import annotations

import contextlib
import datetime
import queue
from collections.abc import Mapping
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import DispatchError, WatchClosed
from lardon.dispatch.memory import (
    MemoryBackend,
    Truth,
    answer_lost,
    call_started_at,
    crash_between_steps,
)
from lardon.dispatch.model import CallMeta, HoldMeta, Observation, Ref
from lardon.dispatch.stream import BufferedStream
from lardon.testing import ManualClock
from tests.dispatch.jobs import JOB, OTHER, spec

SECOND: Final = datetime.timedelta(seconds=1)
WHICH: Final = st.integers(0, 30)
INSTANCES: Final = st.integers(1, 3)
VERBS: Final = (
    "run", "finish", "out_of_memory", "time_out", "preempt", "lose_node", "admin_hold",
    "admin_release", "cancel", "requeue_externally", "purge",
)  # fmt: skip


class Cluster(RuleBasedStateMachine):
    """A cluster that anybody calls, and what must hold after every call."""

    options: Mapping[str, Any] = {"shape": Shape.SLURM}

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock()
        self.backend = MemoryBackend(
            clock=self.clock, max_job_id=4, slurmd_timeout_s=40, watch_buffer=1000, **self.options
        )
        self.env = self.backend.env()
        self.refs: list[Ref] = []
        self.submissions = 0
        self.attempts: set[str] = set()
        self.told: dict[Ref, Observation] = {}
        self.stream: BufferedStream = self.backend.watch()

    def ref(self, which: int) -> Ref:
        return self.refs[which % len(self.refs)]

    @rule(job=st.sampled_from([JOB, OTHER]), again=st.booleans())
    def start(self, job: str, again: bool) -> None:
        self.submissions += not again or not self.submissions
        with contextlib.suppress(DispatchError):
            self.refs.append(self.backend.start(spec(job, submission=self.submissions)))

    @precondition(lambda self: self.refs)
    @rule(which=WHICH, verb=st.sampled_from(["open", "stop"]))
    def call(self, which: int, verb: str) -> None:
        with contextlib.suppress(DispatchError):
            getattr(self.backend, verb)(self.ref(which))

    @precondition(lambda self: self.refs)
    @rule(
        which=WHICH,
        verb=st.sampled_from(["hold", "release", "requeue", "restore_requeue_bit"]),
        instance=INSTANCES,
        played=st.sampled_from(["in time", "late", "crash", "never", "at once", "later"]),
    )
    def change(self, which: int, verb: str, instance: int, played: str) -> None:
        ref, deadline = self.ref(which), self.clock.wall() + 30 * SECOND
        before = self.truth(ref)
        around: dict[str, Any] = {
            "late": lambda: call_started_at(deadline + SECOND),
            "crash": crash_between_steps,
            "never": lambda: answer_lost(None),
            "at once": lambda: answer_lost(0),
            "later": lambda: answer_lost(50),
        }
        holds = verb in {"hold", "release"}
        meta = HoldMeta(instance, deadline) if holds else CallMeta(deadline)
        with around.get(played, contextlib.nullcontext)():
            try:
                found = getattr(self.backend, verb)(ref, meta)
            except DispatchError:
                found = None
        if isinstance(found, Ref) and found not in self.refs:
            self.refs.append(found)
        if played in {"late", "never"}:
            assert self.truth(ref) == before

    @precondition(lambda self: self.refs)
    @rule(which=WHICH, verb=st.sampled_from(VERBS))
    def play(self, which: int, verb: str) -> None:
        ref = self.ref(which)
        before = self.truth(ref)
        try:
            found = getattr(self.env, verb)(ref)
        except DispatchError:
            assert self.truth(ref) == before, "a refused verb must change nothing"
            return
        if isinstance(found, Ref) and found not in self.refs:
            self.refs.append(found)
        if verb == "run":
            self._ran(ref, before)

    def _ran(self, ref: Ref, before: Truth) -> None:
        assert before.state is State.PENDING
        assert not before.gated
        assert not before.held
        now = self.truth(ref)
        assert now.attempt is not None
        assert now.epoch is not None
        assert now.attempt not in self.attempts
        assert before.epoch is None or before.epoch < now.epoch
        self.attempts.add(now.attempt)

    @precondition(lambda self: self.refs)
    @rule(which=WHICH)
    def recover(self, which: int) -> None:
        for node in self.truth(self.ref(which)).nodes:
            self.env.recover_node(node)

    @rule(seconds=st.sampled_from([0, 0.5, 1, 39, 40, 300, 3600]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def truth(self, ref: Ref) -> Truth:
        return self.env.truth(ref)

    @invariant()
    def a_watcher_knows_what_a_reader_sees(self) -> None:
        seen = self.backend.observe_many(self.refs)
        with contextlib.suppress(queue.Empty, WatchClosed):
            while True:
                one = self.stream.get_nowait()
                self.told[one.ref] = one
        if self.stream.closed:
            self.stream, self.told = self.backend.watch(), {}
            return
        for ref, told in self.told.items():
            if ref in seen:
                assert seen[ref] == told

    @invariant()
    def what_ended_has_a_cause_and_what_is_absent_none(self) -> None:
        for ref, seen in self.backend.observe_many(self.refs).items():
            assert seen.ref == ref
            if seen.ended:
                assert seen.cause not in {None, Cause.REQUEUED, Cause.NO_CAPACITY}
            if not seen.known:
                assert seen == Observation.unknown(ref)
            if seen.state is State.RUNNING:
                assert not seen.gated
                assert seen.attempt is not None

    @invariant()
    def ids_of_what_is_there_differ(self) -> None:
        there = self.env.refs()
        assert len({ref.id for ref in there}) == len(there)


def cluster(**options: Any) -> type[Cluster]:
    return type("Cluster", (Cluster,), {"options": options})


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"shape": Shape.SLURM},
        {"shape": Shape.SLURM, "requeue_resets_submit_time": True},
        {"shape": Shape.KUBEFLOW, "evidence_window_s": 100},
    ],
    ids=["slurm", "slurm as it is", "kubeflow"],
)
def test_nothing_that_must_not_happen_happens(options: Mapping[str, Any]) -> None:
    """dispatch.md, section 2: the rules hold together, in any order of calls and events."""
    case = cluster(**options).TestCase
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
    case().runTest()
