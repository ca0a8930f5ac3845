"""
The script that stops a late call from starting: the deadline wrapper.

Source: the page "The deadline wrapper and the landing bound" of go/dispatch, and the dispatch
design, sections 4.2 and 4.5. Pure functions of their arguments: no clock, process or host.
"""

from __future__ import annotations

import datetime
import math
import re
import shlex
from collections.abc import Sequence
from typing import Final

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import finite_number, refuse, whole_number

EXPIRED: Final = 75
"""What a call reports that its deadline check refused: EX_TEMPFAIL of sysexits.h."""
LONGEST_BOUND_S: Final = 86_400.0
"""A call that may take longer than a day is bounded by nothing."""

_NONCE: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_JOB_ID: Final = re.compile(r"[1-9]\d{0,9}", re.ASCII)
# GNU timeout (9.1) installs a handler for HUP, and exec resets a handled signal to its
# default: what `trap` ignored outside would end the call inside. So both are ignored again,
# behind timeout. With sh and not `env --ignore-signal`, which coreutils have since 8.31 only.
_SHIELD: Final = 'sh -c \'trap "" HUP PIPE; exec "$0" "$@"\''


def _argv(value: Sequence[str]) -> tuple[str, ...]:
    rule = "the texts of a command line, the program first, none with a NUL"
    if isinstance(value, (str, bytes)):
        raise refuse(InvalidError, "argv", value, rule)
    argv = tuple(value)
    if not argv or not all(isinstance(text, str) and "\0" not in text for text in argv):
        raise refuse(InvalidError, "argv", value, rule)
    if not argv[0] or argv[0].startswith("-"):
        raise refuse(InvalidError, "argv", value, rule)
    return argv


@attrs.frozen
class Call:
    """
    One changing call of a script, behind its own deadline check.

    Raises:
        InvalidError: the command line is empty or holds a NUL, or both conditions are set.

    """

    argv: tuple[str, ...] = attrs.field(converter=_argv)
    """The command line, the program first."""
    only_if_previous: bool = attrs.field(default=False, kw_only=True)
    """Run only when the call before it returned 0."""
    always_if_attempted: bool = attrs.field(default=False, kw_only=True)
    """Run whenever the first call was attempted at all, whatever came of the others."""

    def __attrs_post_init__(self) -> None:
        """Refuse a call that is bound to two conditions."""
        if self.only_if_previous and self.always_if_attempted:
            rule = "False where always_if_attempted is True"
            raise refuse(InvalidError, "only_if_previous", self.only_if_previous, rule)


def checked_job_id(value: object) -> str:
    """Return the id of a Slurm job, a number from 1 on, as text; or raise `InvalidError`."""
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if _JOB_ID.fullmatch(text) is None:
        raise refuse(InvalidError, "job_id", value, "the number of a job, at least 1")
    return text


def requeue_calls(job_id: int | str) -> tuple[Call, Call, Call]:
    """
    Return the three calls of a requeue: set the bit, requeue, clear the bit.

    Jobs are submitted with ``--no-requeue``, so the bit is set for the length of the script.
    The third call runs even when the answer of the first was lost.
    """
    job = checked_job_id(job_id)
    return (
        Call(("scontrol", "update", f"JobId={job}", "Requeue=1")),
        Call(("scontrol", "requeue", job), only_if_previous=True),
        Call(("scontrol", "update", f"JobId={job}", "Requeue=0"), always_if_attempted=True),
    )


def checked_calls(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return *calls*, or raise `InvalidError` when no script can be made of them."""
    rule = "at least one Call, the first of them without a condition"
    made = tuple(calls)
    if not made or not all(isinstance(call, Call) for call in made):
        raise refuse(InvalidError, "calls", calls, rule)
    if made[0].only_if_previous or made[0].always_if_attempted:
        raise refuse(InvalidError, "calls", calls, rule)
    return made


def checked_nonce(nonce: object) -> str:
    """Return *nonce*, or raise `InvalidError` when it is not 32 lower-case hex digits."""
    if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
        raise refuse(InvalidError, "nonce", nonce, "32 lower-case hexadecimal digits")
    return nonce


def checked_bound(bound_s: object) -> float:
    """Return *bound_s*, or raise `InvalidError` when it is not within a second and a day."""
    seconds = finite_number(InvalidError, "bound_s", bound_s, above=0)
    if not 1 <= seconds <= LONGEST_BOUND_S:
        rule = f"from 1 to {LONGEST_BOUND_S:.0f} seconds"
        raise refuse(InvalidError, "bound_s", bound_s, rule)
    return seconds


def build(
    calls: Sequence[Call], deadline: datetime.datetime, bound_s: float, nonce: str
) -> str:  # fmt: skip
    """
    Return the POSIX script that makes *calls*, none of which begins at or after *deadline*.

    The check is made by the host that runs the script, on its own clock. Each call is killed
    *bound_s* seconds after it began, and reports its status on stderr in a line that only
    `lardon.dispatch.slurm.reader` takes for one. The status of the last call is the script's.

    Args:
        calls: What to run, in order; see the conditions of `Call`.
        deadline: An aware datetime, on the clock of the host.
        bound_s: Seconds from 1 to 86400; it must exceed Slurm's MessageTimeout (10 s).
        nonce: 32 random lower-case hex digits, new for each script.

    Raises:
        InvalidError: an argument breaks its rule.

    """
    made = checked_calls(calls)
    checked_nonce(nonce)
    bound = f"{checked_bound(bound_s):.3f}".rstrip("0").rstrip(".")
    latest = last_second(deadline)
    lines = ["trap '' PIPE HUP"]
    attempted = any(call.always_if_attempted for call in made)
    if attempted:
        lines.append("_dsl_a=0")
    for number, call in enumerate(made, start=1):
        block = _one_call(
            call, number, latest=latest, bound=bound, nonce=nonce,
            note_attempt=attempted and number == 1,
        )  # fmt: skip
        followed = number < len(made) and made[number].only_if_previous
        lines += _guarded(call, [*block, "_dsl_p=$_dsl_s"] if followed else block)
    lines.append('exit "$_dsl_s"')
    return "\n".join(lines) + "\n"


def last_second(deadline: datetime.datetime) -> int:
    """
    Return the last whole second, in Unix time, that lies wholly before *deadline*.

    A clock that is cut to whole seconds and shows this or less is before the deadline. The
    fraction of a deadline is cut too: a call may be refused up to a second early, never late.
    """
    if not isinstance(deadline, datetime.datetime) or deadline.tzinfo is None:
        raise refuse(InvalidError, "deadline", deadline, "an aware datetime")
    return whole_number(InvalidError, "deadline", math.floor(deadline.timestamp()), 1) - 1


def _one_call(
    call: Call, number: int, *, latest: int, bound: str, nonce: str, note_attempt: bool
) -> list[str]:
    """Return the lines that check the deadline, run the call and report it."""
    command = shlex.join(call.argv)
    return [
        f"_dsl_s={EXPIRED}",
        f'if [ "$(date +%s)" -le {latest} ]; then',
        *(["  _dsl_a=1"] if note_attempt else []),
        f"  TZ=UTC0 timeout -s KILL {bound}s {_SHIELD} {command} </dev/null",
        "  _dsl_s=$?",
        "fi",
        f"printf '\\036DSL {nonce} call {number} %d\\n' \"$_dsl_s\" >&2",
    ]


def _guarded(call: Call, block: list[str]) -> list[str]:
    """Return *block* under the call's condition; a call that is skipped reports nothing."""
    if call.only_if_previous:
        condition = '[ "$_dsl_p" -eq 0 ]'
    elif call.always_if_attempted:
        condition = '[ "$_dsl_a" -eq 1 ]'
    else:
        return block
    return [f"if {condition}; then", *block, "fi"]
