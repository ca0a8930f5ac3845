"""Whatever is put together of wrong parts says so at once, by name, and leaves nothing begun."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lardon import GiB
from lardon.clock import MachineClock
from lardon.dispatch import (
    FileRecords,
    InvalidError,
    MemoryRecords,
    Observer,
    Operator,
    Supervisor,
)
from lardon.dispatch.memory import MemoryBackend
from lardon.dispatch.remote import PoolTimings, RemotePool
from lardon.dispatch.slurm import LocalTransport, SlurmBackend
from lardon.testing import ManualClock


class Vague(MemoryBackend):
    """Promises nothing that could be read."""

    def declarations(self) -> Any:
        return {"gated": True}


def parts() -> dict[str, Any]:
    return {"backend": MemoryBackend(), "records": MemoryRecords(), "clock": MachineClock()}


def pool(**arguments: Any) -> object:
    return RemotePool(
        **{"backend": MemoryBackend(), "jobs": 1, "cpus": 1, "ram_bytes": GiB, **arguments}
    )


MAKERS: Final[dict[str, Callable[..., object]]] = {
    "RemotePool": pool,
    "Operator": lambda **wrong: Operator(**{**parts(), **wrong}),
    "Observer": lambda **wrong: Observer(**{**parts(), **wrong}),
    "Supervisor": lambda **wrong: Supervisor(**{"name": "a", "operator": None, **wrong}),
    "FileRecords": FileRecords,
    "MemoryBackend": MemoryBackend,
    "SlurmBackend": SlurmBackend,
}
NO_CLOCKS: Final = (5, "now", MachineClock, threading.Lock())
NO_BACKENDS: Final = (None, 5, "slurm", MemoryBackend, MemoryRecords())
NO_STORES: Final[tuple[object, ...]] = (5, "runs", MemoryRecords, {})
NO_FOLDERS: Final = (5, b"runs", "", "a\0b", ["runs"])
WRONG: Final = [
    *(("RemotePool", "clock", one) for one in NO_CLOCKS),
    *(("RemotePool", "backend", one) for one in NO_BACKENDS),
    *(("RemotePool", "records", one) for one in NO_STORES),
    *(("RemotePool", "folder", one) for one in NO_FOLDERS),
    *(("RemotePool", "timings", one) for one in (None, 5, {"poll_s": 1}, PoolTimings)),
    *(("RemotePool", "jobs", one) for one in (None, "4", 1.5, True)),
    *(("Operator", "clock", one) for one in NO_CLOCKS),
    *(("Operator", "backend", one) for one in NO_BACKENDS),
    *(("Operator", "records", one) for one in (None, *NO_STORES)),
    *(("Operator", "poll_s", one) for one in (None, "15", 0)),
    *(("Operator", "call_timeout_s", one) for one in (None, "15", 0)),
    *(("Observer", "clock", one) for one in NO_CLOCKS),
    *(("Observer", "backend", one) for one in NO_BACKENDS),
    *(("Observer", "records", one) for one in (None, *NO_STORES)),
    *(("Supervisor", "operator", one) for one in (None, 5, Operator, MemoryBackend())),
    *(("FileRecords", "folder", one) for one in (None, *NO_FOLDERS)),
    *(("MemoryBackend", "clock", one) for one in NO_CLOCKS),
    *(("SlurmBackend", "clock", one) for one in NO_CLOCKS),
    *(("SlurmBackend", "transport", one) for one in (5, "login", LocalTransport)),
    *(("SlurmBackend", "nonce", one) for one in (5, "0" * 32)),
]


@pytest.mark.parametrize(("what", "field", "value"), WRONG)
def test_a_wrong_part_is_refused_by_name_before_anything_is_begun(
    what: str, field: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = threading.active_count()

    with pytest.raises(InvalidError, match=f"^{field} must be ") as caught:
        MAKERS[what](**{field: value})

    assert caught.value.path == field
    assert caught.value.value is value
    assert caught.value.rule
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"records": 5}, {"timings": 5}, {"clock": 5}, {"backend": None}])
def test_a_pool_that_is_refused_makes_no_folder(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        pool(folder=tmp_path / "runs", **wrong)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["RemotePool", "Operator"])
def test_a_backend_that_promises_nothing_readable_is_refused(what: str) -> None:
    with pytest.raises(InvalidError, match=r"backend\.declarations\(\) must be a Declarations"):
        MAKERS[what](backend=Vague())


def test_what_is_left_out_is_the_machines(clock: ManualClock, tmp_path: Path) -> None:
    """None stays what it was, and so does whatever has the methods."""

    class Store:
        """Has the four methods, and nothing else."""

        def __init__(self) -> None:
            inner = MemoryRecords()
            self.load, self.save, self.jobs = inner.load, inner.save, inner.jobs
            self.forget = inner.forget

    made = RemotePool(MemoryBackend(clock=None), jobs=1, cpus=1, ram_bytes=GiB, clock=None)
    made.close()
    RemotePool(
        MemoryBackend(clock=clock),
        jobs=1,
        cpus=1,
        ram_bytes=GiB,
        clock=clock,
        records=Store(),
        folder=str(tmp_path),
    ).close()
    SlurmBackend(None, clock=None, nonce=None).close()
