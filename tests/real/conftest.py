"""Cgroups of the real kernel, and processes inside them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from lardon.units import GiB
from tests.real.cgroups import Group, NoGroupError, find_place, room_bytes
from tests.real.child import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

# The processes of one test use 400 MiB at most. The largest reserve of the host's RAM, 2 GiB,
# comes on top: a governor that sees only the host must say START.
_ROOM_BYTES: Final = 3 * GiB


class Kernel:
    """Makes groups and processes, and takes them away in the opposite order."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def memory(self, limit_bytes: int | None = None, *, inside: Group | None = None) -> Group:
        """Return a new group with a memory limit, or skip the test and say why."""
        try:
            group = self._group("memory", inside)
            group.forbid_swap()
            group.limit(limit_bytes)
        except NoGroupError as error:
            pytest.skip(str(error))
        return group

    def cpu(self, *, inside: Group | None = None) -> Group:
        """Return a new group of the CPU controller, or skip the test and say why."""
        try:
            group = self._group("cpu", inside)
            group.quota(None)
        except NoGroupError as error:
            pytest.skip(str(error))
        return group

    def _group(self, controller: str, inside: Group | None) -> Group:
        place = find_place(controller) if inside is None else inside.hand_down()
        if controller == "memory" and inside is None and (room := room_bytes(place)) < _ROOM_BYTES:
            # Else the kernel would look for a victim outside of the test's own groups.
            raise NoGroupError(f"{room} bytes of RAM are to be had, {_ROOM_BYTES} are needed")
        group = Group(place)
        self._stack.callback(group.remove)
        return group

    def run(self, group: Group) -> Child:
        """Return a new process in *group*."""
        child = Child(group)
        self._stack.callback(child.close)
        return child


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    """Return a maker of groups; all that it made is gone when the test ends."""
    with ExitStack() as stack:
        yield Kernel(stack)
