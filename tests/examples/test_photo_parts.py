"""The parts of the main job, one by one: samples, features, files, estimates, words."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from lardon import Contract, Decision, DecisionKind, MiB, Reason, ReasonCode, ResourceEstimate
from tests.examples.photographs import truncated  # first: it skips where the extra is not

# isort: split
import numpy as np
from PIL import Image

from photo import costs, display, pictures, report, results, samples
from photo.features import ORB, SIFT, Features, detect, match
from photo.recorder import Recorder, in_words

CAMERA: Final = pictures.Photograph(
    path=Path("camera.jpg"), width=6000, height=4000, file_bytes=8_000_000
)


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
