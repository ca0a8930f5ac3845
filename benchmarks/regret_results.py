"""All runs on one workload, and what they amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from benchmarks.stats import median, paired_ratio

if TYPE_CHECKING:
    from benchmarks.regret_race import Run
    from benchmarks.regret_workloads import Workload

LARDON: Final = "lardon map_batches"
WARM: Final = "lardon map_batches, with the history of one run before"
ITEMS: Final = "lardon map_items"
SUPERVISOR: Final = "supervisor: halve on SIGKILL from 64, go on"
POOL: Final = "ThreadPoolExecutor(), per item"
POOL_OF_CPUS: Final = "ThreadPoolExecutor(2), per item"
OURS: Final = frozenset({LARDON, WARM, ITEMS})


def fixed_label(size: int) -> str:
    """Return the label of a fixed batch."""
    return f"fixed batch {size}"


def is_fixed(label: str) -> bool:
    """Return whether a label is that of a fixed batch."""
    return label.startswith(fixed_label(0)[:-1])


@attrs.define
class Results:
    """All runs on one workload, by policy."""

    workload: Workload
    runs: dict[str, list[Run]] = attrs.field(factory=dict)
    best: str = ""
    """The fixed batch that the others are compared with; empty for the fastest."""

    def seconds(self, label: str) -> float | None:
        """Return the median makespan of a policy that finished every time."""
        runs = self.runs.get(label, [])
        if not runs or not all(run.finished(self.workload) for run in runs):
            return None
        return median([run.seconds for run in runs])

    def best_fixed(self) -> tuple[str, float] | None:
        """Return the best fixed batch that always survived unharmed, and its median makespan."""
        chosen = self.seconds(self.best)
        if chosen is not None:
            return self.best, chosen
        found = {
            label: seconds
            for label in self.runs
            if is_fixed(label) and (seconds := self.seconds(label)) is not None
        }
        if not found:
            return None
        # Of one run or another the fastest says little: those that were tried most count.
        rounds = max(len(self.runs[label]) for label in found)
        seconds, label = min(
            (seconds, label) for label, seconds in found.items() if len(self.runs[label]) == rounds
        )
        return label, seconds

    def ratio(self, label: str, peer: str) -> float | None:
        """
        Return how many times as long as *peer* a policy took; None if one did not finish.

        Of policies that ran in the same rounds it is the median over the rounds, in which a
        slow minute of the machine cancels out; else it is the ratio of the medians.
        """
        own, other = self.seconds(label), self.seconds(peer)
        if own is None or other is None:
            return None
        runs, peers = self.runs[label], self.runs[peer]
        if len(runs) != len(peers):
            return own / other
        return paired_ratio([run.seconds for run in runs], [run.seconds for run in peers])

    def regret(self, label: str) -> float | None:
        """Return a policy's makespan over that of the best fixed batch."""
        best = self.best_fixed()
        return None if best is None else self.ratio(label, best[0])

    def busy_seconds(self, label: str) -> float | None:
        """Return the median time in the items of a policy that finished every time."""
        times = self._busy(label)
        return median(times) if times else None

    def level_regret(self, label: str) -> float | None:
        """
        Return the regret as it were if the items had taken the same time in every run.

        What an item takes differs from run to run by more than what is looked for. Policies
        that process the same items one after the other do not differ in that; so each run's
        time in the items is replaced by the mean over all runs of both, a control variate
        with coefficient 1. None where it is not known, or a policy did not finish.
        """
        best = self.best_fixed()
        own, peer = self._busy(label), self._busy(best[0]) if best is not None else []
        if best is None or not own or not peer:
            return None
        mean = sum(own + peer) / len(own + peer)
        besides, theirs = (
            median([run.seconds - (run.busy_s or 0.0) for run in self.runs[policy]])
            for policy in (label, best[0])
        )
        return (besides + mean) / (theirs + mean)

    def _busy(self, label: str) -> list[float]:
        times = [run.busy_s for run in self.runs.get(label, []) if run.finished(self.workload)]
        known = [took for took in times if took is not None]
        return known if len(known) == len(self.runs.get(label, [])) else []

    def harm(self, *labels: str) -> int:
        """Return how many kills and unfinished runs these policies had."""
        return sum(
            run.kills + (not run.finished(self.workload))
            for label in labels
            for run in self.runs.get(label, [])
        )

    def fastest_pool(self) -> str | None:
        """Return the thread pool that survived and was the fastest."""
        found = [
            (seconds, label)
            for label in (POOL, POOL_OF_CPUS)
            if (seconds := self.seconds(label)) is not None
        ]
        return min(found)[1] if found else None
