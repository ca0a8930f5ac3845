"""Parsers of bytes: what they return for the kernel's own text, and for any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.governor.probes.cgroup_memory import (
    parse_limit_v1,
    parse_reclaimable_v1,
    parse_reclaimable_v2,
)
from lardon.governor.probes.cpus import parse_cpu_max, parse_quota_v1, rounded_up
from lardon.governor.probes.kernel_text import (
    amount,
    count_of_list,
    field,
    kibibytes,
    limit_or_none,
    whole_number,
)
from lardon.governor.probes.meminfo import HostMemory, MeminfoParser, parse_meminfo
from lardon.governor.probes.mounts import parse_membership, parse_mounts
from lardon.governor.probes.pressure import (
    load_parser,
    parse_load,
    parse_pressure,
    pressure_parser,
)
from lardon.governor.probes.process_limits import parse_limits, parse_status
from lardon.governor.probes.zfs import parse_arc

if TYPE_CHECKING:
    from collections.abc import Callable

RAISING: Final = (
    parse_limit_v1,
    parse_reclaimable_v1,
    parse_reclaimable_v2,
    parse_cpu_max,
    parse_quota_v1,
    amount,
    count_of_list,
    limit_or_none,
    whole_number,
    parse_meminfo,
    parse_load,
    parse_pressure,
    parse_limits,
    parse_status,
    parse_arc,
)
TOLERANT: Final = (parse_membership, parse_mounts)

# Texts that are nearly right do more harm than random bytes.
PIECES: Final = st.sampled_from(
    [
        *(b"MemTotal:", b"MemAvailable:", b"MemFree:", b"SwapTotal:", b"SwapFree:", b" kB", b"\n"),
        *(b"some avg10=", b"inactive_file ", b"total_inactive_file ", b"max", b"-1", b"0", b"12"),
        *(b" ", b"\t", b":", b",", b"-", b"/", b"cgroup2", b" - ", b"size", b"c_min", b"1e3"),
        *(b"Max address space         ", b"unlimited", b"9" * 30, b"\xff", b"VmSize:", b"nan"),
    ]
)
NEARLY: Final = st.lists(PIECES, max_size=20).map(b"".join)


@given(raw=st.one_of(st.binary(max_size=200), NEARLY))
def test_no_text_makes_a_parser_raise_anything_else(raw: bytes) -> None:
    """A parser says ValueError, and nothing else, to what it does not understand."""
    for parse in RAISING:
        try:
            parse(raw)
        except ValueError:
            continue
    for tolerant in TOLERANT:
        tolerant(raw)


def meminfo(total: int, available: int, swap_total: int, swap_free: int) -> bytes:
    return (
        f"MemTotal:       {total:>8} kB\nMemFree:        {available:>8} kB\n"
        f"MemAvailable:   {available:>8} kB\nBuffers:               0 kB\n"
        f"SwapCached:            0 kB\nSwapTotal:      {swap_total:>8} kB\n"
        f"SwapFree:       {swap_free:>8} kB\nDirty:                 0 kB\n"
    ).encode()


KIB: Final = st.integers(min_value=0, max_value=1 << 34)


@given(figures=st.lists(st.tuples(KIB, KIB, KIB, KIB), min_size=1, max_size=6))
def test_the_quick_parser_says_what_the_careful_one_says(
    figures: list[tuple[int, int, int, int]],
) -> None:
    """Whatever changed since the last text, and whether lines moved."""
    quick = MeminfoParser()
    for total, available, swap_total, swap_free in figures:
        raw = meminfo(total + 1, available, swap_total, swap_free)
        assert quick(raw) == parse_meminfo(raw)


@given(raws=st.lists(NEARLY, min_size=1, max_size=4), good=st.booleans())
def test_the_quick_parser_agrees_on_garbage_too(raws: list[bytes], good: bool) -> None:
    """Also on texts that nobody expects, after one that is as usual."""
    quick = MeminfoParser()
    for raw in [meminfo(1000, 500, 10, 5), *raws] if good else raws:
        try:
            expected: HostMemory | None = parse_meminfo(raw)
        except ValueError:
            expected = None
        try:
            found: HostMemory | None = quick(raw)
        except ValueError:
            found = None
        assert found == expected


def test_the_quick_parser_reads_only_what_changed() -> None:
    """It does not take the old available figure for the new one."""
    quick = MeminfoParser()
    assert quick(meminfo(1000, 500, 10, 5)).available_bytes == 500 * 1024
    assert quick(meminfo(1000, 400, 10, 5)) == (1000 * 1024, 400 * 1024, 10 * 1024, 5 * 1024, "")
    assert quick(meminfo(1000, 400, 10, 1)).swap_used_bytes == 9 * 1024
    assert quick(meminfo(900, 400, 10, 1)).total_bytes == 900 * 1024


@pytest.mark.parametrize("make", [pressure_parser, load_parser])
def test_a_leading_figure_follows_its_file(make: Callable[[], Callable[[bytes], float]]) -> None:
    """What stands behind the figure may change without it, and the figure without the rest."""
    parse = make()
    for figure, tail in ((1.5, 1), (1.5, 2), (12.25, 2), (0.0, 3)):
        if make is pressure_parser:
            raw = f"some avg10={figure:.2f} avg60=0.00 avg300=0.00 total={tail}\n"
        else:
            raw = f"{figure:.2f} 0.10 0.20 {tail}/90 1234\n"
        assert parse(raw.encode()) == figure


@pytest.mark.parametrize(
    ("text", "count"), [("0-3,8", 5), ("0", 1), ("7-7", 1), ("0-127\n", 128), ("5-3", 0)]
)
def test_lists_of_cpus(text: str, count: int) -> None:
    assert count_of_list(text.encode()) == count


@pytest.mark.parametrize("text", [b"1_000", b"+5", b"0x1f", b"1.0", b"", b"9" * 25])
def test_what_is_no_integer(text: bytes) -> None:
    """Python reads more as an integer than the kernel ever writes."""
    with pytest.raises(ValueError, match="not an integer"):
        whole_number(text)


def test_fields_begin_at_a_line() -> None:
    """`inactive_file` is not found inside `total_inactive_file`."""
    raw = b"total_inactive_file 5\ninactive_file 7\n"

    assert field(raw, b"inactive_file ") == b"7"
    assert field(raw, b"file ") is None
    assert kibibytes(b"VmSize:\t  12 kB\n", b"VmSize:") == 12 * 1024


@given(quota=st.integers(1, 10**9), period=st.integers(1, 10**6))
def test_quotas_round_up_exactly(quota: int, period: int) -> None:
    """The least number of whole CPUs that the quota fits into, at least one."""
    cpus = rounded_up(quota, period)

    assert cpus * period >= quota
    assert cpus == 1 or (cpus - 1) * period < quota
