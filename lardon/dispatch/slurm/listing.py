"""
What `squeue --json` says, in the forms that its versions have.

A number was a number, and is an object with ``set`` and ``number`` since 23.02; the state of a
job was a text, and is a list since 23.11; an exit code was the status that wait(2) gives, and
is an object since 23.11. A form that is none of these is not read, and never taken for an
empty queue. Source: the fields of Slurm's OpenAPI plugins v0.0.38 to v0.0.41, and 22.05.8 tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from lardon.dispatch.slurm.faults import ClusterUnreachable, UnreadableAnswer
from lardon.dispatch.slurm.rows import JobRow

PREFIX: Final = "dj-"
"""What the names of all our jobs begin with."""

_SIGNAL_BITS: Final = 0x7F
_CODE_SHIFT: Final = 8
# "No value" in fields of 32 and 64 bits, as some versions print it.
_UNSET: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


@attrs.frozen
class Listing:
    """The jobs of ours in the queue."""

    rows: tuple[JobRow, ...]
    version: str
    foreign: int
    """How many rows are other people's, or have other names."""


def parse_listing(text: str, user_id: int) -> Listing:
    """
    Return the jobs of the user *user_id* whose names are ours.

    Raises:
        ClusterUnreachable: the command reports errors; it prints an empty list beside them
            and exits with 0.
        UnreadableAnswer: the form is not known, or a row that may be ours cannot be read.

    """
    document = _document(text)
    version = _version(document)
    if errors := document.get("errors"):
        message = f"squeue reports errors: {_said(errors)}"
        raise ClusterUnreachable(message)
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        why = "it has no list of jobs"
        raise _cannot_read(version, why)
    rows, foreign = [], 0
    for job in jobs:
        try:
            row = _row(job, user_id)
        except (KeyError, TypeError, ValueError) as error:
            why = f"a job has a form that is not known ({error})"
            raise _cannot_read(version, why) from None
        if row is None or row.is_part:
            foreign += 1
        else:
            rows.append(row)
    return Listing(tuple(rows), version, foreign)


def _document(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        why = f"it is no JSON object: {text[:80]!r}"
        raise _cannot_read(version="", why=why)
    return document


def _version(document: Mapping[str, Any]) -> str:
    meta = document.get("meta")
    slurm = (meta.get("Slurm") or meta.get("slurm")) if isinstance(meta, dict) else None
    release = slurm.get("release") if isinstance(slurm, dict) else None
    return release if isinstance(release, str) else ""


def _said(errors: object) -> str:
    if not isinstance(errors, list):
        return str(errors)[:200]
    words = ("description", "error", "source")
    texts = [
        " ".join(str(one[word]) for word in words if one.get(word))
        if isinstance(one, dict)
        else one
        for one in errors
    ]
    return "; ".join(map(str, texts))[:400]


def _cannot_read(version: str, why: str) -> UnreadableAnswer:
    name = version or "of an unknown version"
    message = f"squeue --json of Slurm {name} cannot be read: {why}"
    return UnreadableAnswer(message, version=version)


def _row(job: Mapping[str, Any], user_id: int) -> JobRow | None:
    """Return the row of a job, None when it is not ours; a wrong form is an error."""
    name = _text(job["name"])
    owner = _number(job["user_id"])
    if not name.startswith(PREFIX) or owner != user_id:
        return None
    code, signal = _exit(job.get("exit_code"))
    return JobRow(
        job_id=_needed(job["job_id"]),
        name=name,
        user_id=owner,
        submit_time=_needed(job["submit_time"]),
        eligible_time=_number(job["eligible_time"]) or 0,
        states=_words(job["job_state"]),
        reason=_text(job.get("state_reason")),
        requeue_bit=_flag(job["requeue"]),
        restarts=_number(job["restart_cnt"]) or 0,
        exit_code=code,
        signal=signal,
        nodes=_nodes(job),
        directory=_text(job.get("current_working_directory")),
        comment=_comment(job.get("comment")),
        detail=_text(job.get("state_description")),
        sluid=_text(job.get("sluid")) or None,
        is_part=bool(_number(job.get("array_job_id")) or _number(job.get("het_job_id"))),
    )


def _number(value: Any) -> int | None:
    """Return a number in either form, None for one that is not set."""
    if isinstance(value, dict):
        if not value["set"] or value.get("infinite"):
            return None
        value = value["number"]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"no number: {value!r}"
        raise TypeError(message)
    return None if value in _UNSET else value


def _needed(value: Any) -> int:
    number = _number(value)
    if number is None:
        message = "a number that is not set"
        raise ValueError(message)
    return number


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        message = f"no text: {value!r}"
        raise TypeError(message)
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return bool(_needed(value))


def _words(value: Any) -> tuple[str, ...]:
    """Return the words of a state: one text, or a list of the state and its flags."""
    words = tuple(value) if isinstance(value, list) else (value,)
    if not words or not all(isinstance(one, str) and one for one in words):
        message = f"no state: {value!r}"
        raise TypeError(message)
    return words


def _comment(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("job")
    return _text(value)


def _nodes(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where it runs, as the listing names it: a text, or an object with a list."""
    value = job.get("nodes")
    if isinstance(value, dict):
        value = value.get("list", value.get("nodes"))
    if isinstance(value, list):
        names = [one["name"] if isinstance(one, dict) else one for one in value]
        value = ",".join(names)
    text = _text(value)
    return (text,) if text else ()


def _exit(value: Any) -> tuple[int | None, int | None]:
    """Return exit code and signal."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal") or {}
        number = _number(signal.get("id", signal.get("signal_id")))
        return _number(value["return_code"]), number or None
    status = _number(value)
    if status is None:
        return None, None
    return status >> _CODE_SHIFT, status & _SIGNAL_BITS or None
