"""
Measure what one photograph takes, for the figures in `costs.py` (Linux only).

    cd examples && python -m photo.measure PHOTOGRAPH [STAGE ...]

Each line is a process of its own that does one stage (import, decode, ORB, SIFT, match)
with 1, 4 or 16 copies at once, and then reads the kernel's high-water mark.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import cv2

from lardon.units import MiB
from photo.features import ORB, SIFT, Detector, detect, match
from photo.high_water import HighWater
from photo.pictures import Photograph, check, load_grey

REPEATS: Final = 3


def find_features(photograph: Photograph, detector: Detector) -> None:
    """Do what extraction does, less the writing."""
    grey, scale = load_grey(photograph, detector.most_pixels)
    detect(grey, detector, scale)


def stage(name: str, photograph: Photograph) -> Callable[[], object]:
    """Return the work of one stage on one photograph."""
    if name == "match":
        grey, scale = load_grey(photograph, ORB.most_pixels)
        features = detect(grey, ORB, scale)
        return partial(match, features, features, ORB)
    stages: dict[str, Callable[[], object]] = {
        "import": partial(check, photograph.path),
        "decode": partial(load_grey, photograph, photograph.pixels),
        "ORB": partial(find_features, photograph, ORB),
        "SIFT": partial(find_features, photograph, SIFT),
    }
    return stages[name]


def growth(work: Callable[[], object], at_once: int) -> int:
    """Return by how many bytes the process grew at most while *at_once* threads worked."""
    water = HighWater()
    before = water.now()
    water.reset()
    with ThreadPoolExecutor(at_once) as threads:
        for done in [threads.submit(work) for _ in range(at_once)]:
            done.result()
    return water.peak() - before


def main(path: Path, name: str, at_once: int) -> None:
    """Print the growth per photograph, several times in a row."""
    cv2.setNumThreads(1)
    photograph = check(path)
    work = stage(name, photograph)
    each = [growth(work, at_once) / at_once for _ in range(REPEATS)]
    shown = ", ".join(f"{figure / MiB:.1f}" for figure in each)
    per_pixel = max(each) / photograph.pixels
    print(f"{name:7} {at_once:2} at once: {shown} MiB each; {per_pixel:.2f} bytes a pixel at most")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[-1].isdigit():
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        for chosen in sys.argv[2:] or ["import", "decode", "ORB", "SIFT", "match"]:
            for number in (1, 4, 16):
                command = [sys.executable, "-m", "photo.measure", sys.argv[1], chosen, str(number)]
                subprocess.run(command, check=True)  # noqa: S603  this very program
