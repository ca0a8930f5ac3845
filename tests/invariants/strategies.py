"""What hypothesis draws: machines, policies, estimates, and what happens to a running task."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st

from lardon import GpuSnapshot, Policy, ResourceEstimate, ResourceSnapshot
from tests.invariants.actor import Break, Checkpoint, Command, Raise, Return, SetProgress


class Exit(BaseException):
    """What a callback should not raise, and may."""


def _gpus(*free: int | None) -> tuple[GpuSnapshot, ...]:
    return tuple(
        GpuSnapshot(index=index, uuid=f"GPU-{index}", total_bytes=60, free_bytes=bytes_)
        for index, bytes_ in enumerate(free)
    )


MACHINE: Final = ResourceSnapshot(
    taken_at=0, ram_total_bytes=100, ram_available_bytes=100, cpus=4, gpus=_gpus(60, 60)
)


@st.composite
def readings(draw: st.DrawFn) -> ResourceSnapshot | BaseException:
    # Large numbers are bad luck, in this order: hypothesis tries small ones more often.
    luck = draw(st.integers(0, 15))
    if luck == 15:
        return OSError("the probe is gone")
    free = draw(st.sampled_from([(60, 60), (60, 20), (20, 60), (60, 0), (None, 60), (None, 20)]))
    return ResourceSnapshot(
        taken_at=0,
        ram_total_bytes=draw(st.sampled_from([100, 100, 100, 80, 120])),
        ram_available_bytes=-1 if luck == 14 else draw(st.sampled_from([100, 100, 60, 40, 15, 0])),
        cpus=draw(st.sampled_from([4, 4, 3, 2, 1])),
        memory_pressure=50.0 if luck == 13 else draw(st.sampled_from([None, 0.0, 9.0])),
        gpus=() if luck == 12 else _gpus(*free),
    )


policies = st.builds(
    Policy,
    ram_reserve_bytes=st.sampled_from([0, 0, 10, None]),
    gpu_reserve_bytes=st.sampled_from([0, 5]),
    cpu_reserve=st.sampled_from([0, 1]),
    ram_limit_bytes=st.sampled_from([None, None, 90, 60, 30]),
    gpu_limit_bytes=st.sampled_from([None, None, 50, 20]),
    io_slots=st.integers(1, 2),
    tasks_per_gpu=st.integers(1, 2),
    max_memory_pressure=st.sampled_from([None, 10.0]),
    recheck_s=st.sampled_from([0.5, 0.5, None]),
)


@st.composite
def estimates(draw: st.DrawFn) -> ResourceEstimate:
    smallest = draw(st.integers(1, 3))
    cpus = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    on_gpu = draw(st.sampled_from([False, False, True]))
    return ResourceEstimate(
        # The last is more than any machine has.
        ram_bytes=draw(st.sampled_from([0, 5, 0, 5, 10, 20, 5, 10, 20, 30, 60, 10**30])),
        ram_bytes_per_item=draw(st.sampled_from([0, 1, 3, 5, 8, 12])),
        gpu_bytes=draw(st.sampled_from([0, 10, 40])) if on_gpu else 0,
        gpu_bytes_per_item=draw(st.integers(0, 10)) if on_gpu else 0,
        min_batch=smallest,
        max_batch=smallest + draw(st.integers(0, 5)),
        cpus=cpus,
        min_cpus=draw(st.integers(1, cpus)),
        gpus=draw(st.sampled_from([1, 1, 2])) if on_gpu else 0,
        io_slots=draw(st.sampled_from([0, 0, 0, 1, 2])),
    )


@st.composite
def endings(draw: st.DrawFn) -> Command:
    error = draw(st.sampled_from([None, None, None, ValueError, StopIteration, Exit, SystemExit]))
    if error is None:
        return Return(draw(st.sampled_from([None, "result"])))
    return Raise(error("the callback's own"))


EVENTS: Final = {
    "p": "pause",
    "r": "resume",
    "x": "cancel",
    "q": "pause the next",
    "s": "resume the next",
    "g": "memory goes",
    "k": "memory comes back, and the queue is told",
    "t": "memory comes back, and time passes",
}


@st.composite
def acts(draw: st.DrawFn, steered: bool = True) -> Command | str:
    """Return what a running task does, or what happens to it meanwhile."""
    match draw(st.sampled_from("bbbbbbccmme" + "prprprxggkkttqsqs" * steered)):
        case "b":
            timeout = draw(st.sampled_from([None, None, None, 1.0, 0.0, 0.0]))
            return Break(timeout, draw(st.sampled_from(["park", "cancel"])))
        case "c":
            return Checkpoint()
        case "m":
            total = draw(st.sampled_from([None, 10, 20]))
            return SetProgress(draw(st.integers(0, 10)), total, draw(st.sampled_from(["", "half"])))
        case "e":
            return draw(endings())
        case letter:
            return EVENTS[letter]


@attrs.frozen
class Submission:
    estimate: ResourceEstimate
    start_timeout_s: float | None
    watched: bool
    """Whether somebody takes its future before the end."""


steering = st.sampled_from(["pause", "resume", "pause", "resume", "pause", "resume", "cancel"])
SMALL: Final = Submission(
    ResourceEstimate(ram_bytes=5, ram_bytes_per_item=5, max_batch=6), None, watched=False
)

submissions = st.builds(
    Submission, estimates(), st.sampled_from([None] * 8 + [1.0, 0.0]), st.booleans()
)
# Chooses among what there is. No rule has a precondition: which of two queues gets the last
# bytes is for the scheduler to say, and what hypothesis draws must not depend on it.
pick = st.integers(0, 30)
