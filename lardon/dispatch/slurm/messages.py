"""
Which error texts of Slurm's commands are decisions of the controller.

A text that is not listed here leaves the outcome unknown: the commands print failures of the
communication in the same form as refusals. Source: the dispatch design, section 4.4 (read in
Slurm 24.11 to 26.11), and what Slurm 22.05.8 printed in `tests/slurm`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

UPDATE_REFUSALS: Final = frozenset(
    {
        "Invalid job id specified",
        "Job has already finished",
        "Job is no longer pending execution",
        "Job is pending execution",
        "Requested operation is presently disabled",
        "Access/permission denied",
        "Invalid user id",
        "Only batch jobs are accepted or processed",
        "Job can not be altered now, try again later",
        "Job/step already completing or completed",
        "Cannot modify scrontab jobs through scontrol",
    }
)
"""What `scontrol update` and `scontrol requeue` print when the controller decided."""

SUBMIT_REFUSALS: Final = frozenset(
    {
        "Access/permission denied",
        "Invalid account or account/partition combination specified",
        "Invalid feature specification",
        "Invalid generic resource (gres) specification",
        "Invalid partition name specified",
        "Invalid qos specification",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "Memory required by task is not available",
        "More processors requested than permitted",
        "Node count specification invalid",
        "Requested node configuration is not available",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "User's group not permitted to use this partition",
    }
)
"""What `sbatch` gives as the reason of a submission that the controller turned down."""

_SUBMIT_REASON: Final = re.compile(r"sbatch: error: Batch job submission failed: (.+)")
# What the controller says first, about the thing that it then refuses for.
_SUBMIT_PRELUDE: Final = re.compile(
    r"sbatch: error: (?:Memory specification can not be satisfied"
    r"|CPU count per node can not be satisfied"
    r"|Node count specification invalid"
    r"|invalid partition specified: \S+)"
)
_CANCEL_REASON: Final = re.compile(r"scancel: error: Kill job error on job id (\d+): (.+)")
_CANCEL_STATUSES: Final = frozenset({1, 210})
_UPDATED: Final = re.compile(r"JobId=(\d+)", re.ASCII)
# These two print a second line, about the call and not about the job.
_TWO_LINES: Final = frozenset({"hold", "release"})
_SECOND_LINE: Final = "slurm_suspend error: "


def job_of(argv: Sequence[str]) -> str:
    """Return the id of the job that a command line is about; empty for a submission."""
    if argv[0] == "scancel":
        return argv[-1]
    if argv[0] != "scontrol" or len(argv) < 3:  # noqa: PLR2004  scontrol, what, whom
        return ""
    found = _UPDATED.fullmatch(argv[2])
    return found[1] if found else argv[2]


def refusal(argv: Sequence[str], status: int, text: str) -> str | None:
    """
    Return the reason for which the controller refused, or None when that is not certain.

    Args:
        argv: The command line that was run.
        status: What it exited with.
        text: All that it printed on stderr. Every line must be a known one, about this job.

    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines or status == 0:
        return None
    match argv[0]:
        case "scontrol" if status == 1:
            return _update_refusal(argv, lines)
        case "sbatch" if status == 1:
            return _submit_refusal(lines)
        case "scancel" if status in _CANCEL_STATUSES:
            return _cancel_refusal(argv, lines)
        case _:
            return None


def _update_refusal(argv: Sequence[str], lines: list[str]) -> str | None:
    suffix = f" for job {job_of(argv)}"
    reasons = []
    for line in lines:
        if line.endswith(suffix) and line.removesuffix(suffix) in UPDATE_REFUSALS:
            reasons.append(line.removesuffix(suffix))
        elif not (_is_second_line(argv, line) and line.removeprefix(_SECOND_LINE) in reasons):
            return None
    return reasons[0] if reasons else None


def _is_second_line(argv: Sequence[str], line: str) -> bool:
    return len(argv) > 1 and argv[1] in _TWO_LINES and line.startswith(_SECOND_LINE)


def _submit_refusal(lines: list[str]) -> str | None:
    found = _SUBMIT_REASON.fullmatch(lines[-1])
    if found is None or found[1] not in SUBMIT_REFUSALS:
        return None
    return found[1] if all(map(_SUBMIT_PRELUDE.fullmatch, lines[:-1])) else None


def _cancel_refusal(argv: Sequence[str], lines: list[str]) -> str | None:
    reasons = set()
    for line in lines:
        found = _CANCEL_REASON.fullmatch(line)
        if found is None or found[1] != job_of(argv) or found[2] not in UPDATE_REFUSALS:
            return None
        reasons.add(found[2])
    return reasons.pop() if len(reasons) == 1 else None
