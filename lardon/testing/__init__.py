"""Fakes for testing code that uses lardon; they pass the same contract tests as the real parts."""

from lardon.testing.clock import ManualClock
from lardon.testing.governor import ScriptedGovernor, reduce_batch, reject, start, wait
from lardon.testing.nvml import FakeGpu, FakeInstance, FakeNvml, FakeProcess
from lardon.testing.probe import ScriptedProbe
from lardon.testing.root import FakeRoot

__all__ = [
    "FakeGpu",
    "FakeInstance",
    "FakeNvml",
    "FakeProcess",
    "FakeRoot",
    "ManualClock",
    "ScriptedGovernor",
    "ScriptedProbe",
    "reduce_batch",
    "reject",
    "start",
    "wait",
]
