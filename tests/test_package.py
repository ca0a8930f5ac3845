"""What `import lardon` gives, and what it leaves for later."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import lardon


def test_every_public_name_is_there_and_listed() -> None:
    for name in lardon.__all__:
        assert hasattr(lardon, name)
        assert name in dir(lardon)


@pytest.mark.parametrize("name", sorted(lardon._LATER))
def test_a_name_that_is_imported_later_is_the_module_s_own(name: str) -> None:
    assert getattr(lardon, name) is getattr(importlib.import_module(lardon._LATER[name]), name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lardon' has no attribute 'Governer'"):
        _ = lardon.Governer  # type: ignore[attr-defined]  # not there: that is the point


def test_importing_takes_no_part_that_only_some_need() -> None:
    """Each costs a module, and `import lardon` is in every worker process."""
    code = "import sys, lardon; print(*sorted(m for m in sys.modules if 'lardon.' in m))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()

    later = {
        "lardon.dispatch",
        "lardon.governor.batch_record",
        "lardon.governor.examination",
        "lardon.governor.offers",
        "lardon.governor.sentences",
        "lardon.locality",
        "lardon.queue.views",
        "lardon.testing",
    }
    assert later.isdisjoint(loaded)
    assert "lardon.queue.task_queue" in loaded
