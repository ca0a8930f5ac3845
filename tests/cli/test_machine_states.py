"""No state of a machine gives a traceback: it is shown, or said."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lardon import GiB, Policy, SystemProbe
from lardon.cli import machine, patient_probe
from lardon.cli.patient_probe import STARTING, PatientProbe
from lardon.testing.nvml import (
    NVML_ERROR_DRIVER_NOT_LOADED,
    NVML_ERROR_GPU_IS_LOST,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    FakeGpu,
    FakeNvml,
)
from lardon.testing.root import FakeRoot
from tests.cli.conftest import MACHINE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command

COMMANDS = [
    ["info"],
    ["info", "--json"],
    ["explain", "--ram", "1G"],
    ["explain", "--ram", "1G", "--gpu", "1G", "--json"],
    ["run", "--timeout", "0", "--gpu", "100G", "--", "true"],
]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "error", [OSError("no /proc"), MemoryError(), Unprintable()], ids=lambda e: type(e).__name__
)
def test_a_probe_that_raises(command: Command, arguments: list[str], error: Exception) -> None:
    command.set(error)

    answer = command(*arguments)

    assert answer.status == {"info": 1, "explain": 11, "run": 124}[arguments[0]]
    assert "Traceback" not in answer.out + answer.err
    assert type(error).__name__ in answer.out + answer.err


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "fields",
    [
        {"ram_total_bytes": 0},
        {"ram_available_bytes": -1},
        {"ram_total_bytes": -5, "cpus": 0},
        {"load1": float("nan"), "cpu_pressure": float("inf")},
        {"ram_total_bytes": 10**400},
    ],
    ids=repr,
)
def test_a_reading_that_cannot_be(
    command: Command, arguments: list[str], fields: dict[str, Any]
) -> None:
    command.set(attrs.evolve(MACHINE, **fields))

    answer = command(*arguments)

    assert "Traceback" not in answer.out + answer.err
    if "--json" in arguments:
        json.loads(answer.out)
    invalid = "load1" not in fields and fields.get("ram_total_bytes", 0) <= 0
    if arguments[0] == "info":
        assert answer.status == int(invalid)
    if invalid and arguments == ["info"]:
        assert "this reading cannot be used: " in answer.out


def test_the_machines_own_probe_is_the_patient_one() -> None:
    assert isinstance(machine.make_probe(), PatientProbe)


def test_a_probe_that_cannot_even_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no descriptors left")

    monkeypatch.setattr(machine, "PatientProbe", fail)

    seen = machine.look(machine.make_probe(), Policy())

    assert seen.snapshot is None
    assert seen.error.startswith("OSError: ")
    assert "no descriptors left" in seen.error
    assert (seen.gpu_error, seen.memory_levels, seen.files_read) == ("", (), ())


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_proc_at_all(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    command.use(lambda: SystemProbe(tmp_path, nvml=FakeNvml(), environ={}, rlimits=False))

    answer = command(*arguments)

    assert answer.status == {"info": 1, "explain": 11, "run": 124}[arguments[0]]
    assert "Traceback" not in answer.out + answer.err


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        ("nvmlInit", NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"),
        ("nvmlInit", NVML_ERROR_LIB_RM_VERSION_MISMATCH, "version mismatch"),
        ("nvmlDeviceGetMemoryInfo", NVML_ERROR_GPU_IS_LOST, "GPU is lost"),
        ("nvmlDeviceGetCount", RuntimeError("\x1b[2J"), "\\x1b[2J"),
    ],
)
def test_every_error_of_a_driver_is_said(
    command: Command, tmp_path: Path, function: str, error: int | Exception, said: str
) -> None:
    nvml = FakeNvml([FakeGpu(uuid="GPU-a")])
    nvml.fail(function, error)
    root = FakeRoot(tmp_path)
    command.use(lambda: SystemProbe(root, nvml=nvml, environ={}, rlimits=False))

    answer = command("info")

    assert answer.status == 0
    assert said in answer.out
    assert answer.err == ""
    # A card of which nothing is known may come to be known; without one there is none.
    assert command("explain", "--gpu", "1G").status in {11, 12}


def test_a_file_that_cannot_be_read_is_a_warning_and_no_traceback(
    command: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = FakeRoot(tmp_path)
    root.memory_v2("/job", max_bytes=4 * GiB)
    root.write("sys/fs/cgroup/job/memory.max", "nonsense\n")
    command.use(lambda: SystemProbe(root, nvml=FakeNvml(), environ={}, rlimits=False))

    info = json.loads(command("info", "--json").out)
    shown = command("info").out
    explained = command("explain")

    assert len(info["warnings"]) == 1
    assert "memory.max" in info["warnings"][0]
    assert f"Warnings\n  {info['warnings'][0]}\n" in shown
    assert explained.err == f"lardon: warning: {info['warnings'][0]}\n"
    assert explained.status == 0
    assert caplog.records == []
    assert logging.getLogger("lardon").propagate


def test_a_driver_that_is_only_starting_is_waited_for(tmp_path: Path) -> None:
    """Whoever looks once would otherwise never see the cards."""
    nvml = FakeNvml([FakeGpu(uuid="GPU-a")])
    nvml.hang("nvmlInit")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        nvml.recover()

    arguments = {"root": FakeRoot(tmp_path), "nvml": nvml, "environ": {}, "rlimits": False}
    with nvml:
        once = SystemProbe(**arguments).snapshot()  # type: ignore[arg-type]
        nvml.recover()
        nvml.hang("nvmlInit")
        patient = PatientProbe(sleep, **arguments).snapshot()

    assert any(text.startswith(STARTING) for text in once.limits)
    assert slept
    assert [gpu.uuid for gpu in patient.gpus] == ["GPU-a"]
    assert patient.limits == ()


def test_a_driver_that_hangs_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_probe, "PATIENCE_S", 0.0)
    nvml = FakeNvml([FakeGpu(uuid="GPU-a")])
    nvml.hang("nvmlInit")
    slept: list[float] = []
    root = FakeRoot(tmp_path)
    with nvml:
        probe = PatientProbe(slept.append, root=root, nvml=nvml, environ={}, rlimits=False)
        for _ in range(2):
            assert any(text.startswith(STARTING) for text in probe.snapshot().limits)

    assert slept == []
