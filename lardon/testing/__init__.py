"""Fakes for testing code that uses lardon; they pass the same contract tests as the real parts."""

from lardon.testing.clock import ManualClock
from lardon.testing.governor import ScriptedGovernor, reduce_batch, reject, start, wait
from lardon.testing.machine import Kill, MachineModel, steps
from lardon.testing.nvml import FakeGpu, FakeInstance, FakeNvml, FakeProcess
from lardon.testing.play import Stuck, play_batches
from lardon.testing.probe import ScriptedProbe
from lardon.testing.root import FakeRoot

__all__ = [
    "FakeGpu",
    "FakeInstance",
    "FakeNvml",
    "FakeProcess",
    "FakeRoot",
    "Kill",
    "MachineModel",
    "ManualClock",
    "ScriptedGovernor",
    "ScriptedProbe",
    "Stuck",
    "play_batches",
    "reduce_batch",
    "reject",
    "start",
    "steps",
    "wait",
]
