"""What the exit statuses of the command mean."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, assert_never

from lardon.governor.decision import DecisionKind

if TYPE_CHECKING:
    from lardon.governor.decision import Decision


class ExitStatus(enum.IntEnum):
    """The statuses that are the command's own; `lardon run` passes on its command's."""

    OK = 0
    """START, for `explain`."""
    FAILED = 1
    """The machine could not be read (`info`), or the output could not be written."""
    BAD_INPUT = 2
    """An option or an argument was refused, or the extra `cli` is not installed."""
    REDUCE_BATCH = 10
    WAIT = 11
    REJECT = 12
    TIMED_OUT = 124
    """Not admitted within the time-out; the status that timeout(1) uses."""
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    """128 + SIGINT."""
    READER_GONE = 141
    """128 + SIGPIPE: what a program has that the closed pipe ended."""


_SIGNAL_BASE = 128


def status_of_signal(number: int) -> int:
    """Return the status that shells give for an end by this signal."""
    return _SIGNAL_BASE + number


def status_of_child(returncode: int) -> int:
    """Return the status to pass on for a `subprocess` return code."""
    return status_of_signal(-returncode) if returncode < 0 else returncode


def status_of(decision: Decision) -> ExitStatus:
    """Return what `lardon explain` exits with."""
    match decision.kind:
        case DecisionKind.START:
            return ExitStatus.OK
        case DecisionKind.REDUCE_BATCH:
            return ExitStatus.REDUCE_BATCH
        case DecisionKind.WAIT:
            return ExitStatus.WAIT
        case DecisionKind.REJECT:
            return ExitStatus.REJECT
        case _:
            assert_never(decision.kind)
