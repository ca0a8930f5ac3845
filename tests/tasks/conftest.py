"""A task that breaks its sequence, under a governor that a test scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tasks.breaking import PATIENCE_S, Breaker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def breaker() -> Iterator[Breaker]:
    one = Breaker()
    yield one
    assert one.queue.close(PATIENCE_S)
    assert one.governor.reservations() == ()
    # At no answer to a break did the task hold anything.
    assert set(one.active) <= {0}
