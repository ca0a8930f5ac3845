"""Objects that no record claims on a real Slurm: seen by a supervisor, and stopped."""

from __future__ import annotations

import secrets
from typing import Final

import pytest

from lardon.clock import MachineClock
from lardon.dispatch import (
    JobSpec,
    MemoryRecords,
    Operator,
    Ref,
    Supervisor,
    UnmatchedPolicy,
    new_ulid,
)
from lardon.dispatch.model import Cause, State
from lardon.dispatch.slurm import SlurmBackend
from lardon.testing.slurm_cluster import SlurmCluster
from tests.slurm.jobs import eventually, seen, spec, started, until, utc_now

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(120)]

GRACE_S: Final = 1.0


def core(backend: SlurmBackend) -> Operator:
    return Operator(backend, MemoryRecords(), MachineClock(), poll_s=0.2)


def working(operator: Operator, supervisor: Supervisor, job: str) -> Ref:
    """Bring a job on record to run, and return its object."""
    operator.submit(JobSpec(id=job, command=["sleep", "600"]))

    def runs() -> Ref | None:
        supervisor.turn()
        kept = operator.observer.get(job).kept
        return kept.ref if kept is not None and kept.state is State.RUNNING else None

    ref = eventually(runs, lambda one: one is not None)
    assert ref is not None
    return ref


def listed(supervisor: Supervisor) -> list[Ref]:
    supervisor.turn()
    return [one.ref for one in supervisor.unmatched()]


def test_an_object_of_no_record_is_reported_and_left(
    backend: SlurmBackend, caplog: pytest.LogCaptureFixture
) -> None:
    operator = core(backend)
    supervisor = Supervisor(
        "one", operator, unmatched=UnmatchedPolicy.REPORT, unmatched_grace_s=GRACE_S
    )
    mine = working(operator, supervisor, new_ulid(utc_now(), secrets.randbits))
    gated, runs = backend.start(spec("true")), started(backend, "sleep", "600")

    eventually(lambda: set(listed(supervisor)), lambda refs: refs == {gated, runs})
    eventually(
        lambda: supervisor.turn() and caplog.text.count("no record claims"), lambda n: n == 2
    )

    # What ends by itself is listed no more, and nothing else was ended.
    backend.stop(gated)
    eventually(lambda: listed(supervisor), lambda refs: refs == [runs])
    assert [seen(backend, ref).state for ref in (mine, runs)] == [State.RUNNING] * 2
    supervisor.close()


def test_an_object_of_no_record_is_stopped_and_a_job_on_record_is_not(
    shared_cluster: SlurmCluster, backend: SlurmBackend, caplog: pytest.LogCaptureFixture
) -> None:
    operator = core(backend)
    supervisor = Supervisor(
        "one", operator, unmatched=UnmatchedPolicy.STOP, unmatched_grace_s=GRACE_S
    )
    mine = working(operator, supervisor, new_ulid(utc_now(), secrets.randbits))
    foreign = shared_cluster.client(
        "sbatch", "--parsable", "-J", "dj-photo", "-o", "/dev/null", "--wrap", "sleep 600"
    ).stdout.strip()
    gated, runs = backend.start(spec("true")), started(backend, "sleep", "600")

    eventually(lambda: set(listed(supervisor)), lambda refs: refs == {gated, runs})
    eventually(lambda: listed(supervisor), lambda refs: refs == [])

    assert caplog.text.count("it is stopped") == 2
    for stray in (gated, runs):
        assert until(backend, stray, State.ENDED).cause is Cause.CANCELLED
    assert seen(backend, mine).state is State.RUNNING
    state = shared_cluster.client("squeue", "-h", "-j", foreign, "-o", "%T").stdout.strip()
    assert state in {"RUNNING", "PENDING"}
    supervisor.close()
