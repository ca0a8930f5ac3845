"""Dask distributed with everything in one process: scheduler, one worker, one thread."""

from __future__ import annotations

import importlib
import logging
import time
from typing import TYPE_CHECKING, Any

from benchmarks.child import Unavailable
from benchmarks.systems.base import Submitting, noop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Dask(Submitting):
    """The only peer that also admits by resources, though by declared ones."""

    key = "dask"
    label = "Dask, in-process worker"
    context = True
    slow = True
    holds = False

    def start(self) -> None:
        """Start scheduler and worker in this process, without dashboard and nanny."""
        try:
            distributed = importlib.import_module("distributed")
        except ImportError:
            message = "distributed is not installed (pip install 'lardon[bench]')"
            raise Unavailable(message) from None
        self.client = distributed.Client(
            processes=False,
            n_workers=1,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.ERROR,
        )
        self.client.submit(noop, pure=False).result()

    def stop(self) -> None:
        """Close client, worker and scheduler."""
        self.client.close()

    def submit(self, call: Callable[[], object]) -> object:
        """Submit one impure task."""
        future: object = self.client.submit(call, pure=False)
        return future

    def submit_noops(self, tasks: int) -> Sequence[object]:
        """Submit all in one `map`, which is Dask's cheapest way."""
        futures: list[object] = self.client.map(_ignore, range(tasks), pure=False)
        return futures

    def result(self, handle: Any) -> object:
        """Wait for one future."""
        result: object = handle.result()
        return result

    def burst(self, tasks: int) -> tuple[float, float]:
        """Wait for all: Dask promises no order."""
        distributed = importlib.import_module("distributed")
        before = time.perf_counter()
        futures = self.submit_noops(tasks)
        submitted = time.perf_counter()
        distributed.wait(futures)
        return submitted - before, time.perf_counter() - before


def _ignore(_: int) -> None:
    """Do nothing with the number that tells the tasks apart."""
