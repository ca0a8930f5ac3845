"""H25 to H45: drivers that fail, which GPU is which, and what is free on it."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from lardon.governor.decision import DecisionKind
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.policy import Policy
from lardon.governor.probes import SystemProbe
from lardon.governor.reason import ReasonCode
from lardon.queue.states import TaskState
from lardon.queue.task_queue import TaskQueue
from lardon.testing.nvml import (
    NVML_ERROR_DRIVER_NOT_LOADED,
    NVML_ERROR_GPU_IS_LOST,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    NVML_ERROR_LIBRARY_NOT_FOUND,
    NVML_ERROR_NO_PERMISSION,
    NVML_ERROR_NOT_SUPPORTED,
    FakeGpu,
    FakeInstance,
    FakeNvml,
    FakeProcess,
)
from lardon.testing.root import FakeRoot
from lardon.units import GiB, MiB

if TYPE_CHECKING:
    from tests.probes.conftest import Machine

START, WAIT, REJECT = DecisionKind.START, DecisionKind.WAIT, DecisionKind.REJECT
CPU_ONLY = ResourceEstimate(ram_bytes=GiB)


def gpu(gib: float, *, gpus: int = 1) -> ResourceEstimate:
    return ResourceEstimate(gpu_bytes=int(gib * GiB), gpus=gpus)


def cards(*free: float, total: float = 80, name: str = "NVIDIA H100") -> list[FakeGpu]:
    return [
        FakeGpu(
            uuid=f"GPU-{index}", total_bytes=int(total * GiB), free_bytes=int(gib * GiB), name=name
        )
        for index, gib in enumerate(free)
    ]


def test_h25_a_version_mismatch_leaves_cpu_work_alone(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """After a driver upgrade there is no GPU; the error is kept, told and logged once."""
    machine.nvml.fail("nvmlInit", NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    with caplog.at_level(logging.WARNING, logger="lardon"):
        assert machine.decide(CPU_ONLY).kind is START
        answer = machine.decide(gpu(1))
        snapshot = machine.snapshot()

    assert answer.kind is REJECT
    assert answer.reason.code is ReasonCode.NO_GPU
    assert snapshot.gpus == ()
    assert "version mismatch" in machine.probe.gpu_error
    assert any("version mismatch" in text for text in snapshot.limits)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "absence", ["no module", "no library", "library not found", "no driver", "no card"]
)
def test_h26_without_a_gpu_all_is_the_same(
    tmp_path: Path,
    absence: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No binding, no library, no driver, no card: no GPU, nothing said, CPU work unaffected."""
    nvml: FakeNvml | None = FakeNvml()
    if absence == "no module":
        nvml = None
        monkeypatch.setattr("lardon.governor.probes.nvml_library._check_library", lambda: None)
        monkeypatch.setitem(sys.modules, "pynvml", None)
    elif absence == "no library":
        nvml = None
        monkeypatch.setattr("lardon.governor.probes.nvml_library._LIBRARY", "libabsent.so.1")
    elif absence == "library not found":
        assert nvml is not None
        nvml.fail("nvmlInit", NVML_ERROR_LIBRARY_NOT_FOUND)
    elif absence == "no driver":
        assert nvml is not None
        nvml.fail("nvmlInit", NVML_ERROR_DRIVER_NOT_LOADED)
    probe = SystemProbe(FakeRoot(tmp_path), nvml=nvml, environ={})

    with caplog.at_level(logging.INFO, logger="lardon"):
        snapshots = [probe.snapshot() for _ in range(3)]

    assert [snapshot.gpus for snapshot in snapshots] == [(), (), ()]
    assert [snapshot.limits for snapshot in snapshots] == [(), (), ()]
    assert snapshots[0].ram_available_bytes == 12 * GiB
    assert bool(probe.gpu_error) is (absence != "no card")
    assert not caplog.records


def test_h26_a_machine_without_nvml_gets_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for the library is enough to know."""
    monkeypatch.setattr("lardon.governor.probes.nvml_library._LIBRARY", "libabsent.so.1")

    def refuse(_thread: threading.Thread) -> None:
        pytest.fail("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    probe = SystemProbe(FakeRoot(tmp_path), environ={})

    assert probe.snapshot().gpus == ()
    assert "NVML Shared Library Not Found" in probe.gpu_error


def test_h26_a_driver_that_appears_is_found_after_a_while(machine: Machine) -> None:
    """A failure is tried again, at most every 30 seconds."""
    machine.nvml.devices = cards(70)
    machine.nvml.fail("nvmlInit", NVML_ERROR_DRIVER_NOT_LOADED)
    assert machine.snapshot().gpus == ()
    machine.nvml.recover()

    machine.clock.advance(29.9)
    assert machine.snapshot().gpus == ()
    assert machine.nvml.calls["nvmlInit"] == 1

    machine.clock.advance(0.1)
    assert [card.free_bytes for card in machine.snapshot().gpus] == [70 * GiB]
    assert machine.probe.gpu_error == ""


def test_h27_one_unsupported_query_disables_nothing(machine: Machine) -> None:
    """The card is unknown in that snapshot and asked again at the next."""
    machine.nvml.devices = cards(70)
    machine.nvml.fail("nvmlDeviceGetMemoryInfo", NVML_ERROR_NOT_SUPPORTED, times=1)

    first = machine.snapshot().gpus
    assert [card.uuid for card in first] == ["GPU-0"]
    assert first[0].free_bytes is None
    assert not first[0].integrated
    assert machine.snapshot().gpus[0].free_bytes == 70 * GiB


@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA Jetson AGX Orin", "Orin (nvgpu)", b"Thor"])
def test_h27_an_integrated_gpu_shares_the_ram(machine: Machine, name: str | bytes) -> None:
    """A card without memory of its own is one pool with the host, known by its name."""
    machine.nvml.devices = cards(0)
    machine.nvml.devices[0].name = name
    machine.nvml.fail("nvmlDeviceGetMemoryInfo", NVML_ERROR_NOT_SUPPORTED)

    [card] = machine.snapshot().gpus

    assert card.integrated
    assert (card.total_bytes, card.free_bytes) == (None, None)
    assert machine.snapshot().limits == ()
    assert machine.decide(gpu(10)).kind is START
    assert machine.decide(gpu(13)).reason.code is ReasonCode.RAM_SHORT


@pytest.mark.parametrize(
    "name", ["NVIDIA GB102", "NVIDIA GH200 480GB", "NVIDIA GB100", "Storinator"]
)
def test_h27_other_names_are_not_integrated(machine: Machine, name: str) -> None:
    """Only whole words count: a GB100 has memory of its own."""
    machine.nvml.devices = cards(70, name=name)
    machine.nvml.fail("nvmlDeviceGetMemoryInfo", NVML_ERROR_NOT_SUPPORTED)

    assert not machine.snapshot().gpus[0].integrated
    assert machine.decide(gpu(1)).reason.code is ReasonCode.GPU_MEMORY_UNKNOWN


def test_h27_the_list_of_names_can_be_replaced(machine: Machine) -> None:
    """A card that is newer than lardon can be named by its user."""
    machine.nvml.devices = cards(0, name="NVIDIA GB99")
    machine.nvml.fail("nvmlDeviceGetMemoryInfo", NVML_ERROR_NOT_SUPPORTED)
    probe = SystemProbe(machine.root, nvml=machine.nvml, environ={}, integrated_names=("gb99",))

    assert probe.snapshot().gpus[0].integrated


def test_h28_one_lost_card_does_not_hide_the_others(machine: Machine) -> None:
    """GPU 1 fell off the bus; GPU 2 takes the work."""
    machine.nvml.devices = cards(5, 70, 20)
    machine.nvml.fail("nvmlDeviceGetHandleByIndex", NVML_ERROR_GPU_IS_LOST, index=1)

    snapshot = machine.snapshot()
    answer = machine.decide(gpu(10))

    assert [card.index for card in snapshot.gpus] == [0, 1, 2]
    assert [card.free_bytes for card in snapshot.gpus] == [5 * GiB, None, 20 * GiB]
    assert any("GPU is lost" in text for text in snapshot.limits)
    assert answer.kind is START
    assert answer.contract is not None
    assert answer.contract.gpus == ("GPU-2",)


def test_h28_a_card_lost_later_keeps_its_name_and_comes_back(machine: Machine) -> None:
    """Its UUID is known from before; it is asked again at every snapshot."""
    machine.nvml.devices = cards(5, 70)
    machine.snapshot()
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByIndex"):
        machine.nvml.fail(function, NVML_ERROR_GPU_IS_LOST, index=1)

    for _ in range(3):
        lost = machine.snapshot().gpus
        assert [card.uuid for card in lost] == ["GPU-0", "GPU-1"]
        assert [card.free_bytes for card in lost] == [5 * GiB, None]

    machine.nvml.recover()
    assert [card.free_bytes for card in machine.snapshot().gpus] == [5 * GiB, 70 * GiB]


def test_h28_a_card_lost_from_the_start_is_found_when_it_is_back(machine: Machine) -> None:
    """Its name is not known until then."""
    machine.nvml.devices = cards(5, 70)
    machine.nvml.fail("nvmlDeviceGetHandleByIndex", NVML_ERROR_GPU_IS_LOST, index=1)
    lost = machine.snapshot().gpus
    assert [card.free_bytes for card in lost] == [5 * GiB, None]
    assert lost[1].uuid not in ("", "GPU-1")

    machine.nvml.recover()
    found = machine.snapshot().gpus
    assert [(card.uuid, card.free_bytes) for card in found] == [
        ("GPU-0", 5 * GiB),
        ("GPU-1", 70 * GiB),
    ]


def slice_machine(machine: Machine) -> None:
    machine.nvml.devices = cards(70)
    card = machine.nvml.devices[0]
    card.mig_mode = True
    card.instances = [FakeInstance(uuid="MIG-aaa", total_bytes=32 * GiB, free_bytes=30 * GiB)]
    machine.nvml.fail("nvmlDeviceGetMemoryInfo", NVML_ERROR_NO_PERMISSION, index=0)


@pytest.mark.parametrize("listed", ["MIG-aaa", "MIG-a", "MIG-GPU-0/1/0", "0", None])
def test_h29_a_slice_has_its_own_figures(machine: Machine, listed: str | None) -> None:
    """In MIG mode the instance is the device, however it is named."""
    slice_machine(machine)
    if listed is not None:
        machine.environ["CUDA_VISIBLE_DEVICES"] = listed

    [card] = machine.snapshot().gpus
    answer = machine.decide(gpu(20))

    assert (card.uuid, card.total_bytes, card.free_bytes) == ("MIG-aaa", 32 * GiB, 30 * GiB)
    assert answer.kind is START
    assert answer.contract is not None
    assert answer.contract.gpus == ("MIG-aaa",)
    assert machine.decide(gpu(40)).kind is REJECT


def test_h29_without_a_readable_slice_the_gpu_is_unknown(machine: Machine) -> None:
    """Neither 0 nor the parent's size: unknown."""
    slice_machine(machine)
    machine.nvml.recover()
    machine.nvml.fail("nvmlDeviceGetMigDeviceHandleByIndex", NVML_ERROR_NO_PERMISSION)

    [card] = machine.snapshot().gpus

    assert (card.total_bytes, card.free_bytes) == (None, None)
    answer = machine.decide(gpu(20))
    assert (answer.kind, answer.reason.code) == (WAIT, ReasonCode.GPU_MEMORY_UNKNOWN)


@pytest.mark.parametrize("as_bytes", [False, True])
def test_h30_names_are_text_with_either_binding(machine: Machine, as_bytes: bool) -> None:
    """Bytes and str give the same snapshot, and it can be written as JSON."""
    machine.nvml.devices = cards(70)
    if as_bytes:
        machine.nvml.devices[0].uuid = b"GPU-0"
        machine.nvml.devices[0].name = b"NVIDIA H100"

    [card] = machine.snapshot().gpus

    assert (card.uuid, card.name) == ("GPU-0", "NVIDIA H100")
    assert json.loads(json.dumps(attrs.asdict(machine.snapshot())))["gpus"][0]["uuid"] == "GPU-0"


@pytest.mark.parametrize("raises", [False, True])
def test_h31_an_undecodable_name_is_replaced(machine: Machine, raises: bool) -> None:
    """The name is a placeholder; the figures are used."""
    machine.nvml.devices = cards(70)
    if raises:
        error = UnicodeDecodeError("utf-8", b"\xf8\x01", 0, 1, "invalid start byte")
        machine.nvml.fail("nvmlDeviceGetName", error)
    else:
        machine.nvml.devices[0].name = b"\xf8\x01"

    [card] = machine.snapshot().gpus

    assert card.name == "GPU 0"
    assert card.free_bytes == 70 * GiB


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_h32_a_forked_child_initialises_again(machine: Machine) -> None:
    """The parent's initialisation and handles are the parent's."""
    machine.nvml.devices = cards(70)
    assert machine.snapshot().gpus[0].free_bytes == 70 * GiB
    ours, theirs = os.pipe()

    child = os.fork()
    if child == 0:
        try:
            [card] = machine.snapshot().gpus
            os.write(theirs, f"{card.free_bytes} {machine.nvml.calls['nvmlInit']}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        said = answer.read()
    os.waitpid(child, 0)

    assert said == f"{70 * GiB} 2"
    assert machine.nvml.calls["nvmlInit"] == 1


@pytest.mark.slow
def test_h33_many_snapshots_initialise_once(machine: Machine) -> None:
    """10,000 snapshots: one start, no shutdown, no descriptor and no thread more."""
    machine.nvml.devices = cards(70)
    machine.snapshot()
    descriptors = open_descriptors()

    for _ in range(10_000 if os.environ.get("CI") else 2_000):
        assert machine.probe._gpus.read().gpus[0].free_bytes == 70 * GiB
    machine.snapshot()

    assert machine.nvml.calls["nvmlInit"] == 1
    assert machine.nvml.calls["nvmlShutdown"] == 0
    assert machine.nvml.calls["nvmlDeviceGetHandleByIndex"] == 1
    assert open_descriptors() == descriptors


def open_descriptors() -> int:
    gc.collect()
    place = Path("/proc/self/fd")
    if not place.is_dir():
        pytest.skip("this platform does not list a process's descriptors")
    return sum(1 for _ in place.iterdir())


def test_h34_a_driver_that_hangs_blocks_no_lock(machine: Machine) -> None:
    """While the driver hangs, the queue answers, and the reading ends at its bound."""
    machine.nvml.devices = cards(70)
    machine.nvml.hang("nvmlDeviceGetMemoryInfo")
    with TaskQueue(machine.governor(Policy(recheck_s=None))) as queue:
        head = queue.submit(lambda _context: None, estimate=gpu(1))
        assert machine.nvml.wait_hanging(5)

        assert queue.statistics().submitted == 1
        behind = queue.submit(lambda _context: None, estimate=CPU_ONLY)
        assert head.cancel()

        assert behind.wait(10)
        machine.nvml.let_go()
    assert head.state is TaskState.CANCELLED
    assert behind.state is TaskState.COMPLETED


@pytest.mark.parametrize("used", [None, 2**64 - 1])
def test_h35_use_per_process_may_be_unavailable(machine: Machine, used: int | None) -> None:
    """No figure is no figure; decisions do not need it."""
    machine.nvml.devices = cards(70)
    machine.nvml.devices[0].processes = [FakeProcess(pid=os.getpid(), used_bytes=used)]
    assert machine.decide(gpu(20)).kind is START

    own = machine.probe.own_use()

    assert own is not None
    assert own.gpu_bytes == {}


def test_h35_our_own_use_is_ours_alone(machine: Machine) -> None:
    """Only this process counts, summed over its entries; other cards are unknown."""
    machine.nvml.devices = cards(70, 70)
    machine.nvml.devices[0].processes = [
        FakeProcess(pid=os.getpid(), used_bytes=3 * GiB),
        FakeProcess(pid=os.getpid() + 1, used_bytes=5 * GiB),
    ]
    machine.root.process(rss_anon_bytes=2 * GiB, rss_shmem_bytes=GiB)
    machine.snapshot()

    own = machine.probe.own_use()

    assert own is not None
    assert own.ram_bytes == 3 * GiB
    assert own.gpu_bytes == {"GPU-0": 3 * GiB}


def test_h36_a_uuid_names_exactly_one_gpu(machine: Machine) -> None:
    """CUDA_VISIBLE_DEVICES may hold a UUID."""
    machine.nvml.devices = cards(5, 70)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "GPU-1"

    assert [(card.index, card.uuid) for card in machine.snapshot().gpus] == [(0, "GPU-1")]


def test_h36_an_unknown_uuid_is_told_by_name(machine: Machine) -> None:
    """It hides what follows it, as in CUDA, and is no traceback."""
    machine.nvml.devices = cards(5, 70)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "GPU-0,GPU-beef,GPU-1"

    snapshot = machine.snapshot()

    assert [card.uuid for card in snapshot.gpus] == ["GPU-0"]
    assert any("'GPU-beef'" in text for text in snapshot.limits)


def test_h37_logical_and_physical_indices_differ(machine: Machine) -> None:
    """With one of 8 cards visible, it is CUDA's device 0."""
    machine.nvml.devices = cards(1, 2, 3, 4, 70, 6, 7, 8)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "4"

    [card] = machine.snapshot().gpus
    answer = machine.decide(gpu(40))

    assert (card.index, card.uuid, card.free_bytes) == (0, "GPU-4", 70 * GiB)
    assert answer.kind is START
    assert answer.contract is not None
    assert answer.contract.gpus == ("GPU-4",)


def test_h38_a_mixed_machine_is_named_by_uuid(machine: Machine) -> None:
    """Which number CUDA gives a card of two models is not known: the UUID is handed on."""
    machine.nvml.devices = cards(8, 80)
    machine.nvml.devices[0].total_bytes = 8 * GiB
    machine.nvml.devices[0].name = "NVIDIA T400"

    answer = machine.decide(gpu(40))

    assert answer.contract is not None
    assert answer.contract.gpus == ("GPU-1",)
    assert any("bus order" in text for text in machine.snapshot().limits)
    machine.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    assert machine.snapshot().limits == ()


@pytest.mark.parametrize(("listed", "count"), [(None, 2), ("", 0), ("-1", 0), (" ", 0)])
def test_h39_unset_empty_and_minus_one(machine: Machine, listed: str | None, count: int) -> None:
    """Unset is all, empty and -1 are none, and a GPU task then learns that there is none."""
    machine.nvml.devices = cards(70, 70)
    if listed is not None:
        machine.environ["CUDA_VISIBLE_DEVICES"] = listed

    answer = machine.decide(gpu(1))

    assert len(machine.snapshot().gpus) == count
    if count:
        assert answer.kind is START
    else:
        assert (answer.kind, answer.reason.code) == (REJECT, ReasonCode.NO_GPU)


def test_h40_others_on_the_card_count(machine: Machine) -> None:
    """A foreign server fills the card: the driver's free figure is the budget."""
    machine.nvml.devices = cards(0.3)

    answer = machine.decide(gpu(20))

    assert (answer.kind, answer.reason.code) == (WAIT, ReasonCode.GPU_MEMORY_SHORT)
    assert answer.reason.facts["available"] == int(0.3 * GiB)
    assert answer.reason.facts["asked"] == 20 * GiB
    assert answer.reason.facts["others"] == 80 * GiB - int(0.3 * GiB)


def test_h40_the_free_figure_is_not_total_minus_used(machine: Machine) -> None:
    """What the driver reserves is in one record and not in the other; free is the same."""
    machine.nvml.devices = cards(79)
    machine.nvml.devices[0].reserved_bytes = GiB
    handle_free = machine.snapshot().gpus[0].free_bytes

    handle = machine.nvml.nvmlDeviceGetHandleByIndex(0)
    old = machine.nvml.nvmlDeviceGetMemoryInfo(handle)
    new = machine.nvml.nvmlDeviceGetMemoryInfo(handle, version=FakeNvml.nvmlMemory_v2)

    assert handle_free == old.free == new.free == 79 * GiB
    assert old.used != new.used


def test_h41_two_askers_share_one_reading(machine: Machine) -> None:
    """The free figure stays at 24 GiB; one of two requests for 20 gets it."""
    machine.nvml.devices = cards(24)
    governor = machine.governor(Policy.unlimited(tasks_per_gpu=2))
    meet = threading.Barrier(2)
    kinds = []

    def ask() -> None:
        meet.wait(5)
        kinds.append(governor.reserve(gpu(20))[0].kind)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(kinds) == [START, WAIT]
    [reservation] = governor.reservations()
    reservation.release()
    assert governor.decide(gpu(20)).kind is START


def test_h42_a_reservation_is_counted_once(machine: Machine) -> None:
    """Unused, a promise counts in full; used, it is in the reading already."""
    machine.root.memory(total_bytes=16 * GiB, available_bytes=16 * GiB)
    governor = machine.governor(Policy.unlimited())
    eight = ResourceEstimate(ram_bytes=8 * GiB)
    twelve = ResourceEstimate(ram_bytes=12 * GiB)
    _, held = governor.reserve(ResourceEstimate(ram_bytes=6 * GiB))
    assert held is not None

    # 16 available - 6 promised and not used: 10.
    assert governor.decide(twelve).kind is WAIT
    assert governor.decide(eight).kind is START

    # 10 available, of which nothing is promised: the 6 are in use.
    machine.root.memory(total_bytes=16 * GiB, available_bytes=10 * GiB)
    machine.root.process(rss_anon_bytes=6 * GiB)
    assert governor.decide(eight).kind is START
    assert governor.decide(twelve).kind is WAIT


def test_h43_memory_that_comes_back_late(machine: Machine) -> None:
    """The card still looks full for a while: wait, and start when it is not."""
    machine.nvml.devices = cards(24, total=24)
    governor = machine.governor(Policy.unlimited())
    _, held = governor.reserve(gpu(20))
    assert held is not None
    # The reading lags: nothing is used yet, and the promise counts.
    assert governor.decide(gpu(20)).kind is WAIT
    machine.nvml.devices[0].free_bytes = 4 * GiB
    held.release()

    # It lags the other way: what was released still looks used.
    answer = governor.decide(gpu(20))
    assert (answer.kind, answer.reason.code) == (WAIT, ReasonCode.GPU_MEMORY_SHORT)

    machine.clock.advance(3)
    machine.nvml.devices[0].free_bytes = 24 * GiB
    assert governor.decide(gpu(20)).kind is START


@pytest.mark.parametrize("off", [-MiB, 0, MiB])
def test_h44_jitter_gives_no_odd_figure(machine: Machine, off: int) -> None:
    """Free may be read a moment later than total, and lie above it."""
    machine.nvml.devices = cards(80)
    machine.nvml.devices[0].free_bytes = 80 * GiB + off

    [card] = machine.snapshot().gpus

    assert card.known
    assert card.free_bytes == min(80 * GiB, 80 * GiB + off)
    assert machine.decide(gpu(1)).kind is START


def test_h45_the_nominal_size_is_not_the_usable_one(machine: Machine) -> None:
    """Of 80.0 GiB 79.2 are free on an idle card: 79.5 has to wait, and sees why."""
    machine.nvml.devices = cards(79.2)

    answer = machine.decide(gpu(79.5))

    assert answer.kind is WAIT
    assert answer.reason.facts["available"] == int(79.2 * GiB)
    assert "79.2 GiB" in answer.reason.text
    assert machine.decide(gpu(79.5), Policy()).kind is WAIT
