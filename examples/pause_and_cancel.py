"""
Pausing, resuming and cancelling tasks that wait and tasks that run.

    python examples/pause_and_cancel.py

A running task stops at its next checkpoint and keeps what it has reserved; a waiting one
keeps its place and is passed over. Cancelling is asking: the callback ends by itself.
"""

from __future__ import annotations

import threading

from lardon import Governor, MiB, ResourceEstimate, Task, TaskContext, TaskQueue, TaskState

SMALL = ResourceEstimate(ram_bytes=16 * MiB)
PATIENCE_S = 30.0


def count(task: TaskContext, reached: threading.Event, goes_on: threading.Event) -> int:
    """Count to a thousand in steps, and stop where the task is paused or cancelled."""
    for number in range(1000):
        task.set_progress(number, total=1000, message="counting")
        if number == 300:
            reached.set()
            goes_on.wait(PATIENCE_S)
        if not task.checkpoint():
            print(f"  the callback sees the request at {number} and ends by itself")
            return number
    return 1000


def say(text: str, task: Task) -> None:
    """Print one line about a task."""
    # The contract stays readable after the end; what was reserved is given back by then.
    contract = None if task.state.terminal else task.contract
    held = f"holds {contract.ram_bytes // MiB} MiB" if contract else "holds nothing"
    print(f"{text}: {task.name} is {task.state}, {held}, {task.progress.done} done")


def wait_for(task: Task, state: TaskState, changed: threading.Condition) -> None:
    """Block until the task is in *state*; the queue's events notify the condition."""
    with changed:
        if not changed.wait_for(lambda: task.state is state, PATIENCE_S):
            message = f"{task.name} is still {task.state}"
            raise TimeoutError(message)


def main() -> None:
    """Walk one running and two waiting tasks through every request."""
    changed = threading.Condition()

    def notify(_event: object) -> None:
        with changed:
            changed.notify_all()

    reached, goes_on = threading.Event(), threading.Event()
    with TaskQueue(Governor()) as queue:
        queue.subscribe(notify)
        running = queue.submit(count, reached, goes_on, estimate=SMALL, name="first")
        second = queue.submit(lambda _task: "second ran", estimate=SMALL, name="second")
        third = queue.submit(lambda _task: "third ran", estimate=SMALL, name="third")
        reached.wait(PATIENCE_S)
        say("Started", running)

        second.pause()
        running.pause()
        goes_on.set()
        wait_for(running, TaskState.PAUSED, changed)
        say("Paused while it ran", running)
        say("Paused while it waited", second)

        running.cancel()
        running.wait(PATIENCE_S)
        say("Cancelled", running)
        print(f"  its reason: {running.reason}")

        print(f"The paused task is passed over: {third.result(PATIENCE_S)!r}")
        second.resume()
        print(f"Resumed, it goes on at its old place: {second.result(PATIENCE_S)!r}")


if __name__ == "__main__":
    main()
