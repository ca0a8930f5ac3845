"""
A night on a cluster, in a moment: a job is preempted, loses its node, and is held too late.

    python examples/fake_cluster.py

The cluster exists in memory and behaves like Slurm; a clock that only this program moves
drives it. What looks after the job would do the same on a real one: it looks, and submits
again what did not end by itself, as a new submission with a higher epoch.
"""

from __future__ import annotations

import datetime

from lardon.dispatch import (
    Cause,
    ExpiredError,
    HoldMeta,
    JobSpec,
    Observation,
    OutcomeUnknown,
    Ref,
)
from lardon.dispatch.memory import MemoryBackend, answer_lost, call_started_at
from lardon.testing import ManualClock

JOB = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
AGAIN = {Cause.PREEMPTED, Cause.NODE_LOST}


class Night:
    """One job, the cluster that it runs on, and who looks after it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backend = MemoryBackend(
            shape="slurm", clock=self.clock, slurmd_timeout_s=40, call_bound_s=25
        )
        self.cluster = self.backend.env()
        self.submission = 0
        self.ref = self.submit()

    def submit(self) -> Ref:
        """Submit the job once more; the first thing it may do is wait to be opened."""
        self.submission += 1
        spec = JobSpec(id=JOB, submission=self.submission, command=["python", "train.py"])
        ref = self.backend.start(spec)
        self.backend.open(ref)
        self.cluster.run(ref)
        epoch = self.cluster.environment(ref)["DISPATCH_EPOCH"]
        self.say(f"submission {self.submission} runs as job {ref.id}, epoch {epoch}")
        return ref

    def look(self) -> Observation:
        """Return how the job is now."""
        return self.backend.observe_many([self.ref])[self.ref]

    def recover(self) -> None:
        """Submit again what ended for a reason that is none of the job's own."""
        seen = self.look()
        self.say(f"job {self.ref.id} is {seen.state}, cause {seen.cause}")
        if seen.ended and seen.cause in AGAIN:
            self.ref = self.submit()

    def holding(self, instance: int) -> HoldMeta:
        """Return a hold that must be placed within a minute."""
        deadline = self.clock.wall() + datetime.timedelta(seconds=60)
        return HoldMeta(instance, deadline, placed_by="night shift", reason="a look at the data")

    def say(self, text: str) -> None:
        """Print what happened, and when."""
        print(f"{self.clock.wall():%H:%M:%S}  {text}")


def main() -> None:
    """Let the night pass."""
    night = Night()
    clock, cluster = night.clock, night.cluster

    clock.advance(3600)
    cluster.preempt(night.ref)
    night.recover()

    clock.advance(3600)
    cluster.lose_node(night.ref)
    night.say("its node answers no more")
    night.recover()
    clock.advance(40)
    night.recover()

    # A hold is sent, and stuck on the way: when it starts, its time is over.
    meta = night.holding(1)
    with call_started_at(meta.deadline + datetime.timedelta(seconds=30)):
        try:
            night.backend.hold(night.ref, meta)
        except ExpiredError:
            night.say("a hold came too late, and did nothing")

    # The next submission waits, and the answer to a hold of it is lost. Whoever decides now
    # may be wrong; at the deadline plus the call bound it is certain.
    waiting = night.backend.start(JobSpec(id=JOB, submission=9, command=["true"]))
    with answer_lost(lands_after_s=70):
        try:
            night.backend.hold(waiting, night.holding(1))
        except OutcomeUnknown as unknown:
            certain = unknown.settles_at or clock.wall()
            night.say(f"no answer; certain at {certain:%H:%M:%S}")
            clock.advance((certain - clock.wall()).total_seconds())
    seen = night.backend.observe_many([waiting])[waiting]
    night.say(f"job {waiting.id} is {seen.state}, hold {seen.hold_instance}")

    cluster.finish(night.ref)
    night.recover()
    clock.advance(3600)
    night.say(f"an hour later job {night.ref.id} is {night.look().state}: its record is gone")


if __name__ == "__main__":
    main()
