"""Overlapping crops of real photographs, for a run without photographs of one's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import cv2
import numpy as np
import skimage
from numpy.typing import NDArray

from photo.pictures import UnreadableError, read_header
from photo.results import written_whole

# Photographs that lie inside scikit-image's wheel (its other pictures are downloaded at
# first use), chosen for having enough detail to match when they are enlarged.
SOURCES: Final = ("motorcycle_left.png", "hubble_deep_field.jpg", "coffee.png", "rocket.jpg")

DATA_FOLDER: Final = Path(skimage.__file__).parent / "data"

# So few from one photograph that neighbours overlap, and still differ.
CROPS_OF_ONE: Final = 6

# A crop shows this much of its photograph, and the next one moves on by this much of the
# crop: neighbours share two thirds, as aerial surveys plan it.
CROP_SHARE: Final = 0.6
STEP_SHARE: Final = 1 / 3
JPEG_QUALITY: Final = 92


@attrs.frozen
class Box:
    """A rectangle of pixels."""

    left: int
    top: int
    width: int
    height: int


@attrs.frozen
class Crop:
    """One sample photograph: the file it becomes, and where it is cut."""

    name: str
    source: str
    number: int
    """0 for the first one of its source."""
    of: int
    """How many its source gives."""


def plan(count: int) -> list[Crop]:
    """Return *count* crops, evenly over no more sources than it takes."""
    sources = SOURCES[: math.ceil(count / CROPS_OF_ONE)]
    even, rest = divmod(count, len(sources))
    cuts = [
        (source, number, even + (place < rest))
        for place, source in enumerate(sources)
        for number in range(even + (place < rest))
    ]
    return [
        Crop(f"{place:02}_{Path(source).stem}.jpg", source, number, of)
        for place, (source, number, of) in enumerate(cuts, start=1)
    ]


def flight(width: int, height: int, aspect: float, count: int) -> list[Box]:
    """
    Return *count* overlapping boxes of one *aspect* in a picture, as a drone would fly it.

    Up to two rows, the second flown backwards, so that each box overlaps the one before.
    """
    box_width = CROP_SHARE * min(width, height * aspect)
    box_height = box_width / aspect
    columns = (count + 1) // 2 if count > 2 else count
    step_x = min(STEP_SHARE * box_width, (width - box_width) / max(1, columns - 1))
    step_y = min(STEP_SHARE * box_height, height - box_height)
    boxes = []
    for number in range(count):
        row, column = divmod(number, columns)
        if row:
            column = columns - 1 - column
        left, top = int(column * step_x), int(row * step_y)
        boxes.append(Box(left, top, max(1, int(box_width)), max(1, int(box_height))))
    return boxes


def cut(crop: Crop, width: int, height: int) -> NDArray[np.uint8]:
    """Return the crop, enlarged to *width* x *height* pixels."""
    source = DATA_FOLDER / crop.source
    picture = cv2.imread(str(source))
    if picture is None:
        raise UnreadableError(source, "scikit-image should have brought it; install it again")
    box = flight(picture.shape[1], picture.shape[0], width / height, crop.of)[crop.number]
    part = picture[box.top : box.top + box.height, box.left : box.left + box.width]
    enlarged = cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC)
    return enlarged.astype(np.uint8, copy=False)


def write(folder: Path, count: int, width: int, height: int) -> Iterator[Path]:
    """
    Write *count* photographs and yield the path of each once its file is whole.

    Those of an earlier run are kept. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for crop in plan(count):
        path = folder / crop.name
        if not _is_there(path, width, height):
            quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
            _, data = cv2.imencode(".jpg", cut(crop, width, height), quality)
            with written_whole(path) as file:
                file.write(data.tobytes())
        yield path


def _is_there(path: Path, width: int, height: int) -> bool:
    try:
        header = read_header(path)
    except UnreadableError:
        return False
    return (header.width, header.height) == (width, height)
