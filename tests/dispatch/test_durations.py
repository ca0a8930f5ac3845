"""Durations in Go's text, there and back."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from lardon.dispatch.durations import format_duration, parse_duration
from lardon.dispatch.errors import InvalidError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("25s", 25),
        ("5m", 300),
        ("1h2m3.5s", 3723.5),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("10us", 1e-5),
        ("10\N{MICRO SIGN}s", 1e-5),
        ("10\N{GREEK SMALL LETTER MU}s", 1e-5),
        ("7ns", 7e-9),
        ("0", 0),
        ("-0", 0),
        ("+5s", 5),
        ("-1.5h", -5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("3s2m", 123),
        ("1m1m", 120),
        ("2562047h47m16.854775807s", 9223372036.854775807),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    """Seed 000, C2; dispatch.md, decisions: every form that is named there."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "5 s", " 5s", "5S", "5min", "5d", "1,5s", "1e3s", "--5s", "5s-", "1h 2m",
     "\N{ARABIC-INDIC DIGIT FIVE}s", "inf", "nan", ".s", "1..5s", "5s\n",
     "2562047h47m16.854775808s", "9" * 5000 + "s", "0." + "9" * 5000 + "s",
     5, 5.0, None, True, b"5s"],
)  # fmt: skip
def test_another_text_is_refused(text: Any) -> None:
    """Seed 000, C2: units are needed, spaces are none of Go's, and 64 bits are the end."""
    with pytest.raises(InvalidError) as caught:
        parse_duration(text, "callBound")

    assert caught.value.path == "callBound"


@hypothesis.given(st.integers(-(2**52) + 1, 2**52 - 1))
def test_nanoseconds_survive_there_and_back(nanoseconds: int) -> None:
    """Seed 000, C2: what is written is read as the same number, to the nanosecond."""
    seconds = nanoseconds / 10**9

    assert round(Fraction(parse_duration(format_duration(seconds))) * 10**9) == nanoseconds


@hypothesis.given(st.floats(-9e9, 9e9))
def test_every_number_of_seconds_can_be_written(seconds: float) -> None:
    """Seed 000, C2: rounded to whole nanoseconds, which is what Go keeps."""
    again = parse_duration(format_duration(seconds))

    assert again == pytest.approx(seconds, abs=1e-9, rel=1e-15)
    assert format_duration(again) == format_duration(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-0.0, "0s"), (25, "25s"), (90, "1m30s"), (3600, "1h"), (0.25, "0.25s"),
     (-1.5, "-1.5s"), (3723.5, "1h2m3.5s"), (1e-10, "0s"), (-1e-10, "0s")],
)  # fmt: skip
def test_a_duration_is_written_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
