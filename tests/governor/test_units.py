"""Sizes as people read and write them: one table, one meaning each."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon import GiB, KiB, MiB
from lardon.units import format_bytes, parse_size

UNITS: Final = {
    "": 1, "B": 1, "b": 1,
    "K": 2**10, "k": 2**10, "KiB": 2**10, "kib": 2**10, "KIB": 2**10,
    "M": 2**20, "m": 2**20, "MiB": 2**20, "mib": 2**20,
    "G": 2**30, "g": 2**30, "GiB": 2**30, "Gib": 2**30, "gib": 2**30,
    "T": 2**40, "t": 2**40, "TiB": 2**40,
    "KB": 10**3, "kB": 10**3, "kb": 10**3,
    "MB": 10**6, "mb": 10**6,
    "GB": 10**9, "gb": 10**9, "gB": 10**9,
    "TB": 10**12, "tb": 10**12,
}  # fmt: skip


def test_the_constants() -> None:
    assert (KiB, MiB, GiB) == (1024, 1024**2, 1024**3)


@pytest.mark.parametrize(("unit", "factor"), UNITS.items())
def test_every_unit_has_one_meaning(unit: str, factor: int) -> None:
    assert parse_size(f"2{unit}") == 2 * factor
    assert parse_size(f" 2 {unit} ") == 2 * factor
    assert parse_size(f"0{unit}") == 0
    if factor > 1:
        assert parse_size(f"1.5{unit}") == 3 * factor // 2
        assert parse_size(f".5{unit}") == factor // 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a size"),
        ("   ", "not a size"),
        ("G", "not a size"),
        ("-1G", "not a size"),
        ("+1G", "not a size"),
        ("1e9", "not a size"),
        ("1,5G", "not a size"),
        ("1.G", "not a size"),
        ("1_000", "not a size"),
        ("0x10", "not a size"),
        ("nan", "not a size"),
        ("1 2", "not a size"),
        ("\u0661G", "not a size"),
        ("2Gb", "reads as bits"),
        ("2Kb", "reads as bits"),
        ("2Mb", "reads as bits"),
        ("2Tb", "reads as bits"),
        ("2P", "unknown unit"),
        ("2bits", "unknown unit"),
        ("2Gi", "unknown unit"),
        ("2 bytes", "unknown unit"),
        ("1.5", "fraction of a byte"),
        ("1.0B", "fraction of a byte"),
    ],
)
def test_everything_else_is_an_error_that_shows_the_text(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        parse_size(text)

    assert repr(text) in str(caught.value)


def test_fractions_are_exact() -> None:
    assert parse_size("0.1GB") == 100_000_000
    assert parse_size("1.1T") == 11 * 2**40 // 10
    assert parse_size("9007199254740993") == 9007199254740993
    assert parse_size("9007199254740.993KB") == 9007199254740993


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (MiB - 1, "1024 KiB"),
        (GiB, "1 GiB"),
        (3 * GiB // 2, "1.5 GiB"),
        (2**50, "1 PiB"),
        (2**60, "1 EiB"),
        (2**70, "1024 EiB"),
        (2**99, "5.498e+11 EiB"),
        (2**100, "about 2^100 B"),
        (-GiB, "-1 GiB"),
        (-(2**200), "-about 2^200 B"),
    ],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_a_size_that_python_refuses_to_print_is_shown_too() -> None:
    assert format_bytes(10**5000) == "about 2^16609 B"


@given(st.integers(0, 2**80))
def test_a_size_that_is_shown_can_be_read_again(count: int) -> None:
    text = format_bytes(count)
    if text.endswith(("PiB", "EiB")) or "e" in text:
        return

    assert parse_size(text) == pytest.approx(count, rel=1e-3)
