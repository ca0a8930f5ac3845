"""A program that submits to a cluster in another process, and is killed: see its test."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from multiprocessing.connection import Client
from typing import Any, Final

from lardon import GiB, ResourceEstimate
from lardon.dispatch.remote import RemotePool

NAMES: Final = ("first", "second", "third")
KEY: Final = b"a key for one test"


class Lent:
    """The backend that another process has, as far as a pool needs it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _ask(self, name: str, *args: Any) -> Any:
        self._connection.send((name, args))
        return self._connection.recv()

    def start(self, spec: Any) -> Any:
        return self._ask("start", spec)

    def open(self, ref: Any) -> None:
        self._ask("open", ref)

    def stop(self, ref: Any) -> None:
        self._ask("stop", ref)

    def observe_many(self, refs: Iterable[Any]) -> Any:
        return self._ask("observe_many", list(refs))

    def find(self, name: str) -> Any:
        return self._ask("find", name)

    def find_all(self, name: str) -> Any:
        return self._ask("find_all", name)

    def ceased(self, ref: Any) -> Any:
        return self._ask("ceased", ref)

    def declarations(self) -> Any:
        return self._ask("declarations")

    def close(self) -> None:
        pass


def main(address: str, folder: str) -> None:
    """Submit three jobs to the cluster, say so, and wait to be killed."""
    backend = Lent(Client(address, authkey=KEY))
    pool = RemotePool(backend, jobs=2, cpus=4, ram_bytes=4 * GiB, folder=folder)
    for name in NAMES:
        pool.submit(["work", name], estimate=ResourceEstimate(ram_bytes=GiB), name=name)
    assert pool.wait_parked(10)
    sys.stdout.write("submitted\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
