"""What Slurm's words for the state of a job mean here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from lardon.dispatch.enums import Cause, State

_SHORT: Final[Mapping[str, str]] = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}
# A job has one of these, and flags beside it.
_PENDING: Final = frozenset({"PENDING"})
_RUNNING: Final = frozenset({"RUNNING", "SUSPENDED"})
_ENDED: Final[Mapping[str, Cause]] = {
    "BOOT_FAIL": Cause.BOOT_FAIL,
    "CANCELLED": Cause.CANCELLED,
    "COMPLETED": Cause.COMPLETED,
    "DEADLINE": Cause.TIMEOUT,
    "FAILED": Cause.NON_ZERO_EXIT,
    "NODE_FAIL": Cause.NODE_LOST,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "PREEMPTED": Cause.PREEMPTED,
    "REVOKED": Cause.CANCELLED,
    "TIMEOUT": Cause.TIMEOUT,
}
_FLAGS_OF_PENDING: Final = frozenset(
    {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_FLAGS_OF_RUNNING: Final = frozenset(
    {"COMPLETING", "CONFIGURING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"}
    | {"RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "UPDATE_DB", "EXPEDITING"}
)
_LONG: Final = frozenset({*_PENDING, *_RUNNING, *_ENDED, *_FLAGS_OF_PENDING, *_FLAGS_OF_RUNNING})
# Slurm may put a job back for these by itself, when its requeue bit is set.
_MAY_COME_BACK: Final = frozenset({Cause.PREEMPTED, Cause.NODE_LOST, Cause.BOOT_FAIL})
_WORD: Final = re.compile(r"([A-Za-z_]+)(\+?)")


@attrs.frozen
class Meaning:
    """What the words of one job mean; `cause` is that of the state, as far as the words tell."""

    state: State
    cause: Cause | None
    completing: bool = False
    """Its execution is being taken down: a hold would be read wrongly afterwards."""


def word(text: str) -> str | None:
    """
    Return the long name of a state, None for one that is not known.

    ``CANCELLED by 1001`` is its first word, ``CG`` is COMPLETING, and a name that was cut to
    the width of a column (``CANCELLED+``, ``OUT_OF_ME+``) is the one that begins so.
    """
    first, *_ = text.split() or [""]
    found = _WORD.fullmatch(first)
    if found is None:
        return None
    name = found[1].upper()
    if name in _LONG or name in _SHORT:
        return _SHORT.get(name, name)
    if found[2]:
        longer = [one for one in _LONG if one.startswith(name)]
        return longer[0] if len(longer) == 1 else None
    return None


def meaning(texts: Iterable[str], *, requeue_bit: bool = False) -> Meaning:
    """
    Return what the state of a job means, given as one word or as several.

    A word that is not known makes the state `State.UNKNOWN`: neither running nor failed. An
    end for which Slurm puts a job back by itself is none while the job's requeue bit is set.
    """
    words = [word(text) for text in texts]
    if not words or None in words:
        return Meaning(State.UNKNOWN, Cause.UNKNOWN)
    names = {name for name in words if name is not None}
    completing = "COMPLETING" in names
    if names & _PENDING or names & _FLAGS_OF_PENDING:
        # A requeue that is under way counts as pending already.
        return Meaning(State.PENDING, None, completing=completing)
    if completing or names & _RUNNING or not names & set(_ENDED):
        return Meaning(State.RUNNING, None, completing=completing)
    cause = next(_ENDED[name] for name in sorted(names) if name in _ENDED)
    if requeue_bit and cause in _MAY_COME_BACK:
        return Meaning(State.PENDING, cause)
    return Meaning(State.ENDED, cause)
