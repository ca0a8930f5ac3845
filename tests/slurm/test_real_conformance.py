"""Slurm does what every backend must, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lardon.dispatch.conformance import BACKEND_CHECKS, Check, Lacking
from lardon.testing.slurm_cluster import SlurmCluster
from tests.slurm.conformance_harness import ForgetfulHarness, SlurmHarness

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(150)]

Clean = Callable[[SlurmCluster], None]

# Ids that come round, records that are purged, nodes that are lost.
FORGETFUL = {7, 8, 19}
ELSEWHERE = {
    "causes-are-typed": "Slurm looks at time limits every half minute: see test_real_time_limit, "
    "and test_real_jobs for the other causes",
    "a-lost-node-ends-or-wedges": "test_real_faults loses a node, and has it come back as well",
}
# The ids that come round are all in use for a while afterwards.
IN_ORDER = sorted(BACKEND_CHECKS, key=lambda check: (check.number != 7, check.number in FORGETFUL))


@pytest.fixture(scope="module", autouse=True)
def _clusters_in_order(
    shared_cluster: SlurmCluster, fragile_cluster: SlurmCluster, end_jobs: Clean
) -> Iterator[None]:
    """Leave both clusters as they were; each check begins with such a one by itself."""
    yield
    for cluster in (shared_cluster, fragile_cluster):
        end_jobs(cluster)


@pytest.mark.parametrize("check", IN_ORDER, ids=lambda check: check.id)
@pytest.mark.usefixtures("timing_out")
def test_slurm(
    check: Check, request: pytest.FixtureRequest, end_jobs: Clean, tmp_path: Path
) -> None:
    """
    Every check that a harness of a real cluster can play.

    What a lost answer does with time is `test_24` of the faults: the suite's own check waits
    for the bound four times.
    """
    if check.name in ELSEWHERE:
        pytest.skip(ELSEWHERE[check.name])
    forgetful = check.number in FORGETFUL
    cluster = request.getfixturevalue("fragile_cluster" if forgetful else "shared_cluster")
    harness = (ForgetfulHarness if forgetful else SlurmHarness)(cluster, end_jobs, tmp_path)
    try:
        check(harness)
    except Lacking as lacking:
        pytest.skip(str(lacking))
