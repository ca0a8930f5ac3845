"""The harness of the backend in memory, which lacks nothing."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from lardon.dispatch.conformance import Harness
from lardon.dispatch.enums import Shape
from lardon.dispatch.memory import (
    MemoryBackend,
    MemoryEnvironment,
    answer_lost,
    call_started_at,
    crash_between_steps,
)
from lardon.dispatch.model import Ref
from lardon.dispatch.spi import Backend
from lardon.testing import ManualClock

# Small figures, so that ids come round and buffers fill within a check; times are longer than
# the suite is quiet for.
SETTINGS: Final[Mapping[str, Any]] = {
    "maxJobId": 12,
    "minJobAge": "5m",
    "slurmdTimeout": "40s",
    "watchBuffer": 8,
    "evidenceWindow": "4m",
    "rules": {"restart": {"value": "yes"}, "requeue": {"value": "no"}},
}
Make = Callable[..., MemoryBackend]


class MemoryHarness(Harness):
    """Plays a cluster in memory."""

    adapter = "memory"
    max_job_id = 12
    min_job_age_s = 300.0
    node_timeout_s = 40.0
    watch_buffer = 8

    def __init__(
        self,
        shape: Shape,
        more: Mapping[str, Any] | None = None,
        make: Make = MemoryBackend.from_settings,
    ) -> None:
        self.shape = shape
        self.settings = {**SETTINGS, "shape": shape.value, **(more or {})}
        self.evidence_window_s = 240.0 if shape is Shape.KUBEFLOW else None
        self._make = make
        self.clock = ManualClock()
        self._env: MemoryEnvironment | None = None

    @property
    def env(self) -> MemoryEnvironment:
        assert self._env is not None
        return self._env

    def backend(self) -> Backend:
        made = self._make(self.settings, clock=self.clock)
        self._env = made.env()
        return made

    def now(self) -> datetime.datetime:
        return self.clock.wall()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def run(self, ref: Ref) -> None:
        self.env.run(ref)

    def finish(self, ref: Ref, exit_code: int) -> None:
        self.env.finish(ref, exit_code)

    def out_of_memory(self, ref: Ref) -> None:
        self.env.out_of_memory(ref)

    def time_out(self, ref: Ref) -> None:
        self.env.time_out(ref)

    def preempt(self, ref: Ref) -> None:
        self.env.preempt(ref)

    def lose_node(self, ref: Ref) -> None:
        self.env.lose_node(ref)

    def admin_hold(self, ref: Ref) -> None:
        self.env.admin_hold(ref)

    def cancel(self, ref: Ref) -> None:
        self.env.cancel(ref)

    def requeue_externally(self, ref: Ref) -> Ref:
        return self.env.requeue_externally(ref)

    def environment(self, ref: Ref) -> Mapping[str, str]:
        return self.env.environment(ref)

    def late_call(self, started_at: datetime.datetime) -> AbstractContextManager[None]:
        return call_started_at(started_at)

    def crash_between_steps(self) -> AbstractContextManager[None]:
        return crash_between_steps()

    def lose_answer(self, lands_after_s: float | None) -> AbstractContextManager[None]:
        return answer_lost(lands_after_s)

    def read_only(self, backend: Backend) -> Backend:
        assert isinstance(backend, MemoryBackend)
        return backend.view(read_only=True)
