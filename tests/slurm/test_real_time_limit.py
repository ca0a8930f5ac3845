"""A job that takes too long; its name puts this file behind those that run meanwhile."""

from __future__ import annotations

import pytest

from lardon.dispatch.model import Cause, Ref, State
from lardon.dispatch.slurm import SlurmBackend
from tests.slurm.jobs import eventually, seen

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(150)]


def test_a_job_at_its_time_limit_ends_with_that_cause(
    timing_out: tuple[SlurmBackend, Ref],
) -> None:
    """Conformance check 18."""
    backend, ref = timing_out

    after = eventually(lambda: seen(backend, ref), lambda one: one.state is State.ENDED, 120)

    assert after.cause is Cause.TIMEOUT
