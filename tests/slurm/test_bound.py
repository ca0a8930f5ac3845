"""The landing bound: its formula, and the figures of the page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.slurm.bound import LandingTerms, landing_bound

SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("terms", "total"),
    [
        ({"bound_s": 25, "ttl_s": 300, "skew_s": 2}, 328),
        ({"bound_s": 25, "ttl_s": 60, "skew_s": 2}, 88),
        ({"bound_s": 25, "ttl_s": 300}, 326),
        ({"bound_s": 25, "ttl_s": 300, "offset_s": -3, "rtt_s": 0.5}, 329.25),
        ({"bound_s": 25, "ttl_s": 300, "apply_slack_s": 4}, 330),
    ],
)
def test_the_worked_figures(terms: dict[str, float], total: float) -> None:
    """Dispatch design, 4.6: B 25, munge 300, S 2 is 328 s; auth/slurm is 88 s."""
    assert landing_bound(**terms) == total


@given(bound_s=SECONDS, ttl_s=SECONDS, skew_s=SECONDS, offset_s=st.floats(-1e6, 1e6), rtt_s=SECONDS)
def test_over_ssh_there_are_two_more_terms(
    bound_s: float, ttl_s: float, skew_s: float, offset_s: float, rtt_s: float
) -> None:
    """Seed 002: the offset between the two clocks, and half the round trip."""
    local = landing_bound(bound_s=bound_s, ttl_s=ttl_s, skew_s=skew_s)
    ssh = landing_bound(bound_s=bound_s, ttl_s=ttl_s, skew_s=skew_s, offset_s=offset_s, rtt_s=rtt_s)

    assert local == pytest.approx(bound_s + ttl_s + 1 + skew_s)
    assert ssh == pytest.approx(local + abs(offset_s) + rtt_s / 2)


def test_the_terms_are_named_and_add_up() -> None:
    terms = LandingTerms(bound_s=25, ttl_s=8, skew_s=1, offset_s=-2, rtt_s=0.2, apply_slack_s=3)

    assert terms.parts() == (
        ("B", 25),
        ("TTL", 8),
        ("whole second", 1),
        ("skew", 1),
        ("|offset|", 2),
        ("round trip / 2", 0.1),
        ("apply slack", 3),
    )
    assert terms.total_s == pytest.approx(40.1)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("bound_s", {"bound_s": -1}),
        ("ttl_s", {"ttl_s": float("inf")}),
        ("skew_s", {"skew_s": "2"}),
        ("apply_slack_s", {"apply_slack_s": -0.1}),
        ("rtt_s", {"offset_s": 1}),
        ("rtt_s", {"rtt_s": 1}),
        ("rtt_s", {"offset_s": 1, "rtt_s": -1}),
        ("offset_s", {"offset_s": float("nan"), "rtt_s": 1}),
    ],
)
def test_a_term_that_is_no_length_of_time_is_refused(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidError) as refused:
        landing_bound(**({"bound_s": 25, "ttl_s": 300} | change))

    assert refused.value.path == field
