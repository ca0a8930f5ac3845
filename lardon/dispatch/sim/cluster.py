"""The cluster of a simulated run: what happens to its jobs, as the seed has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from lardon.dispatch.enums import Cause, Shape, State
from lardon.dispatch.errors import DispatchError
from lardon.dispatch.memory import MemoryBackend, Truth
from lardon.dispatch.sim.faults import job_of

if TYPE_CHECKING:
    from lardon.dispatch.model import Ref

# How often each happens to something that waits, and to something that runs.
_WAITING: Final = {"run": 24, "admin hold": 2, "admin release": 4, "cancel": 1}
_RUNNING: Final = {
    "finish": 4,
    "fail": 2,
    "out of memory": 2,
    "time out": 1,
    "preempt": 3,
    "lose node": 3,
    "cancel": 1,
    "requeue": 1,
}
# How often a lost node comes back, and how often something that ended is looked at at all.
_RECOVERY: Final = 0.05
_LOOK_AT_ENDED: Final = 0.1


class Cluster:
    """
    Plays the scheduler, its nodes and its people on a backend in memory.

    It keeps to what a cluster does, and away from two things that no program could prevent.
    A job on a lost node neither returns nor is preempted. Nobody outside puts back what the
    core has given up already, because looking and opening are two calls. And nobody outside
    deletes an object on a lost node that the core has never seen, because then nothing is
    left that it could ask about.
    """

    def __init__(
        self,
        backend: MemoryBackend,
        rng: random.Random,
        may_run: Callable[[str, Ref], None],
        may_requeue: Callable[[str, Ref, State], bool],
        is_known: Callable[[str, Ref], bool],
    ) -> None:
        self.env = backend.env()
        self._shape = backend.settings.shape
        self._rng = rng
        self._may_run = may_run
        self._may_requeue = may_requeue
        self._is_known = is_known
        self.lost: set[str] = set()
        self.executions = 0

    def happens(self) -> str | None:
        """Let one thing happen to one object; return what, or None where nothing could."""
        if self.lost and self._rng.random() < _RECOVERY:
            return self._recover(self._rng.choice(sorted(self.lost)))
        truths = [self.env.truth(ref) for ref in self.env.refs()]
        live = [one for one in truths if one.state is not State.ENDED]
        if not truths:
            return None
        truth = self._rng.choice(live if live and self._rng.random() >= _LOOK_AT_ENDED else truths)
        ref = truth.ref
        if truth.state is State.ENDED:
            return self._requeue(ref, truth)
        table = _WAITING if truth.state is State.PENDING else _RUNNING
        what = self._rng.choices(list(table), weights=list(table.values()))[0]
        try:
            return self._do(what, ref, truth)
        except DispatchError:
            return None

    def settle_down(self) -> None:
        """Bring every node back, and lift what administrators have held."""
        for node in sorted(self.lost):
            self._recover(node)
        for ref in self.env.refs():
            if self.env.truth(ref).admin_held:
                self.env.admin_release(ref)

    def work_off(self, but: Collection[Ref] = ()) -> list[str]:
        """Run what may run, and let everything finish that ran before, *but* some."""
        done = []
        for ref in self.env.refs():
            if ref in but:
                continue
            truth = self.env.truth(ref)
            what = {State.RUNNING: "finish", State.PENDING: "run"}.get(truth.state)
            if what is None:
                continue
            try:
                told = self._do(what, ref, truth)
            except DispatchError:
                continue
            if told is not None:
                done.append(told)
        return done

    def _do(self, what: str, ref: Ref, truth: Truth) -> str | None:
        if truth.node_lost and not (what == "cancel" and self._is_known(job_of(ref.name), ref)):
            return None
        if what == "requeue":
            return self._requeue(ref, truth)
        env = self.env
        verbs: dict[str, Callable[[Ref], object]] = {
            "run": self._run,
            "finish": env.finish,
            "fail": lambda ref: env.finish(ref, 1),
            "out of memory": env.out_of_memory,
            "time out": env.time_out,
            "preempt": env.preempt,
            "lose node": env.lose_node,
            "admin hold": env.admin_hold,
            "admin release": env.admin_release,
            "cancel": env.cancel,
        }
        verbs[what](ref)
        if what == "lose node":
            self.lost.update(truth.nodes)
        return f"cluster: {what} {_told(ref)}"

    def _run(self, ref: Ref) -> None:
        self.env.run(ref)
        self.executions += 1
        self._may_run(job_of(ref.name), ref)

    def _requeue(self, ref: Ref, truth: Truth) -> str | None:
        if self._shape is not Shape.SLURM or truth.adrift or truth.node_lost:
            return None
        if truth.cause is Cause.COMPLETED or not self._may_requeue(
            job_of(ref.name), ref, truth.state
        ):
            return None
        self.env.requeue_externally(ref)
        return f"cluster: requeue {_told(ref)}"

    def _recover(self, node: str) -> str:
        self.lost.discard(node)
        self.env.recover_node(node)
        return f"cluster: {node} is back"


def _told(ref: Ref) -> str:
    return f"{ref.name[:3]}…{ref.name[-8:]}/{ref.id}"
