"""Public reports of faults H36, H50, H60 and H91 to H93: what the command reads and writes."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from lardon import (
    GiB,
    Governor,
    MiB,
    Policy,
    ResourceEstimate,
    SystemProbe,
    TaskContext,
    TaskQueue,
)
from lardon.testing import ScriptedProbe
from lardon.testing.nvml import FakeGpu, FakeNvml
from lardon.testing.root import FakeRoot
from tests.cli.conftest import MACHINE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command, Program

NAME: Final = "réduction-π-🔧"
# A machine whose GPUs and limits have that name, written so that any encoding carries it.
NAMED: Final = f"""
from lardon import GpuSnapshot, ResourceSnapshot
from lardon.testing import ScriptedProbe
name = {NAME!a}
gpus = (GpuSnapshot(index=0, uuid="GPU-a", name=name),)
probe = ScriptedProbe(ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1 << 34, ram_available_bytes=1 << 33, gpus=gpus, limits=(name,)
))
"""
MANY: Final = """
from lardon import ResourceSnapshot
from lardon.testing import ScriptedProbe
limits = tuple(f"limit {number} " + 200 * "x" for number in range(10_000))
probe = ScriptedProbe(ResourceSnapshot(
    taken_at=0.0, ram_total_bytes=1 << 34, ram_available_bytes=1 << 33, limits=limits
))
"""


@pytest.mark.parametrize(
    ("visible", "uuids", "said"),
    [
        ("GPU-2222", ["GPU-2222-b"], ""),
        ("GPU-2222-b,GPU-1111-a", ["GPU-2222-b", "GPU-1111-a"], ""),
        ("GPU-9999-unknown", [], "GPU-9999-unknown"),
        ("GPU-1111,nonsense,GPU-2222", ["GPU-1111-a"], "nonsense"),
        ("MIG-77", [], "MIG-77"),
    ],
)
def test_h36_a_uuid_in_the_visible_devices(
    command: Command, tmp_path: Path, visible: str, uuids: list[str], said: str
) -> None:
    """https://github.com/vllm-project/vllm/pull/41848: no ValueError from three layers below."""
    nvml = FakeNvml([FakeGpu(uuid="GPU-1111-a"), FakeGpu(uuid="GPU-2222-b")])
    root = FakeRoot(tmp_path)
    environ = {"CUDA_VISIBLE_DEVICES": visible}
    command.use(lambda: SystemProbe(root, nvml=nvml, environ=environ, rlimits=False))

    found = json.loads(command("info", "--json").out)
    shown = command("info")

    assert [gpu["uuid"] for gpu in found["snapshot"]["gpus"]] == uuids
    assert [gpu["index"] for gpu in found["snapshot"]["gpus"]] == list(range(len(uuids)))
    assert shown.status == 0
    assert (said in shown.out) if said else ("Limits that bind\n  none" in shown.out)
    assert "Traceback" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2G", 2 * GiB),
        ("2GB", 2 * 10**9),
        ("2GiB", 2 * GiB),
        ("2g", 2 * GiB),
        ("2gb", 2 * 10**9),
        ("1.5GiB", 1536 * MiB),
        ("2 GiB", 2 * GiB),
        ("2", 2),
        ("2K", 2048),
        ("2kb", 2000),
        ("2Gb", None),
        ("-1G", None),
        ("+1G", None),
        ("", None),
        (" ", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("2Q", None),
        ("two", None),
    ],
)
@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--ram", "ram_bytes"),
        ("--ram-per-item", "ram_bytes_per_item"),
        ("--gpu", "gpu_bytes"),
        ("--gpu-per-item", "gpu_bytes_per_item"),
        ("--ram-limit", "ram_limit_bytes"),
    ],
)
def test_h50_a_size_has_one_meaning_everywhere(
    command: Command, text: str, count: int | None, option: str, field: str
) -> None:
    """https://github.com/snakemake/snakemake/issues/2774: 2G was 1907 here and 954 there."""
    answer = command("explain", option, text, "--json")

    if count is None:
        assert answer.status == 2
        assert answer.out == ""
        assert repr(text) in answer.err
        assert option in answer.err
    else:
        found = json.loads(answer.out)
        assert (found["estimate"] | found["policy"])[field] == count


@pytest.mark.parametrize(
    ("arguments", "kind", "status", "found_kib"),
    [
        (["--ram", "4GiB"], "START", 0, None),
        (["--ram-per-item", "1GiB", "--batch", "1:12"], "REDUCE_BATCH", 10, 9 << 20),
        (["--ram", "12GiB"], "WAIT", 11, 9 << 20),
        (["--ram", "15GiB"], "REJECT", 12, 14 << 20),
    ],
)
def test_h60_the_reason_is_visible(
    command: Command, arguments: list[str], kind: str, status: int, found_kib: int | None
) -> None:
    """https://github.com/AndPuQing/gflow/issues/208: users saw only "failed" or "pending"."""
    answer = command("explain", *arguments)
    found = json.loads(command("explain", *arguments, "--json").out)

    # An answer is no error, whatever it says.
    assert (answer.status, answer.err) == (status, "")
    assert answer.out.startswith(f"{kind} (")
    assert "error" not in answer.out.lower()
    assert found["decision"]["kind"] == kind
    assert found["decision"]["reason"]["facts"]["resource"] == "ram"
    line = found["lines"][0]
    assert (line["resource"], line["total"], line["available"]) == ("ram", 16 * GiB, 11 * GiB)
    assert {"16 GiB", "11 GiB", "14 GiB"} <= {cell.strip() for cell in answer.out.split("  ")}
    if found_kib is not None:
        assert found["decision"]["reason"]["facts"]["found"] == found_kib * 1024
        assert found["decision"]["reason"]["text"] in answer.out
    assert bool(found["to_start"]) is (kind != "START")


def test_h60_since_when_a_command_waits(command: Command) -> None:
    """The wait is told while it lasts, with its beginning, and the end of it is no error either."""
    full = attrs.evolve(MACHINE, ram_available_bytes=4 * GiB)
    command.set(full, MACHINE)

    answer = command("run", "--ram", "4GiB", "--", "true")

    assert answer.status == 0
    assert " waits since 20" in answer.err
    assert "needs 4 GiB of RAM, 2 GiB on offer: 4 GiB available - 2 GiB reserve" in answer.err
    assert "error" not in answer.err.lower()


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "cp1252", "C"],
)
def test_h91_a_name_that_the_encoding_lacks(program: Program, environment: dict[str, str]) -> None:
    """https://github.com/alibaizhanov/mengram/issues/71: an emoji crashed the listing."""
    how = {"probe": NAMED, "environment": environment}

    shown = program("info", encoding="latin-1", **how)
    exact = program("info", "--json", encoding="ascii", **how)

    assert (shown.status, shown.err) == (0, "")
    kept = "réduction" if environment.get("PYTHONIOENCODING") == "cp1252" else "r?duction"
    assert shown.out.count(f"{kept}-?-?") == 2
    assert (exact.status, exact.err) == (0, "")
    assert json.loads(exact.out)["snapshot"]["gpus"][0]["name"] == NAME
    assert json.loads(exact.out)["snapshot"]["limits"] == [NAME]


@pytest.mark.slow
def test_h91_a_command_of_such_a_name(program: Program, tmp_path: Path) -> None:
    script = tmp_path / NAME
    script.write_text("#!/bin/sh\nexit 4\n")
    script.chmod(0o755)
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)

    answer = program(
        "run", "--ram", "4G", "--timeout", "0", str(script),
        environment={"PYTHONIOENCODING": "ascii"}, encoding="ascii",
    )  # fmt: skip
    started = program("run", str(script), environment={"PYTHONIOENCODING": "ascii"})

    assert answer.status == 124
    assert "lardon: r?duction-?-? was not admitted" in answer.err
    assert started.status == 4


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "arguments", [["info"], ["info", "--json"], ["explain"], ["--help"]], ids=" ".join
)
def test_h92_a_reader_that_leaves(program: Program, unbuffered: str, arguments: list[str]) -> None:
    """https://github.com/pypa/pip/issues/11608: a silent end, and the status that is documented."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = program.start(
            *arguments, probe=MANY, environment={"PYTHONUNBUFFERED": unbuffered}, stdout=writer
        )
        assert process.wait(timeout=15) == 141
    finally:
        os.close(writer)
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_h92_a_reader_that_leaves_after_the_first_line(program: Program, unbuffered: str) -> None:
    """Two megabytes do not fit into a pipe: the rest finds it closed."""
    process = program.start("info", probe=MANY, environment={"PYTHONUNBUFFERED": unbuffered})
    assert process.stdout is not None
    assert process.stderr is not None

    assert process.stdout.readline().startswith("lardon ")
    process.stdout.close()

    assert process.wait(timeout=15) == 141
    assert process.stderr.read() == ""


def test_h93_progress_over_three_sequences_never_goes_back() -> None:
    """https://github.com/tqdm/tqdm/issues/375: reported from the worker's thread."""
    probe = ScriptedProbe(MACHINE)
    seen: list[float] = []
    submitted = threading.Event()

    def work(task: TaskContext) -> list[int]:
        assert submitted.wait(5)
        sequences = [task.sequence]
        for start in (0, 40, 80):
            for done in range(start, start + 50, 10):
                task.set_progress(done, 100)
                seen.append(handle.progress.fraction)
            if start < 80:
                assert task.sequence_break(timeout=5.0)
                seen.append(handle.progress.fraction)
                sequences.append(task.sequence)
        return sequences

    with TaskQueue(Governor(Policy.unlimited(), probe=probe)) as queue:
        handle = queue.submit(work, estimate=ResourceEstimate(ram_bytes=MiB))
        submitted.set()
        assert handle.result(timeout=10) == [0, 1, 2]

    assert seen == sorted(seen)
    assert (min(seen), max(seen)) == (0.0, 1.0)


@pytest.mark.slow
def test_h93_no_control_characters_without_a_terminal(program: Program) -> None:
    """Neither in what is shown again and again nor in what a wait says, whatever TERM says."""
    colourful = {"TERM": "xterm-256color", "FORCE_COLOR": "1", "COLORTERM": "truecolor"}
    process = program.start("info", "--watch", environment=colourful)
    assert process.stdout is not None
    looks: list[str] = []
    while sum(line.startswith("lardon ") for line in looks) < 2:
        looks.append(process.stdout.readline())
    process.kill()
    program.root.memory(total_bytes=16 * GiB, available_bytes=3 * GiB)
    waiting = program(
        "run", "--ram", "4G", "--timeout", "100ms", "--", "true", environment=colourful
    )
    helped = program("--help", environment=colourful)

    assert waiting.status == 124
    shown = "".join(looks) + waiting.err + helped.out
    assert [character for character in shown if character < " " and character != "\n"] == []
