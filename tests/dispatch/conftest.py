"""A cluster in memory under a test's clock, and pools on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import RemoteCluster


@pytest.fixture
def clock() -> ManualClock:
    """Return the clock of the cluster."""
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[RemoteCluster]:
    """Return a maker of pools, which are closed when the test ends."""
    made = RemoteCluster(clock)
    yield made
    made.close()
