"""
Records: values that can be stored and loaded, each replaced only by who has seen the last.

"A record of each job (submissions, attempts, refs, pending unknown outcomes with settles_at),
values that can be stored and loaded" (the issue).
"""

from __future__ import annotations

import builtins
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings

from lardon.dispatch import InvalidError, MissingExtra, StoreAway
from lardon.dispatch import record_text as text_module
from lardon.dispatch.job_record import JobRecord
from lardon.dispatch.record_text import from_text, to_text
from lardon.dispatch.records import FileRecords, MemoryRecords, RecordConflict, Records
from tests.dispatch.core_values import JOB, NOW, a_record, records


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    return MemoryRecords() if request.param == "memory" else FileRecords(tmp_path / "jobs")


@given(records)
@settings(max_examples=100)
def test_a_record_is_read_back_as_it_was_written(record: JobRecord) -> None:
    assert from_text(to_text(record)) == record
    assert from_text(to_text(record).encode()) == record


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text + "{}",
        lambda text: text.replace('"format":1', '"format":2'),
        lambda text: text.replace('"label":""', '"lable":""'),
        lambda text: text.replace('"nodes":1', '"nodes":"1"'),
        lambda text: text.replace('"nodes":1', '"nodes":0'),
        lambda text: text.replace("+00:00", ""),
        lambda _: "null",
        lambda _: "",
    ],
)
def test_what_is_no_record_is_refused(spoil: Callable[[str], str]) -> None:
    with pytest.raises(InvalidError, match="record must be the JSON of a job record"):
        from_text(spoil(to_text(a_record())))


def test_a_record_is_plain_json() -> None:
    content = json.loads(to_text(a_record(label="é")))
    assert content["job"]["label"] == "é"
    assert content["job"]["created_at"] == NOW.isoformat()


def test_without_cattrs_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cattrs":
            raise ModuleNotFoundError(name="cattrs")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    text_module._converter.cache_clear()
    with pytest.raises(MissingExtra, match=r"lardon\[dispatch\]"):
        to_text(a_record())


def test_a_record_is_replaced_only_by_who_has_seen_the_last(store: Records) -> None:
    first = store.save(a_record())
    assert first.version == 1
    assert store.load(JOB) == first
    second = store.save(attrs.evolve(first, label="b"))
    with pytest.raises(RecordConflict) as caught:
        store.save(attrs.evolve(first, label="c"))

    assert (caught.value.job, caught.value.expected, caught.value.found) == (JOB, 1, 2)
    assert store.load(JOB) == second
    with pytest.raises(RecordConflict):
        store.save(a_record())


def test_a_record_that_was_forgotten_is_gone(store: Records) -> None:
    store.save(a_record())
    assert store.jobs() == [JOB]
    store.forget(JOB)
    store.forget(JOB)
    assert store.load(JOB) is None
    assert store.jobs() == []
    assert store.save(a_record()).version == 1


def test_of_many_writers_at_one_time_one_wins(store: Records) -> None:
    first = store.save(a_record())
    gate, wins = threading.Barrier(8), []

    def write(place: int) -> None:
        gate.wait(10)
        try:
            wins.append(store.save(attrs.evolve(first, label=str(place))))
        except RecordConflict:
            return

    threads = [threading.Thread(target=write, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(wins) == 1
    assert store.load(JOB) == wins[0]


def test_two_stores_of_one_folder_see_each_others_records(tmp_path: Path) -> None:
    one, two = FileRecords(tmp_path), FileRecords(tmp_path)
    first = one.save(a_record())
    assert two.load(JOB) == first
    second = two.save(attrs.evolve(first, label="b"))
    assert one.load(JOB) == second
    with pytest.raises(RecordConflict):
        one.save(attrs.evolve(first, label="c"))


def test_a_crash_in_the_middle_of_a_write_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileRecords(tmp_path)
    first = store.save(a_record())

    def crash(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        store.save(attrs.evolve(first, label="b"))
    monkeypatch.undo()

    assert FileRecords(tmp_path).load(JOB) == first
    assert FileRecords(tmp_path).jobs() == [JOB]
    assert store.save(attrs.evolve(first, label="b")).label == "b"


def test_a_file_that_is_no_record_is_an_error_that_says_so(tmp_path: Path) -> None:
    store = FileRecords(tmp_path)
    store.save(a_record())
    (tmp_path / f"{JOB}.json").write_text("{", encoding="utf-8")
    with pytest.raises(InvalidError) as caught:
        store.load(JOB)
    assert caught.value.path == str(tmp_path / f"{JOB}.json")


@pytest.mark.parametrize("job", ["../../secret", "", "x"])
def test_a_name_that_is_no_id_reaches_no_file(tmp_path: Path, job: str) -> None:
    with pytest.raises(InvalidError):
        FileRecords(tmp_path).load(job)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spec", None),
        ("objects", [3]),
        ("objects", 3),
        ("notes", {"a": 1}),
        ("notes", 3),
        ("lease", "one"),
        ("created_at", "now"),
    ],
)
def test_a_wrong_field_of_a_record_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidError) as caught:
        a_record(**{field: value})

    assert caught.value.path.startswith(field)


def test_a_file_that_looks_like_the_old_one_is_read_again(tmp_path: Path) -> None:
    """
    The number of a replaced file is given again, and times of change can be coarse.

    Who took the old record for the stored one would overwrite what came between.
    """
    mine, other = FileRecords(tmp_path), FileRecords(tmp_path)
    first = other.save(a_record())
    assert mine.load(first.id) == first
    path = tmp_path / f"{first.id}.json"
    old = tmp_path / "old"
    old.hardlink_to(path)
    before = old.stat()
    third = other.save(other.save(first))
    old.write_bytes(path.read_bytes())
    os.utime(old, ns=(before.st_atime_ns, before.st_mtime_ns))
    old.replace(path)
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )

    assert mine.load(first.id) == third
    with pytest.raises(RecordConflict):
        mine.save(first)


def test_files_of_other_people_in_the_folder_are_no_jobs(tmp_path: Path) -> None:
    store = FileRecords(tmp_path)
    kept = store.save(a_record())
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")

    assert store.jobs() == [kept.id]


OTHER = "01BX5ZZKBKACTAV9WEVGEMMVRZ"


def test_a_record_of_another_job_is_refused_by_name(tmp_path: Path) -> None:
    """A file that was copied to a wrong name: who acted on it would act on the other job."""
    store = FileRecords(tmp_path)
    store.save(a_record())
    wrong = tmp_path / f"{OTHER}.json"
    wrong.write_bytes((tmp_path / f"{JOB}.json").read_bytes())

    with pytest.raises(InvalidError, match=f"the record of the job {OTHER}") as caught:
        store.load(OTHER)
    assert (caught.value.path, caught.value.value) == (str(wrong), JOB)
    assert store.load(JOB) is not None


def test_a_folder_in_the_place_of_a_record_is_refused_by_name(tmp_path: Path) -> None:
    store = FileRecords(tmp_path)
    store.save(a_record())
    (tmp_path / f"{OTHER}.json").mkdir()

    with pytest.raises(InvalidError, match=f"{OTHER}.json must be the file of a record"):
        store.load(OTHER)


def test_a_relative_folder_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileRecords("here")
    monkeypatch.chdir("/")
    stored = store.save(a_record())

    assert store.folder == tmp_path / "here"
    assert store.load(JOB) == stored
    assert store.jobs() == [JOB]
    assert (tmp_path / "here" / f"{JOB}.json").exists()


def gone(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def unmounted(folder: Path) -> None:
    """The place of the mount is there, and empty."""
    gone(folder)
    folder.mkdir()


@pytest.mark.parametrize("goes", [gone, unmounted])
@pytest.mark.parametrize("known_by", ["save", "load", "jobs"])
def test_a_folder_that_is_away_is_told_from_one_without_the_record(
    tmp_path: Path, goes: Callable[[Path], None], known_by: str
) -> None:
    folder = tmp_path / "jobs"
    store = FileRecords(folder)
    stored = (store if known_by == "save" else FileRecords(folder)).save(a_record())
    if known_by == "load":
        assert store.load(JOB) == stored
    elif known_by == "jobs":
        assert store.jobs() == [JOB]
    goes(folder)
    before = sorted(tmp_path.iterdir())
    asks: list[Callable[[], object]] = [
        lambda: store.load(JOB),
        store.jobs,
        lambda: store.save(stored),
        lambda: store.forget(JOB),
    ]
    for ask in asks:
        with pytest.raises(StoreAway, match="cannot be reached now") as caught:
            ask()
        assert caught.value.folder == str(folder)
    # Nothing was made anew.
    assert sorted(tmp_path.iterdir()) == before
    assert not folder.exists() or list(folder.iterdir()) == []
    if folder.exists():
        folder.rmdir()
    folder.with_name("away").rename(folder)

    assert store.load(JOB) == stored
    assert store.save(stored).version == 2


@pytest.mark.parametrize("lock", ["kept", "removed"])
def test_a_record_that_was_removed_out_of_its_folder_is_no_folder_away(
    tmp_path: Path, lock: str
) -> None:
    store = FileRecords(tmp_path)
    store.save(a_record())
    other = attrs.evolve(a_record(), spec=attrs.evolve(a_record().spec, id=OTHER))
    store.save(other)
    if lock == "removed":
        (tmp_path / ".lock").unlink()
    (tmp_path / f"{JOB}.json").unlink()
    assert store.load(JOB) is None
    assert store.jobs() == [OTHER]
    if lock == "kept":
        (tmp_path / f"{OTHER}.json").unlink()
        assert store.load(OTHER) is None
        assert store.jobs() == []
    store.save(a_record())


def test_a_record_that_comes_back_between_two_looks_is_found(tmp_path: Path) -> None:
    class Returning(FileRecords):
        def _look(self) -> list[str]:
            (tmp_path / "away").rename(tmp_path / "jobs")
            return super()._look()

    stored = FileRecords(tmp_path / "jobs").save(a_record())
    store = Returning(tmp_path / "jobs")
    (tmp_path / "jobs").rename(tmp_path / "away")
    assert store.load(JOB) == stored


@pytest.mark.parametrize("below", ["", "jobs"])
def test_a_file_is_no_folder_for_records(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidError, match="may be a file") as caught:
        FileRecords(tmp_path / "file" / below)
    assert caught.value.path == "folder"
    assert caught.value.value == str(tmp_path / "file" / below)
