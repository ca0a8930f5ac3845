"""Reports on governor decisions and queue order: paused heads, missed wake-ups, log floods."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import attrs
import pytest

from lardon import (
    Governor,
    Policy,
    ReasonCode,
    ResourceEstimate,
    ResourceSnapshot,
    Task,
    TaskQueue,
    TaskState,
)
from lardon.testing import ScriptedGovernor, ScriptedProbe, start, wait
from lardon.units import GiB

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
MACHINE: Final = ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=16 * GiB, cpus=2
)


def test_h58_a_paused_pending_task_is_stepped_over_and_resumes_by_itself() -> None:
    """One documented rule; the resume needs no other event to take effect."""
    order: list[int] = []
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        tasks = [
            queue.submit(lambda context: order.append(context.task_id), estimate=ANY)
            for _ in range(3)
        ]
        assert queue.wait_parked(PATIENCE_S)
        assert queue.pause(1)
        governor.script(start())
        queue.resources_changed()
        assert tasks[2].wait(PATIENCE_S)
        assert queue.wait_parked(PATIENCE_S)
        assert order == [2, 3]
        assert tasks[0].state is TaskState.PAUSED

        assert queue.resume(1)
        assert tasks[0].wait(PATIENCE_S)

    assert order == [2, 3, 1]


@pytest.mark.parametrize("event", ["release", "cancel", "resume", "limit", "close"])
def test_h59_the_head_is_examined_again_without_another_submit(event: str) -> None:
    """After a release elsewhere, a cancel, a resume, a raised limit, the other queue's end."""
    governor = Governor(
        Policy(recheck_s=None, max_memory_pressure=None), probe=ScriptedProbe(MACHINE)
    )
    whole = ResourceEstimate(cpus=2)
    other = TaskQueue(governor, name="other")
    with TaskQueue(governor) as queue:
        _, held = governor.reserve(whole, holder="somebody else")
        assert held is not None
        head = queue.submit(lambda _: "head", estimate=whole)
        assert queue.wait_parked(PATIENCE_S)
        assert head.state is TaskState.PENDING
        watched = head
        if event == "release":
            held.release()
        elif event == "cancel":
            watched = queue.submit(lambda _: "behind", estimate=ResourceEstimate(cpus=1))
            governor.set_policy(Policy(recheck_s=None))
            held.release()
            head.cancel()
        elif event == "resume":
            head.pause()
            assert queue.wait_parked(PATIENCE_S)
            held.release()
            assert queue.wait_parked(PATIENCE_S)
            assert head.state is TaskState.PAUSED
            head.resume()
        elif event == "limit":
            held.release()
            assert head.wait(PATIENCE_S)
            watched = limited(queue, governor)
        else:
            held.release()
            other.close(PATIENCE_S)

        assert watched.wait(PATIENCE_S)
        assert watched.state is TaskState.COMPLETED
    other.close(PATIENCE_S)


def limited(queue: TaskQueue, governor: Governor) -> Task:
    """Return a task that waits under a limit, which is then raised."""
    governor.set_policy(Policy(recheck_s=None, max_memory_pressure=0.0))
    probe = governor._reader.probe
    assert isinstance(probe, ScriptedProbe)
    probe.set(attrs.evolve(MACHINE, memory_pressure=5.0))
    task = queue.submit(lambda _: "limited", estimate=ANY)
    assert queue.wait_parked(PATIENCE_S)
    assert task.state is TaskState.PENDING
    governor.set_policy(Policy(recheck_s=None, max_memory_pressure=10.0))
    return task


def test_h61_a_head_that_waits_writes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """10,000 notifications that change nothing; a line more when the reason changes."""
    caplog.set_level(logging.DEBUG, logger="lardon")
    governor = ScriptedGovernor([wait("short of memory")])
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _: None, estimate=ANY)
        assert queue.wait_parked(PATIENCE_S)
        notify: list[Callable[[], None]] = [queue.resources_changed] * 10_000
        for call in notify:
            call()
        assert queue.wait_parked(PATIENCE_S)
        assert len(caplog.records) == 1
        assert "short of memory" in caplog.records[0].getMessage()

        governor.script(wait("no slot", code=ReasonCode.CPUS_BUSY))
        for call in notify[:100]:
            call()
        assert queue.wait_parked(PATIENCE_S)
        assert len(caplog.records) == 2
        task.cancel()
