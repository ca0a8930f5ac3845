"""What is scheduled: a job, and the stages of its waiting."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

import attrs

from lardon.governor.checks import shown

Artifact: TypeAlias = Hashable
"""What a worker may hold: the result of the job of this id, or anything else that is dear."""
WorkerId: TypeAlias = Hashable


class Stage(enum.StrEnum):
    """Who may take a job."""

    CACHE = "CACHE"
    """Only workers that hold its own result."""
    DEPS = "DEPS"
    """And those that hold at least one of its dependencies."""
    GLOBAL = "GLOBAL"
    """And every other worker."""
    PICKED = "PICKED"
    """Nobody: a worker has it."""
    FINISHED = "FINISHED"
    """Nobody: its result or its error is there."""


def _distinct(deps: Iterable[Artifact]) -> tuple[Artifact, ...]:
    if isinstance(deps, (str, bytes)):
        message = f"deps must be a collection of artifacts, not the text {shown(deps)}"
        raise TypeError(message)
    return tuple(dict.fromkeys(deps))


def _hashable(_job: Job, attribute: attrs.Attribute[Any], value: object) -> None:
    try:
        hash(value)
    except TypeError:
        message = f"{attribute.name} must be hashable, not {shown(value)}"
        raise TypeError(message) from None


@attrs.frozen
class Job:
    """
    One piece of work and the artifacts that make it cheap.

    The artifact that a job makes has the job's own id. Two jobs of one id are the same job:
    while one is unfinished, scheduling the other returns its handle.
    """

    id: Artifact = attrs.field(validator=_hashable)
    """Names the job and its result."""
    deps: tuple[Artifact, ...] = attrs.field(default=(), converter=_distinct)
    """Artifacts that the job reads, each once; a worker with any of them is preferred."""
    payload: Any = attrs.field(default=None, eq=False, repr=False)
    """Whatever the worker needs; the scheduler does not look at it."""


def several(ids: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """Return *ids* as a tuple; one text would be taken apart into letters."""
    if isinstance(ids, (str, bytes)):
        message = f"ids must be a collection of artifacts, not the text {shown(ids)}"
        raise TypeError(message)
    return tuple(ids)
