"""Whole runs of the main job on small photographs, as a user starts, pauses and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import pytest

from lardon import MiB
from tests.examples.photographs import truncated  # first: it skips where the extra is not

# isort: split
import numpy as np
from PIL import Image

import photo_features
from photo import samples

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PROGRAM: Final = [sys.executable, str(EXAMPLES / "photo_features.py")]
# On a busy machine the libraries alone take seconds to load, and Matplotlib's first use a
# minute; a run itself takes one or two.
PATIENCE_S: Final = 100
unhurried: Final = pytest.mark.timeout(PATIENCE_S + 20)
CONTROL: Final = {chr(code) for code in range(32)} - {"\n"}


@attrs.frozen
class Run:
    """What a run in this process left."""

    status: int
    stdout: str
    stderr: str


Runner: TypeAlias = Callable[..., Run]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Return a function that runs the program, with no terminal to write to."""

    def call(*arguments: str | Path) -> Run:
        try:
            status = photo_features.main([str(argument) for argument in arguments])
        except SystemExit as ended:  # how argparse refuses an option
            status = int(ended.code or 0)
        printed = capsys.readouterr()
        return Run(status, printed.out, printed.err)

    return call


def report_of(output: Path) -> Any:
    return json.loads((output / "report.json").read_text())


def assert_whole(output: Path) -> None:
    """Every file that is there can be read, and no unfinished one is left."""
    assert list(output.rglob(".*")) == []
    for path in output.rglob("*.npz"):
        with np.load(path) as arrays:
            assert all(arrays[name] is not None for name in arrays.files)


# What comes of a run ---------------------------------------------------------------


@pytest.mark.slow
@unhurried
def test_a_batch_shrinks_while_a_neighbour_has_memory_and_grows_back(tmp_path: Path) -> None:
    options = ("--count", "40", "--size", "1500x1000", "--memory-limit", "400MiB", "--neighbour")
    done = subprocess.run(
        [*PROGRAM, *options, "--output", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.returncode == 0
    assert "a neighbour takes 200 MiB" in done.stdout
    assert "the neighbour gives its memory back" in done.stdout
    words = [line.split() for line in done.stdout.splitlines() if line.startswith("features: ")]
    counts = [int(line[1]) for line in words if line[-1] == "done"]
    sizes = [after - before for before, after in pairwise([0, *counts])]
    assert sizes[1] < sizes[0]
    assert max(sizes[3:]) > sizes[2]


@pytest.mark.slow
@unhurried
def test_a_run_on_samples(tmp_path: Path) -> None:
    picture = tmp_path / "run.png"
    options = ("--count", "6", "--size", "600x400", "--timeline", str(picture))
    done = subprocess.run(
        [*PROGRAM, *options, "--output", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.returncode == 0
    # Matplotlib says so when it makes its font cache.
    assert [line for line in done.stderr.splitlines() if "font cache" not in line] == []
    assert CONTROL.isdisjoint(done.stdout)
    assert "import: START with batches of 6" in done.stdout
    assert "features: 6 of 6 done" in done.stdout
    told = report_of(tmp_path / "out")
    assert told["outcome"] == "completed"
    assert told["skipped"] == []
    assert [task["name"] for task in told["tasks"]] == ["import", "features", "matches"]
    assert len(told["features"]) == 6
    assert all(pair["inliers"] >= 100 for pair in told["matches"])
    for listed in (*told["features"], *told["matches"]):
        assert (tmp_path / "out" / listed["file"]).is_file()
    assert_whole(tmp_path / "out")
    with Image.open(picture) as drawn:
        assert drawn.width > 800


@pytest.mark.slow
def test_a_memory_limit_reduces_the_batches_and_says_so(tmp_path: Path, run: Runner) -> None:
    done = run(
        *("--count", "5", "--size", "600x400", "--max-batch", "4"),
        *("--memory-limit", "14MiB", "--output", tmp_path),
    )

    assert (done.status, done.stderr) == (0, "")
    assert "features: REDUCE_BATCH from 4 to 2, because a batch of 4 items needs" in done.stdout
    tasks = {task["name"]: task for task in report_of(tmp_path)["tasks"]}
    assert [batch["size"] for batch in tasks["features"]["batches"]] == [2, 2, 1]
    for batch in tasks["features"]["batches"]:
        assert batch["granted_bytes"] <= 14 * MiB


@pytest.mark.slow
def test_sift_runs_too(tmp_path: Path, run: Runner) -> None:
    done = run("--sift", "--count", "2", "--size", "300x200", "--output", tmp_path)

    assert (done.status, done.stderr) == (0, "")
    told = report_of(tmp_path)
    assert told["detector"] == "SIFT"
    assert told["matches"][0]["inliers"] >= 30


@pytest.mark.slow
def test_an_unreadable_photograph_is_reported_and_skipped(tmp_path: Path, run: Runner) -> None:
    folder = tmp_path / "photographs"
    list(samples.write(folder, 2, 300, 200))
    truncated(folder / "01b.jpg")
    (folder / "notes.txt").touch()

    done = run(folder, "--output", tmp_path / "out")

    assert (done.status, done.stderr) == (0, "")
    assert "import: skipped 01b.jpg: image file is truncated" in done.stdout
    assert "ignored: 1, such as notes.txt" in done.stdout
    told = report_of(tmp_path / "out")
    (skipped,) = told["skipped"]
    assert (skipped["name"], skipped["task"]) == ("01b.jpg", "import")
    assert "truncated" in skipped["reason"]
    # The pair is made of those that are left.
    (pair,) = told["matches"]
    assert (pair["left"], pair["right"]) == ("01_motorcycle_left.jpg", "02_motorcycle_left.jpg")


@pytest.mark.slow
def test_nothing_readable_is_a_failure(tmp_path: Path, run: Runner) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"x")

    done = run(tmp_path, "--output", tmp_path / "out")

    assert done.status == 1
    assert done.stderr == "None of the photographs can be used.\n"
    assert len(report_of(tmp_path / "out")["skipped"]) == 1


@pytest.mark.slow
def test_a_limit_below_one_photograph_fails_with_the_figures(tmp_path: Path, run: Runner) -> None:
    done = run("--count", "2", "--size", "600x400", "--memory-limit", "4MiB", "--output", tmp_path)

    assert done.status == 1
    assert done.stderr.startswith("import failed: a batch of 1 item needs")
    states = [task["state"] for task in report_of(tmp_path)["tasks"]]
    assert states == ["FAILED", "CANCELLED", "CANCELLED"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory-limit", "2Gb"], "reads as bits"),
        (["--memory-limit", "2"], "did you leave out the unit?"),
        (["--size", "10x10"], "each side must have 96 to 20000 pixels"),
        (["--timeline", "run.txt"], "does not end in .pdf, .png, .svg"),
        (["--timeline", "nowhere/run.png"], "the folder nowhere does not exist"),
        (["nowhere"], "nowhere does not exist"),
        (["."], "no photographs in ."),
        ([".", "--size", "300x200"], "cannot go with FOLDER"),
        (["--output", "file"], "file is not a folder"),
        (["--output", "file/below"], "cannot write to"),
    ],
)
def test_bad_options_end_with_a_message_and_status_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Runner,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()

    done = run(*arguments)

    assert done.status == 2
    assert message in done.stderr.splitlines()[-1]
    assert done.stdout == ""


@pytest.mark.slow
@unhurried
def test_a_missing_package_is_named_with_the_extra(tmp_path: Path) -> None:
    (tmp_path / "cv2.py").write_text("raise ModuleNotFoundError('no', name='cv2')")
    done = subprocess.run(
        [*PROGRAM, "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.returncode == 2
    assert "'cv2'" in done.stderr
    assert "pip install 'lardon[examples]'" in done.stderr


# Signals and keys ------------------------------------------------------------------


@pytest.mark.slow
@unhurried
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_without_a_terminal_a_signal_cancels(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """The batch in hand is finished, and the report tells how far the work came."""
    with subprocess.Popen(
        [*PROGRAM, *MANY_BATCHES, "--output", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert any("import: START" in line for line in program.stdout)
        program.send_signal(number)
        said, complaint = program.communicate(timeout=PATIENCE_S)

    assert (program.returncode, complaint) == (status, "")
    assert "Cancelling; the batch in hand is finished first." in said
    told = report_of(tmp_path)
    assert told["outcome"] == "cancelled"
    assert len(told["matches"]) < 11
    assert_whole(tmp_path)


# More than a second of work after the first line, so that it is not over when the signal
# arrives. Matching takes most of it.
MANY_BATCHES: Final = ("--count", "12", "--size", "600x400", "--max-batch", "1")


class Terminal:
    """The program on a pseudo-terminal, and somebody who reads it and types."""

    def __init__(self, output: Path) -> None:
        self.child, self.descriptor = os.forkpty()
        if self.child == 0:
            os.environ["TERM"] = "xterm"
            os.execv(PROGRAM[0], [*PROGRAM, *MANY_BATCHES, "--output", str(output)])  # noqa: S606  no shell
        self._unread = b""
        self._ended: int | None = None

    def read_until(self, text: str) -> None:
        """Block until the program has printed *text* since the last call."""
        while text.encode() not in self._unread:
            self._unread += os.read(self.descriptor, 65_536)
        self._unread = self._unread.partition(text.encode())[2]

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def status(self) -> int:
        """Read to the end, and return how the program exited."""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while os.read(self.descriptor, 65_536):
                pass
        _, self._ended = os.waitpid(self.child, 0)
        return os.waitstatus_to_exitcode(self._ended)

    def close(self) -> None:
        """End the program if a test has not seen it end."""
        os.close(self.descriptor)
        if self._ended is None:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)


CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
QUESTION: Final = "[r]esume or [c]ancel?"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if not hasattr(os, "forkpty"):
        pytest.skip("there are no pseudo-terminals here")
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
@unhurried
def test_ctrl_c_pauses_and_the_work_can_be_resumed(terminal: Terminal, tmp_path: Path) -> None:
    terminal.read_until("import: START")
    terminal.type(CTRL_C)
    terminal.read_until("Pausing after the batch in hand")
    terminal.read_until(QUESTION)
    terminal.type("what?\n")
    terminal.read_until(QUESTION)
    terminal.type("r\n")

    assert terminal.status() == 0
    told = report_of(tmp_path)
    assert told["outcome"] == "completed"
    assert len(told["matches"]) == 11
    assert_whole(tmp_path)


@pytest.mark.slow
@unhurried
@pytest.mark.parametrize("answer", ["c\n", CTRL_C, CTRL_D], ids=["c", "ctrl-c", "ctrl-d"])
def test_ctrl_c_pauses_and_the_work_can_be_cancelled(
    terminal: Terminal, tmp_path: Path, answer: str
) -> None:
    terminal.read_until("import: START")
    terminal.type(CTRL_C)
    terminal.read_until(QUESTION)
    terminal.type(answer)

    assert terminal.status() == 130
    told = report_of(tmp_path)
    assert told["outcome"] == "cancelled"
    assert len(told["matches"]) < 11
    assert_whole(tmp_path)
