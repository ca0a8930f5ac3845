"""One check of the suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from lardon.dispatch.conformance.bench import Bench
from lardon.dispatch.conformance.harness import Harness

Work: TypeAlias = Callable[[Bench], None]


@attrs.frozen
class Check:
    """A rule that every backend keeps, and the code that finds out."""

    number: int
    name: str
    work: Work

    @property
    def id(self) -> str:
        """What the test is called."""
        return f"{self.number:02}-{self.name}"

    def __call__(self, harness: Harness) -> None:
        """
        Make the check on a new backend.

        Raises:
            AssertionError: the backend breaks the rule.
            Lacking: the check cannot be made on this backend or with this harness.

        """
        bench = Bench(harness)
        try:
            self.work(bench)
        finally:
            bench.clean()


def check(number: int) -> Callable[[Work], Check]:
    """Make a check of the function, which is named after the rule."""

    def made(work: Work) -> Check:
        return Check(number, work.__name__.replace("_", "-"), work)

    return made
