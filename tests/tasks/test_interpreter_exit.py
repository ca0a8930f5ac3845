"""The end of the interpreter with a live queue: no hang, no traceback, the right code."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import Final

import pytest

# Above the grace of 5 s that callbacks get, with room for a busy machine.
LIMIT_S: Final = 15.0
HEAD: Final = """
import sys, threading
from lardon import *
from lardon.testing import ScriptedGovernor, start, wait
governor = ScriptedGovernor([start()])
queue = TaskQueue(governor)
def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
"""


def run(script: str, code: int = 0) -> tuple[list[str], str, float]:
    """Run *script* after `HEAD`; return the lines it printed, its errors, and the seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.split("\n")[:-1], done.stderr, time.monotonic() - began


pytestmark = pytest.mark.slow


def test_with_an_idle_queue() -> None:
    lines, errors, _ = run(
        "say(queue.submit(lambda _: 'ran', estimate=ResourceEstimate()).result())"
    )

    assert (lines, errors) == (["ran"], "")


def test_with_a_running_task_that_looks() -> None:
    """It sees the request, ends, and its reservation is released."""
    lines, errors, _ = run(
        """
        running = threading.Event()
        def callback(task):
            running.set()
            while not task.cancel_requested:
                pass
            say("asked to end")
        task = queue.submit(callback, estimate=ResourceEstimate())
        task.add_done_callback(lambda task: say(task.state, len(governor.reservations())))
        assert running.wait(10)
        """
    )

    assert (lines, errors) == (["asked to end", "CANCELLED 0"], "")


def test_with_a_running_task_that_sleeps_in_a_break_or_a_pause() -> None:
    lines, errors, _ = run(
        """
        governor.script(start(), wait())
        task = queue.submit(lambda task: say(task.sequence_break(timeout=None)),
                            estimate=ResourceEstimate())
        assert queue.wait_parked(10)
        other = TaskQueue(ScriptedGovernor([start()]))
        entered, go_on = threading.Event(), threading.Event()
        def callback(task):
            entered.set()
            go_on.wait(10)
            say(task.checkpoint())
        parked = other.submit(callback, estimate=ResourceEstimate())
        assert entered.wait(10)
        parked.pause()
        go_on.set()
        assert other.wait_parked(10)
        """
    )

    assert (lines, errors) == (["False", "False"], "")


def test_with_a_running_task_that_does_not_look() -> None:
    """At most 5 s; the task is abandoned with the process."""
    lines, errors, seconds = run(
        """
        running = threading.Event()
        def callback(task):
            running.set()
            threading.Event().wait()
        queue.submit(callback, estimate=ResourceEstimate())
        assert running.wait(10)
        say("leaving")
        """
    )

    assert (lines, errors) == (["leaving"], "")
    assert 4.5 <= seconds < LIMIT_S


def test_with_items_at_work_on_several_threads() -> None:
    """What is in flight is awaited, no more; an executor's threads were for the whole round."""
    lines, errors, seconds = run(
        """
        governor.script(start(batch_size=1000, cpus=2))
        running = threading.Event()
        def work(item):
            running.set()
            threading.Event().wait(0.05)
        task = queue.submit(lambda task: task.map_items(work, range(1000)),
                            estimate=ResourceEstimate(max_batch=1000, cpus=2))
        task.add_done_callback(lambda task: say(task.state))
        assert running.wait(10)
        """
    )

    assert (lines, errors) == (["CANCELLED"], "")
    assert seconds < 5.0


def test_with_items_that_do_not_end() -> None:
    lines, errors, seconds = run(
        """
        governor.script(start(batch_size=2, cpus=2))
        both = threading.Barrier(3)
        def work(item):
            both.wait(10)
            threading.Event().wait()
        queue.submit(lambda task: task.map_items(work, range(2)),
                     estimate=ResourceEstimate(max_batch=2, cpus=2))
        both.wait(10)
        say("leaving")
        """
    )

    assert (lines, errors) == (["leaving"], "")
    assert seconds < LIMIT_S


def test_with_a_waiting_head() -> None:
    """Pending tasks end CANCELLED, and whoever asked is told."""
    lines, errors, _ = run(
        """
        governor.script(wait())
        for _ in range(2):
            task = queue.submit(lambda _: None, estimate=ResourceEstimate())
            task.add_done_callback(lambda task: say(task.id, task.state, task.started))
        assert queue.wait_parked(10)
        """
    )

    assert (sorted(lines), errors) == (["1 CANCELLED False", "2 CANCELLED False"], "")


def test_after_an_unhandled_error() -> None:
    lines, errors, _ = run(
        """
        governor.script(wait())
        task = queue.submit(lambda _: None, estimate=ResourceEstimate())
        task.add_done_callback(lambda task: say(task.state))
        raise OSError("unhandled")
        """,
        code=1,
    )

    assert lines == ["CANCELLED"]
    assert errors.count("Traceback") == 1
    assert "unhandled" in errors


def test_with_the_code_that_the_program_chose() -> None:
    lines, errors, _ = run("queue.pause_all(); sys.exit(7)", code=7)

    assert (lines, errors) == ([], "")


def test_with_many_queues_the_grace_is_shared() -> None:
    _, errors, seconds = run(
        """
        queues = [TaskQueue(ScriptedGovernor([start()])) for _ in range(5)]
        barrier = threading.Barrier(6)
        def callback(task):
            barrier.wait(10)
            threading.Event().wait()
        for one in queues:
            one.submit(callback, estimate=ResourceEstimate())
        barrier.wait(10)
        """
    )

    assert errors == ""
    assert seconds < LIMIT_S
