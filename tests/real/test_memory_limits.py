"""What a process in a real memory cgroup is told of its limits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from lardon.units import MiB, format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.cgroups import Group
    from tests.real.conftest import Kernel

pytestmark = pytest.mark.slow

# The kernel charges in lots of up to 64 pages per CPU, and the process allocates a little
# between two readings.
NOISE_BYTES: Final = 8 * MiB


def bound(what: str, group: Group, limit_bytes: int) -> str:
    return f"{what} RAM is bound by {group.limit_file}: {format_bytes(limit_bytes)}"


def headroom(group: Group, limit_bytes: int) -> int:
    """Return what *group* has left, by the files themselves."""
    return limit_bytes - (group.usage_bytes - group.inactive_file_bytes)


def test_the_nearest_limit(kernel: Kernel) -> None:
    outer = kernel.memory(300 * MiB)
    inner = kernel.memory(200 * MiB, inside=outer)
    seen = kernel.run(inner).ask("snapshot")

    assert seen["total"] == 200 * MiB
    assert seen["available"] == pytest.approx(headroom(inner, 200 * MiB), abs=NOISE_BYTES)
    assert bound("total", inner, 200 * MiB) in seen["limits"]
    assert bound("available", inner, 200 * MiB) in seen["limits"]
    assert [level["limit_source"] for level in seen["levels"]][:2] == [
        str(inner.limit_file),
        str(outer.limit_file),
    ]


@pytest.mark.parametrize("nearest", [None, 300 * MiB])
def test_the_limit_of_an_ancestor(kernel: Kernel, nearest: int | None) -> None:
    """Whether the process's own group has a wider limit or none."""
    outer = kernel.memory(200 * MiB)
    middle = kernel.memory(inside=outer)
    seen = kernel.run(kernel.memory(nearest, inside=middle)).ask("snapshot")

    assert seen["total"] == 200 * MiB
    assert seen["available"] == pytest.approx(headroom(outer, 200 * MiB), abs=NOISE_BYTES)
    assert bound("total", outer, 200 * MiB) in seen["limits"]
    assert bound("available", outer, 200 * MiB) in seen["limits"]


def test_a_task_that_fits_and_two_that_do_not(kernel: Kernel) -> None:
    child = kernel.run(kernel.memory(128 * MiB))

    def answer(ram_bytes: int) -> tuple[str, str]:
        decision = child.ask("decide", ram_bytes=ram_bytes)
        return decision["kind"], decision["code"]

    assert answer(128 * MiB + 1) == ("REJECT", "RAM_CAPACITY")
    # Exactly the limit could be had if the process itself took nothing of it.
    assert answer(128 * MiB) == ("WAIT", "RAM_SHORT")
    assert answer(64 * MiB) == ("START", "OK")


def test_what_a_sibling_uses(kernel: Kernel) -> None:
    """It comes out of the parent's allowance; the nearer limit still is the total."""
    outer = kernel.memory(300 * MiB)
    inner = kernel.memory(200 * MiB, inside=outer)
    child, sibling = kernel.run(inner), kernel.run(kernel.memory(inside=outer))
    sibling.ask("snapshot")
    before = child.ask("snapshot")
    sibling.ask("hold", ram_bytes=180 * MiB)
    after = child.ask("snapshot")

    assert before["available"] == pytest.approx(headroom(inner, 200 * MiB), abs=NOISE_BYTES)
    assert after["available"] == pytest.approx(headroom(outer, 300 * MiB), abs=NOISE_BYTES)
    assert after["available"] < 120 * MiB
    assert bound("total", inner, 200 * MiB) in after["limits"]
    assert bound("available", outer, 300 * MiB) in after["limits"]


def test_page_cache_is_room(kernel: Kernel, tmp_path: Path) -> None:
    """After a file larger than the limit was read the group is full, and yet has room."""
    file = tmp_path / "larger"
    file.touch()
    os.truncate(file, 160 * MiB)
    group = kernel.memory(128 * MiB)
    child = kernel.run(group)
    before = child.ask("snapshot")["available"]
    child.ask("read", path=str(file))
    left = 128 * MiB - group.usage_bytes
    if left > before // 2:
        pytest.skip(f"reading a file in {tmp_path} is not charged to the reader")
    after: int = child.ask("snapshot")["available"]

    assert left < 16 * MiB
    assert after == pytest.approx(before, abs=NOISE_BYTES)
    # The kernel gives what was said to be there.
    decision = child.ask("decide", ram_bytes=after - NOISE_BYTES)
    assert decision["kind"] == "START"
    child.ask("hold", ram_bytes=after - NOISE_BYTES)
    assert group.oom_kills == 0


@pytest.mark.parametrize("way", ["hold", "share"])
def test_held_memory_is_no_room(kernel: Kernel, way: str) -> None:
    """The counterpart; shared memory is none either, although the kernel calls it cache."""
    group = kernel.memory(128 * MiB)
    child = kernel.run(group)
    before = child.ask("snapshot")["available"]
    child.ask(way, ram_bytes=48 * MiB)

    after = child.ask("snapshot")["available"]
    assert after == pytest.approx(before - 48 * MiB, abs=NOISE_BYTES)


def test_a_limit_that_is_changed_in_place(kernel: Kernel) -> None:
    """The next snapshot sees it, in both directions, with files that stayed open."""
    outer = kernel.memory(250 * MiB)
    group = kernel.memory(200 * MiB, inside=outer)
    child = kernel.run(group)

    def seen(limit_bytes: int | None) -> tuple[int, int]:
        group.limit(limit_bytes)
        snapshot: dict[str, Any] = child.ask("snapshot")
        return snapshot["total"], snapshot["available"]

    first, lower, higher, none = seen(200 * MiB), seen(100 * MiB), seen(220 * MiB), seen(None)

    assert [total for total, _ in (first, lower, higher, none)] == [
        200 * MiB,
        100 * MiB,
        220 * MiB,
        250 * MiB,
    ]
    for total, available in (lower, higher, none):
        assert available == pytest.approx(first[1] + total - 200 * MiB, abs=NOISE_BYTES)
    outer.limit(150 * MiB)
    assert child.ask("snapshot")["total"] == 150 * MiB


def test_a_process_that_is_moved(kernel: Kernel) -> None:
    """It is read where it is now, with the same probe."""
    first, second = kernel.memory(200 * MiB), kernel.memory(100 * MiB)
    child = kernel.run(first)
    before = child.ask("snapshot")
    second.enter(child.pid)
    after = child.ask("snapshot")

    assert (before["total"], after["total"]) == (200 * MiB, 100 * MiB)
    assert bound("total", second, 100 * MiB) in after["limits"]
