"""H19 to H24: how many CPUs there are."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from lardon.governor.decision import DecisionKind
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.probes import SystemProbe
from lardon.governor.reason import ReasonCode
from lardon.testing.nvml import FakeNvml
from lardon.units import GiB

if TYPE_CHECKING:
    from tests.probes.conftest import Machine

needs_linux = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this platform has no CPU affinity"
)


@needs_linux
@pytest.mark.parametrize("count", [None, 0])
def test_h19_an_unknown_count_leaves_the_affinity(
    monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    """A count of None or 0 is no count, and hides no other limit."""
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr("lardon.governor.probes.cpus._sched_getaffinity", lambda _pid: {3, 5})

    assert SystemProbe(nvml=FakeNvml(), environ={}).snapshot().cpus == 2


@pytest.mark.parametrize("count", [None, 0])
def test_h19_with_nothing_known_there_is_one(
    monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    """Never None, never 0, no exception."""
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr("lardon.governor.probes.cpus._sched_getaffinity", None)

    assert SystemProbe(nvml=FakeNvml(), environ={}).snapshot().cpus == 1


def test_h19_a_root_that_tells_nothing(machine: Machine) -> None:
    """A container that hides both files has one CPU that can be relied on."""
    machine.root.remove("sys/devices/system/cpu/online")
    machine.root.remove("proc/self/status")

    assert machine.snapshot().cpus == 1


def test_h20_affinity_and_quota_both_count(machine: Machine) -> None:
    """On 64 CPUs an affinity of 6 beats a quota of 8, and a quota of 4 the full affinity."""
    machine.root.cpus(64, affinity="0-3,8,9")
    machine.root.cpu_v2("/job", quota_us=800_000)
    assert machine.snapshot().cpus == 6
    assert machine.decide(ResourceEstimate(cpus=6)).kind is DecisionKind.START

    machine.root.cpus(64)
    machine.root.cpu_v2("/job", quota_us=400_000)
    assert machine.snapshot().cpus == 4
    answer = machine.decide(ResourceEstimate(cpus=6))
    assert answer.kind is DecisionKind.REJECT
    assert answer.reason.code is ReasonCode.CPU_CAPACITY
    assert any("cpu.max" in text for text in machine.snapshot().limits)


@pytest.mark.parametrize(
    ("quota_us", "cpus"), [(50_000, 1), (150_000, 2), (1_000, 1), (200_000, 2)]
)
@pytest.mark.parametrize("version", [1, 2])
def test_h21_quotas_round_up(machine: Machine, version: int, quota_us: int, cpus: int) -> None:
    """Half a CPU is one and one and a half are two, in both versions."""
    if version == 1:
        machine.root.cpu_v1("/job", quota_us=quota_us)
    else:
        machine.root.cpu_v2("/job", quota_us=quota_us)

    assert machine.snapshot().cpus == cpus
    assert machine.decide(ResourceEstimate(cpus=1)).kind is DecisionKind.START


@pytest.mark.parametrize("content", ["", "\n", "max 100000\n", "max\n"])
def test_h21_no_quota(machine: Machine, content: str, caplog: pytest.LogCaptureFixture) -> None:
    """An empty file is no limit, and nothing to warn about."""
    machine.root.cpu_v2("/job", quota_us=50_000)
    machine.root.write("sys/fs/cgroup/job/cpu.max", content)

    assert machine.snapshot().cpus == 8
    assert not caplog.records


@pytest.mark.parametrize("content", ["50000 0\n", "0 100000\n", "many\n", "-1 100000\n"])
def test_h21_an_odd_quota_is_none_and_warned_about_once(
    machine: Machine, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A period of 0 divides nothing."""
    machine.root.cpu_v2("/job", quota_us=50_000)
    machine.root.write("sys/fs/cgroup/job/cpu.max", content)

    with caplog.at_level(logging.WARNING, logger="lardon"):
        assert [machine.snapshot().cpus for _ in range(3)] == [8, 8, 8]

    assert len(caplog.records) == 1


def test_h22_the_nested_group_is_found(machine: Machine) -> None:
    """Outside of containers the process is in a nested group, and only that has a file."""
    machine.root.mount_v2()
    machine.root.write("proc/self/cgroup", "0::/user.slice/app.scope\n")
    machine.root.write("sys/fs/cgroup/user.slice/app.scope/cpu.max", "200000 100000\n")

    assert machine.snapshot().cpus == 2


def test_h22_an_ancestor_counts(machine: Machine) -> None:
    """The tightest quota on the way up binds."""
    machine.root.cpu_v2("/user.slice", quota_us=300_000)
    machine.root.cpu_v2("/user.slice/app.scope", quota_us=700_000)

    assert machine.snapshot().cpus == 3


def test_h23_the_first_answer_rests_on_reservations(machine: Machine) -> None:
    """An overloaded machine is no reason to wait by default, and not taken for idle."""
    machine.root.load(64.0)
    machine.root.pressure("cpu", 99.0)

    snapshot = machine.snapshot()

    assert snapshot.load1 == 64.0
    assert snapshot.cpu_pressure == 99.0
    assert machine.decide(ResourceEstimate(cpus=8)).kind is DecisionKind.START
    governor = machine.governor()
    assert governor.reserve(ResourceEstimate(cpus=8))[1] is not None
    assert governor.decide(ResourceEstimate(cpus=1)).reason.code is ReasonCode.CPUS_BUSY


def test_h24_slurm_variables_in_a_richer_syntax(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """What is understood is used, the rest is ignored with one message."""
    machine.root.cpus(64)
    machine.environ |= {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_CPUS_PER_NODE": "24(x2)",
        "SLURM_CPUS_ON_NODE": "abc",
    }
    with caplog.at_level(logging.WARNING, logger="lardon"):
        assert [machine.snapshot().cpus for _ in range(3)] == [24, 24, 24]
    assert len(caplog.records) == 1
    assert "SLURM_CPUS_ON_NODE" in caplog.text


def test_h24_slurm_never_raises_the_count(machine: Machine) -> None:
    """The job's CPUs are an upper bound like the others."""
    machine.root.cpus(64, affinity="0-5")
    machine.root.cpu_v2("/job", quota_us=400_000)
    machine.environ |= {"SLURM_JOB_ID": "77", "SLURM_CPUS_ON_NODE": "24"}

    assert machine.snapshot().cpus == 4


@pytest.mark.parametrize("text", ["16,8(x2)", "(x2)", "24(x", "-3", "0", " "])
def test_h24_what_is_not_understood_is_no_limit(machine: Machine, text: str) -> None:
    """Counts that differ from node to node do not say which one is meant."""
    machine.environ |= {"SLURM_JOB_ID": "77", "SLURM_JOB_CPUS_PER_NODE": text}

    assert machine.snapshot().cpus == 8


@pytest.mark.parametrize(
    ("variables", "total"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, 4 * GiB),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "2"}, 2 * GiB),
        ({"SLURM_MEM_PER_CPU": "1024"}, 8 * GiB),
        ({"SLURM_MEM_PER_NODE": "0"}, 16 * GiB),
        ({"SLURM_MEM_PER_NODE": "4G"}, 16 * GiB),
        ({"SLURM_MEM_PER_NODE": "999999"}, 16 * GiB),
        ({}, 16 * GiB),
    ],
)
def test_slurm_memory_caps_the_total(
    machine: Machine, variables: dict[str, str], total: int
) -> None:
    """On clusters without cgroups the job's memory is all there is; 0 is the whole node."""
    machine.environ |= {"SLURM_JOB_ID": "77", **variables}

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == total
    assert snapshot.ram_available_bytes == min(total, 12 * GiB)


def test_slurm_variables_outside_of_a_job_are_ignored(machine: Machine) -> None:
    """`salloc` leaves such variables in a shell that is in no job."""
    machine.environ |= {"SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_ON_NODE": "2"}

    snapshot = machine.snapshot()

    assert snapshot.ram_total_bytes == 16 * GiB
    assert snapshot.cpus == 8
