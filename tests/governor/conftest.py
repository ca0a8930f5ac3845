"""What the tests of the governor share: a clock that a test drives."""

from __future__ import annotations

import pytest

from lardon.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands at 100 seconds."""
    return ManualClock(start=100.0)
