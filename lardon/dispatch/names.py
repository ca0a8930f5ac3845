"""The names that the objects of jobs bear, and which job an object of a name is of."""

from __future__ import annotations

import re
from typing import Final

from lardon.dispatch.ulid import is_ulid

_OF_A_JOB: Final = re.compile(r"dj-([0-9A-Z]{26})", re.ASCII)
# As many digits as a submission number may have: it stays below `EPOCH_BOUND`.
_OF_A_SUBMISSION: Final = re.compile(r"dj-([0-9a-z]{26})-s[1-9][0-9]{0,5}", re.ASCII)


def job_name(job: str) -> str:
    """Return the name that all objects of the job *job* share, where names may repeat."""
    return f"dj-{job}"


def submission_name(job: str, submission: int) -> str:
    """Return the name of one submission of the job *job*, where names are unique."""
    return f"dj-{job.lower()}-s{submission}"


def job_of(name: str, *, unique_names: bool) -> str | None:
    """
    Return the id of the job whose object has this name; None where the name is none of ours.

    Args:
        name: The name of an object.
        unique_names: Whether it comes from a backend whose names are unique.

    """
    found = (_OF_A_SUBMISSION if unique_names else _OF_A_JOB).fullmatch(name)
    job = None if found is None else found[1].upper()
    return job if job is not None and is_ulid(job) else None
