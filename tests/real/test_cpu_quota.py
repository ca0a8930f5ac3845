"""What a process in a real CPU cgroup is told of its quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.real.conftest import Kernel

pytestmark = pytest.mark.slow


def test_the_quota_of_a_group_and_of_its_ancestor(kernel: Kernel) -> None:
    """Half a CPU is one, and what is changed in place is seen by the next snapshot."""
    outer = kernel.cpu()
    inner = kernel.cpu(inside=outer)
    child = kernel.run(inner)
    free = child.ask("snapshot")
    if free["cpus"] < 2:
        pytest.skip(f"a quota cannot show where there is {free['cpus']} CPU")
    outer.quota(0.5)
    by_ancestor = child.ask("snapshot")
    outer.quota(None)
    inner.quota(1)
    by_itself = child.ask("snapshot")
    inner.quota(1.5)
    rounded_up = child.ask("snapshot")

    assert by_ancestor["cpus"] == by_itself["cpus"] == 1
    assert f"the number of CPUs is bound by {outer.quota_file}: 1" in by_ancestor["limits"]
    assert f"the number of CPUs is bound by {inner.quota_file}: 1" in by_itself["limits"]
    assert rounded_up["cpus"] == 2
    assert not any(str(outer.quota_file) in text for text in free["limits"])
