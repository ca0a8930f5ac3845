"""
Threads that submit, steer and reserve at random, under the eyes of an observer.

The observer reads what every user can read, all the time: no reservation too many, no
total above the capacity, no torn contract. At the end the books must balance.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from lardon import (
    Contract,
    Governor,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    Task,
    TaskContext,
    TaskQueue,
    TaskState,
)
from lardon.clock import MachineClock
from lardon.queue.context import OnPause
from tests.invariants.model import TERMINAL
from tests.invariants.oracle import capacities
from tests.invariants.recorder import PATIENCE_S, Recorder, RecordingProbe, misfit, total

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon.queue.views import TaskEvent, TaskSnapshot

# Long enough for some thousand tasks; the rest of the budget is for a loaded machine.
RUN_S: Final = 4.0
QUEUES: Final = 3
TASKS_WAITING: Final = 12
POLICY: Final = Policy(ram_reserve_bytes=10, io_slots=2, recheck_s=0.005, max_memory_pressure=None)
ROOM: Final = capacities(
    Policy(ram_reserve_bytes=10, gpu_reserve_bytes=0, io_slots=2),
    ResourceSnapshot(taken_at=0, ram_total_bytes=110, ram_available_bytes=0, cpus=4),
)


def machine(available: int) -> ResourceSnapshot:
    return ResourceSnapshot(taken_at=0, ram_total_bytes=110, ram_available_bytes=available, cpus=4)


def some_estimate(rng: random.Random) -> ResourceEstimate:
    smallest = rng.randint(1, 2)
    return ResourceEstimate(
        ram_bytes=rng.choice((0, 5, 20, 200)) if rng.random() < 0.1 else rng.choice((0, 5, 20)),
        ram_bytes_per_item=rng.randint(1, 10),
        min_batch=smallest,
        max_batch=smallest + rng.randint(0, 8),
        cpus=rng.randint(1, 2),
        min_cpus=1,
        io_slots=rng.choice((0, 0, 1)),
    )


class Stress:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.over = threading.Event()
        self.probe = RecordingProbe(machine(110), MachineClock())
        self.governor = Governor(POLICY, probe=self.probe)
        self.recorder = Recorder(self.governor, lambda: ROOM)
        self.queues = [
            TaskQueue(self.recorder, name=f"stress-{number}", history=1000)
            for number in range(QUEUES)
        ]
        # Guards the three below.
        self.lock = threading.Lock()
        self.tasks: dict[str, Task] = {}
        self.ends: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.seen: dict[tuple[str, int], set[Contract]] = {}
        self.started: list[list[int]] = [[] for _ in self.queues]
        self.began: set[str] = set()
        self.running: set[str] = set()
        self.rounds = 0
        self.failures: list[BaseException] = []
        for number, queue in enumerate(self.queues):
            queue.subscribe(self.listener(number))

    def listener(self, number: int) -> Callable[[TaskEvent], None]:
        def listen(event: TaskEvent) -> None:
            with self.lock:
                self.events[event.name] += 1
                self.ends[event.name] += event.state in TERMINAL
            if event.state in TERMINAL and event.name in self.began:
                # One that never began may be cancelled while the governor books for it.
                held = self.recorder.held(event.name)
                if held or event.name in self.running:
                    self.recorder.blame(f"{event.name} ended, and still holds {held} or runs")
            if event.previous is TaskState.PENDING and event.state is TaskState.RUNNING:
                self.started[number].append(event.task_id)

        return listen

    # The callback -------------------------------------------------------------------

    def work(self, context: TaskContext, seed: int) -> int:
        name, rng = context.name, random.Random(seed)
        if len(self.recorder.held(name)) != 1:
            self.recorder.blame(f"{name} started with {self.recorder.held(name)}")
        if name in self.began:
            self.recorder.blame(f"{name} was called twice")
        self.began.add(name)
        self.running.add(name)
        try:
            return self._work(context, rng)
        finally:
            self.running.discard(name)

    def _work(self, context: TaskContext, rng: random.Random) -> int:
        for done in range(1, rng.randint(1, 5)):
            context.set_progress(done, 5)
            chance = rng.random()
            if chance < 0.2:
                if not context.checkpoint():
                    return done
                self._expect_held(context, 1)
            elif chance < 0.9:
                timeout = rng.choice((None, None, 0.0, 0.005))
                on_pause: OnPause = rng.choice(("cancel", "park"))
                before = context.sequence
                admitted = context.sequence_break(timeout, on_pause=on_pause)
                self._expect_held(context, int(admitted))
                # A grant that parks at once may end in a cancel: then it counted, and is gone.
                granted = context.sequence - before
                if granted != 1 and (admitted or granted):
                    self.recorder.blame(f"{context.name}: {before} to {context.sequence}")
                if not admitted:
                    return done
            elif chance < 0.95:
                message = "the callback's own"
                raise rng.choice((ValueError, SystemExit, KeyError))(message)
            if context._task.progress.done != done:
                self.recorder.blame(f"{context.name} lost its progress of {done}")
        return 5

    def _expect_held(self, context: TaskContext, count: int) -> None:
        held = self.recorder.held(context.name)
        if len(held) != count:
            self.recorder.blame(f"{context.name} holds {held}, not {count}")

    # The threads --------------------------------------------------------------------

    def submit(self, number: int) -> None:
        """Keep one queue full."""
        queue, rng = self.queues[number], random.Random(self.seed + number)
        count = 0
        while not self.over.is_set():
            statistics = queue.statistics()
            if statistics.pending + statistics.paused >= TASKS_WAITING:
                self.over.wait(0.001)
                continue
            name = f"stress-{number}-{count}"
            task = queue.submit(
                self.work,
                rng.getrandbits(32),
                estimate=some_estimate(rng),
                name=name,
                start_timeout_s=rng.choice((None, None, None, 0.05)),
            )
            with self.lock:
                self.tasks[name] = task
            count += 1

    def steer(self, what: str, seed: int) -> None:
        rng = random.Random(seed)
        while not self.over.is_set():
            queue = rng.choice(self.queues)
            views = [view for view in queue.tasks() if view.state not in TERMINAL]
            if views:
                view = rng.choice(views[:4])
                getattr(queue, what)(view.id)
            if what == "resume" and rng.random() < 0.3:
                queue.resume_all()
            self.over.wait(0.0005)

    def neighbour(self) -> None:
        """Reserve and release at the governor, beside the queues."""
        rng = random.Random(self.seed)
        while not self.over.is_set():
            _, reservation = self.recorder.reserve(some_estimate(rng), holder="neighbour")
            self.over.wait(0.0005)
            if reservation is not None and not reservation.release():
                self.recorder.blame("the neighbour's release said False")

    def change_the_machine(self) -> None:
        rng = random.Random(self.seed)
        while not self.over.is_set():
            self.probe.set(machine(rng.choice((110, 110, 60, 30, 0))))
            if rng.random() < 0.5:
                rng.choice(self.queues).resources_changed()
            self.over.wait(0.001)

    def observe(self) -> None:
        """Check what anybody can see, as often as possible."""
        while not self.over.is_set():
            self.rounds += 1
            reservations = self.governor.reservations()
            several = {h: n for h, n in Counter(r.holder for r in reservations).items() if n > 1}
            if several:
                self.recorder.blame(f"several reservations at once: {several}")
            sums = total(reservation.contract for reservation in reservations)
            above = {name: sums[name] for name, limit in ROOM.items() if sums[name] > limit}
            if above:
                self.recorder.blame(f"above the capacity of {ROOM}: {above}")
            self._observe_statistics()
            for queue in self.queues:
                for view in queue.tasks():
                    self._observe_task(view)

    def _observe_statistics(self) -> None:
        one = self.governor.statistics()
        if one.booked - one.released != one.active:
            self.recorder.blame(f"inconsistent: {one}")
        if one.generation != one.booked + one.released:
            self.recorder.blame(f"the generation does not add up: {one}")
        figures = (one.reserved_ram_bytes, one.reserved_cpus, one.reserved_io_slots)
        for found, limit in zip(figures, ROOM.values(), strict=True):
            if not 0 <= found <= limit or (found and not one.active):
                self.recorder.blame(f"totals out of {ROOM}: {one}")

    def _observe_task(self, view: TaskSnapshot) -> None:
        contract = view.contract
        if contract is None:
            if view.state is TaskState.RUNNING:
                self.recorder.blame(f"{view.name} runs without a contract")
            return
        if view.sequence != contract.sequence:
            self.recorder.blame(f"{view.name} shows sequence {view.sequence} with {contract}")
        with self.lock:
            task = self.tasks.get(view.name)
            self.seen.setdefault((view.name, view.sequence), set()).add(contract)
        if task is not None:
            problem = misfit(task.estimate, contract)
            if problem is not None:
                self.recorder.blame(f"{view.name}: {problem}")
            # Read without the lock, beside the consistent copy.
            loose = task.contract
            if loose is None or loose.sequence < view.sequence:
                self.recorder.blame(f"{view.name} went back from {contract} to {loose}")
            else:
                with self.lock:
                    self.seen.setdefault((view.name, loose.sequence), set()).add(loose)

    # The end ------------------------------------------------------------------------

    def run(self) -> None:
        jobs: list[tuple[Callable[..., None], tuple[object, ...]]] = [
            (self.neighbour, ()),
            (self.change_the_machine, ()),
            (self.observe, ()),
            *((self.submit, (number,)) for number in range(QUEUES)),
            *((self.steer, (what, seed)) for seed, what in enumerate(("pause", "cancel"))),
            *((self.steer, ("resume", seed)) for seed in (7, 8)),
        ]
        threads = [threading.Thread(target=self._guarded, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        self.over.wait(RUN_S)
        self.over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} hangs"
        if self.failures:
            raise self.failures[0]

    def _guarded(self, job: Callable[..., None], arguments: tuple[object, ...]) -> None:
        try:
            job(*arguments)
        except BaseException as error:  # noqa: BLE001  shown by the test itself
            self.failures.append(error)
            self.over.set()

    def wind_up(self) -> None:
        """Let one queue finish its work, and close the others in the middle of theirs."""
        self.probe.set(machine(110))
        self.queues[0].resume_all()
        self.queues[0].resources_changed()
        assert self.queues[0].join(PATIENCE_S), f"a wake-up was lost: {self.queues[0].tasks()}"
        for queue in self.queues:
            assert queue.close(PATIENCE_S)

    def check(self) -> None:
        self.recorder.check_all_released()
        assert not self.governor.reservations()
        assert self.governor.statistics().reserved_ram_bytes == 0
        assert self.governor.statistics().reserved_cpus == 0
        assert self.governor.statistics().reserved_io_slots == 0
        assert self.governor.statistics().released_again == 0
        assert set(self.ends) == set(self.tasks)
        wrong = {name: count for name, count in self.ends.items() if count != 1}
        assert not wrong, f"terminal events by task: {wrong}"
        assert all(task.state in TERMINAL for task in self.tasks.values())
        assert not self.running
        grants = self.recorder.all_grants()
        for (name, sequence), contracts in sorted(self.seen.items()):
            assert len(contracts) == 1, f"{name} showed two contracts {sequence}: {contracts}"
            [contract] = contracts
            # Some grants are given back unused: the task was paused or overtaken meanwhile.
            left = grants[name]
            while left and left[0] != attrs.evolve(contract, sequence=0):
                left.pop(0)
            assert left, f"{name} showed a contract that it was not granted: {contract}"
            left.pop(0)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_books_balance_while_threads_do_what_they_like(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stress = Stress(seed=2)
    before = set(threading.enumerate())
    try:
        stress.run()
        stress.wind_up()
    finally:
        stress.over.set()
        closed = [queue.close(PATIENCE_S) for queue in stress.queues]

    assert all(closed)
    stress.check()
    assert stress.rounds > 10
    assert sum(map(len, stress.started)) > 50
    states = Counter(task.state for task in stress.tasks.values())
    assert states.keys() == TERMINAL, states
    left = set(threading.enumerate()) - before
    assert not left, left
    errors = [r.getMessage() for r in caplog.records if r.levelname in {"ERROR", "CRITICAL"}]
    assert not errors, errors[:3]
