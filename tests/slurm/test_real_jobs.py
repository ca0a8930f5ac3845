"""Jobs on a real Slurm: where it bites, item by item of the dispatch design's section 4.8."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from typing import Final

import attrs
import pytest

from lardon import MiB
from lardon.dispatch.errors import FinishedError, NotFoundError, RefusedError
from lardon.dispatch.model import Capability, Cause, Ref, State, Tristate, epoch
from lardon.dispatch.slurm import LocalTransport, SlurmBackend
from lardon.testing.slurm_cluster import SlurmCluster
from tests.slurm.jobs import (
    InTheMiddle,
    eventually,
    hold_of,
    seen,
    shown,
    spec,
    started,
    until,
    within,
)

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(120)]

Maker = Callable[..., SlurmBackend]

# Takes a second to go when it is asked to, so that taking it down lasts.
STUBBORN: Final = ("sh", "-c", "trap 'sleep 1; exit' TERM; while :; do sleep 0.1; done")


def test_a_job_is_gated_runs_once_it_is_opened_and_tells_how_it_ended(
    backend: SlurmBackend,
) -> None:
    job = spec("sh", "-c", "echo out; echo err >&2; exit 3")
    ref = backend.start(job)

    assert ref.name == job.name
    before = seen(backend, ref)
    assert (before.state, before.gated, before.attempt) == (State.PENDING, True, None)
    backend.open(ref)
    backend.open(ref)
    after = until(backend, ref, State.ENDED)
    assert (after.cause, after.exit_code, after.gated) == (Cause.NON_ZERO_EXIT, 3, False)
    assert after.epoch == epoch(1, 0)
    assert backend.read_output(ref) == b"out\n"
    assert backend.read_output(ref, name="stderr", offset=1, limit=2) == b"rr"
    assert backend.ceased(ref).ceased
    with pytest.raises(FinishedError):
        backend.open(ref)


def test_a_job_knows_which_execution_it_is(backend: SlurmBackend) -> None:
    """What the environment says is what an observation says."""
    ref = backend.start(spec("sh", "-c", "echo $DISPATCH_ATTEMPT $DISPATCH_EPOCH", submission=7))
    backend.open(ref)

    after = until(backend, ref, State.ENDED)

    assert backend.read_output(ref).decode().split() == [after.attempt, str(epoch(7, 0))]


def test_what_was_asked_for_is_what_the_scheduler_reports(
    shared_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """Conformance check 23, read-back."""
    backend = make_backend(shared_cluster, options={"partition": "main"})
    job = spec(
        "true", nodes=2, cpus=3, ram_bytes=123 * MiB - 5, time_limit_s=61, directory="/",
        environment={"A": "it's $HOME"}, extensions={"slurm": {"nice": "7"}},
    )  # fmt: skip

    ref = backend.start(job)

    asked = shown(shared_cluster, ref)
    wanted = {
        "JobName": job.name, "Requeue": "0", "Reason": "JobHeldUser", "NumNodes": "2-2",
        "CPUs/Task": "3", "NumCPUs": "6", "MinMemoryNode": "123M", "WorkDir": "/",
        "Partition": "main", "Nice": "7",
        # Slurm limits in minutes, and rounds up.
        "TimeLimit": "00:02:00",
    }  # fmt: skip
    assert {key: asked.get(key) for key in wanted} == wanted


def test_the_command_is_run_as_it_is(backend: SlurmBackend) -> None:
    """No shell reads it: quotes, blanks, newlines and a leading dash arrive."""
    odd = ["a b", "'", '"', "$HOME", "x\ny", "-n", "é", "*"]
    code = "import os, sys; print(sys.argv[1:], os.environ['ODD'], os.environ.get('TZ'))"
    ref = backend.start(spec("python3", "-c", code, *odd, environment={"ODD": "`x`\n$(y)"}))
    backend.open(ref)

    until(backend, ref, State.ENDED)

    assert backend.read_output(ref).decode() == f"{odd} `x`\n$(y) {os.environ.get('TZ')}\n"


def test_a_job_that_takes_more_memory_than_it_asked_for(backend: SlurmBackend) -> None:
    """Conformance check 18; without cgroups it is the job's own stderr that says why."""
    greedy = "x = bytearray(300 << 20); import time; time.sleep(60)"
    ref = backend.start(spec("python3", "-c", greedy, ram_bytes=50 * MiB))
    backend.open(ref)

    after = until(backend, ref, State.ENDED)

    assert (after.cause, after.exit_code) == (Cause.OUT_OF_MEMORY, 137)


def test_a_job_that_was_killed_did_not_run_out_of_memory(backend: SlurmBackend) -> None:
    """Conformance check 18 has the other causes; this one looks like a lack of memory."""
    ref = backend.start(spec("sh", "-c", "echo out of memory >&2; kill -9 $$"))
    backend.open(ref)

    after = until(backend, ref, State.ENDED)

    assert (after.cause, after.exit_code) == (Cause.NON_ZERO_EXIT, 137)


def test_a_submission_that_the_controller_turns_down_is_refused(backend: SlurmBackend) -> None:
    with pytest.raises(RefusedError, match="Invalid partition name"):
        backend.start(spec("true", extensions={"slurm": {"partition": "nowhere"}}))
    with pytest.raises(RefusedError, match="Invalid feature"):
        backend.start(spec("true", extensions={"slurm": {"constraint": "nosuch"}}))


def test_1_an_ended_job_cannot_be_revived(
    shared_cluster: SlurmCluster, backend: SlurmBackend
) -> None:
    """4.8, 1: Requeue=1 on an ended job is refused, and that is declared."""
    ref = started(backend, "true")
    until(backend, ref, State.ENDED)

    with pytest.raises(RefusedError, match="finished"):
        backend.requeue(ref, within())
    with pytest.raises(FinishedError):
        backend.restore_requeue_bit(ref, within())

    assert backend.declarations().supports(Capability.REQUEUE_ENDED) is Tristate.NO
    raw = shared_cluster.client("scontrol", "update", f"JobId={ref.id}", "Requeue=1")
    assert (raw.returncode, raw.stderr) == (1, f"Job has already finished for job {ref.id}\n")


def test_2_a_requeue_gives_a_new_identity(backend: SlurmBackend) -> None:
    """4.8, 2, and conformance check 15: the bit is clear, and the old ref names nothing."""
    ref = started(backend, "sleep", "300")
    first = seen(backend, ref)
    # The submit time is in whole seconds.
    eventually(
        datetime.datetime.now, lambda now: now.timestamp() > ref.submitted_at.timestamp() + 1
    )

    again = backend.requeue(ref, within())

    assert (again.name, again.id) == (ref.name, ref.id)
    assert again.submitted_at > ref.submitted_at
    waiting = seen(backend, again)
    assert (waiting.state, waiting.restarts, waiting.requeue_bit) == (State.PENDING, 1, False)
    # 4.8, 5: what Slurm itself puts the start off by is no hold.
    assert (waiting.cause, waiting.hold_instance) == (Cause.REQUEUED, None)
    backend.stop(ref)
    assert not seen(backend, ref).known
    assert (first.epoch, waiting.epoch, waiting.attempt) == (
        epoch(1, 0),
        epoch(1, 0),
        first.attempt,
    )


def test_3_no_hold_while_an_execution_is_taken_down(
    shared_cluster: SlurmCluster, backend: SlurmBackend
) -> None:
    """4.8, 3: it would be taken, and then the submit time moves under it."""
    ref = started(backend, *STUBBORN)
    for change in (["update", f"JobId={ref.id}", "Requeue=1"], ["requeue", str(ref.id)]):
        assert shared_cluster.client("scontrol", *change).returncode == 0
    assert "COMPLETING" in seen(backend, ref).detail

    for act in (backend.hold, backend.release):
        with pytest.raises(RefusedError, match="taken down"):
            act(ref, hold_of(1))


def test_4_a_hold_is_read_back_where_it_was_put(backend: SlurmBackend) -> None:
    """4.8, 4 and 6, and conformance checks 9 and 10: gate and hold are two mechanisms."""
    ref = backend.start(spec("true"))
    backend.hold(ref, hold_of(3))
    held = seen(backend, ref)
    assert (held.gated, held.hold_instance, held.cause) == (True, 3, Cause.HELD)

    backend.hold(ref, hold_of(4))
    backend.open(ref)
    open_ = seen(backend, ref)
    assert (open_.state, open_.gated, open_.hold_instance) == (State.PENDING, False, 4)
    with pytest.raises(RefusedError, match="hold 4"):
        backend.release(ref, hold_of(3))
    assert seen(backend, ref).hold_instance == 4
    backend.release(ref, hold_of(4))

    assert until(backend, ref, State.ENDED).cause is Cause.COMPLETED


def test_6_only_a_pending_job_is_held(backend: SlurmBackend) -> None:
    """4.8, 6, and conformance check 11."""
    ref = started(backend, "sleep", "300")

    with pytest.raises(RefusedError, match="no longer pending"):
        backend.hold(ref, hold_of(1))
    with pytest.raises(RefusedError, match="pending execution"):
        waiting = backend.start(spec("true"))
        backend.requeue(waiting, within())


def test_7_times_are_utc_whatever_the_zone_of_the_host(
    shared_cluster: SlurmCluster, make_backend: Maker
) -> None:
    """4.8, 7: what Slurm prints and takes is local unless TZ is set."""
    environment = {**shared_cluster.environment, "TZ": "Asia/Kathmandu"}
    backend = make_backend(shared_cluster, LocalTransport(environment=environment))
    ref = backend.start(spec("true"))

    backend.hold(ref, hold_of(11))

    assert seen(backend, ref).hold_instance == 11


def test_8_an_administrators_hold_is_not_ours_to_lift(
    shared_cluster: SlurmCluster, backend: SlurmBackend
) -> None:
    """4.8, 8: opening is refused, a hold by start time is taken all the same."""
    ref = backend.start(spec("true"))
    assert shared_cluster.client("scontrol", "hold", str(ref.id)).returncode == 0

    with pytest.raises(RefusedError, match="administrator"):
        backend.open(ref)

    assert seen(backend, ref).admin_held
    backend.hold(ref, hold_of(5))
    assert seen(backend, ref).hold_instance == 5


def test_9_a_stop_touches_one_identity_and_no_other(backend: SlurmBackend) -> None:
    """4.8, 9, and conformance check 6: scancel says nothing, so it is read back."""
    ref = started(backend, "sleep", "300")
    other_time = attrs.evolve(ref, submitted_at=ref.submitted_at - datetime.timedelta(seconds=1))
    other_name = attrs.evolve(ref, name=spec("true").name)

    for other in (other_time, other_name, Ref(ref.name, 999_999, ref.submitted_at)):
        backend.stop(other)
        assert not seen(backend, other).known
        with pytest.raises(NotFoundError):
            backend.hold(other, hold_of(1))
    assert seen(backend, ref).state is State.RUNNING

    backend.stop(ref)
    assert until(backend, ref, State.ENDED).cause is Cause.CANCELLED
    backend.stop(ref)


def test_9_many_are_stopped_with_few_calls(
    shared_cluster: SlurmCluster, make_backend: Maker
) -> None:
    transport = InTheMiddle(shared_cluster.environment)
    backend = make_backend(shared_cluster, transport)
    refs = [backend.start(spec("true")) for _ in range(7)]
    scripts: list[int] = []
    transport.before["scancel"] = lambda: scripts.append(1)

    backend.stop_many(refs[:6])

    states = [one.state for one in backend.observe_many(refs).values()]
    assert states == [State.ENDED] * 6 + [State.PENDING]
    assert scripts == [1]


def test_12_slurm_starts_nothing_again_by_itself(
    shared_cluster: SlurmCluster, backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.8, 12: JobRequeue is 1 by default, and a user's own settings may say so too."""
    monkeypatch.setenv("SBATCH_REQUEUE", "1")

    ref = backend.start(spec("true"))

    assert shown(shared_cluster, ref)["Requeue"] == "0"
    assert not seen(backend, ref).requeue_bit


def test_a_bit_that_was_left_set_is_seen_and_cleared(
    shared_cluster: SlurmCluster, backend: SlurmBackend
) -> None:
    """Conformance check 16: the bit is visible, and restoring it clears it."""
    ref = started(backend, "sleep", "300")
    shared_cluster.client("scontrol", "update", f"JobId={ref.id}", "Requeue=1")
    assert seen(backend, ref).requeue_bit

    backend.restore_requeue_bit(ref, within())

    assert not seen(backend, ref).requeue_bit


def test_every_copy_of_a_name_is_found_oldest_first(backend: SlurmBackend) -> None:
    """Conformance check 4: an answer that was lost leaves a copy, and all of them are seen."""
    job = spec("true")
    refs = [backend.start(job), backend.start(attrs.evolve(job, submission=2))]

    found = backend.find_all(job.id.lower())

    assert [one.ref for one in found] == refs
    newest = backend.find(job.name)
    assert newest is not None
    assert newest.ref == refs[1]
    assert backend.find(spec("true").id) is None
