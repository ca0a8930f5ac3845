"""
A sweep on a cluster: in order, within what is allowed there, and with a reason for every end.

    python examples/remote_pool.py

The cluster is in memory and its clock is moved by hand, so that a day on it takes no time. On a
real one only the backend is another: `lardon.dispatch.registry.create("slurm")`.
"""

from __future__ import annotations

from lardon import GiB, ResourceEstimate
from lardon.dispatch import Action, Cause, RecoveryPolicy, RecoveryRule
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import RemoteFailed, RemoteHandle, RemotePool
from lardon.testing import ManualClock
from lardon.units import format_bytes

# The third model needs more than anybody thought.
NEEDS = {"small": 2 * GiB, "medium": 6 * GiB, "large": 14 * GiB}
AGAIN_AFTER_PREEMPTION = RecoveryPolicy([RecoveryRule(Cause.PREEMPTED, Action.RESTART, delay_s=60)])
HOURS = 3600.0


class Cluster:
    """Plays the cluster: it runs what was opened, and knows what each model really needs."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backend = MemoryBackend(shape="slurm", clock=self.clock, min_job_age_s=100 * HOURS)
        self._env = self.backend.env()
        self._preempted = False

    def work(self, pool: RemotePool, handles: list[RemoteHandle]) -> None:
        """Let time pass until every task is done."""
        while not all(handle.done() for handle in handles):
            for handle in handles:
                self._run(handle)
            self.clock.advance(600)
            assert pool.wait_parked(10)

    def _run(self, handle: RemoteHandle) -> None:
        seen = self.backend.find(handle.id)
        if seen is None or seen.ended or seen.gated:
            return
        self._env.run(seen.ref)
        model = handle.record.spec.command[-1]
        granted = handle.record.spec.ram_bytes or 0
        if granted < NEEDS[model]:
            self._env.out_of_memory(seen.ref)
        elif model == "medium" and not self._preempted:
            self._preempted = True
            self._env.preempt(seen.ref)
        else:
            self._env.finish(seen.ref, 0)


def submit(pool: RemotePool, model: str, ram_bytes: int) -> RemoteHandle:
    """Put the training of one model in line."""
    return pool.submit(
        ["python", "train.py", model],
        estimate=ResourceEstimate(cpus=4, ram_bytes=ram_bytes),
        policy=AGAIN_AFTER_PREEMPTION,
        time_limit_s=12 * HOURS,
    )


def main() -> None:
    """Train three models, and give one of them more memory."""
    cluster = Cluster()
    with RemotePool(
        cluster.backend, jobs=2, cpus=16, ram_bytes=32 * GiB, clock=cluster.clock
    ) as pool:
        handles = {model: submit(pool, model, 8 * GiB) for model in NEEDS}
        assert pool.wait_parked(10)
        counts = pool.statistics()
        print(
            f"{counts.admitted} jobs are on the cluster and hold "
            f"{format_bytes(counts.reserved_ram_bytes)}, {counts.waiting} waits in line."
        )
        cluster.work(pool, list(handles.values()))
        for model, handle in handles.items():
            try:
                outcome = handle.result()
            except RemoteFailed as failed:
                print(f"{model}: {failed.cause}, so it is submitted again with 16 GiB.")
                if failed.cause is not Cause.OUT_OF_MEMORY:
                    raise
                larger = submit(pool, model, 16 * GiB)
                cluster.work(pool, [larger])
                outcome = larger.result()
            print(f"{model}: {outcome.cause} after {outcome.executions} execution(s).")
        print(f"Reserved now: {pool.statistics().reserved_ram_bytes}.")


if __name__ == "__main__":
    main()
