"""Slurm does what every backend must, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lardon.dispatch.conformance import BACKEND_CHECKS, Check, Lacking
from lardon.testing.slurm_cluster import SlurmCluster
from tests.slurm.conformance_harness import ForgetfulHarness, SlurmHarness

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(150)]

Clean = Callable[[SlurmCluster], None]

# Ids that come round, records that are purged, nodes that are lost.
FORGETFUL = {7, 8, 19}


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.id)
def test_slurm(check: Check, request: pytest.FixtureRequest, end_jobs: Clean) -> None:
    """
    Every check that a harness of a real cluster can play.

    What a lost answer does with time is `test_24` of the faults: the suite's own check waits
    for the bound four times.
    """
    forgetful = check.number in FORGETFUL
    cluster = request.getfixturevalue("fragile_cluster" if forgetful else "shared_cluster")
    harness = (ForgetfulHarness if forgetful else SlurmHarness)(cluster, end_jobs)
    try:
        check(harness)
    except Lacking as lacking:
        pytest.skip(str(lacking))
    finally:
        end_jobs(cluster)
