"""
What the document on the memory adapter says, sentence by sentence, in other words.

A test that is about a sentence names it in its docstring (``Seed 000, S5: …``), and
`test_the_document.py` sees that every one of them has a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SENTENCES: Final[Mapping[str, str]] = {
    # The opening
    "I1": "it implements the whole interface, with seven of the optional ones",
    "I2": "it reads no output",
    "I3": "it behaves like Slurm or like Kubeflow, as configured",
    "I4": "the conformance suite is run against it",
    "I5": "it is not for production",
    "I6": "importing it registers it as memory",
    # Configuration
    "C1": "an unknown field at any level, capability, action or tristate, and trailing data",
    "C2": "durations are Go's",
    "C3": "the example",
    "C4": "a native yes needs a yes of its rule",
    "C5": "the constructor takes the same settings",
    # The Slurm shape
    "S1": "a constant name, an id that wraps, a submit time in whole seconds",
    "S2": "starting is gated",
    "S3": "open of an ended object is finished, an administrator's hold refuses it",
    "S4": "a stop acts on one id and submit time",
    "S5": "a hold is a start time: submit time, hold base and instance",
    "S6": "it is refused on a running object, survives open, and one release lifts it",
    "S7": "a requeue revives a finished or cancelled object: pending, ungated, counted",
    "S8": "a pending one refuses it, and the bit is restored either way",
    "S9": "with the bit set, preemption requeues: pending, with the cause Requeued",
    "S10": "restoring clears the bit; an ended object refuses",
    # The Kubeflow shape
    "K1": "names with the submission, no duplicates, a stop deletes",
    "K2": "preemption sends back to pending, and counts no restart",
    "K3": "a lost node wedges: running, NodeLost, and no end of its own",
    "K4": "causes from pods are unknown after the evidence window",
    "K5": "a hold deactivates, and ends what runs with the cause Held",
    "K6": "requeue and restoring are unsupported",
    # Both shapes
    "B1": "each execution has an opaque attempt and an epoch",
    "B2": "on Kubeflow the epoch counts executions, which restarts do not",
    # Deadlines and time
    "D1": "hold, release, requeue and restoring carry a deadline; later they do nothing",
    "D2": "a call starts now, unless the context says when",
    "D3": "who, until when and why are in the truth on Kubeflow, until the release",
    "D4": "on Slurm the instance alone is kept",
    "D5": "no threads, no timers: the clock is looked at inside each call",
    "D6": "a watcher is told from inside the calls that change something",
    "D7": "a full buffer, a cancelled context and a close end a stream; a new one tells all",
    # Environment and conformance
    "E1": "the environment plays the scheduler and reads the truth, which all views share",
    "F1": "it passes the suite in both shapes",
    "F2": "late calls and crashes between steps are played by the harness",
}

RULES: Final[Mapping[int, str]] = {
    1: "Seed 000, I1", 2: "Seed 000, C3", 3: "Seed 000, D1", 4: "Seed 000, D5",
    5: "Seed 000, D7", 6: "Seed 000, E1", 7: "rule 7:", 8: "Seed 000, B1", 9: "Seed 000, S1",
    10: "Seed 000, S3", 11: "Seed 000, S4", 12: "Seed 000, S6", 13: "Seed 000, S7",
    14: "Seed 000, S9", 15: "Seed 000, F2", 16: "rule 16:", 17: "4.8.2:", 18: "Seed 000, K1",
    19: "Seed 000, K2", 20: "Seed 000, K3", 21: "Seed 000, K4", 22: "Seed 000, K5",
    23: "Seed 000, K6",
}  # fmt: skip
"""The rules of dispatch.md, section 2, and how the tests that are about them cite them."""
