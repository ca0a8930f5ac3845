"""
What every backend must do, as tests that its own suite can run.

    from lardon.dispatch.conformance import Harness, backend_checks

    class MyHarness(Harness):
        def backend(self): return MyBackend(...)

    test_my_backend = backend_checks(MyHarness)

Needs pytest, but only to make the tests.
"""

from lardon.dispatch.conformance.check import Check
from lardon.dispatch.conformance.harness import Harness, Lacking
from lardon.dispatch.conformance.suite import BACKEND_CHECKS, backend_checks
from lardon.dispatch.conformance.timings import DEFAULT_TIMINGS, Timings

__all__ = [
    "BACKEND_CHECKS",
    "DEFAULT_TIMINGS",
    "Check",
    "Harness",
    "Lacking",
    "Timings",
    "backend_checks",
]
