"""Callbacks for workers that are processes: importable there, too."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from lardon.locality import ProcessContext, current_worker


def pid(_context: ProcessContext) -> int:
    return os.getpid()


def facts(context: ProcessContext, word: str) -> tuple[Any, ...]:
    worker = current_worker()
    assert worker is not None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return context.name, context.contract.batch_size, word, worker.name, worker.device, visible


def use(_context: ProcessContext, model: str) -> list[str]:
    """Make *model* resident, and return what is."""
    worker = current_worker()
    assert worker is not None
    worker.state.setdefault(model, object())
    return sorted(map(str, worker.state))


def hold(_context: ProcessContext, *artifacts: str) -> str:
    worker = current_worker()
    assert worker is not None
    worker.add_artifacts(artifacts)
    return worker.name


def fail(_context: ProcessContext) -> None:
    raise KeyError("no such thing")


def fork(_context: ProcessContext) -> str:
    """Return twice, as a callback does whose child forgets to end."""
    child = os.fork()
    if child == 0:
        return "the child's"
    os.waitpid(child, 0)
    return "the parent's"


class Unpicklable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


def fail_oddly(_context: ProcessContext) -> None:
    raise Unpicklable(1, 2)


def made_at_home(home: int) -> Any:
    if os.getpid() != home:
        message = "this is not where it was made"
        raise ValueError(message)
    return Homely()


class Homely:
    """Can be made again from its pickle in its own process alone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return made_at_home, (os.getpid(),)


def homely(_context: ProcessContext) -> Any:
    return Homely()


def unsendable(_context: ProcessContext) -> Any:
    return lambda: None


def leave(_context: ProcessContext) -> None:
    raise SystemExit(3)


def die(_context: ProcessContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def until_told_and_die(connection: Any) -> None:
    """In the place of `lardon.locality.child.serve`: never be ready."""
    connection.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(_context: ProcessContext, flag: str) -> str:
    """End the process at the first call, and say who is there at the second."""
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    worker = current_worker()
    assert worker is not None
    return worker.name


def until_cancelled(context: ProcessContext, flag: str) -> str:
    Path(flag).write_text("runs")
    # The event that `cancel_requested` looks at: nothing is looked at again and again.
    assert context._cancelled.wait(60)
    assert context.cancel_requested
    assert not context.checkpoint()
    return "stopped"


def stubborn(_context: ProcessContext, flag: str) -> None:
    """Never end by itself."""
    Path(flag).write_text("runs")
    signal.pause()


class Exploding:
    """Raises where it is made again."""

    def __reduce__(self) -> Any:
        return explode, ()


def explode() -> None:
    raise ArithmeticError("made again")


def same(_context: ProcessContext, value: object) -> object:
    return value
