"""CPU time and wake-ups of a queue that has nothing it can run."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Unavailable, held_child, tell, wait_for_parent
from benchmarks.formats import number
from benchmarks.procfs import ThreadCounters, all_threads
from benchmarks.report import Report, Row
from benchmarks.targets import Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline

STATES = {
    "idle": "lardon, nothing submitted",
    "waiting": "lardon, head WAITs for an IO slot, 1,000 behind it",
    "thread_pool": "ThreadPoolExecutor(1), nothing submitted",
}
JUDGED = ("idle", "waiting")
# Imports and thread starts are over by then; nothing else of a queue has a period.
SETTLE_S = 0.5
NOTE = (
    "Read from outside, from each thread's own schedstat and status. Default policy, so the "
    "periodic recheck of live readings is on where it applies."
)
NONE = ThreadCounters(cpu_ns=0, voluntary=0, involuntary=0)


def hold(state: str) -> None:
    """Put a queue into *state*, say so, and stay until the parent lets go; runs in a child."""
    if not Path("/proc/self/schedstat").exists():
        message = "this system has no /proc/self/schedstat"
        raise Unavailable(message)
    {"idle": _idle, "waiting": _waiting, "thread_pool": _thread_pool}[state]()


def _idle() -> None:
    from lardon import Governor, MiB, ResourceEstimate, TaskQueue

    with TaskQueue(Governor()) as queue:
        queue.submit(lambda _: None, estimate=ResourceEstimate(ram_bytes=MiB)).result()
        _stay()


def _waiting() -> None:
    from lardon import Governor, MiB, ResourceEstimate, TaskQueue

    governor = Governor()
    estimate = ResourceEstimate(ram_bytes=MiB, io_slots=1)
    _, held = governor.reserve(estimate)
    assert held is not None
    with TaskQueue(governor) as queue:
        tasks = [queue.submit(lambda _: None, estimate=estimate) for _ in range(1000)]
        assert queue.wait_parked(timeout=10)
        assert tasks[0].reason is not None
        _stay()
        queue.cancel_all()
        held.release()


def _thread_pool() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        _stay()


def _stay() -> None:
    threads = [
        thread.native_id
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
    ]
    assert threads
    tell({"threads": threads})
    wait_for_parent()


def watch(seconds: float) -> dict[str, Any]:
    """Hold one child per state at once, and return what each used within *seconds*."""
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        held = {}
        for state in STATES:
            try:
                held[state] = stack.enter_context(
                    held_child("benchmarks.topics.idle:hold", state=state)
                )
            except Unavailable as error:
                found[state] = {"unavailable": str(error)}
        time.sleep(SETTLE_S)
        before = {state: all_threads(pid) for state, (pid, _) in held.items()}
        started = time.monotonic()
        time.sleep(seconds)
        after = {state: all_threads(pid) for state, (pid, _) in held.items()}
        elapsed_s = time.monotonic() - started
        for state, (_, told) in held.items():
            used = {
                thread: counters - before[state].get(thread, NONE)
                for thread, counters in after[state].items()
            }
            workers = [used[thread] for thread in told["threads"] if thread in used]
            found[state] = {
                "seconds": elapsed_s,
                "worker": _total(workers),
                "process": _total(list(used.values())),
                "threads": len(used),
            }
    return found


def _total(counters: list[ThreadCounters]) -> dict[str, int]:
    return {
        "cpu_ns": sum(each.cpu_ns for each in counters),
        "voluntary": sum(each.voluntary for each in counters),
        "involuntary": sum(each.involuntary for each in counters),
    }


def run(deadline: Deadline) -> Report:
    """Watch all states at the same time and judge lardon's."""
    seconds = deadline.effort.idle_s
    if deadline.left_s < seconds + 5:
        found: dict[str, Any] = {
            state: {"unavailable": "the time of the whole run was up"} for state in STATES
        }
    else:
        found = watch(seconds)
    rows = []
    for state, label in STATES.items():
        rows += _rows(state, label, found[state], seconds)
    return Report(
        topic="Idle queues",
        question=f"CPU time and wake-ups over {seconds:g} s of a queue that cannot run anything.",
        columns=(
            "worker's CPU µs",
            "worker's wake-ups",
            "preemptions",
            "process's CPU µs",
            "threads",
        ),
        peer="",
        rows=tuple(rows),
        notes=(NOTE,),
        data=found,
    )


def _rows(state: str, label: str, found: dict[str, Any], seconds: float) -> list[Row]:
    reason = found.get("unavailable", "")
    worker, process = found.get("worker"), found.get("process")
    figures = tuple(
        number(value, digits)
        for value, digits in (
            (worker and worker["cpu_ns"] / 1000, 1),
            (worker and worker["voluntary"], 0),
            (worker and worker["involuntary"], 0),
            (process and process["cpu_ns"] / 1000, 1),
            (found.get("threads"), 0),
        )
    )
    if state not in JUDGED:
        return [Row(label=label, figures=figures)]
    over = f"over {seconds:g} s, {label}"
    wakeups = Target(what=f"wake-ups {over}", limit=0, unit="wake-ups")
    cpu = Target(what=f"CPU time {over}", limit=0, unit="µs")
    return [
        Row(
            label=label,
            figures=figures,
            verdict=wakeups.judge(worker and worker["voluntary"], reason=reason),
        ),
        Row(
            label="",
            figures=("",) * len(figures),
            verdict=cpu.judge(worker and worker["cpu_ns"] / 1000, reason=reason),
        ),
    ]
