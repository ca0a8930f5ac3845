"""What a test plays on the calls that it makes: a late start, a crash, an answer that is lost."""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Final

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.rules import apply_rules, instant, must, seconds

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator


@attrs.frozen(field_transformer=apply_rules)
class LostAnswer:
    """When a call whose answer is lost takes effect; None is never."""

    lands_after_s: float | None = attrs.field(metadata=must(seconds(), optional=True))


# Context variables, so that two threads of a test do not play on each other's calls.
_started_at: Final[contextvars.ContextVar[datetime.datetime | None]] = contextvars.ContextVar(
    "started_at", default=None
)
_crash: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("crash", default=False)
_lost: Final[contextvars.ContextVar[LostAnswer | None]] = contextvars.ContextVar(
    "lost", default=None
)


@contextlib.contextmanager
def call_started_at(started_at: datetime.datetime) -> Iterator[None]:
    """
    Let the calls that carry a deadline start at *started_at*, an aware datetime, not now.

    It holds for the calls that this thread (or this task of an event loop) makes inside.
    """
    token = _started_at.set(instant("started_at", started_at))
    try:
        yield
    finally:
        _started_at.reset(token)


@contextlib.contextmanager
def crash_between_steps() -> Iterator[None]:
    """Let a requeue made inside set the bit, and raise `CrashedError` before its next step."""
    token = _crash.set(True)
    try:
        yield
    finally:
        _crash.reset(token)


@contextlib.contextmanager
def answer_lost(lands_after_s: float | None = 0.0) -> Iterator[None]:
    """
    Let the answers of calls that change something be lost: they raise `OutcomeUnknown`.

    Args:
        lands_after_s: How long after the call it takes effect, seen by the calls made then;
            None is never. A call that would land after it has settled raises `InvalidError`.

    """
    token = _lost.set(LostAnswer(lands_after_s))
    try:
        yield
    finally:
        _lost.reset(token)


def started(now: datetime.datetime) -> datetime.datetime:
    """Return when a call made *now* starts."""
    return _started_at.get() or now


def crashes() -> bool:
    """Return whether a requeue made now crashes between its steps."""
    return _crash.get()


def lost_answer() -> LostAnswer | None:
    """Return how the answer of a call made now is lost, or None when it is not."""
    return _lost.get()


def check_landing(lands_after_s: float, longest_s: float) -> None:
    """Refuse a landing that the bound rules out."""
    if lands_after_s > longest_s:
        message = (
            f"lands_after_s must be at most {longest_s:g}, the deadline plus the call bound, "
            f"not {lands_after_s:g}"
        )
        raise InvalidError(
            message, field="lands_after_s", value=lands_after_s, rule=f"at most {longest_s:g}"
        )
