"""JSON: exact figures under the names of the fields, and every name is documented."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lardon import GiB, GpuSnapshot, MiB, Policy, ReasonCode, ResourceEstimate
from lardon.cli.documents import as_json, written
from lardon.governor.reason import Reason
from lardon.testing import ScriptedProbe
from tests.cli.conftest import MACHINE

if TYPE_CHECKING:
    import pytest

    from lardon.cli.documents import Json
    from lardon.governor.probes.cgroup_memory import LevelReading
    from tests.cli.conftest import Command

PAGE: Final = Path(__file__).parents[2] / "docs" / "cli.md"
CARD: Final = GpuSnapshot(
    index=0, uuid="GPU-a", name="H100", total_bytes=80 * GiB, free_bytes=79 * GiB
)
SLICE: Final = GpuSnapshot(index=1, uuid="MIG-b", total_bytes=10 * GiB, free_bytes=None)


def keys_of(document: Json, *, below: str = "") -> set[str]:
    """Return the name of every key, but not those of a reason's facts."""
    if isinstance(document, list):
        return {key for item in document for key in keys_of(item)}
    if not isinstance(document, dict) or below == "facts":
        return set()
    found = set(document)
    for key, item in document.items():
        found |= keys_of(item, below=key)
    return found


def test_info_has_every_figure_exactly(command: Command) -> None:
    command.set(attrs.evolve(MACHINE, gpus=(CARD, SLICE), cpu_pressure=1.25, limits=("so",)))

    answer = command("info", "--json")
    found = json.loads(answer.out)

    assert answer.status == 0
    snapshot = found["snapshot"]
    assert snapshot["ram_total_bytes"] == 16 * GiB
    assert snapshot["ram_available_bytes"] == 11 * GiB
    assert (snapshot["cpu_pressure"], snapshot["io_pressure"]) == (1.25, None)
    assert snapshot["limits"] == ["so"]
    assert [gpu["mig"] for gpu in snapshot["gpus"]] == [False, True]
    assert snapshot["gpus"][1]["free_bytes"] is None
    assert (found["error"], found["contradiction"], found["warnings"]) == ("", None, [])
    assert found["policy"]["ram_reserve_bytes"] is None
    assert found["capacities"] == {
        "ram_reserve_bytes": 2 * GiB,
        "ram_capacity_bytes": 14 * GiB,
        "ram_on_offer_bytes": 9 * GiB,
        "cpu_capacity": 8,
        "io_slots": 1,
        "gpus": [
            {
                "uuid": "GPU-a",
                "reserve_bytes": 512 * MiB,
                "capacity_bytes": 80 * GiB - 512 * MiB,
            },
            {"uuid": "MIG-b", "reserve_bytes": 512 * MiB, "capacity_bytes": 10 * GiB - 512 * MiB},
        ],
    }


def test_explain_has_every_figure_exactly(command: Command) -> None:
    answer = command(
        "explain", "--ram", "4GiB", "--ram-per-item", "200MiB", "--batch", "1:64", "--json"
    )
    found = json.loads(answer.out)

    assert answer.status == found["exit_status"] == 10
    assert found["estimate"] == as_json(
        ResourceEstimate(ram_bytes=4 * GiB, ram_bytes_per_item=200 * MiB, max_batch=64)
    )
    assert found["decision"]["kind"] == "REDUCE_BATCH"
    assert found["decision"]["contract"] == {
        "batch_size": 25,
        "ram_bytes": 4 * GiB + 5000 * MiB,
        "gpu_bytes": 0,
        "gpus": [],
        "cpus": 1,
        "io_slots": 0,
        "sequence": 0,
    }
    assert found["decision"]["reason"]["code"] == "RAM_SHORT"
    assert found["decision"]["reason"]["facts"]["found"] == 9 * GiB
    assert found["lines"][0] == {
        "resource": "ram",
        "asked_least": 4 * GiB + 200 * MiB,
        "asked_most": 4 * GiB + 12800 * MiB,
        "total": 16 * GiB,
        "capacity": 14 * GiB,
        "reserve": 2 * GiB,
        "promised": 0,
        "available": 11 * GiB,
        "found": 9 * GiB,
        "verdict": "reduced",
    }


def test_every_key_is_documented(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has everything there is to tell."""
    from lardon.governor.probes.cgroup_memory import LevelReading as Reading

    class Full(ScriptedProbe):
        gpu_error = ""

        def memory_levels(self) -> tuple[LevelReading, ...]:
            return (Reading(GiB, "/limit", GiB, "/limit", 1, 2),)

        def files_read(self) -> tuple[str, ...]:
            return ("/limit",)

    command.use(lambda: Full(attrs.evolve(MACHINE, gpus=(CARD,))))
    shown: dict[str, Any] = {
        "info": json.loads(command("info", "--json").out),
        "explain": json.loads(command("explain", "--gpu", "1G", "--json").out),
    }
    monkeypatch.undo()

    assert shown["info"]["memory_levels"][0]["headroom_bytes"] == GiB
    text = PAGE.read_text(encoding="utf-8")
    documented = set(re.findall(r"\w+", text[text.index("## JSON") :]))
    for document in shown.values():
        assert keys_of(document) - documented == set()


def test_values_that_json_lacks() -> None:
    assert as_json(float("nan")) is None
    assert as_json(float("inf")) is None
    assert as_json(2**1023) == 2**1023
    assert as_json(10**5000) == "about 2^16609"
    assert as_json(ReasonCode.OK) == "OK"
    assert as_json(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)) == (
        "2026-01-02T03:04:05Z"
    )
    assert as_json({1: (Path("/a"), True)}) == {"1": ["/a", True]}
    assert as_json(Reason(code=ReasonCode.LOAD, text="so", facts={"found": 1})) == {
        "code": "LOAD",
        "text": "so",
        "facts": {"found": 1},
    }


def test_private_and_derived_fields_stay_inside() -> None:
    assert "_ram_terms" not in keys_of(as_json(Policy()))
    assert keys_of(as_json(ResourceEstimate())).isdisjoint({"ram_most", "_last_start"})


def test_json_is_ascii_and_keeps_every_name(command: Command) -> None:
    name = "réduction-π-🔧 \x1b[2J \udcff"
    command.set(attrs.evolve(MACHINE, gpus=(attrs.evolve(CARD, name=name),)))

    printed = command("info", "--json").out

    assert printed.isascii()
    assert "\x1b" not in printed
    assert json.loads(printed)["snapshot"]["gpus"][0]["name"] == name
    assert "\n" not in written({"a": [1, 2]}, one_line=True)
