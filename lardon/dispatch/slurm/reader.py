"""
What became of the calls of a script, read from its stderr and its exit status.

Anything doubtful is an unknown outcome, never a guess. Source: the page "The deadline wrapper
and the landing bound" of go/dispatch, and the dispatch design, sections 4.3 to 4.5.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Sequence
from typing import Final

import attrs

from lardon.dispatch.errors import (
    DispatchError,
    ExpiredError,
    OutcomeUnknown,
    RefusedError,
    RequeueBitMaybeSet,
)
from lardon.dispatch.slurm.messages import refusal
from lardon.dispatch.slurm.wrapper import EXPIRED, Call, checked_calls, checked_nonce

_MARK: Final = "\x1eDSL"
_FRAME: Final = re.compile(r"\x1eDSL ([0-9a-f]{32}) call ([1-9]\d{0,2}) (\d{1,3})\n", re.ASCII)
# Enough of an output to see what it was; the whole of it may be a page.
_SHOWN: Final = 200
_KILLED: Final = frozenset({124, 137})


class Verdict(enum.Enum):
    """What became of one call."""

    APPLIED = "applied"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@attrs.frozen
class Answer:
    """What one call of a script reported."""

    number: int
    """From 1; a call that was skipped has no answer."""
    status: int
    verdict: Verdict
    detail: str
    """Why it was refused, or what leaves it unknown."""


@attrs.frozen
class Outcome:
    """Every call that was due has been applied."""

    answers: tuple[Answer, ...]


class _Doubt(Exception):
    """The script's report does not add up."""


def read(
    stderr: str,
    status: int | None,
    nonce: str,
    calls: Sequence[Call],
    *,
    settles_at: datetime.datetime | None = None,
) -> Outcome:
    """
    Return the outcome of a script that did all it should; otherwise raise what it came to.

    Args:
        stderr: All that the script printed there, foreign lines included.
        status: What it exited with; None when the transport failed and nobody knows.
        nonce: The script's own.
        calls: What the script was built of.
        settles_at: When an unknown outcome is settled; the error carries it.

    Raises:
        ExpiredError: the deadline check refused; nothing ran.
        RefusedError: the controller decided, and nothing is changed.
        RequeueBitMaybeSet: a requeue whose bit is not shown to be clear.
        OutcomeUnknown: anything else.

    """
    made = checked_calls(calls)
    checked_nonce(nonce)
    restores = any(call.always_if_attempted for call in made)
    try:
        answers = _answers(stderr, status, nonce, made)
    except _Doubt as doubt:
        raise _unknown(str(doubt), settles_at, restores=restores) from None
    verdicts = [answer.verdict for answer in answers]
    if all(verdict is Verdict.APPLIED for verdict in verdicts):
        return Outcome(answers)
    if restores:
        raise _of_requeue(answers, settles_at)
    raise _of_calls(answers, settles_at)


def _answers(
    stderr: str, status: int | None, nonce: str, calls: tuple[Call, ...]
) -> tuple[Answer, ...]:  # fmt: skip
    """Return the answers of the calls that ran; raise `_Doubt` when they cannot be right."""
    if status is None:
        why = f"what the script came to was not read: {_shown(stderr) or 'no connection'}"
        raise _Doubt(why)
    answers = []
    for number, (reported, text) in _reports(stderr, nonce).items():
        if number > len(calls):
            why = f"a status of call {number}, of {len(calls)}"
            raise _Doubt(why)
        answers.append(_judge(number, reported, text, calls[number - 1]))
    if [answer.number for answer in answers] != _due(calls, answers):
        why = f"statuses of the calls {[a.number for a in answers]}, which cannot be"
        raise _Doubt(why)
    if answers[-1].status != status:
        why = f"exit status {status}, and the last call reports {answers[-1].status}"
        raise _Doubt(why)
    return tuple(answers)


def _reports(stderr: str, nonce: str) -> dict[int, tuple[int, str]]:
    """Return status and output of each call by its number, in the order they came."""
    found: dict[int, tuple[int, str]] = {}
    end = 0
    while (start := stderr.find(_MARK, end)) >= 0:
        frame = _FRAME.match(stderr, start)
        if frame is None:
            why = f"a status line that is cut off or malformed: {_shown(stderr[start:])}"
            raise _Doubt(why)
        if frame[1] != nonce:
            why = "a status line with another script's nonce"
            raise _Doubt(why)
        number = int(frame[2])
        if number in found or any(number < earlier for earlier in found):
            why = f"the status of call {number} comes twice or out of order"
            raise _Doubt(why)
        found[number] = (int(frame[3]), stderr[end:start])
        end = frame.end()
    if not found:
        why = f"no status line: {_shown(stderr) or 'nothing was printed'}"
        raise _Doubt(why)
    if end != len(stderr):
        why = f"text after the last status line: {_shown(stderr[end:])}"
        raise _Doubt(why)
    return found


def _due(calls: tuple[Call, ...], answers: list[Answer]) -> list[int]:
    """Return the numbers of the calls that such answers let run."""
    statuses = {answer.number: answer.status for answer in answers}
    due = []
    for number, call in enumerate(calls, start=1):
        if call.only_if_previous and statuses.get(number - 1) != 0:
            continue
        if call.always_if_attempted and statuses.get(1) == EXPIRED:
            continue
        due.append(number)
    return due


def _judge(number: int, status: int, text: str, call: Call) -> Answer:
    """Return what one call came to; *text* is what was printed before its status line."""
    if status == 0:
        return Answer(number, status, Verdict.APPLIED, "")
    if status == EXPIRED and not text.strip():
        return Answer(number, status, Verdict.EXPIRED, "")
    reason = refusal(call.argv, status, text)
    if reason is not None:
        return Answer(number, status, Verdict.REFUSED, reason)
    if status in _KILLED:
        detail = "killed when its time was up; what it has sent may still land"
    else:
        detail = f"status {status}: {_shown(text) or 'nothing was printed'}"
    return Answer(number, status, Verdict.UNKNOWN, detail)


def _of_calls(
    answers: tuple[Answer, ...], settles_at: datetime.datetime | None
) -> DispatchError:  # fmt: skip
    """Return the error of a script that restores nothing."""
    verdicts = {answer.verdict for answer in answers}
    if verdicts == {Verdict.EXPIRED}:
        return ExpiredError("the host's clock had reached the deadline; nothing ran")
    if verdicts <= {Verdict.EXPIRED, Verdict.REFUSED}:
        return RefusedError(_first(answers, Verdict.REFUSED))
    said = "; ".join(f"call {a.number} {a.verdict.value} {a.detail}".rstrip() for a in answers)
    return _unknown(said, settles_at, restores=False)


def _of_requeue(
    answers: tuple[Answer, ...], settles_at: datetime.datetime | None
) -> DispatchError:  # fmt: skip
    """Return the error of a requeue: no clean refusal while the bit may still be set."""
    first, last = answers[0], answers[-1]
    if first.verdict is Verdict.EXPIRED:
        return ExpiredError("the host's clock had reached the deadline; nothing ran")
    cleared = last.number != first.number and last.verdict is Verdict.APPLIED
    kept = first.verdict is Verdict.REFUSED and last.verdict is Verdict.REFUSED
    middle = _of_middle(answers, settles_at)
    if first.verdict is Verdict.APPLIED and cleared and middle is not None:
        return middle
    if first.verdict is Verdict.REFUSED and last.number != first.number and (cleared or kept):
        return RefusedError(first.detail)
    said = "; ".join(f"call {a.number} {a.verdict.value} {a.detail}".rstrip() for a in answers)
    message = f"the requeue bit may be left set: {said}"
    return RequeueBitMaybeSet(message, settles_at=settles_at, result=middle)


def _of_middle(
    answers: tuple[Answer, ...], settles_at: datetime.datetime | None
) -> DispatchError | None:  # fmt: skip
    """Return what the requeue itself came to; None when it was skipped or applied."""
    for answer in answers[1:-1]:
        match answer.verdict:
            case Verdict.REFUSED:
                return RefusedError(answer.detail)
            case Verdict.EXPIRED:
                return ExpiredError("the deadline passed before the requeue; nothing is changed")
            case Verdict.UNKNOWN:
                return _unknown(answer.detail, settles_at, restores=False)
    return None


def _first(answers: tuple[Answer, ...], verdict: Verdict) -> str:
    return next(answer.detail for answer in answers if answer.verdict is verdict)


def _unknown(
    why: str, settles_at: datetime.datetime | None, *, restores: bool
) -> OutcomeUnknown:  # fmt: skip
    if restores:
        message = f"the requeue bit may be left set: {why}"
        return RequeueBitMaybeSet(message, settles_at=settles_at, result=None)
    return OutcomeUnknown(f"the call may or may not have happened: {why}", settles_at=settles_at)


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
