"""Queues under a governor that a test scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lardon import TaskQueue
from lardon.testing import ScriptedGovernor, start
from tests.tasks.breaking import PATIENCE_S, Breaker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(name="queue")
def one_queue() -> Iterator[TaskQueue]:
    """Return a queue whose every task starts at once."""
    with TaskQueue(ScriptedGovernor([start()])) as one:
        yield one


@pytest.fixture
def breaker() -> Iterator[Breaker]:
    """Return a queue with a task to break; at its end nothing may be held."""
    one = Breaker()
    yield one
    assert one.queue.close(PATIENCE_S)
    assert one.governor.reservations() == ()
    # At no answer to a break did the task hold anything.
    assert set(one.active) <= {0}
