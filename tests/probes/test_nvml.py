"""Drivers that are slow, hang, go away and come back."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lardon.governor.probes.bounded import THREAD_NAME
from lardon.governor.probes.files import Warnings
from lardon.governor.probes.nvml import BOUND_S, NvmlReader
from lardon.testing.nvml import (
    NVML_ERROR_DRIVER_NOT_LOADED,
    NVML_ERROR_UNKNOWN,
    FakeGpu,
    FakeInstance,
    FakeNvml,
)
from lardon.units import GiB

if TYPE_CHECKING:
    from tests.probes.conftest import Machine

# Of a driver that answers at once nobody waits for this; of one that hangs every reading does.
SHORT_S = 0.05


def reader(machine: Machine, *, expected: int = 1) -> NvmlReader:
    """Return a reader with a short bound, for tests that have to sit it out."""
    return NvmlReader(
        machine.nvml,
        machine.environ,
        machine.clock.monotonic,
        warnings=Warnings(),
        bound_s=SHORT_S,
        expected_cards=lambda: expected,
    )


def free(gpus: NvmlReader) -> list[int | None]:
    return [card.free_bytes for card in gpus.read().gpus]


def helpers() -> int:
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


def cards(*free_gib: int) -> list[FakeGpu]:
    return [
        FakeGpu(uuid=f"GPU-{place}", free_bytes=gib * GiB) for place, gib in enumerate(free_gib)
    ]


@pytest.mark.slow
def test_a_snapshot_ends_at_its_bound(machine: Machine) -> None:
    """Half a second for all driver calls together, with the default bound."""
    machine.nvml.devices = cards(1, 2, 3)
    machine.snapshot()
    machine.nvml.hang("nvmlDeviceGetMemoryInfo")

    begun = time.monotonic()
    snapshot = machine.snapshot()
    took = time.monotonic() - begun

    assert BOUND_S <= took < 4 * BOUND_S
    assert [card.free_bytes for card in snapshot.gpus] == [None, None, None]
    assert snapshot.ram_available_bytes == 12 * GiB
    assert any("no answer within 0.5 s" in text for text in snapshot.limits)


def test_a_card_that_hangs_is_left_alone_for_a_while(machine: Machine) -> None:
    """The others are read at the next snapshot, and it is not asked for 30 seconds."""
    machine.nvml.devices = cards(1, 2, 3)
    gpus = reader(machine)
    assert free(gpus) == [GiB, 2 * GiB, 3 * GiB]
    machine.nvml.hang("nvmlDeviceGetMemoryInfo", index=1)

    assert free(gpus) == [GiB, None, None]
    asked = machine.nvml.calls["nvmlDeviceGetMemoryInfo"]
    assert free(gpus) == [GiB, None, 3 * GiB]
    assert machine.nvml.calls["nvmlDeviceGetMemoryInfo"] == asked + 2

    # It is not asked while the first call hangs, however long that is.
    machine.clock.advance(100)
    assert free(gpus) == [GiB, None, 3 * GiB]
    assert helpers() == 1

    machine.nvml.recover()
    settle()
    assert free(gpus) == [GiB, 2 * GiB, 3 * GiB]


def test_a_card_that_was_slow_once_is_asked_again_after_30_seconds(machine: Machine) -> None:
    """Not before, even when the call has long ended."""
    machine.nvml.devices = cards(1, 2)
    gpus = reader(machine)
    free(gpus)
    machine.nvml.hang("nvmlDeviceGetMemoryInfo", index=0)
    assert free(gpus) == [None, None]
    machine.nvml.recover()
    settle()

    machine.clock.advance(29.9)
    assert free(gpus) == [None, 2 * GiB]
    machine.clock.advance(0.1)
    assert free(gpus) == [GiB, 2 * GiB]


def settle() -> None:
    """Wait until every helper thread has ended."""
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(5)
            assert not thread.is_alive()


def test_a_driver_that_starts_slowly_is_not_no_driver(machine: Machine) -> None:
    """Starting a driver takes seconds on some machines: unknown, and later known."""
    machine.nvml.devices = cards(1, 2)
    gpus = reader(machine, expected=2)
    machine.nvml.hang("nvmlInit")

    for _ in range(3):
        reading = gpus.read()
        assert [card.free_bytes for card in reading.gpus] == [None, None]
        assert "has not answered" in reading.notes[0]
    assert machine.nvml.calls["nvmlInit"] == 1
    assert helpers() == 1

    machine.nvml.recover()
    settle()
    assert free(gpus) == [GiB, 2 * GiB]
    assert machine.nvml.calls["nvmlInit"] == 1


@pytest.mark.parametrize(
    ("listed", "count"), [(None, 3), ("", 0), ("-1", 0), ("0,2", 2), ("GPU-1,-1,GPU-2", 1)]
)
def test_a_slow_start_respects_what_is_visible(
    machine: Machine, listed: str | None, count: int
) -> None:
    """Hidden cards stay hidden while nothing is known of them."""
    if listed is not None:
        machine.environ["CUDA_VISIBLE_DEVICES"] = listed
    gpus = reader(machine, expected=3)
    machine.nvml.hang("nvmlInit")

    assert len(gpus.read().gpus) == count


def test_threads_start_the_driver_once(machine: Machine) -> None:
    """Two first readings at the same time share one start."""
    machine.nvml.devices = cards(1)
    gpus = NvmlReader(machine.nvml, {}, machine.clock.monotonic, warnings=Warnings(), bound_s=5.0)
    meet = threading.Barrier(4)
    found: list[list[int | None]] = []

    def ask() -> None:
        meet.wait(5)
        found.append(free(gpus))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert found == [[GiB]] * 4
    assert machine.nvml.calls["nvmlInit"] == 1


def test_a_driver_that_disappears_and_returns(machine: Machine) -> None:
    """Without it there is no GPU; it is started anew, with its end before its start."""
    machine.nvml.devices = cards(1)
    gpus = reader(machine)
    assert free(gpus) == [GiB]
    machine.nvml.fail("nvmlDeviceGetCount", NVML_ERROR_DRIVER_NOT_LOADED)

    assert free(gpus) == []
    assert "Driver Not Loaded" in gpus.error
    assert free(gpus) == []
    machine.nvml.recover()
    machine.clock.advance(30)

    assert free(gpus) == [GiB]
    assert machine.nvml.calls["nvmlInit"] == 2
    assert machine.nvml.calls["nvmlShutdown"] == 1


def test_somebody_else_shut_nvml_down(machine: Machine) -> None:
    """It is started again within the same reading."""
    machine.nvml.devices = cards(1)
    gpus = reader(machine)
    assert free(gpus) == [GiB]
    machine.nvml.nvmlShutdown()

    assert free(gpus) == [GiB]
    assert machine.nvml.calls["nvmlInit"] == 2


def test_an_odd_failure_is_told(machine: Machine) -> None:
    """A driver that is there and fails is more than an absent one."""
    machine.nvml.fail("nvmlInit", NVML_ERROR_UNKNOWN)
    gpus = reader(machine)

    reading = gpus.read()

    assert reading.gpus == ()
    assert "999" in reading.notes[0]


def test_no_thread_outlives_a_reading(machine: Machine) -> None:
    """A healthy driver leaves none behind."""
    machine.nvml.devices = cards(1)
    gpus = reader(machine)
    for _ in range(5):
        assert free(gpus) == [GiB]

    assert helpers() == 0
    assert gpus.own_bytes() == {}
    assert helpers() == 0


def test_the_cards_keep_their_handles(machine: Machine) -> None:
    """A card is identified once, and again after 30 seconds or after an error."""
    machine.nvml.devices = cards(1)
    gpus = reader(machine)
    free(gpus)
    free(gpus)
    assert machine.nvml.calls["nvmlDeviceGetUUID"] == 1

    machine.clock.advance(30)
    free(gpus)
    assert machine.nvml.calls["nvmlDeviceGetUUID"] == 2


def test_a_card_that_stops_telling_its_uuid_keeps_it(machine: Machine) -> None:
    """Reservations are booked under the UUID: it must not change under them."""
    machine.nvml.devices = cards(1)
    gpus = reader(machine)
    free(gpus)
    machine.nvml.fail("nvmlDeviceGetUUID", NVML_ERROR_UNKNOWN)
    machine.clock.advance(30)

    [card] = gpus.read().gpus

    assert card.uuid == "GPU-0"
    assert card.free_bytes == GiB


def test_ram_is_read_after_the_gpus(machine: Machine) -> None:
    """RAM changes fastest: the time of a snapshot is that of its RAM figures."""

    class Slow(FakeNvml):
        def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
            machine.clock.advance(0.4)
            machine.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)
            return super().nvmlDeviceGetMemoryInfo(handle, version)

    machine.nvml = Slow(cards(1))
    before = machine.clock.monotonic()

    snapshot = machine.snapshot()

    assert snapshot.taken_at == before + 0.4
    assert snapshot.ram_available_bytes == 3 * GiB


def test_mig_instances_that_are_made_later_are_found(machine: Machine) -> None:
    """An administrator may cut a card up while lardon runs."""
    machine.nvml.devices = cards(1)
    card = machine.nvml.devices[0]
    card.mig_mode = True
    gpus = reader(machine)
    assert free(gpus) == [None]

    card.instances = [FakeInstance(uuid="MIG-a", total_bytes=8 * GiB, free_bytes=7 * GiB)]
    machine.clock.advance(30)
    assert free(gpus) == [7 * GiB]

    # They are cut again: the old handle is no longer good, the new one is found by itself.
    card.instances = [FakeInstance(uuid="MIG-b", total_bytes=4 * GiB, free_bytes=3 * GiB)]
    machine.clock.advance(30)
    assert [one.uuid for one in gpus.read().gpus] == ["MIG-b"]


def test_hidden_cards_are_not_asked(machine: Machine) -> None:
    """A card that this process cannot use cannot hold it up."""
    machine.nvml.devices = cards(1, 2)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "1"
    machine.nvml.hang("nvmlDeviceGetMemoryInfo", index=0)

    assert free(reader(machine)) == [2 * GiB]


@pytest.mark.parametrize("answer", [(0, 0), (-1, 0), (80 * GiB, -1), (2**64 - 1, 5)])
def test_figures_that_cannot_be_are_unknown(machine: Machine, answer: tuple[int, int]) -> None:
    """A total of 0 is no card, and no reason to reject work for ever."""
    machine.nvml.devices = cards(1)
    machine.nvml.devices[0].total_bytes, machine.nvml.devices[0].free_bytes = answer

    assert free(reader(machine)) == [None]


def test_zero_free_is_a_figure(machine: Machine) -> None:
    """A full card is full, not unknown."""
    machine.nvml.devices = cards(0)

    [card] = reader(machine).read().gpus

    assert card.free_bytes == 0
    assert card.known
