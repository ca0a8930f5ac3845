"""The fakes behave as what they stand for."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from lardon.governor.probes import SystemProbe
from lardon.testing.nvml import (
    NVML_ERROR_INVALID_ARGUMENT,
    NVML_ERROR_NOT_FOUND,
    NVML_ERROR_NOT_SUPPORTED,
    NVML_ERROR_UNINITIALIZED,
    FakeGpu,
    FakeInstance,
    FakeNvml,
    NVMLError,
)
from lardon.testing.root import FakeRoot
from lardon.units import GiB

if TYPE_CHECKING:
    from pathlib import Path


def test_the_names_and_codes_are_pynvml_s() -> None:
    """Whatever the fake offers is in the real module, with the same number."""
    pynvml = importlib.import_module("pynvml")
    fake = importlib.import_module("lardon.testing.nvml")
    functions = [name for name in dir(FakeNvml) if name.startswith("nvml")]
    codes = [name for name in dir(fake) if name.startswith("NVML_ERROR")]

    assert all(hasattr(pynvml, name) for name in functions)
    assert len(functions) > 10
    assert [getattr(pynvml, name) for name in codes] == [getattr(fake, name) for name in codes]


@pytest.mark.parametrize(
    "name",
    ["NVML_ERROR_UNINITIALIZED", "NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"],
)
def test_the_texts_are_pynvml_s(name: str) -> None:
    """People read them in `lardon info`."""
    pynvml = importlib.import_module("pynvml")
    code = getattr(pynvml, name)

    assert str(NVMLError(code)) == str(pynvml.NVMLError(code))


def test_nothing_answers_before_the_start() -> None:
    """And nothing after the end."""
    nvml = FakeNvml([FakeGpu(uuid="GPU-0")])
    with pytest.raises(NVMLError) as raised:
        nvml.nvmlDeviceGetCount()
    assert raised.value.value == NVML_ERROR_UNINITIALIZED

    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1
    nvml.nvmlShutdown()
    with pytest.raises(NVMLError):
        nvml.nvmlDeviceGetHandleByIndex(0)


def test_what_the_driver_does_not_know() -> None:
    """Wrong places and wrong kinds of handle raise what the driver would say."""
    card = FakeGpu(uuid="GPU-0", mig_mode=True)
    card.instances = [FakeInstance(uuid="MIG-0", total_bytes=2, free_bytes=1)]
    nvml = FakeNvml([card])
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)

    for code, call in (
        (NVML_ERROR_INVALID_ARGUMENT, lambda: nvml.nvmlDeviceGetHandleByIndex(1)),
        (NVML_ERROR_NOT_FOUND, lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)),
        (NVML_ERROR_NOT_SUPPORTED, lambda: nvml.nvmlDeviceGetGpuInstanceId(handle)),
        (NVML_ERROR_INVALID_ARGUMENT, lambda: nvml.nvmlDeviceGetMigMode(instance)),
    ):
        with pytest.raises(NVMLError) as raised:
            call()
        assert raised.value.value == code
    assert nvml.nvmlDeviceGetUUID(instance) == "MIG-0"


def test_troubles_strike_as_often_as_told() -> None:
    """Once, on one card; then not any more."""
    nvml = FakeNvml([FakeGpu(uuid="GPU-0"), FakeGpu(uuid="GPU-1")])
    nvml.nvmlInit()
    nvml.fail("nvmlDeviceGetHandleByIndex", KeyError("odd"), index=1, times=1)

    nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(KeyError):
        nvml.nvmlDeviceGetHandleByIndex(1)
    nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.calls["nvmlDeviceGetHandleByIndex"] == 3


def test_a_hanging_call_can_be_let_go() -> None:
    """The context manager lets all go, so that no test leaves a thread behind."""
    with FakeNvml() as nvml:
        nvml.nvmlInit()
        nvml.hang("nvmlDeviceGetCount")
        thread = threading.Thread(target=nvml.nvmlDeviceGetCount)
        thread.start()
        assert nvml.wait_hanging(5)
        assert thread.is_alive()
    thread.join(5)
    assert not thread.is_alive()


def test_a_new_root_is_a_machine_without_limits(tmp_path: Path) -> None:
    """What it says of itself is what a probe reads."""
    root = FakeRoot(tmp_path / "new")
    snapshot = SystemProbe(root, nvml=FakeNvml(), environ={}).snapshot()

    assert os.fspath(root) == str(tmp_path / "new")
    assert (snapshot.ram_total_bytes, snapshot.ram_available_bytes) == (16 * GiB, 12 * GiB)
    assert (snapshot.cpus, snapshot.load1) == (8, 0.5)
    assert snapshot.limits == ()


@pytest.mark.slow
def test_neither_lardon_nor_a_probe_touches_nvml_before_it_is_asked() -> None:
    """Importing costs neither psutil nor pynvml; making a probe does not either."""
    program = (
        "import sys, lardon; probe = lardon.SystemProbe()\n"
        "print(*[name for name in ('pynvml', 'psutil', 'ctypes') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20
    )

    assert done.stdout.split() == []
