"""The kernel's own verdict: who asked first survives the limit, and who did not is killed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import pytest

from lardon.units import MiB
from tests.real.child import Died

if TYPE_CHECKING:
    from tests.real.conftest import Kernel

pytestmark = pytest.mark.slow

LIMIT_BYTES: Final = 300 * MiB
ITEM_BYTES: Final = 20 * MiB
# Together more than the limit by far, and far less than the smallest machine has left.
ITEMS: Final = 24


def test_a_governed_run_survives(kernel: Kernel) -> None:
    """All is done in batches as large as the limit lets them be, and nobody is killed."""
    group = kernel.memory(LIMIT_BYTES)
    child = kernel.run(group)
    decision = child.ask("run", probe="system", items=ITEMS, item_bytes=ITEM_BYTES)
    batches = []
    while "batch" in (said := child.hear()):
        batches.append(said["batch"])

    assert decision == {"decision": "REDUCE_BATCH", "code": "RAM_SHORT"}
    assert said["done"] == list(range(ITEMS))
    assert max(batches) * ITEM_BYTES < LIMIT_BYTES
    # Not one by one either: of the 300 MiB an eighth is the reserve, and some 30 MiB are
    # the interpreter's.
    assert batches[0] >= 9
    assert group.oom_kills == 0


def test_the_same_work_ungoverned_is_killed(kernel: Kernel) -> None:
    group = kernel.memory(LIMIT_BYTES)
    child = kernel.run(group)

    with pytest.raises(Died) as death:
        child.ask("run_at_once", items=ITEMS, item_bytes=ITEM_BYTES)

    assert death.value.status == -signal.SIGKILL
    assert group.oom_kills == 1


def test_a_governor_on_psutil_alone_starts_the_task_that_dies(kernel: Kernel) -> None:
    """Why the cgroup matters: psutil's figures are the host's."""
    group = kernel.memory(LIMIT_BYTES)
    child = kernel.run(group)
    said = [child.ask("run", probe="psutil", items=ITEMS, item_bytes=ITEM_BYTES), child.hear()]

    with pytest.raises(Died) as death:
        child.hear()

    assert said == [{"decision": "START", "code": "OK"}, {"batch": ITEMS}]
    assert death.value.status == -signal.SIGKILL
    assert group.oom_kills == 1


def test_batches_follow_a_limit_that_shrinks_and_grows(kernel: Kernel) -> None:
    """A container that is resized between two batches: the next one is sized for it."""
    group = kernel.memory(200 * MiB)
    child = kernel.run(group)
    limits = iter([110 * MiB, 200 * MiB])
    batches = []
    child.ask("run", probe="system", items=50, item_bytes=10 * MiB, ask=True)
    while "batch" in (said := child.hear()):
        batches.append(said["batch"])
        assert child.hear() == {"worked": said["batch"]}
        # The batch's memory is free again; the break comes next.
        group.limit(next(limits, 200 * MiB))
        child.tell("go on")
    wide, narrow, wide_again, *_ = batches

    assert said["done"] == list(range(50))
    assert narrow * 10 * MiB < 110 * MiB
    # Of the 90 MiB an eighth goes to the reserve, and a few may be left over.
    assert wide >= narrow + 6
    assert wide_again >= narrow + 6
    assert group.oom_kills == 0
