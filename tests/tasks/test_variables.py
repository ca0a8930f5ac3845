"""Context variables: a callback sees what its submitter saw, and changes nothing for others."""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Final

from lardon import ResourceEstimate, TaskQueue
from lardon.testing import ScriptedGovernor, start, wait

if TYPE_CHECKING:
    from lardon import Task, TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate()
USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


def test_the_value_at_submission_counts() -> None:
    governor = ScriptedGovernor([wait()])
    with TaskQueue(governor) as queue:
        token = USER.set("at submission")
        task = queue.submit(lambda _: USER.get(), estimate=ANY)
        USER.reset(token)
        governor.script(start())
        queue.resources_changed()

        assert task.result(PATIENCE_S) == "at submission"


def test_two_submitters_do_not_see_each_other() -> None:
    def submit(name: str) -> None:
        USER.set(name)
        tasks[name] = queue.submit(lambda _: USER.get(), estimate=ANY)

    tasks: dict[str, Task] = {}
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        for name in ("ann", "bob"):
            thread = threading.Thread(target=submit, args=(name,))
            thread.start()
            thread.join(PATIENCE_S)
        assert {name: task.result(PATIENCE_S) for name, task in tasks.items()} == {
            "ann": "ann",
            "bob": "bob",
        }
    assert USER.get() == "nobody"


def test_nothing_leaks_into_the_next_task() -> None:
    def change(_context: TaskContext) -> None:
        USER.set("changed in a callback")

    with TaskQueue(ScriptedGovernor([start()])) as queue:
        queue.submit(change, estimate=ANY)
        after = queue.submit(lambda _: USER.get(), estimate=ANY)

        assert after.result(PATIENCE_S) == "nobody"
    assert USER.get() == "nobody"


def test_a_task_submitted_by_a_callback_inherits_its_variables() -> None:
    def submit(_context: TaskContext) -> None:
        USER.set("the callback's")
        inner.append(queue.submit(lambda _: USER.get(), estimate=ANY))

    inner: list[Task] = []
    with TaskQueue(ScriptedGovernor([start()])) as queue:
        assert queue.submit(submit, estimate=ANY).wait(PATIENCE_S)
        assert inner[0].result(PATIENCE_S) == "the callback's"
