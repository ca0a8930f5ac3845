"""What a cluster says about itself: its version, its credentials, its accounting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from lardon.dispatch.slurm.bound import AUTH_SLURM_TTL_S, LONGEST_TTL_S, MUNGE_TTL_S
from lardon.dispatch.slurm.faults import UnreadableAnswer

SCRIPT: Final = """\
printf 'uid=%s\\n' "$(id -u)"
printf 'sacct=%s\\n' "$(command -v sacct)"
TZ=UTC0 timeout -s KILL {bound}s scontrol show config </dev/null
"""
"""Prints what `facts_of` reads; it changes nothing."""

_LINE: Final = re.compile(r"([A-Za-z_]\w*)\s*=\s?(.*)")
_NUMBER: Final = re.compile(r"\d+")
_TTL: Final = re.compile(r"(?:^|,)\s*ttl=(\d+)", re.IGNORECASE)
_DEFAULT_TTLS_S: Final = {"auth/munge": MUNGE_TTL_S, "auth/slurm": AUTH_SLURM_TTL_S}


@attrs.frozen(kw_only=True)
class ClusterFacts:
    """What was read; None is what the cluster does not say."""

    version: str
    cluster: str
    user_id: int
    """Who we are there: only that user's jobs are ours."""
    auth_type: str
    ttl_s: float | None
    """How long a credential lives; None for a kind of credential that is not known here."""
    message_timeout_s: float | None
    min_job_age_s: float | None
    """How long an ended job can still be asked about."""
    accounting: bool
    """Whether `sacct` is there and the cluster keeps a history for it."""


def facts_of(text: str) -> ClusterFacts:
    """
    Return the facts in what `SCRIPT` printed.

    Raises:
        UnreadableAnswer: the configuration is not there, or in another form.

    """
    found = {
        match[1].lower(): match[2].strip()
        for match in map(_LINE.fullmatch, text.splitlines())
        if match
    }
    version = found.get("slurm_version", "")
    if not version or not found.get("uid", "").isdecimal():
        message = f"scontrol show config printed no configuration: {' '.join(text.split())[:200]}"
        raise UnreadableAnswer(message, version=version)
    storage = found.get("accountingstoragetype", "")
    return ClusterFacts(
        version=version,
        cluster=found.get("clustername", ""),
        user_id=int(found["uid"]),
        auth_type=found.get("authtype", ""),
        ttl_s=_ttl(found),
        message_timeout_s=_seconds(found.get("messagetimeout")),
        min_job_age_s=_seconds(found.get("minjobage")),
        accounting=bool(found.get("sacct")) and storage.endswith("slurmdbd"),
    )


def _ttl(found: Mapping[str, str]) -> float | None:
    """Return the life of a credential: what AuthInfo says, or what its kind has by itself."""
    default = _DEFAULT_TTLS_S.get(found.get("authtype", ""))
    given = _TTL.search(found.get("authinfo", ""))
    if given is None or not int(given[1]):
        return default
    return min(float(given[1]), LONGEST_TTL_S)


def _seconds(text: str | None) -> float | None:
    number = _NUMBER.match(text or "")
    return float(number[0]) if number else None
