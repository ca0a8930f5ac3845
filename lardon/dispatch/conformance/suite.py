"""The checks as a test of pytest's, for a backend's own test suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from lardon.dispatch.conformance import (
    call_checks,
    execution_checks,
    identity_checks,
    view_checks,
)
from lardon.dispatch.conformance.check import Check
from lardon.dispatch.conformance.harness import Harness, Lacking
from lardon.dispatch.errors import InvalidError, MissingExtra
from lardon.governor.checks import refuse

BACKEND_CHECKS: Final[tuple[Check, ...]] = (
    *identity_checks.CHECKS,
    *call_checks.CHECKS,
    *execution_checks.CHECKS,
    *view_checks.CHECKS,
)
"""Every check of a backend, in the order of their numbers."""

Harnesses: TypeAlias = Harness | Callable[[], Harness]


class AnyCheck(Protocol):
    """A check of a backend or of the core."""

    @property
    def id(self) -> str:
        """What the test is called."""
        ...

    def __call__(self, harness: Any) -> None:
        """Make the check."""
        ...


def backend_checks(harness: Harnesses) -> Callable[..., None]:
    """
    Return a test with one case for each check; give it to pytest under a name it collects.

        test_my_backend = backend_checks(MyHarness)

    A check that the backend or the harness cannot do is skipped, with the reason.

    Args:
        harness: A harness, or what makes one (a class does) for each case.

    Raises:
        MissingExtra: pytest is not installed.
        InvalidError: *harness* is neither.

    """
    return as_test(BACKEND_CHECKS, harness)


def as_test(checks: Sequence[AnyCheck], harness: Harnesses) -> Callable[..., None]:
    """Return a test of pytest's with one case for each of *checks*; see `backend_checks`."""
    try:
        import pytest
    except ModuleNotFoundError as error:
        message = (
            "the conformance suite needs pytest, which is not installed; "
            "an extra brings it: python -m pip install 'lardon[dispatch,test]'"
        )
        raise MissingExtra(message, extra="test") from error
    if not isinstance(harness, Harness) and not callable(harness):
        raise refuse(InvalidError, "harness", harness, "a Harness, or a callable that makes one")

    def test(check: AnyCheck) -> None:
        made: Any = harness if isinstance(harness, Harness) else harness()
        try:
            check(made)
        except Lacking as lacking:
            pytest.skip(str(lacking))

    ids = [check.id for check in checks]
    parametrized: Callable[..., None] = pytest.mark.parametrize("check", checks, ids=ids)(test)
    return parametrized
