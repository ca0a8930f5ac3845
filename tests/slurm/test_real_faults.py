"""What breaks: a controller that is frozen, killed or full, a node that is lost, ids that go."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from lardon.dispatch.errors import OutcomeUnknown
from lardon.dispatch.model import Cause, Ref, State
from lardon.dispatch.slurm import ClusterUnreachable, SlurmBackend
from lardon.testing.slurm_cluster import SlurmCluster
from lardon.testing.slurm_conf import CREDENTIAL_TTL_S
from tests.slurm.jobs import (
    InTheMiddle,
    eventually,
    hold_of,
    seen,
    spec,
    started,
    until,
    utc_now,
)

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(150)]

Maker = Callable[..., SlurmBackend]
CONTROLLER: Final = "slurmctld"


def wait_until(when: datetime.datetime) -> None:
    """Return when that time has come: how old a request is, is what is tested."""
    threading.Event().wait(max(0.0, (when - utc_now()).total_seconds()))


def expired_credentials(cluster: SlurmCluster) -> int:
    """Return how many requests the controller has refused for their age."""
    log = (cluster.folder / "log" / f"{CONTROLLER}.out").read_text(errors="replace")
    return log.count("Expired credential")


def test_24_the_landing_bound_of_a_frozen_controller(
    fragile_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """
    Seed 002: older than the TTL changes nothing, younger may land, but before the bound.

    The controller is frozen between the look-up of a call and the call, so that the request
    waits in its socket while the client gives up.
    """
    transport = InTheMiddle(fragile_cluster.environment)
    backend = make_backend(fragile_cluster, transport)
    old, young = (backend.start(spec("true")) for _ in range(2))
    bound_s = backend.declarations().call_bound_s
    other = backend.view()
    other.facts()
    before = expired_credentials(fragile_cluster)
    transport.before[f"JobId={old.id} "] = lambda: fragile_cluster.freeze(CONTROLLER)
    sent_at: dict[Ref, datetime.datetime] = {}
    # The look-up of the second call would hang with the controller, so it is made before.
    looked_up = backend._cluster.listing()
    backend._cluster.listing = lambda: looked_up  # type: ignore[method-assign]

    def hold(ref: Ref) -> OutcomeUnknown:
        sent_at[ref] = utc_now()
        with pytest.raises(OutcomeUnknown) as unknown:
            backend.hold(ref, hold_of(9, seconds=3))
        return unknown.value

    first = hold(old)
    # 22.05 prints an empty queue meanwhile, and exits with 0.
    with pytest.raises(ClusterUnreachable, match="errors"):
        other.find(old.name)
    second = hold(young)
    # The credential of the first has been dead for a while (8 + 1 s); the other lives.
    wait_until(sent_at[old] + datetime.timedelta(seconds=10.5))
    age_s = (utc_now() - sent_at[young]).total_seconds()
    assert age_s < CREDENTIAL_TTL_S, "the machine was too busy to make this test"
    fragile_cluster.resume(CONTROLLER)
    del backend._cluster.listing

    other.close()
    eventually(lambda: expired_credentials(fragile_cluster), lambda count: count > before)
    landed = eventually(lambda: seen(backend, young), lambda one: one.hold_instance == 9)
    assert second.settles_at is not None
    assert utc_now() < second.settles_at
    assert seen(backend, old).hold_instance is None
    assert landed.gated
    assert first.settles_at is not None
    settles_in = (first.settles_at - sent_at[old]).total_seconds()
    assert settles_in == pytest.approx(3 + bound_s, abs=1)


def test_13_a_submission_that_timed_out_and_landed_runs_once(
    fragile_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """4.8, 13: gated copies are harmless; find them by name, keep one, stop the rest."""
    transport = InTheMiddle(fragile_cluster.environment)
    backend = make_backend(fragile_cluster, transport)
    backend.declarations()
    output = backend.settings.output_folder
    job = spec("sh", "-c", f"echo ran >> {output}/ran")
    transport.before["sbatch"] = lambda: fragile_cluster.freeze(CONTROLLER)

    with pytest.raises(OutcomeUnknown) as unknown:
        backend.start(job)
    fragile_cluster.resume(CONTROLLER)
    # Somebody who does not wait for settles_at submits again, which is what the gate is for.
    second = backend.start(job)
    copies = eventually(lambda: backend.find_all(job.id), lambda found: len(found) == 2)

    assert unknown.value.settles_at is not None
    assert all(one.gated for one in copies)
    kept, other = copies[0].ref, copies[1].ref
    backend.stop(other)
    backend.open(kept)
    until(backend, kept, State.ENDED)
    assert second in {kept, other}
    assert backend.read_output(kept) == b""
    with open(f"{output}/ran") as file:  # noqa: PTH123  the path is a text
        assert file.read() == "ran\n"


def test_a_controller_that_was_killed_and_comes_back(
    fragile_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """A watch sees nothing while it is away, and goes on by itself."""
    backend = make_backend(fragile_cluster)
    ref = started(backend, "sleep", "300")
    stream = backend.watch()
    eventually(lambda: stream.get(10), lambda one: one.ref == ref)
    # A controller writes to its disk what changed, seconds later, and only then. One more job is a
    # change after this time, so that a file of after it is sure to come and holds the first.
    saved = fragile_cluster.folder / "state" / "job_state"
    told_at = time.time()
    later = backend.start(spec("true"))
    eventually(lambda: saved.exists() and saved.stat().st_mtime > told_at, bool)
    fragile_cluster.kill(CONTROLLER)

    with pytest.raises(ClusterUnreachable):
        backend.stop(ref)
    fragile_cluster.start_controller()

    assert until(backend, ref, State.RUNNING).restarts == 0
    assert seen(backend, later).gated
    assert not stream.closed
    backend.stop(ref)
    last = eventually(lambda: stream.get(60), lambda one: one.ref == ref and one.ended)
    assert last.cause is Cause.CANCELLED


def test_a_lost_node_ends_its_job_and_may_run_it_still(
    fragile_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """Conformance check 19: the job ends NodeLost, and only the node can say that it ceased."""
    backend = make_backend(fragile_cluster)
    ref = started(backend, "sleep", "300")
    (node,) = seen(backend, ref).nodes
    fragile_cluster.kill(node)

    lost = until(backend, ref, State.ENDED)

    assert (lost.cause, lost.nodes) == (Cause.NODE_LOST, (node,))
    assert not backend.ceased(ref).ceased
    fragile_cluster.start_node(node)
    ceased = eventually(lambda: backend.ceased(ref), lambda one: one.ceased)
    assert node in ceased.detail or "absent" in ceased.detail
    fragile_cluster.wait_nodes()


def test_who_does_not_wait_any_more_is_told_at_once_and_the_call_goes_on(
    shared_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """Dispatch design, 4.7: the script runs to its own bound, whoever still waits."""
    frozen = threading.Event()
    transport = InTheMiddle(shared_cluster.environment)
    backend = make_backend(shared_cluster, transport)
    other = make_backend(shared_cluster)
    ref = backend.start(spec("true"))

    def freeze() -> None:
        shared_cluster.freeze(CONTROLLER)
        frozen.set()

    transport.before["StartTime"] = freeze
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(backend.hold, ref, hold_of(6))
        assert frozen.wait(20)
        backend.close()
        with pytest.raises(OutcomeUnknown, match="closed while the call ran"):
            held.result(5)
        shared_cluster.resume(CONTROLLER)

    eventually(lambda: seen(other, ref).hold_instance, lambda instance: instance == 6)
