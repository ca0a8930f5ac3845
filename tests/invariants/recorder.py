"""A governor that writes down every booking and release, and judges them as they happen."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from lardon import Contract, Reservation, ResourceSnapshot
from lardon.governor.like import GovernorLike
from lardon.testing import ScriptedProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lardon import Decision, Policy, ResourceEstimate
    from lardon.clock import Clock

PATIENCE_S: Final = 5.0
"""How long anything may take before it counts as a hang; a healthy run never waits for it."""


class Bookkeeper(GovernorLike, Protocol):
    """A governor whose active reservations can be read: the real one and the scripted one."""

    def reservations(self) -> tuple[Reservation, ...]: ...

    def _release(self, reservation: Reservation) -> bool: ...


class RecordingProbe(ScriptedProbe):
    """A scripted probe that remembers what it told each thread last."""

    def __init__(self, snapshot: ResourceSnapshot | BaseException, clock: Clock) -> None:
        super().__init__(snapshot, clock=clock)
        self._told = threading.local()

    def snapshot(self) -> ResourceSnapshot:
        self._told.last = super().snapshot()
        return self.last()

    def last(self) -> ResourceSnapshot:
        last = self._told.last
        assert isinstance(last, ResourceSnapshot)
        return last


@attrs.frozen
class Entry:
    """One line of the record."""

    what: str
    """"booked" once the governor has answered, "released" before it is told."""
    id: int
    holder: str
    contract: Contract
    thread: int
    at: float


class Recorder:
    """
    Stands between queues and their governor, and looks at every booking and release.

    What it finds wrong is collected in `violations`, since a queue would take an exception
    for a failing governor. `room` returns the capacities that hold for the booking that
    this thread has just made (invariant 5); None leaves them unchecked.
    """

    def __init__(
        self, governor: Bookkeeper, room: Callable[[], Mapping[str, int]] | None = None
    ) -> None:
        self._governor = governor
        self._room = room
        # Guards the attributes below; nothing is called with it held.
        self._lock = threading.Lock()
        self.entries: list[Entry] = []
        self.violations: list[str] = []
        self.asked = 0
        self._released: Counter[int] = Counter()

    @property
    def clock(self) -> Clock:
        return self._governor.clock

    @property
    def policy(self) -> Policy:
        return self._governor.policy

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        return self._governor.subscribe(callback)

    def reserve(
        self,
        estimate: ResourceEstimate,
        *,
        holder: str = "",
        replaces: Reservation | None = None,
        devices: Iterable[str] | None = None,
    ) -> tuple[Decision, Reservation | None]:
        self._expect_held(holder, [], "asks for a reservation")
        if replaces is not None and replaces.active:
            self.blame(f"{holder} replaces reservation {replaces.id}, which it still holds")
        with self._lock:
            self.asked += 1
        decision, reservation = self._governor.reserve(
            estimate, holder=holder, replaces=replaces, devices=devices
        )
        if reservation is not None:
            self._booked(estimate, reservation)
        return decision, reservation

    def _booked(self, estimate: ResourceEstimate, reservation: Reservation) -> None:
        # Until here nobody else could release it: from now on releases pass by here.
        reservation._owner = self
        self._write("booked", reservation)
        self._expect_held(reservation.holder, [reservation.id], "was granted a reservation")
        problem = misfit(estimate, reservation.contract)
        if problem is not None:
            self.blame(f"{reservation}: {problem}")
        if self._room is None:
            return
        # Those booked before it and still active were active when it was booked.
        held = [r.contract for r in self._governor.reservations() if r.id <= reservation.id]
        room, sums = self._room(), total(held)
        for resource, limit in room.items():
            if sums[resource] > limit:
                self.blame(f"{reservation} brings {resource} to {sums[resource]} of {limit}")

    def _release(self, reservation: Reservation) -> bool:
        with self._lock:
            self._released[reservation.id] += 1
            times = self._released[reservation.id]
        if times > 1:
            self.blame(f"{reservation} is released for the {times}th time")
        self._write("released", reservation)
        returned = self._governor._release(reservation)
        if returned is not (times == 1):
            self.blame(f"{reservation}: release number {times} said {returned}")
        return returned

    def _write(self, what: str, reservation: Reservation) -> None:
        entry = Entry(
            what,
            reservation.id,
            reservation.holder,
            reservation.contract,
            threading.get_ident(),
            self.clock.monotonic(),
        )
        with self._lock:
            self.entries.append(entry)

    def _expect_held(self, holder: str, expected: list[int], when: str) -> None:
        held = self.held(holder)
        if held != expected:
            self.blame(f"{holder} {when}, and holds {held}, not {expected}")

    def held(self, holder: str) -> list[int]:
        """Return the ids of the active reservations of *holder*: the governor's own answer."""
        return [r.id for r in self._governor.reservations() if r.holder == holder]

    def blame(self, violation: str) -> None:
        with self._lock:
            self.violations.append(violation)

    def grants(self, holder: str) -> list[Entry]:
        """Return the bookings of *holder*, in order."""
        with self._lock:
            return [e for e in self.entries if e.holder == holder and e.what == "booked"]

    def all_grants(self) -> dict[str, list[Contract]]:
        """Return the contracts booked, in order, by holder."""
        grants: dict[str, list[Contract]] = {}
        with self._lock:
            for entry in self.entries:
                if entry.what == "booked":
                    grants.setdefault(entry.holder, []).append(entry.contract)
        return grants

    def check(self) -> None:
        """Raise for what was found so far."""
        with self._lock:
            assert not self.violations, "\n".join(self.violations)

    def check_all_released(self) -> None:
        """Raise unless every reservation that was ever booked here was released once."""
        self.check()
        with self._lock:
            booked = {e.id for e in self.entries if e.what == "booked"}
            wrong = {number for number in booked if self._released[number] != 1}
        assert not wrong, f"never released: {wrong}"


def total(contracts: Iterable[Contract]) -> Counter[str]:
    """Return what *contracts* take together, by resource, added up the plain way."""
    sums: Counter[str] = Counter()
    for contract in contracts:
        sums["ram"] += contract.ram_bytes
        sums["cpus"] += contract.cpus
        sums["io"] += contract.io_slots
        for uuid in contract.gpus:
            sums[uuid] += contract.gpu_bytes
            sums[f"tasks on {uuid}"] += 1
    return sums


def misfit(estimate: ResourceEstimate, contract: Contract) -> str | None:
    """Return what in *contract* does not belong to *estimate*, or None for a whole one."""
    batch = contract.batch_size
    if not estimate.min_batch <= batch <= estimate.max_batch:
        return f"a batch of {batch} for {estimate}"
    if contract.ram_bytes != estimate.ram_bytes + estimate.ram_bytes_per_item * batch:
        return f"{contract.ram_bytes} bytes of RAM are not those of {batch} items of {estimate}"
    if contract.gpu_bytes != estimate.gpu_bytes + estimate.gpu_bytes_per_item * batch:
        return f"{contract.gpu_bytes} bytes on the GPU are not those of {batch} items"
    if not estimate.min_cpus <= contract.cpus <= estimate.cpus:
        return f"{contract.cpus} CPUs for {estimate}"
    if contract.io_slots != estimate.io_slots or len(set(contract.gpus)) != estimate.gpus:
        return f"other slots than {estimate} asks for"
    return None
