"""What a worker process does: one call after the other, until it is told to stop."""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from lardon.locality.current import CurrentWorker, current

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

    from lardon.governor.decision import Contract
    from lardon.locality.job import Artifact


class Call(NamedTuple):
    """What the parent asks for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str
    contract: Contract
    artifacts: tuple[Artifact, ...]
    """What the worker holds once the call has succeeded."""


class Answer(NamedTuple):
    """How a call ended."""

    value: Any
    error: BaseException | None


class News(NamedTuple):
    """What the worker has begun and ceased to hold."""

    added: tuple[Artifact, ...]
    removed: tuple[Artifact, ...]


class ProcessContext:
    """
    The first argument of a callback that runs in a process of its own.

    The part of a `TaskContext` that has a meaning there: a reservation is held in the
    parent, for the whole call, so there are no breaks.
    """

    def __init__(self, name: str, contract: Contract, cancelled: Event) -> None:
        self.name = name
        """The name of the task."""
        self.contract = contract
        """What the governor granted."""
        self._cancelled = cancelled

    @property
    def cancel_requested(self) -> bool:
        """Whether the task was asked to end."""
        return self._cancelled.is_set()

    def checkpoint(self) -> bool:
        """Return whether to go on: False once the task was asked to end."""
        return not self._cancelled.is_set()


def serve(
    connection: Connection,
    cancelled: Event,
    name: str,
    device: str | None,
    max_artifacts: int | None,
) -> None:
    """Answer calls on *connection* until it is closed; the target of the process."""

    def news(added: tuple[Artifact, ...], removed: tuple[Artifact, ...]) -> None:
        connection.send(News(added, removed))

    worker = CurrentWorker(name, device, max_artifacts, news)
    current.worker = worker
    # A pipe that is closed means that the parent has gone.
    with contextlib.suppress(EOFError, OSError):
        connection.send(None)
        while _one_call(connection, worker, cancelled):
            pass


def _one_call(connection: Connection, worker: CurrentWorker, cancelled: Event) -> bool:
    """Answer one call; return False when told to stop. Keeps nothing of it alive."""
    data = connection.recv_bytes()
    try:
        call = pickle.loads(data)  # noqa: S301  our own parent wrote it
    except Exception as error:  # noqa: BLE001  what the parent pickled may raise anything here
        _reply(connection, Answer(None, error))
        return True
    if call is None:
        return False
    process = os.getpid()
    answer = _answer(call, worker, cancelled)
    if os.getpid() != process:
        # The callback forked, and this is the child: the pipe is the other's.
        os._exit(0)
    _reply(connection, answer)
    return True


def _answer(call: Call, worker: CurrentWorker, cancelled: Event) -> Answer:
    context = ProcessContext(call.name, call.contract, cancelled)
    try:
        value = call.fn(context, *call.args, **call.kwargs)
    except BaseException as error:  # noqa: BLE001  also SystemExit: the worker lives on
        error.add_note("In the worker process:\n" + "".join(traceback.format_exception(error)))
        return Answer(None, error.with_traceback(None))
    worker.add_artifacts(call.artifacts)
    return Answer(value, None)


def _reply(connection: Connection, answer: Answer) -> None:
    """Send *answer*; what cannot be sent is told of by an error that can."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)  # noqa: S301  our own; an error may fail to be made again
    except Exception as error:  # noqa: BLE001  pickling runs other people's code
        what = "its result" if answer.error is None else f"its error, {answer.error!r},"
        message = f"{what} cannot be sent to the parent process: {error!r}"
        data = pickle.dumps(Answer(None, RuntimeError(message)))
    connection.send_bytes(data)
