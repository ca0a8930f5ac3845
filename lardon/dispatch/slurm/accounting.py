"""What `sacct` knows of jobs that have left the queue."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final

import attrs

from lardon.dispatch.enums import State
from lardon.dispatch.slurm.listing import PREFIX
from lardon.dispatch.slurm.rows import JobRow
from lardon.dispatch.slurm.states import meaning

SEPARATOR: Final = "\x1f"
"""Between columns: a name or a folder may hold a bar or a comma, and no unit separator."""

FIELDS: Final = ("JobIDRaw", "JobID", "JobName", "UID", "State", "Submit", "ExitCode", "NodeList")
# Ids are used again, so that what is older than the job itself is not asked for.
_EARLIER: Final = datetime.timedelta(days=1)


# Crockford's base 32; the first ten characters of a ULID are milliseconds.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_CHARACTERS: Final = 10
_UNNAMED: Final = datetime.timedelta(days=7)


@attrs.frozen
class History:
    """What the accounting says of our jobs."""

    rows: tuple[JobRow, ...]
    ignored: int
    """Rows that are no job of ours: steps, arrays, other names, and what cannot be read."""


def history_script(names: Iterable[str], since: datetime.datetime, bound_s: float) -> str:
    """
    Return the script that asks for every run of the jobs of these names, in UTC.

    ``-X`` leaves the steps out, ``-D`` shows the earlier runs of a requeued job too.
    """
    start = (since - _EARLIER).strftime("%Y-%m-%dT%H:%M:%S")
    wanted = ",".join(sorted(set(names)))
    return (
        f"TZ=UTC0 timeout -s KILL {bound_s:g}s sacct -n -X -D -P "
        f"--delimiter=\"$(printf '\\037')\" --format={','.join(FIELDS)} "
        f'-u "$(id -u)" -S {start} --name={wanted} </dev/null\n'
    )


def parse_history(text: str, user_id: int) -> History:
    """
    Return the rows of the user *user_id* whose names are ours; the last run of each job.

    The row of a job decides. What its steps came to is not asked, and would be ignored. So is
    a run that is not over: who asks here was told by the queue that there is none. It was put
    back (REQUEUED) and goes on under another submit time, or its end was never written down.
    """
    newest: dict[tuple[int, int], JobRow] = {}
    ignored = 0
    for line in text.splitlines():
        row = _row(line.split(SEPARATOR), user_id)
        if row is None or meaning(row.states).state in {State.PENDING, State.RUNNING}:
            ignored += 1
        else:
            newest[row.job_id, row.submit_time] = row
    return History(tuple(newest.values()), ignored)


def _row(columns: list[str], user_id: int) -> JobRow | None:
    if len(columns) != len(FIELDS):
        return None
    raw, shown, name, uid, state, submit, exit_code, nodes = columns
    # A step is 7.batch, an element of an array 7_3 with a raw id of its own.
    if not raw.isdecimal() or raw != shown or uid != str(user_id) or not name.startswith(PREFIX):
        return None
    code, _, signal = exit_code.partition(":")
    try:
        submitted = datetime.datetime.fromisoformat(submit).replace(tzinfo=datetime.UTC)
        return JobRow(
            job_id=int(raw),
            name=name,
            user_id=user_id,
            submit_time=int(submitted.timestamp()),
            states=(state,),
            exit_code=int(code),
            signal=int(signal or 0) or None,
            nodes=() if nodes in {"", "None assigned"} else (nodes,),
            detail="from the accounting",
        )
    except ValueError:
        return None


def named_at(name: str, now: datetime.datetime) -> datetime.datetime:
    """Return when the job of *name* got its ULID, a week ago where the name holds none."""
    letters = name.removeprefix(PREFIX)[:_TIME_CHARACTERS]
    if len(letters) < _TIME_CHARACTERS or not set(letters) <= set(_ALPHABET):
        return now - _UNNAMED
    milliseconds = 0
    for letter in letters:
        milliseconds = milliseconds * 32 + _ALPHABET.index(letter)
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (ValueError, OverflowError):
        return now - _UNNAMED
