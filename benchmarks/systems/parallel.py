"""joblib: inline and on threads. Its calls take whole batches, so a burst is one call."""

from __future__ import annotations

import importlib
import time
from typing import Any, ClassVar

from benchmarks.child import Unavailable
from benchmarks.systems.base import System, noop, stamp


class JoblibInline(System):
    """`Parallel(n_jobs=1)`: a loop on the calling thread."""

    key = "joblib_inline"
    label = "joblib n_jobs=1 (inline)"
    context = True
    holds = False
    options: ClassVar[dict[str, Any]] = {"n_jobs": 1}

    def start(self) -> None:
        """Open one context for all calls, as joblib's manual advises for many small ones."""
        try:
            joblib = importlib.import_module("joblib")
        except ImportError:
            message = "joblib is not installed (pip install 'lardon[bench]')"
            raise Unavailable(message) from None
        self.delayed = joblib.delayed
        self.parallel = joblib.Parallel(**self.options)
        self.parallel.__enter__()
        self.parallel([self.delayed(noop)()])

    def stop(self) -> None:
        """Close the context."""
        self.parallel.__exit__(None, None, None)

    def latency_ns(self) -> int:
        """Time one call with one task."""
        before = time.monotonic_ns()
        started = self.parallel([self.delayed(stamp)()])[0]
        return int(started) - before

    def burst(self, tasks: int) -> tuple[float, float]:
        """Time one call with all tasks; joblib submits while it runs."""
        delayed = self.delayed
        before = time.perf_counter()
        self.parallel(delayed(noop)() for _ in range(tasks))
        total = time.perf_counter() - before
        return 0.0, total


class JoblibThreads(JoblibInline):
    """Two threads: with one, joblib would run the tasks inline."""

    key = "joblib_threads"
    label = "joblib n_jobs=2 (threads)"
    options: ClassVar[dict[str, Any]] = {"n_jobs": 2, "backend": "threading"}
