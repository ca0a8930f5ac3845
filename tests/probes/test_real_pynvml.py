"""The real pynvml on a driver compiled here: the ctypes path without a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.units import GiB

COMPILER: Final = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stub driver with"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="the stub driver is loaded by its Linux name"
    ),
    # It compiles, and starts an interpreter for each story.
    pytest.mark.slow,
]

# Told in an interpreter of its own, because a library can be loaded only once, and under
# the name by which pynvml looks for it.
PROLOGUE: Final = """
import json, os, sys, threading, time
from pathlib import Path
from lardon import SystemProbe
from lardon.governor.probes.bounded import THREAD_NAME
from lardon.testing.clock import ManualClock
from lardon.testing.root import FakeRoot

place = Path(os.environ["LARDON_STUB_DIR"])
clock = ManualClock()
probe = SystemProbe(FakeRoot(place / "root"), environ={}, clock=clock)

def gpus():
    return [[gpu.uuid, gpu.name, gpu.total_bytes, gpu.free_bytes] for gpu in probe.snapshot().gpus]

def free():
    return [gpu[3] for gpu in gpus()]

def settle():
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(10)

told = {}
"""
EPILOGUE: Final = """
settle()
told["inits"] = (place / "inits").read_text().split()
told["pid"] = str(os.getpid())
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stub; return the directory that it is in."""
    place = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("nvml_stub.c")
    assert COMPILER is not None
    subprocess.run(
        [
            COMPILER,
            *("-shared", "-fPIC", "-Wall", "-Werror", "-o"),
            str(place / "libnvidia-ml.so.1"),
            str(source),
        ],
        check=True,
        timeout=20,
    )
    return place


def tell(library: Path, place: Path, story: str) -> dict[str, Any]:
    """Run *story* with the stub as the driver; return what it told."""
    paths = [str(library), os.environ.get("LD_LIBRARY_PATH", "")]
    environ = os.environ | {
        "LD_LIBRARY_PATH": os.pathsep.join(path for path in paths if path),
        "LARDON_STUB_DIR": str(place),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROLOGUE + story + EPILOGUE],
        env=environ,
        capture_output=True,
        text=True,
        timeout=19,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_figures_names_and_own_use(library: Path, tmp_path: Path) -> None:
    """Both cards are read, the undecodable name is replaced, and only our own use counts."""
    told = tell(
        library,
        tmp_path,
        "told['gpus'] = gpus()\ntold['own'] = dict(probe.own_use().gpu_bytes)\n"
        "told['error'] = probe.gpu_error\n",
    )

    assert told["gpus"] == [
        ["GPU-11111111-aaaa", "NVIDIA Stub", 80 * GiB, 70 * GiB],
        ["GPU-22222222-bbbb", "GPU 1", 40 * GiB, 30 * GiB],
    ]
    assert told["own"] == {"GPU-11111111-aaaa": 3 * GiB}
    assert told["error"] == ""
    assert told["inits"] == [told["pid"]]


def test_a_call_that_hangs(library: Path, tmp_path: Path) -> None:
    """It costs the bound once; then the card is left alone, and later it is back."""
    told = tell(
        library,
        tmp_path,
        """
free()
(place / "hang").touch()
begun = time.monotonic()
told["hanging"] = free()
told["took"] = time.monotonic() - begun
begun = time.monotonic()
told["after"] = free()
told["then"] = time.monotonic() - begun
(place / "hang").unlink()
settle()
clock.advance(30)
told["back"] = free()
""",
    )

    assert told["hanging"] == told["after"] == [70 * GiB, None]
    assert 0.5 <= told["took"] < 5
    assert told["then"] < told["took"]
    assert told["back"] == [70 * GiB, 30 * GiB]


def test_a_driver_that_disappears(library: Path, tmp_path: Path) -> None:
    """No GPU while it is away, with NVML's own words, and the cards again when it is back."""
    told = tell(
        library,
        tmp_path,
        """
free()
(place / "gone").touch()
told["gone"] = free()
told["error"] = probe.gpu_error
(place / "gone").unlink()
told["soon"] = free()
clock.advance(30)
told["back"] = free()
""",
    )

    assert told["gone"] == told["soon"] == []
    assert "Driver Not Loaded" in told["error"]
    assert told["back"] == [70 * GiB, 30 * GiB]
    assert told["inits"] == [told["pid"]] * 2


def test_a_card_that_is_lost(library: Path, tmp_path: Path) -> None:
    """The other one is not affected."""
    told = tell(
        library,
        tmp_path,
        """
(place / "lost").touch()
told["lost"] = free()
told["why"] = probe.snapshot().limits
(place / "lost").unlink()
told["back"] = free()
""",
    )

    assert told["lost"] == [70 * GiB, None]
    [why] = told["why"]
    assert why.startswith("GPU GPU-22222222-bbbb cannot be read")
    assert "GPU is lost" in why
    assert told["back"] == [70 * GiB, 30 * GiB]


def test_a_forked_child(library: Path, tmp_path: Path) -> None:
    """It starts the driver for itself: the parent's start is not its own."""
    told = tell(
        library,
        tmp_path,
        """
free()
child = os.fork()
if child == 0:
    (place / "child").write_text(json.dumps([os.getpid(), free()]))
    os._exit(0)
os.waitpid(child, 0)
told["child"] = json.loads((place / "child").read_text())
told["parent"] = free()
""",
    )

    pid, found = told["child"]
    assert found == told["parent"] == [70 * GiB, 30 * GiB]
    assert told["inits"] == [told["pid"], str(pid)]


def test_both_memory_records_agree_on_what_is_free(library: Path, tmp_path: Path) -> None:
    """The second record counts the driver's share apart; free is the same."""
    told = tell(
        library,
        tmp_path,
        """
free()
import pynvml
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
old = pynvml.nvmlDeviceGetMemoryInfo(handle)
new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
told["free"] = [old.free, new.free]
told["used"] = [old.used, new.used]
""",
    )

    assert told["free"] == [70 * GiB, 70 * GiB]
    assert told["used"] == [10 * GiB, 9 * GiB]
