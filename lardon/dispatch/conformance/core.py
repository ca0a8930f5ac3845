"""
What the core must do on every backend: the real operator, supervisor and observer on yours.

    from lardon.dispatch.conformance.core import CoreHarness, core_checks

    class MyHarness(CoreHarness):
        def backend(self): return MyBackend(...)

    test_the_core_on_my_backend = core_checks(MyHarness)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from lardon.clock import Clock, MachineClock
from lardon.dispatch.conformance.core_bench import CoreCheck
from lardon.dispatch.conformance.core_check_list import CHECKS
from lardon.dispatch.conformance.harness import Harness, Lacking
from lardon.dispatch.conformance.suite import Harnesses, as_test
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.records import MemoryRecords, Records
from lardon.dispatch.supervisor import Supervisor

if TYPE_CHECKING:
    from lardon.dispatch.enums import UnmatchedPolicy
    from lardon.dispatch.model import Ref
    from lardon.dispatch.spi import Backend

CORE_CHECKS: Final[tuple[CoreCheck, ...]] = CHECKS
"""Every check of the core, in the order of their numbers."""


class CoreHarness(Harness):
    """
    A harness that also says what the core is made of; only `backend` must be given.

    Override `operator`, `supervisor` or `sweeper` to check a core of your own.
    """

    lease_s: float = 60.0
    """How long a supervisor's lease lasts."""
    clock: Clock = MachineClock()
    """The clock that `advance` moves."""

    def records(self) -> Records:
        """Return an empty store."""
        return MemoryRecords()

    def operator(self, backend: Backend, records: Records) -> Operator:
        """Return the side that acts."""
        return Operator(
            backend,
            records,
            self.clock,
            call_timeout_s=2 * self.timings.poll_s,
            poll_s=self.timings.poll_s,
        )

    def supervisor(self, name: str, operator: Operator) -> Supervisor:
        """Return the side that decides."""
        return Supervisor(name, operator, lease_s=self.lease_s, skew_s=0)

    def sweeper(
        self, name: str, operator: Operator, unmatched: UnmatchedPolicy, grace_s: float
    ) -> Supervisor:
        """Return the side that decides, with something to do about objects of no record."""
        return Supervisor(
            name,
            operator,
            unmatched=unmatched,
            unmatched_grace_s=grace_s,
            lease_s=self.lease_s,
            skew_s=0,
        )

    def recover_node(self, ref: Ref) -> None:
        """Bring the node back under an object, so that nothing of it runs on there."""
        _lacks("bring a node back")

    def executing(self, job: str) -> int:
        """Return how many executions of a job run now, those on lost nodes included."""
        _lacks("count what runs")


def _lacks(what: str) -> NoReturn:
    message = f"the harness cannot {what}"
    raise Lacking(message)


def core_checks(harness: Harnesses) -> Callable[..., None]:
    """
    Return a test with one case for each check of the core; see `backend_checks`.

    Args:
        harness: A `CoreHarness`, or what makes one for each case.

    Raises:
        MissingExtra: pytest is not installed.
        InvalidError: *harness* is neither.

    """
    return as_test(CORE_CHECKS, harness)
