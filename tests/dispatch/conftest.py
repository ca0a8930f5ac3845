"""A cluster in memory under a test's clock."""

from __future__ import annotations

import pytest

from lardon.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Return the clock of the cluster."""
    return ManualClock()
