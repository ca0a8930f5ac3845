"""
How late a call that began in time can still land: the landing bound.

Source: the page "The deadline wrapper and the landing bound" of go/dispatch; the terms are
derived in the dispatch design, section 4.6.
"""

from __future__ import annotations

from typing import Final

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import finite_number, refuse

DEFAULT_BOUND_S: Final = 25.0
"""B: seconds after which a call is killed. It must exceed Slurm's MessageTimeout (10 s)."""
MUNGE_TTL_S: Final = 300.0
"""Life of a munge credential unless AuthInfo=ttl= says otherwise; measured to within 5 s."""
AUTH_SLURM_TTL_S: Final = 60.0
"""Life of a credential of auth/slurm, from Slurm's source; not measured."""
LONGEST_TTL_S: Final = 3600.0
"""munge caps the life of a credential at this."""
WHOLE_SECOND_S: Final = 1.0
"""
A credential is stamped and checked in whole seconds, and is good while now <= stamp + TTL:
it lives up to a second longer than its TTL.
"""

_TERMS: Final = ("bound_s", "ttl_s", "skew_s", "apply_slack_s")


@attrs.frozen(kw_only=True)
class LandingTerms:
    """
    What the landing bound is the sum of, in seconds.

    Raises:
        InvalidError: a term is negative, or only one of `offset_s` and `rtt_s` is given.

    """

    bound_s: float
    """B: the client is killed so long after the check; it may send again until then."""
    ttl_s: float
    """How long the controller takes the credential of a request that waited."""
    skew_s: float = 0.0
    """S: how far the clocks of the host and of the controller may differ."""
    offset_s: float | None = None
    """Over ssh: the host's clock minus ours; the deadline is in ours."""
    rtt_s: float | None = None
    """Over ssh: the round trip of reading the host's clock; half of it is the error."""
    apply_slack_s: float = 0.0
    """How long the controller may take to apply what it has read."""

    def __attrs_post_init__(self) -> None:
        """Check every term, and put plain numbers in their place."""
        for field in _TERMS:
            seconds = finite_number(InvalidError, field, getattr(self, field))
            object.__setattr__(self, field, seconds)
        if (self.offset_s is None) != (self.rtt_s is None):
            raise refuse(InvalidError, "rtt_s", self.rtt_s, "given together with offset_s")
        if self.offset_s is not None:
            finite_number(InvalidError, "offset_s", abs(self.offset_s))
            finite_number(InvalidError, "rtt_s", self.rtt_s)

    def parts(self) -> tuple[tuple[str, float], ...]:
        """Return every term that is added, with its name, in the order of the formula."""
        parts = [
            ("B", self.bound_s),
            ("TTL", self.ttl_s),
            ("whole second", WHOLE_SECOND_S),
            ("skew", self.skew_s),
        ]
        if self.offset_s is not None and self.rtt_s is not None:
            parts += [("|offset|", abs(self.offset_s)), ("round trip / 2", self.rtt_s / 2)]
        if self.apply_slack_s:
            parts.append(("apply slack", self.apply_slack_s))
        return tuple(parts)

    @property
    def total_s(self) -> float:
        """The landing bound."""
        return sum(seconds for _, seconds in self.parts())


def landing_bound(
    *,
    bound_s: float,
    ttl_s: float,
    skew_s: float = 0,
    offset_s: float | None = None,
    rtt_s: float | None = None,
    apply_slack_s: float = 0,
) -> float:
    """
    Return the seconds after its deadline at which a call has landed or never will.

    ``B + TTL + 1 + skew``, over ssh ``+ |offset| + round trip / 2``, and the slack; see
    `LandingTerms` for each. Raises `InvalidError` for a term that breaks its rule.
    """
    return LandingTerms(
        bound_s=bound_s,
        ttl_s=ttl_s,
        skew_s=skew_s,
        offset_s=offset_s,
        rtt_s=rtt_s,
        apply_slack_s=apply_slack_s,
    ).total_s
