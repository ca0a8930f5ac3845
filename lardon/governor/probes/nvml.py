"""GPUs through NVML: asked at every snapshot, for a bounded time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lardon.forks import forks
from lardon.governor.probes.bounded import Helper
from lardon.governor.probes.files import Warnings
from lardon.governor.probes.gpu_visibility import VARIABLE, Device, Visibility, visible_devices
from lardon.governor.probes.nvml_cards import (
    INTEGRATED_NAMES,
    KnownCard,
    Memory,
    identify,
    is_integrated,
    own_bytes,
    read_memory,
    unavailable,
)
from lardon.governor.probes.nvml_library import NvmlAbsentError, find_nvml
from lardon.governor.probes.nvml_session import Session
from lardon.governor.snapshot import GpuSnapshot

# All driver calls of one snapshot share this. A healthy driver answers within a
# millisecond, and a sick one within minutes or never.
BOUND_S: Final = 0.5


class GpuReading(NamedTuple):
    """The GPUs of one snapshot, and what is to be said about them."""

    gpus: tuple[GpuSnapshot, ...] = ()
    notes: tuple[str, ...] = ()


NO_GPUS: Final = GpuReading()


class NvmlReader:
    """
    Reads the GPUs that this process may use, from any thread.

    The driver is called on a helper thread that lives for one reading, so that a call
    that hangs costs the bound once, and never a lock. A machine without NVML gets no
    thread at all.

    Args:
        nvml: a module with pynvml's names; None finds the real one when it is needed.
        environ: where CUDA's variables are looked up, at each reading.
        now: seconds of the clock, for what is tried again later.
        warnings: where a driver that is there and fails is warned about, once.
        bound_s: real seconds that the driver has for one reading.
        integrated_names: words that name a card without memory of its own.
        expected_cards: how many cards to assume while the driver has not said.

    """

    def __init__(
        self,
        nvml: Any,
        environ: Mapping[str, str],
        now: Callable[[], float],
        *,
        warnings: Warnings,
        bound_s: float = BOUND_S,
        integrated_names: tuple[str, ...] = INTEGRATED_NAMES,
        expected_cards: Callable[[], int] = lambda: 1,
    ) -> None:
        self._nvml = nvml
        self._environ = environ
        self._now = now
        self._warnings = warnings
        self._bound_s = bound_s
        self._integrated_names = integrated_names
        self._expected_cards = expected_cards
        self._session = Session(nvml)

    @property
    def error(self) -> str:
        """Why there is no GPU, for people to read; empty when there may be one."""
        return self._session.error

    def read(self) -> GpuReading:
        """Return the GPUs as the driver sees them now; it never raises."""
        session, now = self._session, self._now()
        if session.forks != forks():
            session = self._renewed()
        if now < session.quiet_until or not self._found(session, now):
            return _failure(session)
        memory: dict[Device, Memory] = {}
        if not session.starting:
            helper = Helper(lambda helper: self._ask(session, memory, helper, now))
            if not helper.finished(self._bound_s):
                session.give_up(helper, now)
        if session.error:
            if session.worth_telling:
                self._warnings.warn("NVML", f"no GPU can be used: {session.error}")
            return _failure(session)
        # A copy: the helper may still be at it.
        return self._reading(session, dict(memory), now)

    def own_bytes(self) -> dict[str, int]:
        """Return what this process uses by UUID; a device that does not tell is not there."""
        session = self._session
        used: dict[str, int] = {}
        if not session.count or session.starting or session.forks != forks():
            return used
        now = self._now()
        helper = Helper(lambda helper: self._ask_use(session, used, helper, now))
        if not helper.finished(self._bound_s):
            session.give_up(helper, now)
        return dict(used)

    def _renewed(self) -> Session:
        """Return a session for a forked child: what the parent started is the parent's."""
        session = self._session = Session(self._nvml)
        return session

    def _found(self, session: Session, now: float) -> bool:
        if session.nvml is None:
            try:
                session.nvml = find_nvml()
            except NvmlAbsentError as error:
                session.fail(str(error), now, worth_telling=False)
                return False
        return True

    def _ask(
        self, session: Session, memory: dict[Device, Memory], helper: Helper, now: float
    ) -> None:
        """Fill *memory*, on the helper's thread."""
        count = session.count_cards(now)
        if count is None or helper.abandoned:
            return
        for place in range(count):
            if session.identified(place, now) or session.is_left_alone(place, now):
                continue
            helper.doing = place
            card = identify(session.nvml, place, session.known.get(place))
            if helper.abandoned:
                return
            session.learn(place, card, now)
        cards = session.cards()
        for device in self._visible(cards).devices:
            if session.is_left_alone(device.card, now):
                continue
            helper.doing = device.card
            answer = self._memory(session, cards[device.card], device)
            if helper.abandoned:
                return
            memory[device] = answer

    def _memory(self, session: Session, known: KnownCard, device: Device) -> Memory:
        if known.handle is None:
            return Memory(error=known.error)
        handle = _handle(known, device)
        if handle is None:
            return Memory(error="none of its MIG instances can be read")
        answer = read_memory(session.nvml, handle)
        if answer.error and not is_integrated(known.card.name, self._integrated_names):
            # Next time it is asked for its handle first: it may have been reset.
            session.known[device.card] = known._replace(error=answer.error)
        return answer

    def _ask_use(self, session: Session, used: dict[str, int], helper: Helper, now: float) -> None:
        cards = session.cards()
        for device in self._visible(cards).devices:
            known = cards[device.card]
            handle = _handle(known, device)
            if handle is None or session.is_left_alone(device.card, now):
                continue
            helper.doing = device.card
            mine = own_bytes(session.nvml, handle, os.getpid())
            if helper.abandoned:
                return
            if mine is not None:
                used[_uuid(known, device)] = mine

    def _visible(self, cards: list[KnownCard]) -> Visibility:
        return visible_devices([known.card for known in cards], self._environ)

    def _reading(self, session: Session, memory: Mapping[Device, Memory], now: float) -> GpuReading:
        if session.count is None:
            return self._unknown()
        cards = session.cards()
        devices, notes = self._visible(cards)
        gpus = []
        for index, device in enumerate(devices):
            known = cards[device.card]
            answer = memory.get(device)
            if answer is None:
                left_alone = session.is_left_alone(device.card, now)
                answer = Memory(error=f"no answer within {self._bound_s:g} s" if left_alone else "")
            gpu = GpuSnapshot(
                index=index,
                uuid=_uuid(known, device),
                name=known.card.name or f"GPU {device.card}",
                total_bytes=answer.total_bytes,
                free_bytes=answer.free_bytes,
                integrated=is_integrated(known.card.name, self._integrated_names),
            )
            gpus.append(gpu)
            if gpu.free_bytes is None and not gpu.integrated:
                why = answer.error or known.error or "the driver was busy with another card"
                notes += (f"GPU {gpu.uuid} cannot be read: {why}",)
        return GpuReading(tuple(gpus), notes)

    def _unknown(self) -> GpuReading:
        """Return cards of which nothing is known: a driver at its start is not no driver."""
        listed = self._environ.get(VARIABLE)
        if listed is None:
            count = self._expected_cards()
        else:
            entries = [entry.strip() for entry in listed.split(",")]
            hidden = (place for place, entry in enumerate(entries) if entry[:1] in ("", "-"))
            count = next(hidden, len(entries))
        gpus = tuple(
            GpuSnapshot(index=place, uuid=unavailable(place, "").card.uuid)
            for place in range(count)
        )
        return GpuReading(gpus, ("GPU driver has not answered yet: nothing is known of its cards",))


def _failure(session: Session) -> GpuReading:
    if not session.worth_telling:
        return NO_GPUS
    return GpuReading((), (f"GPU driver cannot be used: {session.error}",))


def _handle(known: KnownCard, device: Device) -> Any:
    if device.instance is not None:
        return known.instances[device.instance]
    # A card in MIG mode has no memory to use: only its instances have.
    return None if known.card.in_mig_mode else known.handle


def _uuid(known: KnownCard, device: Device) -> str:
    if device.instance is None:
        return known.card.uuid
    return known.card.instances[device.instance].uuid
