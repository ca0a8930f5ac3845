"""H01 to H18: limits on RAM, and what "available" means."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lardon.governor.decision import DecisionKind
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.governor import Governor
from lardon.governor.policy import Policy
from lardon.governor.probes import SystemProbe
from lardon.governor.reason import ReasonCode
from lardon.governor.snapshot import ResourceSnapshot
from lardon.queue.states import TaskState
from lardon.queue.task_queue import TaskQueue
from lardon.testing.clock import ManualClock
from lardon.testing.nvml import FakeNvml
from lardon.testing.probe import ScriptedProbe
from lardon.testing.root import FakeRoot
from lardon.units import GiB, KiB, MiB

if TYPE_CHECKING:
    from pathlib import Path

    from tests.probes.conftest import Machine

START, WAIT, REJECT = DecisionKind.START, DecisionKind.WAIT, DecisionKind.REJECT


def ram(gib: float) -> ResourceEstimate:
    return ResourceEstimate(ram_bytes=int(gib * GiB))


def host(machine: Machine, *, total: float, available: float) -> None:
    machine.root.memory(total_bytes=int(total * GiB), available_bytes=int(available * GiB))


def test_h01_a_container_limit_is_the_machine(machine: Machine) -> None:
    """Under a limit of 4 GiB the host's 120 available ones do not exist."""
    host(machine, total=128, available=120)
    machine.root.memory_v2("/", max_bytes=4 * GiB, current_bytes=GiB)

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 4 * GiB
    assert snapshot.ram_available_bytes == 3 * GiB
    assert machine.decide(ram(8)).kind is REJECT
    short = machine.decide(ram(3.5))
    assert short.kind is WAIT
    assert short.reason.code is ReasonCode.RAM_SHORT
    assert short.reason.facts["found"] == 3 * GiB


def test_h02_both_versions_of_cgroups_say_the_same(tmp_path: Path) -> None:
    """The same limit in a v1 tree and in a v2 tree gives the same snapshot and answers."""
    snapshots, answers = [], []
    for version in (1, 2):
        root = FakeRoot(tmp_path / f"v{version}")
        root.memory(total_bytes=128 * GiB, available_bytes=120 * GiB)
        if version == 1:
            root.memory_v1(
                "/job", limit_bytes=4 * GiB, usage_bytes=2 * GiB, inactive_file_bytes=GiB
            )
            root.cpu_v1("/job", quota_us=150_000)
        else:
            root.memory_v2(
                "/job", max_bytes=4 * GiB, current_bytes=2 * GiB, inactive_file_bytes=GiB
            )
            root.cpu_v2("/job", quota_us=150_000)
        clock = ManualClock()
        probe = SystemProbe(root, nvml=FakeNvml(), environ={}, clock=clock)
        snapshots.append(probe.snapshot())
        governor = Governor(probe=probe, clock=clock)
        answers.append([governor.decide(ram(gib)).kind for gib in (8, 3.5, 3, 2)])

    first, second = snapshots
    assert (first.ram_total_bytes, first.ram_available_bytes) == (4 * GiB, 3 * GiB)
    assert (second.ram_total_bytes, second.ram_available_bytes) == (4 * GiB, 3 * GiB)
    assert first.cpus == second.cpus == 2
    assert answers[0] == answers[1] == [REJECT, WAIT, WAIT, START]


def test_h03_max_means_no_limit(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """The word and its newline are read, without a warning."""
    host(machine, total=16, available=10)
    machine.root.memory_v2("/")
    machine.root.write("sys/fs/cgroup/memory.max", "max\n")
    machine.root.write("sys/fs/cgroup/memory.current", "4096\n")

    with caplog.at_level(logging.WARNING, logger="lardon"):
        snapshot = machine.snapshot()

    assert snapshot.ram_available_bytes == 10 * GiB
    assert snapshot.ram_total_bytes == 16 * GiB
    assert snapshot.limits == ()
    assert not caplog.records


def test_h04_max_is_not_nothing(machine: Machine) -> None:
    """No limit must not become a limit of 0."""
    machine.root.memory_v2("/", current_bytes=4 * KiB)

    assert machine.decide(ram(1)).kind is START


@pytest.mark.parametrize("content", ["", "\n", "lots", "12x", "0x10", "-5", "1e9", "\0\0"])
def test_h04_what_cannot_be_parsed_is_no_limit(machine: Machine, content: str) -> None:
    """Garbage in a limit file never turns into a limit of 0."""
    machine.root.memory_v2("/job")
    machine.root.write("sys/fs/cgroup/job/memory.max", content)

    assert machine.snapshot().ram_total_bytes == 16 * GiB
    assert machine.decide(ram(1)).kind is START


@pytest.mark.parametrize("sentinel", [9223372036854771712, 9223372036854710272, 2**63 - 1])
def test_h05_the_v1_sentinel_is_no_size(machine: Machine, sentinel: int) -> None:
    """A number near 2^63 is how v1 writes "unlimited", with pages of any size."""
    host(machine, total=24, available=20)
    machine.root.memory_v1("/", limit_bytes=sentinel, usage_bytes=5 * GiB)

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 24 * GiB
    assert snapshot.ram_available_bytes == 20 * GiB


@pytest.mark.parametrize("limit", [24 * GiB, 25 * GiB, 1024 * GiB])
def test_h05_a_limit_above_the_host_is_none(machine: Machine, limit: int) -> None:
    """A limit at or above what the machine has does not bind."""
    host(machine, total=24, available=20)
    machine.root.memory_v1("/", limit_bytes=limit, usage_bytes=5 * GiB)

    assert machine.snapshot().ram_total_bytes == 24 * GiB
    assert machine.snapshot().limits == ()


def test_h06_the_figures_move_smoothly_across_the_host_size(machine: Machine) -> None:
    """Just below, at and far above the host's size the available figure is nearly the same."""
    host(machine, total=32, available=20)
    found = []
    for limit in (int(31.9 * GiB), 32 * GiB, 9223372036854771712):
        machine.root.memory_v1(
            "/job", limit_bytes=limit, usage_bytes=12 * GiB, inactive_file_bytes=9 * GiB
        )
        found.append(machine.snapshot().ram_available_bytes)

    assert max(found) - min(found) <= GiB // 10
    assert min(found) >= 19.9 * GiB


@pytest.mark.parametrize("version", [1, 2])
def test_h07_page_cache_is_not_used_up(machine: Machine, version: int) -> None:
    """Inactive file pages are headroom: 60 - (51 - 46) = 55 GiB."""
    host(machine, total=128, available=100)
    if version == 1:
        machine.root.memory_v1(
            "/job", limit_bytes=60 * GiB, usage_bytes=51 * GiB, inactive_file_bytes=46 * GiB
        )
    else:
        machine.root.memory_v2(
            "/job", max_bytes=60 * GiB, current_bytes=51 * GiB, inactive_file_bytes=46 * GiB
        )

    assert machine.snapshot().ram_available_bytes == 55 * GiB
    assert machine.decide(ram(20)).kind is START


def test_h07_without_the_breakdown_raw_use_counts(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable `memory.stat` makes the probe stricter, and is warned about once."""
    host(machine, total=128, available=100)
    machine.root.memory_v2("/job", max_bytes=60 * GiB, current_bytes=51 * GiB)
    machine.root.make_unreadable("sys/fs/cgroup/job/memory.stat")

    with caplog.at_level(logging.WARNING, logger="lardon"):
        for _ in range(3):
            assert machine.snapshot().ram_available_bytes == 9 * GiB

    assert len(caplog.records) == 1
    assert "memory.stat" in caplog.text


def test_h07_shared_memory_is_not_reclaimable(machine: Machine) -> None:
    """Shared memory is in the file cache of the statistics, and cannot be dropped."""
    host(machine, total=128, available=100)
    machine.root.memory_v2("/job", max_bytes=60 * GiB, current_bytes=51 * GiB, shmem_bytes=46 * GiB)

    assert machine.snapshot().ram_available_bytes == 9 * GiB


def test_h08_no_limit_file_at_the_mount_root(machine: Machine) -> None:
    """The v2 root has no `memory.max`; the limits found below it stand."""
    host(machine, total=128, available=100)
    machine.root.memory_v2("/pod", max_bytes=40 * GiB, current_bytes=30 * GiB)
    machine.root.memory_v2("/pod/job", max_bytes=20 * GiB, current_bytes=GiB)
    assert not (machine.root.path / "sys/fs/cgroup/memory.max").exists()

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 20 * GiB
    # The parent's allowance is nearly used up by a sibling.
    assert snapshot.ram_available_bytes == 10 * GiB


def test_h09_a_limit_that_changes_is_seen_at_once(machine: Machine) -> None:
    """Containers are resized in place, in both directions."""
    host(machine, total=128, available=100)
    machine.root.memory_v2("/job", max_bytes=4 * GiB)
    governor = machine.governor(Policy.unlimited())
    assert governor.decide(ram(6)).kind is REJECT

    machine.root.write("sys/fs/cgroup/job/memory.max", f"{12 * GiB}\n")
    assert governor.decide(ram(6)).kind is START

    machine.root.write("sys/fs/cgroup/job/memory.max", f"{2 * GiB}\n")
    assert governor.decide(ram(3)).kind is REJECT


def test_h10_the_soft_limit_is_a_ceiling_for_now(machine: Machine) -> None:
    """`memory.high` makes a task wait and never rejects it; the reason names the file."""
    host(machine, total=128, available=100)
    machine.root.memory_v2("/job", max_bytes=30 * GiB, high_bytes=26 * GiB, current_bytes=24 * GiB)

    snapshot = machine.snapshot()
    answers = [machine.decide(ram(3)) for _ in range(3)]

    assert snapshot.ram_total_bytes == 30 * GiB
    assert snapshot.ram_available_bytes == 2 * GiB
    assert {answer.kind for answer in answers} == {WAIT}
    assert "/sys/fs/cgroup/job/memory.high" in answers[0].reason.text
    assert machine.decide(ram(28)).kind is WAIT
    assert machine.decide(ram(31)).kind is REJECT


def test_h11_an_address_space_limit_caps_the_total(machine: Machine) -> None:
    """`ulimit -v` of 2 GiB on a host of 24: 8 GiB can never be had."""
    host(machine, total=24, available=20)
    machine.root.rlimits(address_space_bytes=2 * GiB)
    machine.root.process(vm_size_bytes=GiB // 2)

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 2 * GiB
    assert snapshot.ram_available_bytes == 3 * GiB // 2
    assert machine.decide(ram(8)).kind is REJECT
    assert any("RLIMIT_AS" in text for text in snapshot.limits)


def test_h11_infinite_limits_do_not_bind(machine: Machine) -> None:
    """Neither do limits that the caller does not want to count."""
    assert machine.snapshot().ram_total_bytes == 16 * GiB

    machine.root.rlimits(data_bytes=GiB)
    assert machine.snapshot().ram_total_bytes == GiB

    ignoring = SystemProbe(machine.root, nvml=FakeNvml(), environ={}, rlimits=False)
    assert ignoring.snapshot().ram_total_bytes == 16 * GiB


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS is enforced on Linux")
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_h11_the_limit_of_a_real_process(name: str) -> None:
    """A process that was started with a limit sees it on the real machine."""
    program = (
        "import resource; from lardon import SystemProbe\n"
        f"resource.setrlimit(resource.{name}, (2**31, resource.RLIM_INFINITY))\n"
        "snapshot = SystemProbe(environ={}).snapshot()\n"
        "print(snapshot.ram_total_bytes, snapshot.ram_available_bytes)\n"
        "print(*snapshot.limits)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20
    )

    figures, limits = done.stdout.split("\n", 1)
    total, available = map(int, figures.split())
    assert total <= 2 * GiB
    # The interpreter itself takes some of it.
    assert 0 < available < 2 * GiB
    assert total < 2 * GiB or f"total RAM is bound by {name}" in limits


def test_h12_the_zfs_cache_is_told_and_not_credited(machine: Machine) -> None:
    """What the ARC could give back is in the reason, and not in the budget."""
    host(machine, total=64, available=26)
    machine.root.zfs_arc(size_bytes=15 * GiB, c_min_bytes=GiB, c_bytes=60 * GiB)

    answer = machine.decide(ram(30))

    assert machine.snapshot().ram_available_bytes == 26 * GiB
    assert answer.kind is WAIT
    assert "ARC" in answer.reason.text
    assert "14 GiB" in answer.reason.text


def test_h12_a_cache_that_cannot_shrink_is_not_told(machine: Machine) -> None:
    """At its smallest the ARC has nothing to give back."""
    machine.root.zfs_arc(size_bytes=GiB, c_min_bytes=GiB, c_bytes=60 * GiB)

    assert machine.snapshot().limits == ()


@pytest.mark.parametrize("text", ["", "garbage", "size 4 -3\nc_min 4 1\n", "name type data\n"])
def test_h12_garbage_of_zfs_changes_nothing(machine: Machine, text: str) -> None:
    """Unusable statistics are no statistics."""
    machine.root.write("proc/spl/kstat/zfs/arcstats", text)

    snapshot = machine.snapshot()

    assert snapshot.ram_available_bytes == 12 * GiB
    assert snapshot.limits == ()


def test_h13_swap_never_adds_and_never_blocks(machine: Machine) -> None:
    """Swap is shown for diagnosis; the budget is RAM."""
    machine.root.memory(
        total_bytes=16 * GiB,
        available_bytes=2 * GiB,
        swap_total_bytes=32 * GiB,
        swap_free_bytes=32 * GiB,
    )
    assert machine.decide(ram(10)).kind is WAIT

    machine.root.memory(
        total_bytes=16 * GiB,
        available_bytes=12 * GiB,
        swap_total_bytes=8 * GiB,
        swap_free_bytes=0,
    )
    assert machine.decide(ram(10)).kind is START
    snapshot = machine.snapshot()
    assert (snapshot.swap_total_bytes, snapshot.swap_used_bytes) == (8 * GiB, 8 * GiB)


def test_h14_a_probe_that_raises_loses_no_task(caplog: pytest.LogCaptureFixture) -> None:
    """The task waits for a reading, and starts once there is one."""
    good = ResourceSnapshot(taken_at=0.0, ram_total_bytes=16 * GiB, ram_available_bytes=8 * GiB)
    clock = ManualClock()
    probe = ScriptedProbe(KeyError("MemAvailable"), good, clock=clock)
    governor = Governor(Policy(recheck_s=None), probe=probe, clock=clock)
    with caplog.at_level(logging.WARNING, logger="lardon"), TaskQueue(governor) as queue:
        task = queue.submit(lambda _context: "done", estimate=ram(1))
        assert queue.wait_parked(5)
        assert task.state is TaskState.PENDING
        assert task.reason is not None
        assert task.reason.code is ReasonCode.PROBE_FAILED

        queue.resources_changed()

        assert task.result(5) == "done"
    assert (
        sum("KeyError" in str(record.exc_info or record.message) for record in caplog.records) == 1
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MemTotal:\n",
        "MemTotal: 0 kB\n",
        "MemFree: 5 kB\n",
        "nothing of that kind",
        "MemTotal: many kB\nMemAvailable: 1 kB\n",
        "MemTotal: 99999999999999999999999999999999 kB\n",
    ],
)
def test_h14_an_unusable_meminfo_is_an_invalid_reading(machine: Machine, text: str) -> None:
    """Nothing starts on no data, nothing is rejected for it, and nothing raises."""
    machine.root.write("proc/meminfo", text)

    snapshot = machine.snapshot()
    answer = machine.decide(ram(1))

    assert snapshot.contradiction is not None
    assert answer.kind is WAIT
    assert answer.reason.code is ReasonCode.INVALID_SNAPSHOT


def test_h15_an_implausible_zero_is_not_believed(machine: Machine) -> None:
    """MemAvailable of 0 beside 9 free GiB: free memory and file cache are used."""
    machine.root.memory(
        total_bytes=16 * GiB, available_bytes=0, free_bytes=9 * GiB, file_cache_bytes=2 * GiB
    )

    snapshot = machine.snapshot()

    assert snapshot.ram_available_bytes == 11 * GiB
    assert any("MemAvailable is 0" in text for text in snapshot.limits)
    assert machine.decide(ram(1)).kind is START


def test_h15_a_plausible_zero_is_believed(machine: Machine) -> None:
    """With next to nothing free, 0 is what is available."""
    machine.root.memory(
        total_bytes=16 * GiB, available_bytes=0, free_bytes=GiB // 2, file_cache_bytes=GiB
    )

    assert machine.snapshot().ram_available_bytes == 0
    assert machine.decide(ram(1)).kind is WAIT


def test_h15_a_kernel_without_the_figure(machine: Machine) -> None:
    """Kernels before 3.14 do not write MemAvailable."""
    machine.root.memory(
        total_bytes=16 * GiB, available_bytes=None, free_bytes=3 * GiB, file_cache_bytes=2 * GiB
    )

    snapshot = machine.snapshot()

    assert snapshot.ram_available_bytes == 5 * GiB
    assert any("MemAvailable is missing" in text for text in snapshot.limits)


def test_h16_other_processes_keep_what_they_hold(machine: Machine) -> None:
    """The budget is the system's view, not the total minus our own use."""
    host(machine, total=64, available=12)
    machine.root.process(rss_anon_bytes=GiB)

    assert machine.decide(ram(20)).kind is WAIT


def test_h17_memory_that_a_task_left_behind_blocks_visibly(machine: Machine) -> None:
    """A task that cannot start says why and since when, and is cancelled at once."""
    host(machine, total=8, available=2)
    machine.root.process(rss_anon_bytes=6 * GiB)
    governor = machine.governor(Policy.unlimited(recheck_s=None))
    with TaskQueue(governor) as queue:
        task = queue.submit(lambda _context: None, estimate=ram(4))
        assert queue.wait_parked(5)

        seen = task.snapshot()
        assert seen.reason is not None
        assert seen.reason.facts["asked"] == 4 * GiB
        assert seen.reason.facts["found"] == 2 * GiB
        assert seen.waiting_since == machine.clock.monotonic()

        assert task.cancel()
        assert task.wait(5)
    assert task.state is TaskState.CANCELLED


def test_h18_a_lucky_reading_grants_no_more_than_was_asked(machine: Machine) -> None:
    """However much is free for a moment, the batch is the one of the estimate."""
    estimate = ResourceEstimate(ram_bytes_per_item=GiB, max_batch=16)
    host(machine, total=64, available=2)
    reduced = machine.decide(estimate)
    assert reduced.contract is not None
    assert reduced.contract.batch_size == 2

    host(machine, total=64, available=30)
    full = machine.decide(estimate)

    assert full.kind is START
    assert full.contract is not None
    assert full.contract.batch_size == 16


def test_every_reading_is_in_bytes(machine: Machine) -> None:
    """`proc/meminfo` counts in KiB."""
    machine.root.memory(total_bytes=3 * MiB, available_bytes=MiB)

    assert machine.snapshot().ram_total_bytes == 3 * MiB
    assert machine.snapshot().ram_available_bytes == MiB
