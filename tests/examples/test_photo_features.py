"""The main job: its pure parts, and whole runs on small photographs, as a user starts them."""

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

from lardon import Contract, Decision, DecisionKind, MiB, Reason, ReasonCode, ResourceEstimate

for needed in ("cv2", "skimage", "rich", "matplotlib"):
    pytest.importorskip(needed, reason="the extra 'examples' is not installed")

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

import numpy as np  # noqa: E402  after the check that it is there
from PIL import Image  # noqa: E402

import photo_features  # noqa: E402
from photo import costs, display, pictures, report, results, samples  # noqa: E402
from photo.features import ORB, SIFT, Features, detect, match  # noqa: E402
from photo.recorder import Recorder, in_words  # noqa: E402

PROGRAM: Final = [sys.executable, str(EXAMPLES / "photo_features.py")]
# On a busy machine the libraries alone take seconds to load, and Matplotlib's first use a
# minute; a run itself takes one or two.
PATIENCE_S: Final = 100
unhurried: Final = pytest.mark.timeout(PATIENCE_S + 20)
CONTROL: Final = {chr(code) for code in range(32)} - {"\n"}

CAMERA: Final = pictures.Photograph(
    path=Path("camera.jpg"), width=6000, height=4000, file_bytes=8_000_000
)


# Pure parts -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 23, 24, 40])
def test_the_plan_gives_the_count_in_order_of_name(count: int) -> None:
    plan = samples.plan(count)

    assert len(plan) == count
    names = [crop.name for crop in plan]
    assert names == sorted(names)
    assert len(set(names)) == count


@pytest.mark.parametrize("size", [(741, 500), (1000, 872), (500, 741)])
@pytest.mark.parametrize("aspect", [1.5, 1.0, 0.67])
def test_neighbouring_boxes_overlap_and_lie_inside(size: tuple[int, int], aspect: float) -> None:
    width, height = size
    boxes = samples.flight(width, height, aspect, 6)

    assert len(set(boxes)) == 6
    for box in boxes:
        assert 0 <= box.left <= width - box.width
        assert 0 <= box.top <= height - box.height
        assert box.width / box.height == pytest.approx(aspect, rel=0.02)
    for one, other in pairwise(boxes):
        shared_x = one.width - abs(one.left - other.left)
        shared_y = one.height - abs(one.top - other.top)
        assert shared_x * shared_y > 0.5 * one.width * one.height


def test_the_samples_lie_inside_the_installed_package() -> None:
    """Nothing is downloaded: what is not in the wheel is not used."""
    assert [name for name in samples.SOURCES if not (samples.DATA_FOLDER / name).is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("detector", [ORB, SIFT], ids=lambda detector: detector.name)
def test_matches_of_neighbours_follow_the_movement_between_their_boxes(detector: Any) -> None:
    """The median shift of the matches is where the second crop was cut."""
    first, second = samples.plan(6)[:2]
    grey = [
        np.asarray(Image.fromarray(samples.cut(crop, 600, 400)).convert("L"))
        for crop in (first, second)
    ]
    left, right = (detect(picture, detector) for picture in grey)

    found = match(left, right, detector)

    inliers = found.pairs[found.inliers]
    assert len(inliers) >= 100
    shift = np.median(left.points[inliers[:, 0]] - right.points[inliers[:, 1]], axis=0)
    boxes = samples.flight(741, 500, 600 / 400, 6)
    enlarged = 600 / boxes[0].width
    assert shift[0] == pytest.approx((boxes[1].left - boxes[0].left) * enlarged, abs=2)
    assert shift[1] == pytest.approx(0, abs=2)


def test_a_picture_without_detail_has_no_features_and_no_matches() -> None:
    flat = np.full((100, 100), 9, np.uint8)
    for detector in (ORB, SIFT):
        features = detect(flat, detector)
        found = match(features, features, detector)

        assert len(features) == 0
        assert features.descriptors.shape == (0, 32 if detector is ORB else 128)
        assert found.pairs.shape == (0, 2)
        assert not found.fundamental.any()


def test_points_are_in_pixels_of_the_photograph_at_full_size(tmp_path: Path) -> None:
    path = tmp_path / "square.png"
    canvas = np.zeros((800, 1200), np.uint8)
    canvas[300:500, 700:900] = 255
    Image.fromarray(canvas).save(path)

    grey, scale = pictures.load_grey(pictures.read_header(path), 300 * 200)
    points = detect(grey, ORB, scale).points

    assert scale == pytest.approx(0.25)
    assert grey.shape == (200, 300)
    assert points[:, 0].min() == pytest.approx(700, abs=16)
    assert points[:, 0].max() == pytest.approx(900, abs=16)


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    features = Features(
        points=np.ones((2, 2), np.float32),
        sizes=np.ones(2, np.float32),
        angles=np.zeros(2, np.float32),
        strengths=np.ones(2, np.float32),
        descriptors=np.arange(64, dtype=np.uint8).reshape(2, 32),
    )

    results.save_features(tmp_path / "x.npz", features)
    loaded = results.load_features(tmp_path / "x.npz")

    for field in attrs.fields(Features):
        np.testing.assert_array_equal(getattr(loaded, field.name), getattr(features, field.name))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    with pytest.raises(RuntimeError, match="disk"), results.written_whole(path) as file:
        file.write(b"half of the")
        raise RuntimeError("disk")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_estimate_is_that_of_the_largest_photograph() -> None:
    small = attrs.evolve(CAMERA, width=600, height=400)

    importing, extracting, matching = costs.estimates(5, [small, CAMERA], ORB, most=16, cpus=4)

    assert importing.ram_bytes_per_item == costs.import_bytes(CAMERA)
    assert 91 * MiB < importing.ram_bytes_per_item < 100 * MiB
    # What ORB was measured to take, from an enlarged photograph to a sharp lawn.
    assert 141 * MiB < extracting.ram_bytes_per_item < 220 * MiB
    assert (importing.max_batch, extracting.max_batch, matching.max_batch) == (5, 2, 1)
    assert (importing.cpus, importing.min_cpus, matching.cpus) == (4, 1, 1)


def test_sift_works_on_a_smaller_picture_and_takes_more() -> None:
    orb, sift = (costs.extraction_bytes(CAMERA, detector) for detector in (ORB, SIFT))

    assert 690 * MiB < sift < 720 * MiB
    assert sift > 3 * orb
    # Decoding a huge photograph is then what takes most.
    huge = attrs.evolve(CAMERA, width=30_000, height=20_000)
    assert costs.extraction_bytes(huge, SIFT) > 2 * huge.pixels + huge.file_bytes


def test_a_progressive_file_takes_more_to_decode() -> None:
    progressive = attrs.evolve(CAMERA, progressive=True)

    assert costs.import_bytes(progressive) > 10 * CAMERA.pixels


def test_no_photographs_make_a_legal_estimate() -> None:
    for estimate in costs.estimates(1, [], SIFT, most=16, cpus=2):
        assert estimate.max_batch == 1


def test_decisions_in_plain_words() -> None:
    estimate = ResourceEstimate(ram_bytes_per_item=200 * MiB, max_batch=16)
    short = Reason(code=ReasonCode.RAM_SHORT, text="there is little memory")

    def said(kind: DecisionKind, batch: int | None = None) -> str:
        contract = None
        if batch is not None:
            contract = Contract(batch_size=batch, ram_bytes=batch * 200 * MiB, cpus=batch // 5)
        return in_words("features", estimate, Decision(kind=kind, contract=contract, reason=short))

    assert (
        said(DecisionKind.START, 16)
        == "features: START with batches of 16 (3.125 GiB of RAM, 3 CPUs)"
    )
    assert said(DecisionKind.REDUCE_BATCH, 5) == (
        "features: REDUCE_BATCH from 16 to 5, because there is little memory"
    )
    assert said(DecisionKind.WAIT) == "features: WAIT, because there is little memory"
    assert said(DecisionKind.REJECT) == "features: REJECT, because there is little memory"


def test_a_wait_is_told_once_and_counted_until_it_ends() -> None:
    from lardon import Governor, SystemProbe

    probe = SystemProbe()
    recorder = Recorder(Governor(probe=probe), probe)
    estimate = ResourceEstimate(max_batch=2)
    reason = Reason(code=ReasonCode.RAM_SHORT, text="no memory")
    waits = Decision(kind=DecisionKind.WAIT, reason=reason)
    starts = Decision(
        kind=DecisionKind.START, contract=Contract(batch_size=2, ram_bytes=0), reason=reason
    )

    for decision in (waits, waits, waits, starts):
        recorder.heard("import", estimate, decision)

    (wait,) = recorder.waits
    assert wait.ended_s is not None
    assert wait.ended_s >= wait.started_s
    assert recorder.news.qsize() == 2


def test_sizes_in_words() -> None:
    assert report.sizes_in_words([]) == ""
    assert report.sizes_in_words([16, 8]) == "16, 8"
    assert report.sizes_in_words([9, 9, 6]) == "2 x 9, 6"


def test_a_file_name_cannot_steer_the_terminal() -> None:
    assert display.printable("a\x1b[31m\nb\udc80é.jpg") == "a\\x1b[31m\\nb\\udc80é.jpg"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.jpg", b"", "it is empty"),
        ("text.png", b"not a picture", "its format is not recognised"),
        ("missing.jpg", None, "No such file or directory"),
    ],
)
def test_why_a_photograph_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(pictures.UnreadableError) as caught:
        pictures.check(tmp_path / name)

    assert (caught.value.path.name, caught.value.reason) == (name, reason)


def test_a_truncated_photograph_has_a_header_and_cannot_be_read(tmp_path: Path) -> None:
    path = truncated(tmp_path / "cut.jpg")

    assert pictures.read_header(path).width == 300
    with pytest.raises(pictures.UnreadableError, match="truncated"):
        pictures.check(path)


def test_find_leaves_hidden_files_and_folders_out(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.tif", ".hidden.jpg", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "nowhere")

    found, others = pictures.find(tmp_path)

    assert [path.name for path in found] == ["a.tif", "b.JPG", "broken.jpg"]
    assert [path.name for path in others] == ["notes.txt"]


def truncated(path: Path) -> Path:
    """Write a JPEG whose second half is missing."""
    noise = np.random.default_rng(1).integers(0, 256, (200, 300, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


# Whole runs -----------------------------------------------------------------------


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
