"""The backend in memory does what every backend must, in both shapes and with its options."""

from __future__ import annotations

from lardon.dispatch.conformance import backend_checks
from lardon.dispatch.enums import Shape
from tests.dispatch.memory_harness import MemoryHarness

NO_REVIVAL = {"capabilities": {"RequeueEnded": {"value": "no"}}}
HISTORY = {"capabilities": {"AccountingHistory": {"value": "yes"}}}

test_the_slurm_shape = backend_checks(lambda: MemoryHarness(Shape.SLURM))
test_the_kubeflow_shape = backend_checks(lambda: MemoryHarness(Shape.KUBEFLOW))
# As a real Slurm does: an ended object is not revived, and a requeue moves the submit time.
test_the_parity_of_slurm = backend_checks(
    lambda: MemoryHarness(Shape.SLURM, {**NO_REVIVAL, "requeueResetsSubmitTime": True})
)
test_slurm_with_accounting = backend_checks(lambda: MemoryHarness(Shape.SLURM, HISTORY))
test_kubeflow_with_accounting = backend_checks(lambda: MemoryHarness(Shape.KUBEFLOW, HISTORY))
test_a_lost_node_that_is_fenced = backend_checks(
    lambda: MemoryHarness(Shape.SLURM, {"cessation": {"ceased": True, "detail": "node fenced"}})
)
