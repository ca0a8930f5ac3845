"""The backend in memory does what every backend must, in both shapes and with its options."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from lardon.dispatch import memory, spi
from lardon.dispatch.conformance import BACKEND_CHECKS, Harness, Lacking, backend_checks
from lardon.dispatch.enums import Shape
from lardon.dispatch.errors import InvalidError, MissingExtra
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.model import Ref
from lardon.testing import ManualClock
from tests.dispatch.jobs import spec
from tests.dispatch.memory_harness import MemoryHarness

pytest_plugins = ["pytester"]

NO_REVIVAL = {"capabilities": {"RequeueEnded": {"value": "no"}}}
HISTORY = {"capabilities": {"AccountingHistory": {"value": "yes"}}}

test_the_slurm_shape = backend_checks(lambda: MemoryHarness(Shape.SLURM))
test_the_kubeflow_shape = backend_checks(lambda: MemoryHarness(Shape.KUBEFLOW))
# As a real Slurm does: an ended object is not revived, and a requeue moves the submit time.
test_the_parity_of_slurm = backend_checks(
    lambda: MemoryHarness(Shape.SLURM, {**NO_REVIVAL, "requeueResetsSubmitTime": True})
)
test_slurm_with_accounting = backend_checks(lambda: MemoryHarness(Shape.SLURM, HISTORY))
test_kubeflow_with_accounting = backend_checks(lambda: MemoryHarness(Shape.KUBEFLOW, HISTORY))
test_a_lost_node_that_is_fenced = backend_checks(
    lambda: MemoryHarness(Shape.SLURM, {"cessation": {"ceased": True, "detail": "node fenced"}})
)

REF: Final = Ref("dj-x", 1, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))

# What each shape has nothing to do for, by the name of the check.
SLURM_SKIPS: Final = {"18-evidence-fades"}
KUBEFLOW_SKIPS: Final = {
    "15-a-pending-object-is-not-requeued",
    "15-a-running-object-is-requeued",
    "15-an-ended-object-is-revived-or-not",
    "16-a-crash-between-steps-shows",
    "16-an-ended-object-takes-no-update",
    "17-preemption-with-the-bit",
}


@pytest.mark.parametrize("shape", list(Shape))
def test_both_shapes_pass_and_skip_nothing_that_they_have(shape: Shape) -> None:
    """Seed 000, F1, I3, I4: every check, but for what the other shape alone has."""
    skipped = set()
    for check in BACKEND_CHECKS:
        try:
            check(MemoryHarness(shape))
        except Lacking:
            skipped.add(check.id)

    assert skipped == (SLURM_SKIPS if shape is Shape.SLURM else KUBEFLOW_SKIPS)


def test_it_has_seven_of_the_optional_interfaces() -> None:
    """Seed 000, I1: the required one too, and so does a view."""
    backend = MemoryBackend()
    kinds = (
        spi.Backend,
        spi.Holder,
        spi.Requeuer,
        spi.NativePolicyCompiler,
        spi.Watcher,
        spi.CessationSignal,
        spi.IdentityWeakener,
        spi.MultiFinder,
    )

    for view in (backend, backend.view(), backend.view(read_only=True)):
        assert all(isinstance(view, kind) for kind in kinds)


def test_it_reads_no_output() -> None:
    """Seed 000, I2: the eighth is not there, rather than there and refusing."""
    assert not isinstance(MemoryBackend(), spi.OutputReader)


def test_it_says_that_it_is_not_for_production() -> None:
    """Seed 000, I5: where somebody who is about to use it reads."""
    assert "Not for production" in (MemoryBackend.__doc__ or "")
    assert "not for production" in (memory.__doc__ or "")


def test_what_is_read_back_confirms_the_identity() -> None:
    """dispatch.md, section 1.4: nothing is weaker than what was acted on."""
    backend = MemoryBackend()
    ref = backend.start(spec())

    assert backend.weakened(ref) == frozenset()


# A harness of somebody else's


class Bare(Harness):
    """Says nothing but how to get a backend."""

    def backend(self) -> spi.Backend:
        return MemoryBackend(clock=self.clock)

    def __init__(self) -> None:
        self.clock = ManualClock()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


def test_what_a_harness_lacks_is_skipped_with_the_reason() -> None:
    """dispatch.md, section 3: no check fails for want of a hook, nor passes without one."""
    reasons = {}
    passed = set()
    for check in BACKEND_CHECKS:
        try:
            check(Bare())
            passed.add(check.id)
        except Lacking as lacking:
            reasons[check.id] = str(lacking)
        except AssertionError as error:
            # Nothing runs by itself here, as it would on a real cluster.
            assert "that runs was due" in str(error), check.id  # noqa: PT017

    assert {"02-words-are-closed", "04-duplicates-are-seen-or-refused"} <= passed
    assert reasons["01-settings-are-strict"] == "the harness does not say adapter and settings"
    assert reasons["05-an-administrators-hold-refuses-open"] == (
        "the harness cannot hold a job as an administrator"
    )
    assert reasons["07-a-reused-id-is-another-object"] == "the harness does not say max_job_id"
    assert reasons["14-a-lost-answer-settles-in-time"] == (
        "the harness cannot lose the answer to a call"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda harness: harness.finish(REF, 0),
        lambda harness: harness.out_of_memory(REF),
        lambda harness: harness.time_out(REF),
        lambda harness: harness.preempt(REF),
        lambda harness: harness.lose_node(REF),
        lambda harness: harness.admin_hold(REF),
        lambda harness: harness.cancel(REF),
        lambda harness: harness.requeue_externally(REF),
        lambda harness: harness.environment(REF),
        lambda harness: harness.late_call(REF.submitted_at),
        lambda harness: harness.crash_between_steps(),
        lambda harness: harness.lose_answer(None),
        lambda harness: harness.read_only(MemoryBackend()),
    ],
)
def test_a_hook_that_is_not_there_says_what_it_cannot(call: Callable[[Harness], object]) -> None:
    """dispatch.md, decisions: what a harness lacks is skipped with the reason."""
    with pytest.raises(Lacking, match=r"^the harness cannot \w+"):
        call(Harness())


def test_a_watcher_that_falls_behind_may_begin_again() -> None:
    """dispatch.md, check 20: every change is seen, or the stream says that it ended."""
    for check in BACKEND_CHECKS:
        if check.number == 20:
            harness = MemoryHarness(Shape.SLURM, {"watchBuffer": 1})
            harness.watch_buffer = 1
            check(harness)


def test_the_suite_stops_what_it_has_started() -> None:
    """On a real cluster nothing of a check runs on, nor waits, when it is over."""
    harness = MemoryHarness(Shape.SLURM)
    for check in BACKEND_CHECKS:
        if check.number in {9, 17}:
            check(harness)
            truths = [harness.env.truth(ref) for ref in harness.env.refs()]
            assert truths
            assert all(truth.ended for truth in truths)


class Least:
    """A backend with the required interface alone."""

    def __init__(self, inner: MemoryBackend) -> None:
        self.inner = inner
        for name in ("start", "open", "stop", "observe_many", "find", "declarations", "close"):
            setattr(self, name, getattr(inner, name))


class LeastHarness(MemoryHarness):
    """Has nothing else to give."""

    def backend(self) -> spi.Backend:
        made = super().backend()
        assert isinstance(made, MemoryBackend)
        least: Any = Least(made)
        return least  # type: ignore[no-any-return]

    def read_only(self, backend: spi.Backend) -> spi.Backend:
        inner: Any = backend
        least: Any = Least(inner.inner.view(read_only=True))
        return least  # type: ignore[no-any-return]


def test_an_optional_interface_that_is_not_there_is_skipped() -> None:
    """dispatch.md, section 3: with the reason that names it; the other checks pass."""
    reasons = set()
    for check in BACKEND_CHECKS:
        try:
            check(LeastHarness(Shape.SLURM))
        except Lacking as lacking:
            reasons.add(str(lacking))

    names = ("Holder", "Requeuer", "Watcher", "MultiFinder", "CessationSignal")
    assert {f"the backend is no {name}" for name in names} <= reasons


def test_the_suite_is_a_test_of_pytests_with_named_cases(pytester: pytest.Pytester) -> None:
    """dispatch.md, section 3: it runs from somebody else's own tests, one case for each check."""
    pytester.makepyfile(
        test_mine="""
        from lardon.dispatch.conformance import Harness, backend_checks
        from lardon.dispatch.memory import MemoryBackend
        from lardon.testing import ManualClock

        class Mine(Harness):
            def __init__(self):
                self.clock = ManualClock()
            def backend(self):
                self.made = MemoryBackend(clock=self.clock)
                return self.made
            def advance(self, seconds):
                self.clock.advance(seconds)
            def now(self):
                return self.clock.wall()
            def run(self, ref):
                self.made.env().run(ref)

        test_mine = backend_checks(Mine)
        """
    )

    result = pytester.runpytest_inprocess("-rs", "-v", "-p", "no:cacheprovider")

    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) == outcomes.get("errors", 0) == 0
    assert outcomes["passed"] + outcomes["skipped"] == len(BACKEND_CHECKS)
    assert outcomes["passed"] >= 8
    result.stdout.fnmatch_lines(["*test_mine?06-stop-ends-the-one-that-is-meant? PASSED*"])
    result.stdout.fnmatch_lines(["*SKIPPED*the harness cannot preempt a job*"])


def test_one_harness_serves_all_cases_too() -> None:
    """dispatch.md, section 3: a harness, or what makes one."""
    harness = MemoryHarness(Shape.SLURM)
    test: Any = backend_checks(harness)

    for check in BACKEND_CHECKS[:3]:
        test(check)
    with pytest.raises(InvalidError, match="harness must be a Harness"):
        backend_checks("memory")  # type: ignore[arg-type]  # that is what is refused


def test_without_pytest_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """dispatch.md, decisions: what is optional is an extra, and the error names it."""
    monkeypatch.setitem(sys.modules, "pytest", None)

    with pytest.raises(MissingExtra, match=r"lardon\[dispatch,test\]"):
        backend_checks(Bare)


def test_a_harness_must_give_a_backend() -> None:
    with pytest.raises(NotImplementedError):
        BACKEND_CHECKS[0](Harness())


def test_a_real_harness_waits_in_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """dispatch.md, section 3: without a clock of its own it asks the machine's."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    Harness().advance(5)

    assert slept == [5]
    assert abs(Harness().now() - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(hours=1)
