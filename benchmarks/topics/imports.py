"""The time of `import lardon`, next to the libraries that it cannot do without."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.child import ROOT, Unavailable, environment
from benchmarks.formats import noise, number
from benchmarks.report import Report, Row
from benchmarks.rounds import interleave
from benchmarks.stats import median
from benchmarks.targets import Target

if TYPE_CHECKING:
    from benchmarks.effort import Deadline

TARGET = Target(what="import lardon ÷ attrs + psutil + logging + concurrent.futures", limit=1.8)
PYNVML = Target(what="import lardon loads pynvml", limit=0, unit="")
STATEMENTS = {
    "lardon": "import lardon",
    "libraries": "import attrs, psutil, logging, concurrent.futures",
    "nothing": "pass",
}
PEER = "libraries"
CODE = """\
import sys, time
known = len(sys.modules)
before, cpu = time.perf_counter_ns(), time.process_time_ns()
{statement}
took, cpu = time.perf_counter_ns() - before, time.process_time_ns() - cpu
modules = len(sys.modules) - known
nvml = int("pynvml" in sys.modules)
import json
print(json.dumps(dict(import_ms=took / 1e6, cpu_ms=cpu / 1e6, modules=modules, pynvml=nvml)))
"""


def measure(name: str, timeout_s: float) -> dict[str, Any]:
    """Return what one import took in a fresh interpreter, the interpreter's start not counted."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", CODE.format(statement=STATEMENTS[name])],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"took longer than {timeout_s:.0f} s"
        raise Unavailable(message) from None
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Unavailable(message)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(deadline: Deadline) -> Report:
    """Measure many interleaved interpreters and judge the ratio."""
    rounds = interleave(tuple(STATEMENTS), measure, deadline, rounds=deadline.effort.import_rounds)
    ratio = rounds.ratio("lardon", PEER, "cpu_ms")
    loaded = rounds.values("lardon", "pynvml")
    rows = []
    for name, statement in STATEMENTS.items():
        verdict = None
        if name == "lardon":
            verdict = TARGET.judge(ratio, reason=rounds.why_missing("lardon", PEER))
        rows.append(
            Row(
                label=f"`{statement}`",
                figures=(
                    number(rounds.median(name, "cpu_ms"), 1),
                    noise(rounds.spread_percent(name, "cpu_ms")),
                    number(rounds.median(name, "import_ms"), 1),
                    number(rounds.median(name, "modules")),
                    number(len(rounds.values(name, "import_ms"))),
                ),
                ratio=rounds.ratio(name, PEER, "cpu_ms") if name != "nothing" else None,
                verdict=verdict,
            )
        )
    rows.append(
        Row(
            label="pynvml among lardon's modules",
            figures=("", "", "", "yes" if any(loaded) else "no" if loaded else "", ""),
            verdict=PYNVML.judge(
                median(loaded) if loaded else None, reason=rounds.why_missing("lardon")
            ),
        )
    )
    return Report(
        topic="Import time",
        question="Each import in interpreters of its own, all files in the page cache.",
        columns=("CPU ms", "noise", "elapsed ms", "modules", "rounds"),
        peer="libraries",
        rows=tuple(rows),
        notes=("The ratio is that of the CPU times: an import waits for nothing else.",),
        data=rounds.as_json(),
    )
