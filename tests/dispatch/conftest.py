"""A cluster in memory under a test's clock, pools on it, and strays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lardon.testing import ManualClock
from tests.dispatch.remote_cluster import RemoteCluster
from tests.dispatch.strays import Core


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


@pytest.fixture
def core(clock: ManualClock) -> Core:
    """Return a cluster with a store, and with objects that no record in it claims."""
    return Core(clock)
