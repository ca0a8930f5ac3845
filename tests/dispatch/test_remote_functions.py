"""Functions as remote tasks: ``python -m lardon.dispatch.call``, in a process of its own."""

from __future__ import annotations

import builtins
import concurrent.futures
import io
import multiprocessing
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from lardon import TaskState
from lardon.dispatch import (
    Action,
    Cause,
    InvalidError,
    MissingExtra,
    RecoveryPolicy,
    RecoveryRule,
)
from lardon.dispatch.call import main
from lardon.dispatch.remote import PoolTimings, RemoteFailed, RemoteHandle, ResultMissing
from lardon.dispatch.remote.function import read_result, write_call
from tests.dispatch.remote_cluster import ONE, PATIENCE_S, RemoteCluster


def made(cluster: RemoteCluster, handle: RemoteHandle) -> int:
    """Run the job's own command, and let the pool see how it ended."""
    command = handle.record.spec.command
    assert command[1:3] == ("-m", "lardon.dispatch.call")
    code = main(command[3:])
    cluster.finish(handle, code)
    return code


def fails() -> None:
    raise ValueError("mine")


def test_an_error_comes_back_though_nobody_can_read_of_it_on_the_node(
    cluster: RemoteCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed, a full, or no standard error; the result file is what counts."""

    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

    closed = io.StringIO()
    closed.close()
    pool = cluster.pool(folder=tmp_path)
    for stream in (Full(), closed, None):
        handle = pool.submit_function(fails, estimate=ONE)
        cluster.rest()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            assert made(cluster, handle) == 1
        with pytest.raises(ValueError, match="mine"):
            handle.result(PATIENCE_S)


def test_a_function_returns_to_its_handle(cluster: RemoteCluster, tmp_path: Path) -> None:
    pool = cluster.pool(folder=tmp_path)
    factor = 7
    handle = pool.submit_function(lambda a, b: a * b * factor, 2, b=3, estimate=ONE)
    cluster.rest()

    assert made(cluster, handle) == 0
    assert handle.result(PATIENCE_S) == 42
    assert handle.outcome is not None
    assert handle.outcome.succeeded


def test_what_a_function_raises_is_raised_again(
    cluster: RemoteCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = cluster.pool(folder=tmp_path)

    def fails() -> None:
        raise LookupError("no such photograph")

    handle = pool.submit_function(fails, estimate=ONE)
    cluster.rest()

    assert made(cluster, handle) == 1
    assert "no such photograph" in capsys.readouterr().err
    with pytest.raises(LookupError, match="no such photograph") as caught:
        handle.result(PATIENCE_S)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteFailed)
    assert cause.cause is Cause.NON_ZERO_EXIT


def test_an_error_that_cannot_be_pickled_comes_in_words(
    cluster: RemoteCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = cluster.pool(folder=tmp_path)

    def fails() -> None:
        error = ValueError("holds a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]  # which cannot be pickled
        raise error

    handle = pool.submit_function(fails, estimate=ONE)
    cluster.rest()
    made(cluster, handle)
    capsys.readouterr()

    with pytest.raises(RuntimeError, match="holds a lock"):
        handle.result(PATIENCE_S)


class OwnArguments(Exception):
    """Can be pickled, and not read again: pickle calls it with its message alone."""

    def __init__(self, photo: str, place: int) -> None:
        super().__init__(f"{photo} at {place} is torn")


class Stubborn:
    def __reduce__(self) -> tuple[Any, ...]:
        message = "this is not to be sent"
        raise ValueError(message)


def test_h69_an_argument_that_cannot_be_pickled_is_told_in_the_submit(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """And not on a thread of the pool, whose other tasks go on."""
    pool = cluster.pool(folder=tmp_path)

    with pytest.raises(ValueError, match="not to be sent"):
        pool.submit_function(print, Stubborn(), estimate=ONE)

    assert pool.handles() == ()
    handle = pool.submit_function(lambda: "well", estimate=ONE)
    cluster.rest()
    assert made(cluster, handle) == 0
    assert handle.result(PATIENCE_S) == "well"


def test_an_error_that_cannot_be_read_again_comes_in_words(
    cluster: RemoteCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page: a handle "raises what it raised", and never what reading it raises."""
    pool = cluster.pool(folder=tmp_path)

    def fails() -> None:
        raise OwnArguments("a.jpg", 3)

    handle = pool.submit_function(fails, estimate=ONE)
    cluster.rest()
    made(cluster, handle)
    capsys.readouterr()

    with pytest.raises(RuntimeError, match=r"a\.jpg at 3 is torn"):
        handle.result(PATIENCE_S)


@pytest.mark.parametrize(
    ("code", "status"),
    [(3, 3), (0, 1), (None, 1), (256, 1), (259, 3), (-1, 255), ("told in words", 1)],
)
def test_a_function_that_exits_has_raised(
    cluster: RemoteCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    code: Any,
    status: int,
) -> None:
    """
    As in a pool of processes: the exit is raised where the result is asked for.

    `sys.exit(0)` returns nothing: without a result its job would look as if it completed.
    """
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(sys.exit, code, estimate=ONE)
    cluster.rest()
    assert made(cluster, handle) == status
    capsys.readouterr()

    error = handle.exception(PATIENCE_S)
    assert isinstance(error, SystemExit)
    assert error.code == code
    assert isinstance(error.__cause__, RemoteFailed)
    assert error.__cause__.outcome.exit_code == status
    assert error.__cause__.cause is Cause.NON_ZERO_EXIT
    assert handle.state is TaskState.FAILED
    with pytest.raises(SystemExit):
        handle.result(PATIENCE_S)


def test_a_function_that_exits_is_what_a_pool_of_processes_makes_of_it(
    cluster: RemoteCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What users of `concurrent.futures` expect, asked of itself."""
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as processes:
        expected = processes.submit(sys.exit, 3).exception(PATIENCE_S)
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(sys.exit, 3, estimate=ONE)
    cluster.rest()
    made(cluster, handle)
    capsys.readouterr()
    error = handle.exception(PATIENCE_S)

    assert isinstance(expected, SystemExit)
    assert isinstance(error, SystemExit)
    assert error.code == expected.code == 3


def test_a_process_that_ends_without_a_word_has_its_exit_status(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """`os._exit` raises nothing, so nothing is written; only the status is left."""
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(print, estimate=ONE)
    cluster.rest()
    cluster.finish(handle, 3)

    error = handle.exception(PATIENCE_S)
    assert isinstance(error, RemoteFailed)
    assert error.outcome.exit_code == 3


class Unreadable:
    """Can be pickled, and not read again."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


def test_a_value_that_cannot_be_read_is_a_failure(cluster: RemoteCluster, tmp_path: Path) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(Unreadable, estimate=ONE)
    cluster.rest()
    made(cluster, handle)

    with pytest.raises(ValueError, match="no number"):
        handle.result(PATIENCE_S)
    assert handle.state is TaskState.FAILED


def test_what_an_earlier_execution_left_is_not_the_result(
    cluster: RemoteCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page on dispatch: the epoch is "a number above that of every earlier execution"."""
    pool = cluster.pool(folder=tmp_path)
    again = RecoveryPolicy([RecoveryRule(Cause.NON_ZERO_EXIT, Action.RESTART, delay_s=0)])
    tries = tmp_path / "tries"

    def second_time() -> str:
        if tries.exists():
            return "done"
        tries.touch()
        raise LookupError("not yet")

    handles = [pool.submit_function(second_time, estimate=ONE, policy=again) for _ in range(2)]
    cluster.rest()
    for handle in handles:
        tries.unlink(missing_ok=True)
        ref = cluster.ref(handle)
        cluster.env.run(ref)
        for name, value in cluster.env.environment(ref).items():
            monkeypatch.setenv(name, value)
        assert made(cluster, handle) == 1
        cluster.passes()
    capsys.readouterr()
    killed, slow = handles
    cluster.env.run(cluster.ref(killed))
    cluster.env.out_of_memory(cluster.ref(killed))
    ref = cluster.ref(slow)
    cluster.env.run(ref)
    # It completes, and its result is still to appear.
    cluster.finish(slow)

    with pytest.raises(RemoteFailed) as caught:
        killed.result(PATIENCE_S)
    assert caught.value.cause is Cause.OUT_OF_MEMORY
    assert not slow.done()
    for name, value in cluster.env.environment(ref).items():
        monkeypatch.setenv(name, value)
    assert main(slow.record.spec.command[3:]) == 0
    cluster.passes()
    assert slow.result(PATIENCE_S) == "done"


def test_a_job_that_was_killed_has_its_cause(cluster: RemoteCluster, tmp_path: Path) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(print, estimate=ONE)
    cluster.rest()
    cluster.env.out_of_memory(cluster.run(handle))
    cluster.passes()

    with pytest.raises(RemoteFailed) as caught:
        handle.result(PATIENCE_S)
    assert caught.value.cause is Cause.OUT_OF_MEMORY


def test_a_result_may_appear_a_while_after_the_job_completed(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    """A network file system shows it late; the reservation does not wait for that."""
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(lambda: 5, estimate=ONE)
    cluster.rest()
    command = handle.record.spec.command
    cluster.finish(handle)
    assert not handle.done()
    assert pool.statistics().reserved_ram_bytes == 0
    main(command[3:])
    cluster.passes()

    assert handle.result(PATIENCE_S) == 5


def test_a_result_that_never_appears_is_told_apart(cluster: RemoteCluster, tmp_path: Path) -> None:
    pool = cluster.pool(folder=tmp_path, timings=PoolTimings(result_patience_s=30))
    handle = pool.submit_function(lambda: 5, estimate=ONE)
    cluster.rest()
    cluster.finish(handle)
    cluster.passes()
    assert not handle.done()
    cluster.passes(20)

    with pytest.raises(ResultMissing) as caught:
        handle.result(PATIENCE_S)
    assert caught.value.path.endswith(f"{handle.id}.result")


@pytest.mark.slow
def test_the_command_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    command, result = write_call(tmp_path / "calls", "job", pow, [2, 10], {"mod": 1000})
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    returned = read_result(result)
    assert returned is not None
    assert returned.value == 24
    assert (tmp_path / "calls").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in result.parent.iterdir()) == ["job.call", "job.result"]


def test_a_broken_result_is_an_error_and_no_hang(tmp_path: Path) -> None:
    path = tmp_path / "a.result"
    assert read_result(path) is None
    path.write_bytes(b"no pickle")

    returned = read_result(path)
    assert returned is not None
    assert returned.error is not None


class Poison:
    """What raises *error* where it is loaded."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return raises, (self.error,)


def raises(error: type[BaseException]) -> None:
    raise error


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_result_that_exits_where_it_is_read_ends_its_own_handle_only(
    cluster: RemoteCluster, tmp_path: Path, error: type[BaseException]
) -> None:
    """It had ended the thread of the pool, and of each that came after."""
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(print, estimate=ONE)
    other = pool.submit(["work"], estimate=ONE)
    cluster.rest()
    Path(handle.record.notes["lardon.result"]).write_bytes(
        pickle.dumps((Poison(error), None, None))
    )
    cluster.finish(handle)

    with pytest.raises(RuntimeError, match=f"(?s)cannot be read.*Traceback.*{error.__name__}"):
        handle.result(PATIENCE_S)
    assert pool.statistics().waiter_error is None
    cluster.finish(other)
    assert other.result(PATIENCE_S).succeeded


class Unwilling(Exception):
    """An error that takes no cause."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "__cause__":
            raise SystemExit(name)
        super().__setattr__(name, value)


@pytest.mark.parametrize(
    "content", [(1, 2, None), (1, None, "first"), (1, None), (None, Unwilling("mine"), None)]
)
def test_whatever_lies_there_instead_ends_its_own_handle_only(
    cluster: RemoteCluster, tmp_path: Path, content: Any
) -> None:
    pool = cluster.pool(folder=tmp_path)
    handle = pool.submit_function(print, estimate=ONE)
    cluster.rest()
    Path(handle.record.notes["lardon.result"]).write_bytes(pickle.dumps(content))
    cluster.finish(handle, 1)

    error = handle.exception(PATIENCE_S)
    wrong = Unwilling if isinstance(content[1], Unwilling) else (TypeError, ValueError)
    assert isinstance(error, wrong)
    assert pool.statistics().waiter_error is None


def test_the_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one"]) == 2
    assert "usage" in capsys.readouterr().err


def test_what_is_no_function_or_has_wrong_options_is_refused(
    cluster: RemoteCluster, tmp_path: Path
) -> None:
    pool = cluster.pool(folder=tmp_path)
    with pytest.raises(InvalidError, match="callable"):
        pool.submit_function(3, estimate=ONE)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidError, match="one of the options"):
        pool.submit_function(print, estimate=ONE, options={"ram_bytes": 3})  # type: ignore[arg-type]
    for wrong in (5, "nodes", [("nodes", 2)]):
        with pytest.raises(InvalidError, match="options must be a mapping"):
            pool.submit_function(print, estimate=ONE, options=wrong)  # type: ignore[arg-type]


def test_without_cloudpickle_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cloudpickle":
            raise ModuleNotFoundError(name="cloudpickle")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"lardon\[dispatch\]"):
        write_call(tmp_path, "job", print, [], {})
