"""A callback that does what a test tells it, one call at a time."""

from __future__ import annotations

import queue as stdlib_queue
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from tests.invariants.recorder import PATIENCE_S

if TYPE_CHECKING:
    from lardon import TaskContext
    from lardon.queue.context import OnPause
    from tests.invariants.recorder import Recorder

# A callback waits for the test longer than the test waits for anything.
_ABANDONED_S: Final = 10 * PATIENCE_S


@attrs.frozen
class Checkpoint:
    pass


@attrs.frozen
class Break:
    timeout: float | None = 0.0
    on_pause: OnPause = "cancel"


@attrs.frozen
class SetProgress:
    done: float
    total: float | None
    message: str


@attrs.frozen
class Return:
    value: object


@attrs.frozen
class Raise:
    error: BaseException


Command = Checkpoint | Break | SetProgress | Return | Raise
Phase = Literal["new", "ready", "busy", "gone"]


class Stage:
    """Where the callbacks of one queue meet the test: one at a time, as the queue promises."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.ready = threading.Event()
        """Set while a callback waits for a command."""
        self.acting: Actor | None = None
        """The callback that runs now."""


class Actor:
    """The callback of one task."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.name = name
        self.phase: Phase = "new"
        self.answers: list[tuple[Command, bool | None]] = []
        """What was asked and what lardon answered, in order."""
        self._commands: stdlib_queue.SimpleQueue[Command] = stdlib_queue.SimpleQueue()

    def tell(self, command: Command) -> None:
        """Have the waiting callback do *command*; returns at once."""
        assert self.phase == "ready"
        self._stage.ready.clear()
        self.phase = "busy"
        self._commands.put(command)

    def __call__(self, context: TaskContext) -> object:
        self._enter(context)
        try:
            while True:
                self.phase = "ready"
                self._stage.ready.set()
                command = self._commands.get(timeout=_ABANDONED_S)
                match command:
                    case Return():
                        return command.value
                    case Raise():
                        raise command.error
                    case _:
                        self.answers.append((command, self._do(context, command)))
        finally:
            self._leave()

    def _do(self, context: TaskContext, command: Any) -> bool | None:
        match command:
            case Checkpoint():
                return context.checkpoint()
            case Break():
                return self._break(context, command)
            case SetProgress():
                context.set_progress(command.done, command.total, command.message)
        return None

    def _break(self, context: TaskContext, command: Break) -> bool:
        before = context.sequence
        admitted = context.sequence_break(command.timeout, on_pause=command.on_pause)
        # Seen by the callback itself, at the moment of the return.
        held = self._stage.recorder.held(self.name)
        if len(held) != admitted:
            self._blame(f"after {admitted} from a break the callback holds {held}")
        # A grant that parks at once may end in a cancel: then it counted, and is gone.
        granted = context.sequence - before
        if granted != 1 and (admitted or granted):
            self._blame(f"a break that said {admitted} led from {before} to {context.sequence}")
        return admitted

    def _enter(self, context: TaskContext) -> None:
        stage = self._stage
        held = stage.recorder.held(self.name)
        if len(held) != 1:
            self._blame(f"the callback starts with the reservations {held}")
        if stage.acting is not None:
            self._blame(f"starts while {stage.acting.name} runs")
        if self.phase != "new":
            self._blame("is called a second time")
        if context.name != self.name or context.sequence != 0:
            self._blame(f"was given the context of {context.name}, sequence {context.sequence}")
        stage.acting = self

    def _leave(self) -> None:
        self.phase = "gone"
        if self._stage.acting is not self:
            self._blame("was not the callback that ran")
        self._stage.acting = None

    def _blame(self, violation: str) -> None:
        self._stage.recorder.blame(f"{self.name} {violation}")
