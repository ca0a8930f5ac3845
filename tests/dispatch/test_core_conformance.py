"""
The core keeps its rules on the backend in memory in both shapes, and a core that does not fails.

"core_checks(harness) as a parametrised pytest suite that a third party can run; the memory
backend passes both in both shapes; planted faults are each caught, which a test shows" (the
issue), "C1..: no two executions of one job at once; no decision taken on an unknown outcome
before the bound; two supervisors do not both act; recovery policy limits; a held job never
restarts; stop wins over restart" (dispatch.md, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from lardon.dispatch import InvalidError
from lardon.dispatch.conformance import Lacking
from lardon.dispatch.conformance.core import CORE_CHECKS, CoreHarness, core_checks
from lardon.dispatch.enums import Shape, UnmatchedPolicy
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.model import JobSpec, Ref
from lardon.dispatch.records import Records
from lardon.dispatch.spi import Backend
from lardon.dispatch.supervisor import Supervisor
from tests.dispatch.memory_harness import MemoryHarness
from tests.dispatch.planted_core_faults import (
    CallsLate,
    DecidesOnTheUnknown,
    ForgetsTheMemory,
    IgnoresHolds,
    IgnoresStops,
    KeepsDuplicates,
    KnowsNoGrace,
    KnowsNoLease,
    KnowsNoLimit,
    KnowsNoRecord,
    LooksForNoStrays,
    OpensAtOnce,
    RecoversNothing,
    StopsUnderReport,
    TakesNothingOver,
    TrustsEveryEnd,
    WritesNothingDown,
)


class MemoryCoreHarness(MemoryHarness, CoreHarness):  # type: ignore[misc]  # a ManualClock is one
    """The core on a cluster in memory."""

    def __init__(
        self,
        shape: Shape,
        more: Mapping[str, Any] | None = None,
        supervisor: type[Supervisor] = Supervisor,
        operator: type[Operator] = Operator,
        backend: type[MemoryBackend] = MemoryBackend,
    ) -> None:
        super().__init__(shape, more, backend.from_settings)
        self._supervisor = supervisor
        self._operator = operator

    def operator(self, backend: Backend, records: Records) -> Operator:
        poll_s = self.timings.poll_s
        return self._operator(
            backend, records, self.clock, call_timeout_s=2 * poll_s, poll_s=poll_s
        )

    def supervisor(self, name: str, operator: Operator) -> Supervisor:
        return self._supervisor(name, operator, lease_s=self.lease_s, skew_s=0)

    def sweeper(
        self, name: str, operator: Operator, unmatched: UnmatchedPolicy, grace_s: float
    ) -> Supervisor:
        how: dict[str, Any] = {"unmatched": unmatched, "unmatched_grace_s": grace_s}
        return self._supervisor(name, operator, lease_s=self.lease_s, skew_s=0, **how)

    def recover_node(self, ref: Ref) -> None:
        self.env.recover_node(self.env.truth(ref).nodes[0])

    def executing(self, job: str) -> int:
        return len(self.env.executing(job))


NO_REVIVAL = {"capabilities": {"RequeueEnded": {"value": "no"}}}

test_the_core_on_the_slurm_shape = core_checks(lambda: MemoryCoreHarness(Shape.SLURM))
test_the_core_on_the_kubeflow_shape = core_checks(lambda: MemoryCoreHarness(Shape.KUBEFLOW))
test_the_core_on_the_parity_of_slurm = core_checks(
    lambda: MemoryCoreHarness(Shape.SLURM, {**NO_REVIVAL, "requeueResetsSubmitTime": True})
)


class OpensByItself(MemoryBackend):
    """A cluster that knows no gate, though it says so."""

    def start(self, spec: JobSpec) -> Ref:
        ref = super().start(spec)
        self.open(ref)
        return ref


class StopsNothing(MemoryBackend):
    """A cluster that says of a stop that it is done, and does nothing."""

    def stop(self, ref: Ref) -> None:
        pass


class ForgetsItsBound(MemoryBackend):
    """A cluster on which nothing that was asked for can be found again."""

    def find_all(self, name: str) -> list[Any]:
        return []

    def find(self, name: str) -> None:
        return None


SLURM, KUBEFLOW = Shape.SLURM, Shape.KUBEFLOW
FAULTS: Final[Mapping[str, dict[str, Any]]] = {
    "C01": {"shape": SLURM, "supervisor": OpensAtOnce},
    "C01-never-stopped": {"shape": SLURM, "supervisor": KeepsDuplicates},
    "C01-no-gate": {"shape": SLURM, "backend": OpensByItself},
    "C02": {"shape": SLURM, "backend": ForgetsItsBound},
    "C03": {"shape": SLURM, "supervisor": DecidesOnTheUnknown},
    "C03-kubeflow": {"shape": KUBEFLOW, "supervisor": WritesNothingDown},
    "C04": {"shape": SLURM, "supervisor": KnowsNoLease},
    "C05": {"shape": SLURM, "supervisor": KnowsNoLimit},
    "C06": {"shape": SLURM, "supervisor": ForgetsTheMemory},
    "C08": {"shape": SLURM, "supervisor": IgnoresHolds},
    "C09": {"shape": KUBEFLOW, "supervisor": IgnoresHolds},
    "C10": {"shape": SLURM, "supervisor": IgnoresStops},
    "C11": {"shape": SLURM, "backend": StopsNothing},
    "C12": {"shape": SLURM, "supervisor": DecidesOnTheUnknown},
    "C13": {"shape": SLURM, "supervisor": TakesNothingOver},
    "C14": {"shape": SLURM, "operator": CallsLate},
    "C15": {"shape": SLURM, "supervisor": TrustsEveryEnd},
    "C15-kubeflow": {"shape": KUBEFLOW, "supervisor": TrustsEveryEnd},
    "C16": {"shape": SLURM, "supervisor": RecoversNothing},
    "C17": {"shape": SLURM, "supervisor": StopsUnderReport},
    "C17-kubeflow": {"shape": KUBEFLOW, "supervisor": KnowsNoRecord},
    "C18": {"shape": SLURM, "supervisor": KnowsNoGrace},
    "C18-kubeflow": {"shape": KUBEFLOW, "supervisor": KnowsNoGrace},
    "C18-no-record": {"shape": KUBEFLOW, "supervisor": KnowsNoRecord},
    "C18-never-stopped": {"shape": SLURM, "supervisor": LooksForNoStrays},
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_planted_fault_fails_the_check_that_is_named_for_it(name: str) -> None:
    (check,) = [one for one in CORE_CHECKS if one.id.startswith(name[:3])]

    with pytest.raises(AssertionError) as caught:
        check(MemoryCoreHarness(**FAULTS[name]))

    assert str(caught.value)


def test_the_checks_of_the_document_are_there() -> None:
    """Section 3 of dispatch.md names six rules; each has a check, and the numbers are a line."""
    assert [check.number for check in CORE_CHECKS] == list(range(1, 19))
    names = " ".join(check.name for check in CORE_CHECKS)
    for words in (
        "no-second-execution",
        "nothing-is-decided-on-an-unknown-outcome-before-its-bound",
        "two-supervisors-do-not-both-act",
        "a-policy-recovers-as-often-as-it-says",
        "a-held-job-does-not-start-again",
        "a-stop-wins-over-a-restart",
    ):
        assert words in names


def test_what_a_harness_lacks_is_skipped_with_the_reason() -> None:
    class Poor(MemoryCoreHarness):
        executing = CoreHarness.executing

    with pytest.raises(Lacking, match="the harness cannot count what runs"):
        CORE_CHECKS[1](Poor(SLURM))


def test_what_is_no_harness_is_refused() -> None:
    with pytest.raises(InvalidError):
        core_checks(3)  # type: ignore[arg-type]  # that is the point
