"""Reports on the life of a process: its exit, forks, threads that import, context variables."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import textwrap
import threading
from typing import Final

import pytest

from lardon import ResourceEstimate, TaskQueue
from lardon.testing import ScriptedGovernor, start, wait

PATIENCE_S: Final = 10.0
LIMIT_S: Final = 15.0
ANY: Final = ResourceEstimate()
REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")


def run(script: str) -> tuple[int, str, str]:
    """Run *script* in an interpreter of its own; return its code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout.strip(), done.stderr


EXITS: Final = {
    "idle": ("", 0),
    "running": (
        """
        running = threading.Event()
        def callback(task):
            running.set()
            while task.checkpoint():
                pass
        queue.submit(callback, estimate=ResourceEstimate())
        assert running.wait(10)
        """,
        0,
    ),
    "waiting": (
        """
        governor.script(wait())
        queue.submit(lambda _: None, estimate=ResourceEstimate())
        assert queue.wait_parked(10)
        """,
        0,
    ),
    "failed": ("raise SystemExit(9)", 9),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", sorted(EXITS))
def test_h87_the_interpreter_ends_with_a_live_queue(how: str) -> None:
    script, code = EXITS[how]
    head = textwrap.dedent(
        """
        import atexit, threading
        # Runs after lardon's own, which was registered later.
        atexit.register(lambda: print(len(governor.reservations())))
        from lardon import ResourceEstimate, TaskQueue
        from lardon.testing import ScriptedGovernor, start, wait
        governor = ScriptedGovernor([start()])
        queue = TaskQueue(governor)
        """
    )

    assert run(head + textwrap.dedent(script)) == (code, "0", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.slow
def test_h88_a_fork_while_the_lock_is_held_hangs_nobody() -> None:
    code, out, errors = run(
        """
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from lardon import QueueClosed, ResourceEstimate, TaskQueue
        from lardon.testing import ScriptedGovernor, start
        queue = TaskQueue(ScriptedGovernor([start()]))
        holds, let_go = threading.Event(), threading.Event()
        def hold():
            with queue._signal.lock:
                holds.set()
                let_go.wait(10)
        thread = threading.Thread(target=hold)
        thread.start()
        assert holds.wait(10)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (
                lambda: queue.submit(lambda _: None, estimate=ResourceEstimate()),
                queue.statistics,
                queue.close,
            ):
                try:
                    call()
                except QueueClosed as error:
                    refused += error.owner_pid == os.getppid()
            os._exit(refused)
        refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        let_go.set()
        thread.join(10)
        print(refused, queue.submit(lambda _: "parent", estimate=ResourceEstimate()).result(10))
        queue.close()
        """
    )

    assert (code, out, errors) == (0, "3 parent", "")


@pytest.mark.slow
def test_h89_import_and_queue_work_in_any_thread() -> None:
    """No handler of a signal is installed, by the import or by a queue."""
    code, out, errors = run(
        """
        import signal, threading
        def handlers():
            return [signal.getsignal(number) for number in sorted(signal.valid_signals())]
        before, results = handlers(), []
        def use_it():
            import lardon
            from lardon.testing import ScriptedGovernor, start
            with lardon.TaskQueue(ScriptedGovernor([start()])) as queue:
                task = queue.submit(lambda _: "ran", estimate=lardon.ResourceEstimate())
                results.append(task.result(10))
        thread = threading.Thread(target=use_it)
        thread.start()
        thread.join(10)
        print(results, handlers() == before)
        """
    )

    assert (code, out, errors) == (0, "['ran'] True", "")


def test_h90_a_callback_sees_its_submitters_variables() -> None:
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        REQUEST.set("first")
        first = queue.submit(lambda _: REQUEST.get(), estimate=ANY)
        changing = queue.submit(lambda _: REQUEST.set("leaked"), estimate=ANY)
        REQUEST.set("second")
        second = queue.submit(lambda _: REQUEST.get(), estimate=ANY)
        others = []

        def submit_elsewhere() -> None:
            others.append(queue.submit(lambda _: REQUEST.get(), estimate=ANY))

        thread = threading.Thread(target=submit_elsewhere)
        thread.start()
        thread.join(PATIENCE_S)
        governor.script(start())
        queue.resources_changed()

        assert first.result(PATIENCE_S) == "first"
        assert changing.wait(PATIENCE_S)
        assert second.result(PATIENCE_S) == "second"
        assert others[0].result(PATIENCE_S) == "none"
    REQUEST.set("none")
