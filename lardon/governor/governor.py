"""The Resource Governor: snapshots outside the lock, decisions and bookings inside it."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, cast

from lardon.clock import Clock, MachineClock, checked_timeout
from lardon.errors import InvalidEstimate
from lardon.events import Listeners
from lardon.governor.admission import evaluate
from lardon.governor.checks import refuse, text, uuids
from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.experience import Experience
from lardon.governor.learning import Learner
from lardon.governor.ledger import Ledger
from lardon.governor.measured import credit_for, outlook_for
from lardon.governor.policy import Policy, check_policy
from lardon.governor.probes import SystemProbe
from lardon.governor.reader import Reader
from lardon.governor.reservation import Reservation
from lardon.governor.snapshot import OwnUse, Probe, ResourceSnapshot

if TYPE_CHECKING:
    from lardon.governor.explanation import Explanation
    from lardon.governor.offers import Outlook
    from lardon.governor.statistics import GovernorStatistics


class Governor(Learner):
    """
    Decides what may run now, and keeps the book of what is reserved.

    Every method may be called from any thread. `snapshot`, `decide`, `explain`, `reserve`
    and `set_policy` read the machine first, which takes as long as the probe takes; no
    lock is held meanwhile. The rest does not block, except `wait_for_change`.

    Args:
        policy: What the owner allows; None is `Policy()`.
        probe: Anything with ``snapshot()``; None reads this machine.
        clock: The clock that also stamps the probe's snapshots; None is the machine's.

    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        probe: Probe | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = clock if clock is not None else MachineClock()
        self._reader = Reader(probe if probe is not None else SystemProbe(clock=self._clock))
        self._policy = check_policy(policy) if policy is not None else Policy()
        self._listeners = Listeners()
        self._start_afresh()
        _governors.add(self)

    def _start_afresh(self) -> None:
        """Set everything that must not be carried into a forked child."""
        # Guards the attributes below. Held for arithmetic alone: the probe and all
        # callbacks are called with it released. Re-entrant, because a signal handler or
        # a finalizer may release a reservation at any allocation.
        self._lock = threading.RLock()
        # Notified whenever `_generation` moves. Only `wait_for_change` waits on it.
        self._changed = threading.Condition(self._lock)
        self._generation = 0
        self._ledger = Ledger()
        # How many threads are in `wait_for_change`.
        self._waiting = 0
        self._experience = Experience()
        self._untidy = False
        self._next_id = 1
        self._released = 0
        self._released_again = 0
        self._decisions: Counter[DecisionKind] = Counter()

    @property
    def clock(self) -> Clock:
        """The clock of this governor and of the queues that use it."""
        return self._clock

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy

    @property
    def generation(self) -> int:
        """Grows by 1 at every booking, release and accepted policy change."""
        return self._generation

    def snapshot(self) -> ResourceSnapshot:
        """Return a fresh reading of the machine; what the probe raises comes through."""
        return self._reader.probe.snapshot()

    def decide(
        self,
        estimate: ResourceEstimate,
        snapshot: ResourceSnapshot | None = None,
        *,
        devices: Iterable[str] | None = None,
    ) -> Decision:
        """
        Return what `reserve` would answer; nothing changes, however often it is called.

        Args:
            estimate: What is asked for.
            snapshot: Decide on this reading, and read nothing: what the holder of a
                reservation uses is unknown then, and counts in full. None takes a fresh
                reading.
            devices: Consider only these GPU UUIDs.

        """
        chosen = self._checked(estimate, devices)
        seen, own = self._generation, None
        if snapshot is None:
            own = self._use_of_holder()
            reading = self._reader.snapshot()
            if isinstance(reading, Decision):
                return reading
            snapshot = reading
        now = self._clock.monotonic()
        with self._lock:
            policy = self._policy
            measured = outlook_for(self._sole(seen), own)
            outlook = self._experience.outlook(measured, estimate, policy, now)
            return evaluate(estimate, snapshot, policy, self._ledger, now, outlook, chosen)

    def explain(
        self, estimate: ResourceEstimate, *, devices: Iterable[str] | None = None
    ) -> Explanation:
        """Return the decision for *estimate* now, with the arithmetic of every resource."""
        # Imported here, as for `statistics`: not every user pays for it.
        from lardon.governor.explanation import Explanation, explain

        chosen = self._checked(estimate, devices)
        seen = self._generation
        own = self._use_of_holder()
        snapshot = self._reader.snapshot()
        if isinstance(snapshot, Decision):
            to_start = (snapshot.reason.text,)
            return Explanation(decision=snapshot, snapshot=None, to_start=to_start)
        now = self._clock.monotonic()
        with self._lock:
            policy = self._policy
            measured = outlook_for(self._sole(seen), own)
            outlook = self._experience.outlook(measured, estimate, policy, now)
            return explain(estimate, snapshot, policy, self._ledger, now, outlook, chosen)

    def reserve(
        self,
        estimate: ResourceEstimate,
        *,
        holder: str = "",
        replaces: Reservation | None = None,
        devices: Iterable[str] | None = None,
    ) -> tuple[Decision, Reservation | None]:
        """
        Decide and book in one step: two callers can never both get the last bytes.

        Args:
            estimate: What is asked for.
            holder: Who asks, for the reasons that others are given.
            replaces: The reservation that the caller has just released, at a break. What
                this process gained under it and still holds counts as free, if it was
                the only one.
            devices: Consider only these GPU UUIDs.

        Returns:
            The decision, and the reservation for START and REDUCE_BATCH, else None. A
            probe that raises gives WAIT with the code PROBE_FAILED.

        """
        chosen = None
        if devices is not None or type(estimate) is not ResourceEstimate:
            chosen = self._checked(estimate, devices)
        if type(holder) is not str:  # it stands in the sentences of those who wait for it
            text("holder", holder)
        # The own use is read first: memory that grows between the two readings is then
        # missing from the availability, never counted twice in favour of the caller.
        seen = self._generation
        own = None
        if (
            estimate.ram_most
            or estimate.gpus
            or self._ledger.bookings
            or self._policy.trust != "declared"
        ):
            if self._untidy and (replaces is None or self._ledger.bookings or not replaces._alone):
                # What was freed and kept by the allocator would be the baseline of what comes
                # now, whose own peaks would look smaller by that.
                self._untidy = False
                self._reader.tidy()
            own = self._reader.own_use()
        snapshot = self._reader.snapshot()
        if isinstance(snapshot, Decision):
            with self._lock:
                self._decisions[snapshot.kind] += 1
            return snapshot, None
        now = self._clock.monotonic()
        with self._lock:
            policy, experience = self._policy, self._experience
            baseline = own
            measured = None
            if self._ledger.bookings:
                measured = outlook_for(self._sole(seen), own)
            elif replaces is not None and own is not None:
                measured, baseline = self._succession(replaces, own, seen)
            credit = measured.ram_credit_bytes if measured is not None else 0
            self._observe(snapshot, now, own, credit)
            outlook = experience.outlook(measured, estimate, policy, now)
            decision = evaluate(estimate, snapshot, policy, self._ledger, now, outlook, chosen)
            self._decisions[decision.kind] += 1
            if decision.contract is None:
                return decision, None
            experience.granted(estimate.kind, decision.contract.batch_size)
            reservation = self._book(decision.contract, holder, snapshot)
            reservation._baseline, reservation._at_booking = baseline, own
            self._bump()
        self._listeners.poke()
        return decision, reservation

    def _checked(
        self, estimate: ResourceEstimate, devices: Iterable[str] | None
    ) -> frozenset[str] | None:
        if not isinstance(estimate, ResourceEstimate):
            raise refuse(InvalidEstimate, "estimate", estimate, "a lardon.ResourceEstimate")
        return None if devices is None else frozenset(uuids(devices))

    def _use_of_holder(self) -> OwnUse | None:
        """Measure this process, where that tells the use of the only holder."""
        return self._reader.own_use() if len(self._ledger) == 1 else None

    def _sole(self, seen: int) -> Reservation | None:
        """Return the only active reservation since *seen*. The caller holds `_lock`."""
        bookings = self._ledger.bookings
        # What was measured while others held something tells nothing of the holder now.
        if len(bookings) != 1 or self._generation != seen:
            return None
        # This governor books nothing but its own reservations.
        return cast(Reservation, next(iter(bookings.values())))

    def _succession(
        self, replaces: Reservation, own: OwnUse, seen: int
    ) -> tuple[Outlook | None, OwnUse]:
        """Return what the successor of *replaces* may count on, and its baseline."""
        inherited = replaces._baseline
        if inherited is None or not replaces._alone:
            return None, own
        if self._generation != seen:  # as in `_sole`
            return None, inherited
        return credit_for(replaces.contract, inherited, own), inherited

    def _book(self, contract: Contract, holder: str, snapshot: ResourceSnapshot) -> Reservation:
        """Book. The caller holds `_lock`."""
        reservation = Reservation(self, self._next_id, holder, contract)
        self._next_id += 1
        integrated: tuple[str, ...] = ()
        if contract.gpus:
            integrated = tuple(gpu.uuid for gpu in snapshot.gpus if gpu.integrated)
        self._ledger.book(reservation, integrated)
        return reservation

    def _bump(self) -> None:
        """Tell the waiters that something changed. The caller holds `_lock`."""
        self._generation += 1
        if self._waiting:
            self._changed.notify_all()

    def _release(self, reservation: Reservation) -> bool:
        """Release once; called by `Reservation.release`."""
        with self._lock:
            # A reservation that was made before a fork is not in the child's book.
            if not self._ledger.release(reservation):
                self._released_again += 1
                return False
            reservation._active = False
            reservation._alone = not self._ledger.bookings
            self._released += 1
            self._bump()
        self._listeners.poke()
        return True

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the active reservations, in order of booking."""
        with self._lock:
            return tuple(cast(Reservation, booking) for booking in self._ledger)

    def statistics(self) -> GovernorStatistics:
        """Return a consistent copy of the counts and totals."""
        from lardon.governor.statistics import GovernorStatistics

        with self._lock:
            return GovernorStatistics(
                active=len(self._ledger),
                booked=self._next_id - 1,
                released=self._released,
                released_again=self._released_again,
                generation=self._generation,
                decisions=dict(self._decisions),
                reserved_ram_bytes=self._ledger.ram_bytes,
                reserved_cpus=self._ledger.cpus,
                reserved_io_slots=self._ledger.io_slots,
                reserved_gpus=self._ledger.devices(),
                history=self._experience.history.counts(),
            )

    def wait_for_change(self, seen: int, timeout: float | None = None) -> bool:
        """
        Block until `generation` differs from *seen*, at most *timeout* seconds.

        Returns whether it differs. Raises ValueError for a negative or NaN timeout.
        """
        seconds = checked_timeout(timeout)
        with self._lock:
            self._waiting += 1
            try:
                return self._clock.wait_for(
                    self._changed, lambda: self._generation != seen, seconds
                )
            finally:
                self._waiting -= 1

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """
        Call *callback*, without arguments, after every move of `generation`.

        It runs on the thread that made the change, with no lock held. Returns a function
        that ends the subscription.
        """
        return self._listeners.subscribe(callback)

    def set_policy(self, policy: Policy) -> None:
        """
        Put *policy* in force.

        Raises:
            InvalidPolicy: it is not a policy, or the active reservations already exceed
                it (attributes `resource`, `reserved`, `capacity`); nothing has changed.

        """
        from lardon.governor.room import check_room

        check_policy(policy)
        reading = self._reader.snapshot()
        snapshot = None if isinstance(reading, Decision) else reading
        with self._lock:
            check_room(policy, snapshot, self._ledger)
            self._policy = policy
            self._bump()
        self._listeners.poke()


_governors: Final[weakref.WeakSet[Governor]] = weakref.WeakSet()


def _forget_the_parent() -> None:
    """
    Start every governor afresh in a forked child.

    Its reservations, waiters and listeners are the parent's, and another thread of the
    parent may have held the lock at the fork.
    """
    for governor in list(_governors):
        governor._listeners = Listeners()
        governor._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent)
