"""Photographs as files: finding them, reading their headers, checking and decoding them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

Grey = NDArray[np.uint8]

SUFFIXES: Final = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp"})

# Under this there is no room for the border and the pyramid of a feature detector.
SMALLEST_SIDE: Final = 64


class UnreadableError(Exception):
    """A photograph that cannot be used: its path, and the reason in words."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@attrs.frozen(kw_only=True)
class Photograph:
    """What the header of an image file says."""

    path: Path
    width: int
    height: int
    file_bytes: int
    progressive: bool = False
    """A JPEG that can only be decoded as a whole, which takes more memory."""

    @property
    def pixels(self) -> int:
        """How many pixels it has."""
        return self.width * self.height

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.name


def find(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the photographs in *folder* by name, and the other files; raises OSError."""
    # A broken link is a photograph that cannot be read, and is reported as one.
    files = [path for path in sorted(folder.iterdir()) if path.is_file() or path.is_symlink()]
    visible = [path for path in files if not path.name.startswith(".")]
    photographs = [path for path in visible if path.suffix.lower() in SUFFIXES]
    return photographs, [path for path in visible if path.suffix.lower() not in SUFFIXES]


def read_header(path: Path) -> Photograph:
    """Return what the header says, without decoding; raises `UnreadableError`."""
    return _open(path, decode=False)


def headers_of(paths: Iterable[Path]) -> list[Photograph]:
    """Return the headers of those that have one; the import reports the others."""
    headers = []
    for path in paths:
        with contextlib.suppress(UnreadableError):
            headers.append(read_header(path))
    return headers


def check(path: Path) -> Photograph:
    """Decode the whole file and return its header; raises `UnreadableError`."""
    photograph = _open(path, decode=True)
    if min(photograph.width, photograph.height) < SMALLEST_SIDE:
        size = f"{photograph.width}x{photograph.height}"
        reason = f"{size} pixels are too few: each side needs {SMALLEST_SIDE}"
        raise UnreadableError(path, reason)
    return photograph


def _open(path: Path, *, decode: bool) -> Photograph:
    # Pillow, not OpenCV: OpenCV fills what is missing of a truncated file with grey and
    # calls it a success.
    try:
        with Image.open(path) as image:
            if decode:
                image.load()
            return Photograph(
                path=path,
                width=image.width,
                height=image.height,
                file_bytes=path.stat().st_size,
                progressive=bool(image.info.get("progressive")),
            )
    except UnidentifiedImageError:
        reason = "it is empty" if path.stat().st_size == 0 else "its format is not recognised"
        raise UnreadableError(path, reason) from None
    except MemoryError:
        raise
    except OSError as error:
        raise UnreadableError(path, error.strerror or str(error)) from error
    except Exception as error:  # decoders raise what they like at broken files
        reason = str(error) or type(error).__name__
        raise UnreadableError(path, reason) from error


def scale_to(photograph: Photograph, most_pixels: int) -> float:
    """Return the factor, at most 1, that brings a photograph down to *most_pixels*."""
    return min(1.0, math.sqrt(most_pixels / photograph.pixels))


def load_grey(photograph: Photograph, most_pixels: int) -> tuple[Grey, float]:
    """
    Decode to grey, scaled down to *most_pixels* where it has more; also return the scale.

    Rows and columns stay as the file stores them, so that points fit the raw pixels
    whatever the orientation tag says. Raises `UnreadableError`.
    """
    path = photograph.path
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise UnreadableError(path, error.strerror or str(error)) from error
    grey = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)
    if grey is None:
        raise UnreadableError(path, "OpenCV cannot decode it")
    del data
    scale = scale_to(photograph, most_pixels)
    if scale < 1:
        size = (max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    return grey.astype(np.uint8, copy=False), scale
