"""`record_batch`, `save_history` and `load_history`."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, Final

import pytest

from lardon import DecisionKind, Governor, ResourceEstimate, ResourceSnapshot
from lardon.governor.batch_record import BatchRecord
from lardon.governor.history import MAX_KINDS, WINDOW
from lardon.governor.lesson import RETRY_AFTER
from lardon.testing import ScriptedProbe

MACHINE: Final = ResourceSnapshot(taken_at=0.0, ram_total_bytes=9, ram_available_bytes=9)


@pytest.fixture
def governor() -> Governor:
    return Governor(probe=ScriptedProbe(MACHINE))


def test_a_batch_is_remembered_as_it_was_told(governor: Governor) -> None:
    governor.record_batch("decode", 4, 1)
    governor.record_batch("decode", 2, 0.5, 100, 7, True)
    governor.record_batch("match", 1, 0.0, peak_ram_bytes=0)

    assert governor.history("decode") == (
        BatchRecord(items=4, duration_s=1.0),
        BatchRecord(items=2, duration_s=0.5, peak_ram_bytes=100, peak_gpu_bytes=7, failed=True),
    )
    assert governor.history("match")[0].peak_ram_bytes == 0
    assert governor.history("unheard of") == ()
    assert governor.statistics().history == {"decode": 2, "match": 1}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"items": 0}, "items"),
        ({"items": -1}, "items"),
        ({"items": 1.0}, "items"),
        ({"items": True}, "items"),
        ({"items": 2**128}, "items"),
        ({"duration_s": -0.1}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"duration_s": float("inf")}, "duration_s"),
        ({"duration_s": "1"}, "duration_s"),
        ({"duration_s": 1e300}, "duration_s"),
        ({"peak_ram_bytes": -1}, "peak_ram_bytes"),
        ({"peak_ram_bytes": 1.5}, "peak_ram_bytes"),
        ({"peak_ram_bytes": True}, "peak_ram_bytes"),
        ({"peak_ram_bytes": 10**5000}, "peak_ram_bytes"),
        ({"peak_gpu_bytes": -1}, "peak_gpu_bytes"),
        ({"peak_gpu_bytes": "0"}, "peak_gpu_bytes"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(
    governor: Governor, changes: dict[str, Any], field: str
) -> None:
    figures: dict[str, Any] = {"items": 1, "duration_s": 1.0, **changes}

    with pytest.raises(ValueError, match=f"^{field} must be "):
        governor.record_batch("decode", **figures)

    assert governor.history("decode") == ()


@pytest.mark.parametrize("kind", [None, 3, ("a", "b"), b"a", [], ""])
def test_a_kind_that_no_estimate_can_have_is_refused(
    governor: Governor, kind: Any, tmp_path: Path
) -> None:
    """One such name, and no history could be saved any more."""
    with pytest.raises(ValueError, match=r"^kind must be a text that is not empty, not "):
        governor.record_batch(kind, 1, 1.0)

    governor.save_history(tmp_path / "history.json")
    assert governor.statistics().history == {}


def test_the_newest_are_kept(governor: Governor) -> None:
    for items in range(1, WINDOW + 4):
        governor.record_batch("decode", items, 1.0)

    kept = [record.items for record in governor.history("decode")]
    assert kept == list(range(4, WINDOW + 4))


def test_the_kind_not_heard_of_longest_is_forgotten(governor: Governor) -> None:
    for number in range(MAX_KINDS):
        governor.record_batch(f"kind {number}", 1, 1.0)
    governor.record_batch("kind 0", 1, 1.0)
    governor.record_batch("one more", 1, 1.0)

    assert len(governor.statistics().history) == MAX_KINDS
    assert governor.history("kind 1") == ()
    assert len(governor.history("kind 0")) == 2


def test_what_is_saved_is_loaded(governor: Governor, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    governor.record_batch("decode", 4, 1.25, 100, None)
    governor.record_batch("décoder ✓", 1, 0.0, None, 2**70, True)
    governor.save_history(path)
    other = Governor(probe=ScriptedProbe(MACHINE))
    other.record_batch("old", 1, 1.0)
    before = other.generation

    other.load_history(str(path))

    assert other.statistics().history == {"decode": 1, "décoder ✓": 1}
    for kind in ("decode", "décoder ✓"):
        assert other.history(kind) == governor.history(kind)
    assert other.generation == before
    assert [found.name for found in tmp_path.iterdir()] == ["history.json"]


def test_a_saved_history_is_replaced_whole(governor: Governor, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text("something else")
    governor.save_history(path)

    assert json.loads(path.read_text()) == {"format": 1, "kinds": {}}


def test_a_saved_history_is_a_file_like_any_other(governor: Governor, tmp_path: Path) -> None:
    """As readable, and with a name as long as the system takes."""
    path, other = tmp_path / ("h" * 255), tmp_path / "other"
    other.write_text("")
    governor.save_history(path)

    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_a_history_that_cannot_be_written_leaves_nothing_behind(
    governor: Governor, tmp_path: Path
) -> None:
    folder = tmp_path / "history.json"
    (folder / "inside").mkdir(parents=True)

    with pytest.raises(OSError, match=r"history\.json"):
        governor.save_history(folder)
    with pytest.raises(FileNotFoundError):
        governor.save_history(tmp_path / "nowhere" / "history.json")
    with pytest.raises(OSError, match=r"\.lardon-"):
        governor.save_history("")

    assert [found.name for found in tmp_path.iterdir()] == ["history.json"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Expecting value"),
        ("[]", "not a lardon history of format 1"),
        ("{}", "not a lardon history of format 1"),
        ("[" * 200_000, "nested too deeply"),
        ('{"format": 2, "kinds": {}}', "not a lardon history of format 1"),
        ('{"format": 1}', "not valid"),
        ('{"format": 1, "kinds": []}', "not valid"),
        ('{"format": 1, "kinds": {"a": 3}}', "not valid"),
        ('{"format": 1, "kinds": {"a": [3]}}', "not valid"),
        ('{"format": 1, "kinds": {"a": [{"items": 1}]}}', "not valid"),
        ('{"format": 1, "kinds": {"a": [{"items": 0, "duration_s": 1}]}}', "items must be"),
        ('{"format": 1, "kinds": {"a": [{"items": 1, "duration_s": 1, "x": 1}]}}', "not valid"),
        ('{"format": 1, "kinds": {"a": [{"items": 1, "duration_s": NaN}]}}', "duration_s must be"),
        ('{"format": 1, "kinds": {"": [{"items": 1, "duration_s": 1}]}}', "kind must be"),
        (
            '{"format": 1, "kinds": {"a": [{"items": 1, "duration_s": 1, "well_since": -1}]}}',
            "well_since must be",
        ),
    ],
)
def test_a_file_that_is_no_history_changes_nothing(
    governor: Governor, tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    governor.record_batch("kept", 1, 1.0)

    with pytest.raises(ValueError, match=complaint):
        governor.load_history(path)
    with pytest.raises(FileNotFoundError):
        governor.load_history(tmp_path / "nowhere.json")

    assert governor.statistics().history == {"kept": 1}


def test_what_is_known_is_not_forgotten_for_what_is_not(governor: Governor) -> None:
    """An allocator that keeps a large batch's memory hides the need of all smaller ones after."""
    governor.record_batch("kind", 64, 1.0, 300)
    for _ in range(2 * WINDOW):
        governor.record_batch("kind", 8, 1.0)

    window = governor.history("kind")
    assert len(window) == WINDOW
    assert window[0].peak_ram_bytes == 300
    for items in range(WINDOW):
        governor.record_batch("kind", items + 1, 1.0, 5)
    assert [one.items for one in governor.history("kind")] == list(range(1, WINDOW + 1))


def test_an_unknown_peak_takes_the_oldest_place_where_all_are_known(governor: Governor) -> None:
    for items in range(1, WINDOW + 1):
        governor.record_batch("kind", items, 1.0, 5)
    governor.record_batch("kind", 1000, 1.0)
    governor.record_batch("kind", 1001, 1.0)

    kept = [one.items for one in governor.history("kind")]
    assert kept == [*range(2, WINDOW + 1), 1001]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("peak", [None, 0])
def test_a_failure_is_got_over_after_as_many_batches_where_peaks_are_unknown(
    governor: Governor, peak: int | None, saved: bool, tmp_path: Path
) -> None:
    """They take each other's place: the failure seemed as recent for ever, or was forgotten."""
    for _ in range(WINDOW):
        governor.record_batch("kind", 64, 1.0, 0)
    governor.record_batch("kind", 64, 1.0, peak, failed=True)
    largest = ResourceEstimate(max_batch=64, kind="kind")
    batches = []
    for _ in range(RETRY_AFTER):
        contract = governor.decide(largest).contract
        assert contract is not None
        batches.append(contract.batch_size)
        governor.record_batch("kind", 32, 1.0)
        if saved:
            governor.save_history(tmp_path / "history.json")
            governor.load_history(tmp_path / "history.json")

    assert batches == [32] * RETRY_AFTER
    assert governor.decide(largest).kind is DecisionKind.START
    window = governor.history("kind")
    assert (window[-2].failed, window[-2].well_since) == (True, RETRY_AFTER - 1)
    assert sum(one.peak_ram_bytes is not None and not one.failed for one in window) == WINDOW - 2


def test_another_failure_among_them_counts_for_nothing(governor: Governor) -> None:
    for _ in range(WINDOW - 1):
        governor.record_batch("kind", 64, 1.0, 0)
    governor.record_batch("kind", 64, 1.0, 0, failed=True)
    for _ in range(3):
        governor.record_batch("kind", 16, 1.0, failed=True)

    window = governor.history("kind")
    assert [one.well_since for one in window] == [0] * WINDOW
    assert [one.items for one in window if one.failed] == [64, 16, 16], "the last, and one more"
