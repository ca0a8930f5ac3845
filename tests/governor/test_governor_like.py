"""What a queue relies on, and where it must run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from lardon import Governor, Policy, ResourceEstimate, ResourceSnapshot
from lardon.governor.like import GovernorLike
from lardon.testing import ManualClock, ScriptedGovernor, ScriptedProbe, start


def real(clock: ManualClock) -> GovernorLike:
    machine = ResourceSnapshot(taken_at=0.0, ram_total_bytes=9, ram_available_bytes=9)
    return Governor(Policy.unlimited(), probe=ScriptedProbe(machine, clock=clock), clock=clock)


def scripted(clock: ManualClock) -> GovernorLike:
    return ScriptedGovernor([start()], policy=Policy.unlimited(), clock=clock)


@pytest.mark.parametrize("make", [real, scripted])
def test_the_fake_keeps_the_contract_of_the_real_one(
    clock: ManualClock, make: Callable[[ManualClock], GovernorLike]
) -> None:
    governor = make(clock)
    told: list[int] = []
    unsubscribe = governor.subscribe(lambda: told.append(1))

    first, second = (
        governor.reserve(ResourceEstimate(), holder="me", replaces=None, devices=None)[1]
        for _ in range(2)
    )

    assert governor.clock is clock
    assert governor.policy == Policy.unlimited()
    assert first is not None
    assert second is None or second.id == 2
    assert (first.id, first.holder, first.active, told[:1]) == (1, "me", True, [1])
    before = len(told)
    assert [first.release(), first.release(), first.active] == [True, False, False]
    assert len(told) == before + 1
    unsubscribe()
    if second is not None:
        assert second.release()
    assert len(told) == before + 1


@pytest.mark.slow
def test_a_platform_without_fork_can_import_it() -> None:
    code = (
        "import os; vars(os).pop('register_at_fork', None);"
        "import lardon, lardon.queue.applied;"
        "print(lardon.default_governor() is lardon.default_governor())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("True\n", "")
