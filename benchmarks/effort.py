"""How much is measured: the short form, the full one, and the tests' own."""

from __future__ import annotations

import time

import attrs


@attrs.frozen(kw_only=True)
class Effort:
    """Counts for every topic; more of each makes steadier figures, not other ones."""

    name: str
    total_s: float
    """The whole run ends within this; what does not fit is cut and says so."""
    child_s: float
    """A child process that hangs costs at most this."""
    rounds: int
    context_rounds: int
    """Rounds of peers that are there for context, and that nothing is judged against."""
    latency_samples: int
    tasks: int
    """No-op tasks of one throughput round."""
    slow_share: int
    """Systems that take milliseconds for a task get this part of the tasks and samples."""
    break_samples: int
    snapshot_samples: int
    decide_calls: int
    pending: tuple[int, ...]
    pending_rounds: int
    idle_s: float
    import_rounds: int
    regret_workloads: tuple[str, ...]
    """Each takes nine runs of two to seven seconds, with a scan and all peers seventy."""
    regret_tries: int
    """How often the fastest of the scan run again before one of them is taken for the best."""
    regret_rounds: int
    """How often that one, lardon and what else is judged then run beside each other."""
    regret_scan: bool
    """Whether the best fixed batch is looked for among all, and every peer runs."""
    locality_jobs: int
    """Jobs of the trace in virtual time."""
    locality_cycles: int
    locality_rounds: int
    evicted: int
    """Jobs of the run whose memory has to stay flat."""
    real_jobs: int
    """Jobs of the trace in real processes."""
    real_second_s: float
    """How long a second of the trace takes there."""


# `make bench` promises 3 minutes, the start and the writing of the results included.
SHORT = Effort(
    name="short",
    total_s=165.0,
    child_s=30.0,
    rounds=7,
    context_rounds=1,
    latency_samples=200,
    tasks=4_000,
    slow_share=20,
    break_samples=2_000,
    snapshot_samples=2_000,
    decide_calls=3_000,
    pending=(100_000,),
    pending_rounds=3,
    idle_s=10.0,
    import_rounds=21,
    regret_workloads=("constant",),
    regret_tries=0,
    regret_rounds=2,
    regret_scan=False,
    locality_jobs=5_000,
    locality_cycles=20_000,
    locality_rounds=3,
    evicted=100_000,
    real_jobs=500,
    real_second_s=0.02,
)
FULL = Effort(
    name="full",
    total_s=5400.0,
    child_s=300.0,
    rounds=21,
    context_rounds=5,
    latency_samples=500,
    tasks=20_000,
    slow_share=20,
    break_samples=10_000,
    snapshot_samples=10_000,
    decide_calls=10_000,
    pending=(100_000, 1_000_000),
    pending_rounds=3,
    idle_s=10.0,
    import_rounds=51,
    regret_workloads=("constant", "heavy", "neighbour", "grows", "double", "half", "tiny"),
    regret_tries=2,
    regret_rounds=9,
    regret_scan=True,
    locality_jobs=5_000,
    locality_cycles=200_000,
    locality_rounds=5,
    evicted=1_000_000,
    real_jobs=5_000,
    real_second_s=0.02,
)
# Enough to run every line once; its figures mean nothing.
SMOKE = Effort(
    name="smoke",
    total_s=120.0,
    child_s=30.0,
    rounds=1,
    context_rounds=1,
    latency_samples=3,
    tasks=50,
    slow_share=10,
    break_samples=5,
    snapshot_samples=20,
    decide_calls=20,
    pending=(500,),
    pending_rounds=1,
    idle_s=0.2,
    import_rounds=1,
    regret_workloads=("smoke",),
    regret_tries=1,
    regret_rounds=2,
    regret_scan=True,
    locality_jobs=80,
    locality_cycles=20,
    locality_rounds=1,
    evicted=200,
    real_jobs=24,
    real_second_s=0.002,
)


class Deadline:
    """
    When a run, and within it a topic, has to stop.

    Every topic gets its share of the time that is left when it begins, so a slow machine
    costs each of them rounds and none of them everything.
    """

    def __init__(self, effort: Effort) -> None:
        """Start the run's clock."""
        self.effort = effort
        self._end = time.monotonic() + effort.total_s
        self._topic_end = self._end

    def begin_topic(self, share: float) -> None:
        """Start the clock of the next topic, which may take *share* (0 to 1) of what is left."""
        self._topic_end = time.monotonic() + share * self.left_s

    @property
    def left_s(self) -> float:
        """Seconds left to the whole run, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def topic_left_s(self) -> float:
        """Seconds left to the topic, never negative."""
        return max(0.0, self._topic_end - time.monotonic())

    def allows_round(self, done: int, wanted: int) -> bool:
        """Whether a topic that has *done* rounds of *wanted* starts another; one it always does."""
        if done >= wanted or not self.left_s:
            return False
        return done == 0 or self.topic_left_s > 0
