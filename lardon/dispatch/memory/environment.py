"""The scheduler's side of a backend in memory: what happens to its jobs, and what is so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.memory.record import Truth
from lardon.dispatch.rules import count, some_text
from lardon.dispatch.ulid import checked_ulid

if TYPE_CHECKING:
    from lardon.dispatch.memory.record import Record
    from lardon.dispatch.memory.scheduler import Scheduler
    from lardon.dispatch.memory.world import World
    from lardon.dispatch.model import Ref


class MemoryEnvironment:
    """
    Plays the cluster and its people; all views share it.

    A verb that the object's state rules out raises `RefusedError` (a held job does not run),
    `FinishedError` or `NotFoundError`, as the calls of a backend do, and changes nothing; so
    does `InvalidError` for a ref, an exit code or a node that is none. Any thread may call; nothing
    blocks.
    """

    def __init__(self, world: World, scheduler: Scheduler) -> None:
        self._world = world
        self._scheduler = scheduler

    def run(self, ref: Ref, *, node: str | None = None) -> None:
        """Start an execution, on *node* or on one of its own, unless something keeps it back."""
        if node is not None:
            some_text("node", node)
        with self._world.entered():
            self._scheduler.run(ref, node)

    def finish(self, ref: Ref, exit_code: int = 0) -> None:
        """Let the execution return *exit_code*."""
        count()("exit_code", exit_code)
        cause = Cause.NON_ZERO_EXIT if exit_code else Cause.COMPLETED
        with self._world.entered():
            self._scheduler.finish(ref, cause, exit_code)

    def out_of_memory(self, ref: Ref) -> None:
        """Let the execution be killed for its memory."""
        with self._world.entered():
            self._scheduler.finish(ref, Cause.OUT_OF_MEMORY)

    def time_out(self, ref: Ref) -> None:
        """Let the execution reach its time limit."""
        with self._world.entered():
            self._scheduler.finish(ref, Cause.TIMEOUT)

    def boot_fail(self, ref: Ref) -> None:
        """Let the node of the execution not come up."""
        with self._world.entered():
            self._scheduler.finish(ref, Cause.BOOT_FAIL)

    def preempt(self, ref: Ref) -> None:
        """Let a more important job take the place of the execution."""
        with self._world.entered():
            self._scheduler.preempt(ref)

    def lose_node(self, ref: Ref) -> None:
        """Lose the node under the execution, with whatever else runs on it."""
        with self._world.entered():
            self._scheduler.lose_node(ref)

    def recover_node(self, node: str) -> None:
        """Bring *node* back; what the scheduler gave up meanwhile is killed there."""
        some_text("node", node)
        with self._world.entered():
            self._scheduler.recover_node(node)

    def admin_hold(self, ref: Ref) -> None:
        """Hold a pending object as an administrator."""
        with self._world.entered():
            self._scheduler.admin_hold(ref)

    def admin_release(self, ref: Ref) -> None:
        """Lift the administrator's hold; a gate and other holds stay."""
        with self._world.entered():
            self._scheduler.admin_release(ref)

    def cancel(self, ref: Ref) -> None:
        """Let somebody else stop the object."""
        with self._world.entered():
            self._world.record(ref)
            self._scheduler.stop(ref)

    def requeue_externally(self, ref: Ref) -> Ref:
        """Let somebody else requeue it, who leaves the bit set; return the ref it has now."""
        with self._world.entered():
            return self._scheduler.requeuing("requeue_externally").requeue_externally(ref)

    def purge(self, ref: Ref) -> None:
        """
        Let the scheduler forget an object that ended, as Slurm does after `min_job_age_s`.

        Where the backend has `Capability.ACCOUNTING_HISTORY` it is still found. One that did
        not end raises `RefusedError`.
        """
        with self._world.entered():
            self._scheduler.purge(ref)

    def environment(self, ref: Ref) -> dict[str, str]:
        """Return the DISPATCH_ variables of the current or last execution; empty before one."""
        with self._world.entered():
            record = self._world.known(ref) or self._world.record(ref)
            return record.execution.environment() if record.execution else {}

    def truth(self, ref: Ref) -> Truth:
        """Return what is so; `State.UNKNOWN` for what the scheduler does not know."""
        with self._world.entered():
            record = self._world.known(ref)
            return record.truth() if record else Truth.unknown(ref)

    def refs(self) -> list[Ref]:
        """Return every object that the scheduler keeps a record of, oldest first."""
        with self._world.entered():
            records = sorted(self._world.records.values(), key=lambda record: record.number)
            return [record.ref for record in records]

    def executing(self, job: str) -> list[str]:
        """
        Return the attempts of a job that are running now: more than one is too many.

        An attempt on a lost node counts until the node is back, or was fenced: see
        `lardon.dispatch.spi.CessationSignal`.
        """
        job = checked_ulid(job, "job")
        with self._world.entered():
            mine = [one for one in self._world.every() if one.spec.id == job]
            return [attempt for record in mine for attempt in _attempts(record)]


def _attempts(record: Record) -> list[str]:
    current = record.execution
    live = [*record.adrift, *([current] if current and record.state is State.RUNNING else [])]
    return [one.attempt for one in live]
