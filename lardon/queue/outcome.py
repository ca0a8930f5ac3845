"""How a task ended, as errors that keep neither memory nor frames alive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from opcode import opmap
from types import FrameType
from typing import TYPE_CHECKING, Final

from lardon.errors import TaskCancelled, TaskRefused
from lardon.governor.checks import described
from lardon.governor.reason import Reason, ReasonCode

if TYPE_CHECKING:
    from lardon.queue.task import Task


_YIELD: Final = opmap["YIELD_VALUE"]


def raised(error: BaseException) -> Reason:
    """Return the reason of a task whose callback raised *error*."""
    return Reason(code=ReasonCode.CALLBACK_RAISED, facts={"error": described(error)})


def governor_failed(error: BaseException) -> Reason:
    """Return the reason of a task that the governor could not answer."""
    return Reason(code=ReasonCode.GOVERNOR_FAILED, facts={"error": described(error)})


def cancelled(error: BaseException | None = None, why: str = "cancelled on request") -> Reason:
    """Return the reason of a cancelled task; the callback's own *error* stays in it."""
    if error is None or isinstance(error, TaskCancelled):
        return Reason(code=ReasonCode.CANCELLED, text=why)
    text = described(error)
    return Reason(
        code=ReasonCode.CANCELLED,
        text=f"{why}; the callback raised {text}",
        facts={"error": text},
    )


def forget_frames(error: BaseException) -> None:
    """
    Clear the local variables that the tracebacks of *error* keep alive.

    Lines and functions stay readable. Frames that still run, or will go on, are left alone.
    """
    for one in _related(error):
        trace = one.__traceback__
        while trace is not None:
            _clear(trace.tb_frame)
            trace = trace.tb_next


def _clear(frame: FrameType) -> None:
    # A generator that has caught an error and handed it on waits at its yield. Before Python
    # 3.13, which refuses it, to clear its frame is to end it: whoever reads it finds no more.
    place = frame.f_lasti
    if place >= 0 and frame.f_code.co_code[place] == _YIELD:
        return
    # Of a frame that still runs.
    with contextlib.suppress(RuntimeError):
        frame.clear()


def _related(error: BaseException) -> Iterator[BaseException]:
    """Yield *error*, its causes, contexts and the members of groups, each once."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions


def refusal(task: Task) -> TaskRefused:
    """Return the error of a task that the governor refused."""
    reason = task.reason
    text = reason.text if reason is not None else "refused"
    error = TaskRefused(
        f"task {task.id} ({task.name}) was refused: {text}",
        task_id=task.id,
        decision=task._decision,
        reason=reason,
    )
    own = task._error
    if own is not None and not isinstance(own, TaskRefused):
        error.__cause__ = own
    return error


def cancellation(task: Task) -> TaskCancelled:
    """Return the error of a task that was cancelled."""
    reason = task.reason
    text = reason.text if reason is not None else "cancelled"
    return TaskCancelled(f"task {task.id} ({task.name}): {text}", task_id=task.id, reason=reason)
