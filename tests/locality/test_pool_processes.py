"""Workers that are processes of their own: pinned, resident, and replaced when they die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from lardon import (
    GiB,
    Governor,
    GpuSnapshot,
    Policy,
    ResourceEstimate,
    ResourceSnapshot,
    TaskCancelled,
    TaskState,
    WorkerDied,
)
from lardon.locality import WorkerLost, WorkerPool, WorkerSpec
from lardon.testing import ScriptedProbe
from tests.locality import process_jobs as jobs

PATIENCE_S: Final = 60.0
ANY: Final = ResourceEstimate()

# Each process starts an interpreter.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def governor() -> Governor:
    cards = tuple(
        GpuSnapshot(index=index, uuid=f"GPU-{index}", name="card", total_bytes=GiB, free_bytes=GiB)
        for index in range(2)
    )
    snapshot = ResourceSnapshot(
        taken_at=0.0, ram_total_bytes=GiB, ram_available_bytes=GiB, cpus=8, gpus=cards
    )
    return Governor(Policy.unlimited(recheck_s=None), probe=ScriptedProbe(snapshot))


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """Return a pool with one process, which keeps two artifacts."""
    with WorkerPool(governor(), workers=["p"], process=True, max_artifacts=2) as made:
        yield made
        made.executions.cancel_all()
    assert left_behind() == []


@pytest.fixture
def pair() -> Iterator[WorkerPool]:
    """Return a pool with two processes, each pinned to a GPU."""
    specs = [WorkerSpec(f"p{n}", f"GPU-{n}", process=True) for n in range(2)]
    # A process takes a moment to start: a task waits for its own.
    with WorkerPool(governor(), workers=specs, deps_timeout_s=PATIENCE_S) as made:
        yield made
        made.executions.cancel_all()
    assert left_behind() == []


def left_behind() -> list[str]:
    """Return the children there are; the tracker of `multiprocessing` stays to the end."""
    commands = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            commands.append(f"{child.status()}: {' '.join(child.cmdline())}")
    return [command for command in commands if "resource_tracker" not in command]


def pipe(tmp_path: Path) -> Path:
    """Return a named pipe, by which a callback tells that it runs."""
    path = tmp_path / "runs"
    os.mkfifo(path)
    return path


def wait_for(flag: Path) -> None:
    """Return once the callback has opened the pipe."""
    assert flag.read_text() == "runs"


def test_each_has_its_own_process_and_sees_its_own_gpu(pair: WorkerPool) -> None:
    before = dict(os.environ)
    for number in range(2):
        pair.add_artifacts(f"p{number}", [f"m{number}"])
        task = pair.submit(
            jobs.facts, "word", estimate=ANY, deps=[f"m{number}"], name=f"task {number}"
        )
        gpu = f"GPU-{number}"
        expected = (f"task {number}", 1, "word", f"p{number}", gpu, gpu)
        assert task.result(PATIENCE_S) == expected
    assert all(view.ready for view in pair.workers())
    pids = {
        pair.submit(jobs.pid, estimate=ANY, deps=[f"m{number}"]).result(PATIENCE_S)
        for number in range(2)
    }

    assert pids == {view.pid for view in pair.workers()}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert dict(os.environ) == before


def test_the_environment_of_the_parent_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with WorkerPool(governor(), workers=[WorkerSpec("p", "GPU-1", process=True)]) as pool:
        task = pool.submit(jobs.facts, "w", estimate=ANY)
        assert task.result(PATIENCE_S)[-1] == "GPU-1"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_what_is_resident_stays_and_is_evicted(pool: WorkerPool) -> None:
    seen = [
        pool.submit(jobs.use, model, estimate=ANY, deps=[model]).result(PATIENCE_S)
        for model in ("x", "y", "z", "z")
    ]

    assert seen == [["x"], ["x", "y"], ["x", "y", "z"], ["y", "z"]]
    (view,) = pool.workers()
    assert set(view.artifacts) == {"y", "z"}


def test_a_callback_may_say_what_its_process_holds(pool: WorkerPool) -> None:
    assert pool.submit(jobs.hold, "a", "b", estimate=ANY).result(PATIENCE_S) == "p"

    assert pool.scheduler.locate_artifact("a") == "p"


def test_errors_come_back_with_their_traceback(pool: WorkerPool) -> None:
    task = pool.submit(jobs.fail, estimate=ANY)

    with pytest.raises(KeyError, match="no such thing") as caught:
        task.result(PATIENCE_S)
    assert "process_jobs.py" in "".join(caught.value.__notes__)
    with pytest.raises(SystemExit):
        pool.submit(jobs.leave, estimate=ANY).result(PATIENCE_S)


@pytest.mark.parametrize(
    ("job", "words"),
    [(jobs.fail_oddly, "its error, Unpicklable"), (jobs.unsendable, "its result cannot be sent")],
)
def test_what_cannot_be_sent_is_told(pool: WorkerPool, job: Any, words: str) -> None:
    task = pool.submit(job, estimate=ANY)

    with pytest.raises(RuntimeError, match=words):
        task.result(PATIENCE_S)
    assert pool.submit(jobs.same, 1, estimate=ANY).result(PATIENCE_S) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_callback_that_forks_answers_once(pool: WorkerPool) -> None:
    """The child that comes back from it must not write into the parent's pipe."""
    assert pool.submit(jobs.fork, estimate=ANY).result(PATIENCE_S) == "the parent's"
    before = pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S)

    assert pool.workers()[0].pid == before


def test_a_result_that_cannot_be_made_again_fails_the_task_alone(pool: WorkerPool) -> None:
    """It is no death of the process, which goes on."""
    before = pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S)

    with pytest.raises(ValueError, match="not where it was made"):
        pool.submit(jobs.homely, estimate=ANY).result(PATIENCE_S)

    assert pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S) == before
    assert pool.statistics().deaths == 0


def test_what_cannot_be_taken_to_the_process_fails_the_task(pool: WorkerPool) -> None:
    with pytest.raises((AttributeError, TypeError, Exception), match=r"pickle|local"):
        pool.submit(lambda _: None, estimate=ANY).result(PATIENCE_S)
    with pytest.raises(ArithmeticError, match="made again"):
        pool.submit(jobs.same, jobs.Exploding(), estimate=ANY).result(PATIENCE_S)

    assert pool.submit(jobs.same, 1, estimate=ANY).result(PATIENCE_S) == 1


def test_a_process_that_dies_is_replaced_and_its_job_offered_again(
    pool: WorkerPool, tmp_path: Path
) -> None:
    pool.submit(jobs.hold, "model", estimate=ANY).result(PATIENCE_S)
    (before,) = pool.workers()

    task = pool.submit(jobs.die_once, str(tmp_path / "flag"), estimate=ANY)

    assert task.result(PATIENCE_S) == "p"
    (after,) = pool.workers()
    assert after.pid != before.pid
    assert (after.artifacts, after.gone) == ((), None)
    seen = pool.statistics()
    assert (seen.deaths, seen.locality.offered_again, seen.workers) == (1, 1, 1)
    assert pool.scheduler.locate_artifact("model") is None


def test_a_job_that_kills_two_workers_fails(pool: WorkerPool) -> None:
    task = pool.submit(jobs.die, estimate=ANY, key="k")

    with pytest.raises(WorkerLost, match="offered twice and lost twice"):
        task.result(PATIENCE_S)
    assert pool.statistics().deaths == 2
    assert pool.submit(jobs.same, 1, estimate=ANY).result(PATIENCE_S) == 1


def test_a_process_that_was_killed_while_idle_costs_nothing(pool: WorkerPool) -> None:
    old = pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S)
    child = pool._slots["p"].child
    assert child is not None
    os.kill(old, signal.SIGKILL)
    child._process.join(PATIENCE_S)

    new = pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S)

    assert new != old
    assert pool.statistics().locality.offered_again == 0


def test_a_process_that_dies_as_it_is_asked(pool: WorkerPool) -> None:
    """Between the look whether it lives and the question."""
    old = pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S)
    slot = pool._slots["p"]
    place = slot._place

    def killed(execution: Any) -> Any:
        if slot.child is not None and slot.child.pid == old:
            os.kill(old, signal.SIGKILL)
            slot.child._process.join(PATIENCE_S)
        return place(execution)

    slot._place = killed  # type: ignore[method-assign]  # the race

    assert pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S) != old
    assert pool.statistics().locality.offered_again == 1


def test_a_running_call_sees_the_cancel(pool: WorkerPool, tmp_path: Path) -> None:
    flag = pipe(tmp_path)
    task = pool.submit(jobs.until_cancelled, str(flag), estimate=ANY)
    wait_for(flag)

    assert task.cancel()

    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)
    assert pool.submit(jobs.same, 1, estimate=ANY).result(PATIENCE_S) == 1


def test_a_process_that_dies_over_a_job_that_nobody_wants(pool: WorkerPool, tmp_path: Path) -> None:
    flag = pipe(tmp_path)
    task = pool.submit(jobs.stubborn, str(flag), estimate=ANY)
    wait_for(flag)
    (view,) = pool.workers()
    assert view.task == task.name
    assert view.pid is not None
    assert task.cancel()

    os.kill(view.pid, signal.SIGKILL)

    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)
    assert pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S) != view.pid


def test_the_loop_of_a_process_ends_with_its_pipe() -> None:
    """In this process: what a worker does when its parent is gone."""
    from multiprocessing import Event, Pipe

    from lardon.locality.child import serve
    from lardon.locality.current import current

    ours, theirs = Pipe()
    ours.close()
    serve(theirs, Event(), "p", None, None)
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(theirs, Event(), "p", None, None))
    thread.start()
    assert ours.recv() is None
    ours.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    current.worker = None


def test_a_cancel_that_comes_just_before_the_question(pool: WorkerPool, tmp_path: Path) -> None:
    executions = pool.executions
    started = executions.started

    def cancelled_now(execution: Any) -> None:
        started(execution)
        assert execution.views[0].cancel()

    executions.started = cancelled_now  # type: ignore[method-assign]  # the race
    flag = pipe(tmp_path)
    task = pool.submit(jobs.until_cancelled, str(flag), estimate=ANY)
    wait_for(flag)

    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)


def test_close_kills_a_process_that_does_not_end(tmp_path: Path) -> None:
    pool = WorkerPool(governor(), workers=["p"], process=True)
    flag = pipe(tmp_path)
    task = pool.submit(jobs.stubborn, str(flag), estimate=ANY)
    wait_for(flag)

    assert pool.close(0.1)

    assert task.state is TaskState.CANCELLED
    assert left_behind() == []


def test_a_process_that_is_lost_while_the_pool_closes(tmp_path: Path) -> None:
    """Its job is cancelled, not offered to nobody."""
    pool = WorkerPool(governor(), workers=["p"], process=True)
    flag = pipe(tmp_path)
    task = pool.submit(jobs.until_cancelled, str(flag), estimate=ANY)
    wait_for(flag)
    task.cancel()
    with pytest.raises(TaskCancelled):
        task.result(PATIENCE_S)

    assert pool.close(PATIENCE_S)


def test_a_process_that_does_not_start_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lardon.locality.process.serve", jobs.die)
    monkeypatch.setattr("lardon.locality.process._arguments", lambda *_: (None,))
    with WorkerPool(governor(), workers=["p"], process=True) as pool:
        task = pool.submit(jobs.pid, estimate=ANY)

        with pytest.raises(WorkerDied, match="p: its process does not start"):
            task.result(PATIENCE_S)
    assert left_behind() == []


def test_a_process_that_does_not_end_when_told_is_killed(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, as by a debugger: it neither reads nor ends."""
    process = pool.submit(jobs.pid, estimate=ANY).result(PATIENCE_S)
    monkeypatch.setattr("lardon.locality.process.GRACE_S", 0.1)
    os.kill(process, signal.SIGSTOP)

    assert pool.close(PATIENCE_S)

    assert not psutil.pid_exists(process)


PROGRAM: Final = """
import sys
from lardon import Governor, Policy, ResourceEstimate
from lardon.locality import WorkerPool
from tests.locality import process_jobs as jobs

if __name__ == "__main__":
    pool = WorkerPool(Governor(Policy.unlimited()), workers=2, process=True)
    pool.submit(jobs.pid, estimate=ResourceEstimate()).result(30)
    running = pool.submit(jobs.until_cancelled, sys.argv[1], estimate=ResourceEstimate())
    open(sys.argv[1]).read()
    print("the end", flush=True)
"""


def test_a_program_that_ends_with_a_live_pool_does_so_quietly(tmp_path: Path) -> None:
    """Whatever the order in which `multiprocessing` and the pool learn of the end."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(program), str(pipe(tmp_path))],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_a_process_that_dies_as_it_starts_while_the_pool_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is to be told: it was to end anyway."""
    monkeypatch.setattr("lardon.locality.process.serve", jobs.until_told_and_die)
    monkeypatch.setattr("lardon.locality.process._arguments", lambda theirs, *_: (theirs,))
    pool = WorkerPool(governor(), workers=["p"], process=True)
    child = pool._slots["p"].child
    assert child is not None
    pool.closing = True
    child._connection.send("die")

    assert pool.close(PATIENCE_S)

    assert caplog.messages == []
