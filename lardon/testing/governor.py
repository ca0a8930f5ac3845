"""A governor that answers what a test tells it, and keeps books like the real one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lardon.clock import MachineClock
from lardon.events import Listeners
from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.governor.policy import Policy
from lardon.governor.reason import Reason, ReasonCode
from lardon.governor.reservation import Reservation

if TYPE_CHECKING:
    from lardon.clock import Clock
    from lardon.governor.estimate import ResourceEstimate


def start(batch_size: int = 1, *, ram_bytes: int = 0, cpus: int = 1) -> Decision:
    """Return a START with a contract of this size."""
    contract = Contract(batch_size=batch_size, ram_bytes=ram_bytes, cpus=cpus)
    reason = Reason(code=ReasonCode.OK, text="granted by the script")
    return Decision(kind=DecisionKind.START, contract=contract, reason=reason)


def reduce_batch(
    batch_size: int = 1,
    text: str = "reduced by the script",
    *,
    code: ReasonCode = ReasonCode.RAM_SHORT,
    ram_bytes: int = 0,
) -> Decision:
    """Return a REDUCE_BATCH to this size."""
    contract = Contract(batch_size=batch_size, ram_bytes=ram_bytes)
    reason = Reason(code=code, text=text)
    return Decision(kind=DecisionKind.REDUCE_BATCH, contract=contract, reason=reason)


def wait(
    text: str = "told to wait by the script", *, code: ReasonCode = ReasonCode.RAM_SHORT
) -> Decision:
    """Return a WAIT; its code says whether a queue examines it again by itself."""
    return Decision(kind=DecisionKind.WAIT, reason=Reason(code=code, text=text))


def reject(
    text: str = "rejected by the script", *, code: ReasonCode = ReasonCode.RAM_CAPACITY
) -> Decision:
    """Return a REJECT."""
    return Decision(kind=DecisionKind.REJECT, reason=Reason(code=code, text=text))


class ScriptedGovernor:
    """
    Gives the scripted answers one after the other; the last one repeats.

    Exceptions in the script are raised. Reservations are real: they count, move the
    generation, tell the subscribers, and are released once.

    Args:
        decisions: The answers.
        policy: Read by queues for `recheck_s`; None is one that never rechecks, so that
            a test decides when the queue asks again.
        clock: None is the machine's.

    """

    def __init__(
        self,
        decisions: Iterable[Decision | BaseException],
        *,
        policy: Policy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._script = list(decisions)
        if not self._script:
            message = "a scripted governor needs at least one answer"
            raise ValueError(message)
        self.policy = policy if policy is not None else Policy(recheck_s=None)
        self.clock: Clock = clock if clock is not None else MachineClock()
        self.on_answer: Callable[[], object] | None = None
        """Called after each answer is chosen and before it is given: the place for a race."""
        self.asked: list[ResourceEstimate] = []
        """Every estimate that an answer was asked for."""
        self.replaced: list[Reservation | None] = []
        """What each question said that it replaces."""
        self.released = 0
        self._listeners = Listeners()
        # Guards the script and the book; nothing is called with it held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._active: dict[int, Reservation] = {}
        self._next_id = 1
        self.generation = 0
        """Moves at every booking and release."""

    def script(self, *decisions: Decision | BaseException) -> None:
        """Answer these from now on; the last repeats."""
        with self._lock:
            self._script = list(decisions)

    def reserve(
        self,
        estimate: ResourceEstimate,
        *,
        holder: str = "",
        replaces: Reservation | None = None,
        devices: Iterable[str] | None = None,  # noqa: ARG002  the protocol's
    ) -> tuple[Decision, Reservation | None]:
        """Give the next answer, and book what it grants."""
        with self._lock:
            self.asked.append(estimate)
            self.replaced.append(replaces)
            answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if self.on_answer is not None:
            self.on_answer()
        if isinstance(answer, BaseException):
            raise answer
        if answer.contract is None:
            return answer, None
        with self._lock:
            reservation = Reservation(self, self._next_id, holder, answer.contract)
            self._next_id += 1
            self._active[reservation.id] = reservation
            self._bump()
        self._listeners.poke()
        return answer, reservation

    def decide(self, _estimate: ResourceEstimate) -> Decision:
        """Return the answer that `reserve` would give next; the script does not move."""
        with self._lock:
            answer = self._script[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the active reservations."""
        with self._lock:
            return tuple(self._active.values())

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call *callback* after every booking and release."""
        return self._listeners.subscribe(callback)

    def _bump(self) -> None:
        self.generation += 1
        self._changed.notify_all()

    def _release(self, reservation: Reservation) -> bool:
        with self._lock:
            if self._active.get(reservation.id) is not reservation:
                return False
            del self._active[reservation.id]
            reservation._active = False
            self.released += 1
            self._bump()
        self._listeners.poke()
        return True
