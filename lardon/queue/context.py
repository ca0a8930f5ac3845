"""What a running callback holds: its contract, and the ways to stop between batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import attrs

from lardon.clock import checked_timeout
from lardon.governor.checks import text
from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.queue.outcome import cancellation, governor_failed, refusal
from lardon.queue.states import TaskState

if TYPE_CHECKING:
    from lardon.governor.batch_watch import BatchWatch
    from lardon.governor.reason import Reason
    from lardon.governor.reservation import Reservation
    from lardon.queue.lifecycle import Lifecycle
    from lardon.queue.task import Task

OnPause = Literal["cancel", "park"]
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class _Current(threading.local):
    context: TaskContext | None = None


current: Final = _Current()


def current_task() -> TaskContext | None:
    """Return the context of the callback that this thread is running, or None outside."""
    return current.context


class TaskContext:
    """
    The callback's side of its task.

    The three ways to stop, `checkpoint`, `sequence_break` and `batches` (or
    `map_batches`), are for the callback's own thread; elsewhere, or once the callback has
    ended, they raise RuntimeError. The rest may be used from any thread.
    """

    __slots__ = (
        "_land", "_life", "_measured", "_old", "_over", "_reservation", "_stopped", "_task", "_why",
    )  # fmt: skip

    def __init__(self, life: Lifecycle, task: Task, reservation: Reservation) -> None:
        self._life = life
        self._task = task
        # None inside a break, and after its failure. Only the worker's thread touches it.
        self._reservation: Reservation | None = reservation
        # What the break gave back: its successor may count on the memory still held.
        self._old: Reservation | None = None
        self._stopped = False
        self._over = False
        self._measured: BatchWatch | None = None  # see `lardon.queue.meter`
        self._land: Callable[[], None] | None = None  # see `lardon.queue.items`
        # What the reason of a cancelled task starts with.
        self._why = "cancelled on request"

    @property
    def task_id(self) -> int:
        """The id of the task."""
        return self._task.id

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._task.name

    @property
    def contract(self) -> Contract:
        """What is granted now; replaced as a whole at each break."""
        contract = self._task._contract
        assert contract is not None, "a callback runs only under a contract"
        return contract

    @property
    def sequence(self) -> int:
        """How many breaks were granted so far."""
        return self.contract.sequence

    @property
    def cancel_requested(self) -> bool:
        """Whether the callback should end soon; never blocks."""
        return self._task._cancelling

    def set_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """
        Report how far the work is; None keeps the total reported before.

        Progress never goes back: a smaller `done` leaves it where it is. Raises TypeError
        or ValueError for what is no finite number of at least 0.
        """
        task = self._task
        with task._signal.open_lock():
            # What has ended stays as it was.
            if not self._over:
                task._progress = task._progress.advanced(done, total, text("message", message))

    def checkpoint(self) -> bool:
        """
        Park here while the task is paused; return False once it is cancelled.

        The reservation is kept meanwhile. After a False, from here or from a break, every
        later call returns False at once.
        """
        self._check_caller()
        task = self._task
        while not self._stopped:
            if task._cancelling or task._refused:
                self._stopped = True
            elif not task._pausing:
                return True
            else:
                self._park()
        return False

    def sequence_break(self, timeout: float | None = 0.0, *, on_pause: OnPause = "cancel") -> bool:
        """
        Give the reservation back, and go on under a new contract that fits the machine now.

        In this order: park if a pause is pending; release; take a fresh snapshot; ask the
        governor; take over the new reservation and contract.

        Args:
            timeout: How long to stay admitted to nothing while the governor says WAIT.
                0 fails at once, None waits without limit. Time in a pause does not count.
            on_pause: What a pause does that is requested during the break: ``"cancel"``
                the task, or ``"park"`` and go on after `Task.resume`.

        Returns:
            True with a new contract, or False: the task was cancelled, or refused (then
            it ends FAILED with the governor's reason). After False nothing is reserved.

        Raises:
            RuntimeError: not on the callback's own thread, or the callback is over.
            ValueError: the timeout is negative or NaN, or *on_pause* is neither.

        """
        self._check_caller()
        seconds = checked_timeout(timeout)
        if on_pause not in {"cancel", "park"}:
            message = f'on_pause must be "cancel" or "park", not {on_pause!r}'
            raise ValueError(message)
        if self._land is not None:
            self._land()
        if not self.checkpoint():
            self._give_back()
            return False
        self._give_back()
        admitted = self._readmit(seconds, on_pause)
        # A pause that came with the grant parks under the new reservation.
        if admitted and on_pause == "park":
            admitted = self.checkpoint()
        if not admitted:
            self._stopped = True
            self._give_back()
        return admitted

    @property
    def environ(self) -> dict[str, str]:
        """
        The environment of a child process: this process's own, with the contract in it.

        ``OMP_NUM_THREADS`` and its like, ``CUDA_VISIBLE_DEVICES`` (empty without a GPU) and the
        figures as ``LARDON_BATCH_SIZE``, ``_RAM_BYTES``, ``_GPU_BYTES``, ``_CPUS``: the *env*
        of `subprocess.run`. A new copy each time; any thread may ask.
        """
        from lardon.environment import environment_of

        return environment_of(self.contract, os.environ)

    def applied(self) -> AbstractContextManager[None]:
        """
        Make this process keep to the contract within a ``with`` block, and undo it after.

        Thread pools of BLAS and OpenMP libraries are limited to ``contract.cpus``, if
        threadpoolctl is installed (extra ``threads``); children started within see its GPUs
        alone (``CUDA_VISIBLE_DEVICES``, if it has any). Both hold for the whole process: CUDA
        that it first starts within sees those for good. `map_batches` and `map_items` do it.
        """
        from lardon.queue.applied import applied

        return applied(self.contract)

    def batches(self, items: Iterable[Item]) -> Iterator[list[Item]]:
        """
        Yield *items* in lists of at most ``contract.batch_size``, with a break between them.

        Breaks wait as long as it takes (``timeout=None, on_pause="park"``). Progress is
        counted in items, once a batch is done. At most one batch is read ahead. The
        caller's own variable keeps a batch alive during the break; see `map_batches`.

        Raises:
            TaskCancelled: inside the callback, when the task was cancelled.
            TaskRefused: inside the callback, when the governor refused the rest.

        """
        from lardon.queue.batches import batches

        return batches(self, items)

    def map_batches(
        self, fn: Callable[[list[Item]], Outcome], items: Iterable[Item]
    ) -> list[Outcome]:
        """
        Call ``fn(batch)`` for each batch, as `batches` does; return what the calls returned.

        Nothing here keeps a batch alive during the break that follows it. Each call runs
        under the contract (see `applied`). One that runs out of memory (`MemoryError`, and
        what torch, CuPy, RMM and JAX raise) is no end: its items are tried again, half as
        many at a time, and the governor grants no larger batch of this kind for a while.
        What a call that raised had done already is done twice: all its items stay alive for it.

        Raises:
            BatchOutOfMemory: inside the callback, when `min_batch` items are too many.
            TaskCancelled, TaskRefused: as `batches`.

        """
        from lardon.queue.batches import map_batches

        return map_batches(self, fn, items)

    def map_items(self, fn: Callable[[Item], Outcome], items: Iterable[Item]) -> list[Outcome]:
        """
        Call ``fn(item)`` for each item on several threads; return the outcomes in order.

        At most ``contract.cpus`` calls run at a time, and at most ``contract.batch_size``
        items are in flight. There is a break, as in `map_batches`, between rounds of at
        least a second: nothing is in flight then. *items* is read by the callback's own
        thread; unless it is a sequence, never further ahead than what is in flight. An item
        that runs out of memory is tried again with half as many at a time.

        The first error by order of the items is raised once those in flight have ended.

        Raises:
            BatchOutOfMemory: inside the callback, when an item alone is too much.
            TaskCancelled, TaskRefused: as `batches`.

        """
        from lardon.queue.items import map_items

        return map_items(self, fn, items)

    # Inside --------------------------------------------------------------------

    @property
    def min_batch(self) -> int:
        """The estimate's smallest batch."""
        return self._task.estimate.min_batch

    def _must_stop(self) -> bool:
        """Return whether a pause, a cancel or a refusal wants the callback to stop soon."""
        task = self._task
        return task._pausing or task._cancelling or task._refused

    def _go_on(self) -> None:
        """Return unless the callback must end; then raise what `batches` raises."""
        if not self.checkpoint():
            raise self._ending()

    def _next_batch(self) -> int:
        """Take the break before another batch, and return the size that it may have."""
        if not self.sequence_break(timeout=None, on_pause="park"):
            raise self._ending()
        return self.contract.batch_size

    def _ending(self) -> Exception:
        return refusal(self._task) if self._task._refused else cancellation(self._task)

    def _check_caller(self) -> None:
        # Also in a child that the callback forked, which has a copy of the worker's thread.
        self._task._signal.open_lock()
        if self._over or not self._task._signal.on_worker():
            where = "after its callback" if self._over else "from another thread"
            message = f"task {self._task.id} cannot stop or break {where}"
            raise RuntimeError(message)

    def _park(self) -> None:
        """Sleep while the task is paused; nothing is given back."""
        task, signal = self._task, self._task._signal
        with signal.lock:
            if task._cancelling or not task._pausing:
                return
            self._life.park(task)
            reason = task._reason
        parked_at = signal.clock.monotonic()
        self._life.publish(task, TaskState.PAUSED, TaskState.RUNNING, reason)
        with signal.lock:
            # Whoever resumes sets the state, so that it shows at once.
            signal.sleep_until(
                signal.control, lambda: task._state is not TaskState.PAUSED or task._cancelling
            )
        if self._measured is not None:
            self._measured.leave_out(signal.clock.monotonic() - parked_at)

    def _give_back(self) -> None:
        reservation = self._reservation
        if reservation is not None:
            self._reservation, self._old = None, reservation
            reservation.release()

    def _readmit(self, seconds: float | None, on_pause: OnPause) -> bool:
        """Ask until there is a new reservation; False when the task must end."""
        task, signal = self._task, self._task._signal
        clock = signal.clock
        deadline = None if seconds is None else clock.monotonic() + seconds
        while True:
            seen = signal.changes
            answer = self._ask()
            if answer is None:
                return False
            decision, reservation = answer
            taken = self._take(decision, reservation, on_pause)
            if taken is not None:
                return taken
            # A pause that comes after `_take` and is to cancel is found by the next one.
            if task._pausing and on_pause == "park":
                parked_at = clock.monotonic()
                self._park()
                if task._cancelling:
                    return False
                if deadline is not None:
                    deadline += clock.monotonic() - parked_at
                continue
            late = deadline is not None and clock.monotonic() >= deadline
            if decision.kind is DecisionKind.REJECT or late:
                self._refuse(decision.reason, decision)
                return False
            self._wait(decision, seen, deadline)

    def _take(
        self, decision: Decision, reservation: Reservation | None, on_pause: OnPause
    ) -> bool | None:
        """Take what was granted: True. False when the task is cancelled, None for a refusal."""
        task = self._task
        with task._signal.lock:
            if task._pausing and on_pause == "cancel" and not task._cancelling:
                task._cancelling = True
                self._why = "cancelled, because a pause was requested during a break"
            if not task._cancelling:
                if reservation is None:
                    return None
                self._install(reservation, decision)
                return True
        if reservation is not None:
            reservation.release()
        return False

    def _ask(self) -> tuple[Decision, Reservation | None] | None:
        task = self._task
        try:
            return self._life.governor.reserve(task.estimate, holder=task.name, replaces=self._old)
        except BaseException as error:  # noqa: BLE001  a governor may raise anything
            self._refuse(governor_failed(error), None)
            return None

    def _install(self, reservation: Reservation, decision: Decision) -> None:
        """Put the new reservation in force. The caller holds the lock."""
        task, granted = self._task, reservation.contract
        self._reservation, self._old = reservation, None
        task._contract = attrs.evolve(granted, sequence=self.sequence + 1)
        task._reason = decision.reason
        task._decision = decision
        task._since = None

    def _refuse(self, reason: Reason, decision: Decision | None) -> None:
        """Doom the task, unless it was cancelled before."""
        task = self._task
        with task._signal.lock:
            if task._cancelling:
                # Cancelled while the governor answered: what came first wins.
                return
            task._refused = True
            task._reason = reason
            task._decision = decision
            task._since = None

    def _wait(self, decision: Decision, seen: int, deadline: float | None) -> None:
        """Sleep until news, a recheck is due, or the deadline; hold nothing meanwhile."""
        task, signal = self._task, self._task._signal
        with signal.lock:
            task._reason = decision.reason
            if task._since is None:
                task._since = signal.clock.monotonic()
            timeout = self._life.recheck(decision.reason)
            if deadline is not None:
                left = max(0.0, deadline - signal.clock.monotonic())
                timeout = left if timeout is None else min(timeout, left)
            signal.sleep_until(signal.changed, lambda: signal.changes != seen, timeout)
