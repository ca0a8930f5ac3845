"""A machine of files and a driver that a test controls, and the governor's answers on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lardon.governor.governor import Governor
from lardon.governor.policy import Policy
from lardon.governor.probes import SystemProbe
from lardon.testing.clock import ManualClock
from lardon.testing.nvml import FakeNvml
from lardon.testing.root import FakeRoot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lardon.governor.decision import Decision
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.snapshot import ResourceSnapshot


class Machine:
    """A fake root, a fake driver, an environment and a clock, with one probe on them."""

    def __init__(self, path: Path) -> None:
        self.root = FakeRoot(path)
        self.nvml = FakeNvml()
        self.environ: dict[str, str] = {}
        self.clock = ManualClock(start=100.0)
        self._probe: SystemProbe | None = None

    @property
    def probe(self) -> SystemProbe:
        """The probe; made at first use, so that the environment can be set before."""
        if self._probe is None:
            self._probe = SystemProbe(
                self.root, nvml=self.nvml, environ=self.environ, clock=self.clock
            )
        return self._probe

    def snapshot(self) -> ResourceSnapshot:
        """Return what the probe reads now."""
        return self.probe.snapshot()

    def governor(self, policy: Policy | None = None) -> Governor:
        """Return a governor on the probe."""
        return Governor(policy, probe=self.probe, clock=self.clock)

    def decide(self, estimate: ResourceEstimate, policy: Policy | None = None) -> Decision:
        """Return the answer of a new governor without reserves, or with *policy*."""
        return self.governor(policy or Policy.unlimited()).decide(estimate)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine of 16 GiB, 12 of them available, 8 CPUs, no limit and no GPU."""
    one = Machine(tmp_path)
    yield one
    one.nvml.recover()
