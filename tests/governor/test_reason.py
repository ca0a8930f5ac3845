"""`Reason` and its facts: one sentence, figures that hold, nothing that can change."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from lardon import (
    GiB,
    Governor,
    MiB,
    Policy,
    Reason,
    ReasonCode,
    Reservation,
    ResourceEstimate,
    ResourceSnapshot,
)
from lardon.governor.reason import Fact, Facts
from lardon.testing import ScriptedProbe

OF_THE_PAGE = [
    "OK",
    "INVALID_SNAPSHOT",
    "STALE_SNAPSHOT",
    "RAM_CAPACITY",
    "GPU_CAPACITY",
    "NO_GPU",
    "CPU_CAPACITY",
    "IO_CAPACITY",
    "RAM_SHORT",
    "GPU_MEMORY_SHORT",
    "GPU_MEMORY_UNKNOWN",
    "GPUS_BUSY",
    "CPUS_BUSY",
    "IO_SLOTS_BUSY",
    "MEMORY_PRESSURE",
    "CPU_PRESSURE",
    "IO_PRESSURE",
    "LOAD",
    "PROBE_FAILED",
    "GOVERNOR_FAILED",
    "LEARNED",
    "FORECAST",
    "ZONE",
    "CALLBACK_RAISED",
    "CANCELLED",
]


def test_no_code_of_the_page_is_missing_renamed_or_moved() -> None:
    codes = list(ReasonCode)

    assert [code.name for code in codes][: len(OF_THE_PAGE)] == OF_THE_PAGE
    assert [code.value for code in codes] == [code.name for code in codes]


def test_only_a_wait_for_slots_ends_by_our_own_releases_alone() -> None:
    assert {code for code in ReasonCode if code.slots_only} == {
        ReasonCode.GPUS_BUSY,
        ReasonCode.CPUS_BUSY,
        ReasonCode.IO_SLOTS_BUSY,
    }


@pytest.mark.parametrize("code", ReasonCode)
def test_every_code_has_a_text_even_without_figures(code: ReasonCode) -> None:
    reason = Reason(code=code)

    assert reason.text
    assert "\n" not in reason.text
    assert str(reason) == reason.text


def test_a_given_text_stands() -> None:
    assert Reason(code=ReasonCode.RAM_SHORT, text="as I say").text == "as I say"


def test_the_facts_cannot_be_changed() -> None:
    given: dict[str, Fact] = {"asked": 1}
    facts: Any = Reason(code=ReasonCode.OK, facts=given).facts
    given["asked"] = 2

    assert facts == {"asked": 1}
    assert isinstance(facts, Facts)
    changes: tuple[Callable[[], object], ...] = (
        lambda: facts.__setitem__("asked", 2),
        lambda: facts.__delitem__("asked"),
        lambda: facts.__ior__({"asked": 2}),
        lambda: facts.update(asked=2),
        lambda: facts.setdefault("found", 2),
        lambda: facts.pop("asked"),
        facts.popitem,
        facts.clear,
    )
    for change in changes:
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert facts == {"asked": 1}


def test_facts_go_through_json_pickle_and_copy() -> None:
    reason = Reason(code=ReasonCode.CPUS_BUSY, facts={"asked": 2, "found": 0.5, "holders": "a, b"})

    assert json.loads(json.dumps(reason.facts)) == {"asked": 2, "found": 0.5, "holders": "a, b"}
    for again in (pickle.loads(pickle.dumps(reason)), copy.deepcopy(reason), copy.copy(reason)):  # noqa: S301  our own
        assert again == reason
        assert hash(again) == hash(reason)
        assert type(again.facts) is Facts
    assert copy.copy(reason.facts) is reason.facts
    assert copy.deepcopy(reason.facts) is reason.facts


def test_a_packed_start_equals_one_that_is_written_out() -> None:
    """A START keeps its facts as a tuple until somebody reads them; nobody can tell."""
    packed = Reason(code=ReasonCode.OK, facts=("ram", 1, 2, 3, 4, ""))
    plain = Reason(
        code=ReasonCode.OK,
        facts={"resource": "ram", "asked": 1, "found": 2, "limit": 3, "batch": 4, "holders": ""},
    )

    assert packed == plain
    assert hash(packed) == hash(plain)
    assert repr(packed) == repr(plain)
    assert packed.text == plain.text
    assert pickle.loads(pickle.dumps(packed)) == plain  # noqa: S301  our own


def test_figures_too_long_to_print_are_told_as_powers() -> None:
    reason = Reason(code=ReasonCode.CPU_CAPACITY, facts={"asked": 2**20_000, "limit": 4})

    assert reason.facts["asked"] == "about 2^20000"
    assert reason.facts["limit"] == 4
    assert "about 2^20000" in reason.text
    assert json.dumps(reason.facts)
    kept = Reason(code=ReasonCode.CPU_CAPACITY, facts={"asked": 2**1024 - 1})
    assert kept.facts["asked"] == 2**1024 - 1


@pytest.mark.parametrize(
    ("code", "more", "less"),
    [
        (ReasonCode.RAM_CAPACITY, "asked", "limit"),
        (ReasonCode.RAM_SHORT, "asked", "found"),
        (ReasonCode.GPU_MEMORY_SHORT, "asked", "found"),
        (ReasonCode.GPU_CAPACITY, "bytes", "capacity"),
    ],
)
def test_a_difference_of_one_byte_shows_in_the_text(code: ReasonCode, more: str, less: str) -> None:
    """The figures of the sentence satisfy what it states, also where rounding hides it."""
    text = Reason(code=code, facts={more: 8 * GiB + 1, less: 8 * GiB}).text

    assert "8589934593 B" in text
    assert "8589934592 B" in text


def test_sizes_that_differ_when_rounded_are_shown_rounded() -> None:
    text = Reason(code=ReasonCode.RAM_SHORT, facts={"asked": 9 * GiB, "found": 8 * GiB}).text

    assert "needs 9 GiB of RAM, 8 GiB on offer" in text


def test_unknown_figures_of_a_card_are_not_shown_as_zero() -> None:
    facts: dict[str, Fact] = {"asked": 9, "found": 8, "available": 8, "reserve": 0, "promised": 0}
    text = Reason(code=ReasonCode.GPU_MEMORY_SHORT, facts=facts).text

    assert "capacity" not in text
    assert "others" not in text
    known = Reason(code=ReasonCode.GPU_MEMORY_SHORT, facts={**facts, "limit": 0, "others": 0}).text
    assert "in use by others 0 B, capacity 0 B" in known


def test_a_single_item_is_spelled_as_one() -> None:
    assert "a batch of 1 item needs" in Reason(code=ReasonCode.RAM_SHORT).text
    assert "a batch of 2 items" in Reason(code=ReasonCode.RAM_SHORT, facts={"batch": 2}).text


def test_a_budget_that_is_partly_reserved_says_so() -> None:
    """Without that term the sum would not come to what it says is on offer."""
    probe = ScriptedProbe(
        ResourceSnapshot(
            taken_at=0.0, ram_total_bytes=24 * GiB, ram_available_bytes=22 * GiB, cpus=2
        )
    )
    governor = Governor(Policy(ram_limit_bytes=256 * MiB), probe=probe)
    asked = ResourceEstimate(ram_bytes=160 * MiB)

    with governor.reserve(ResourceEstimate(ram_bytes=192 * MiB), holder="neighbour")[1] or fail():
        reason = governor.decide(asked).reason

    assert reason.code is ReasonCode.RAM_SHORT
    assert "capacity 256 MiB less 192 MiB reserved; held by neighbour" in reason.text
    assert reason.facts["found"] == 64 * MiB
    assert "reserved" not in governor.decide(asked).reason.text


def fail() -> Reservation:
    pytest.fail("nothing was reserved")
