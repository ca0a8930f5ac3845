"""
What a batch needs: measured figures, and the estimates made from them.

The figures are growths of the resident memory of one process (Linux, x86-64, glibc,
Python 3.11, OpenCV 5.0, Pillow 13), as the kernel's own high-water mark has them:

    cd examples && python -m photo.measure PHOTOGRAPH

measures them again for a photograph of yours, with 1, 4 and 16 at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lardon import MiB, ResourceEstimate
from photo.features import MOST_FEATURES, SIFT, Detector
from photo.pictures import Photograph, scale_to

# What the first batch takes once, whatever its size: thread stacks and the libraries' own
# tables. Measured: 4 MiB at the first match, less elsewhere.
FIXED_BYTES: Final = 8 * MiB

# Pillow keeps 4 bytes for a pixel of 8-bit RGB. Measured at 24 megapixels: 4.02, with 1, 4
# and 16 photographs at once.
PILLOW_BYTES_PER_PIXEL: Final = 4.1

# OpenCV to grey, beside the file itself in memory. Measured at 24 megapixels: 1.99.
GREY_BYTES_PER_PIXEL: Final = 2.1

# libjpeg holds the coefficients of all of a progressive file, two bytes each, before the
# first pixel comes out. Measured: 3.0 when colour has half the resolution, 6.0 when not.
PROGRESSIVE_BYTES_PER_PIXEL: Final = 6.0

# ORB's pyramid, its blurred copies and all candidates for corners, the grey picture
# included. Measured at 24 megapixels: 6.2 on an enlarged photograph (141 MiB); 8.3 to 9.1 on
# a lawn that is sharp to the last pixel (up to 208 MiB) and has far more candidates.
ORB_BYTES_PER_PIXEL: Final = 9.0

# SIFT doubles the picture and keeps 11 layers of each octave in 4-byte floats, which makes
# 11 * 4 * 4 * 4/3 = 235. Measured at 3 megapixels: 244 (697 MiB) the first time, 150 to 200
# once the process has freed memory to use again.
SIFT_BYTES_PER_PIXEL: Final = 245.0

# A feature while two photographs are matched, beside its descriptors: the candidates as
# Python objects, and the arrays of both files. Measured for a pair with ORB, 2.3 MiB by this
# figure: 3.8 MiB the first time (see above), 1.5 with 4 pairs at once, 0.9 with 16.
MATCH_BYTES_PER_FEATURE: Final = 400


def import_bytes(photograph: Photograph) -> int:
    """Return what decoding one photograph in full for a check takes."""
    per_pixel = PILLOW_BYTES_PER_PIXEL + PROGRESSIVE_BYTES_PER_PIXEL * photograph.progressive
    return int(per_pixel * photograph.pixels)


def extraction_bytes(photograph: Photograph, detector: Detector) -> int:
    """Return what finding the features of one photograph takes at its worst moment."""
    per_pixel = GREY_BYTES_PER_PIXEL + PROGRESSIVE_BYTES_PER_PIXEL * photograph.progressive
    decoding = photograph.file_bytes + per_pixel * photograph.pixels
    worked_on = photograph.pixels * scale_to(photograph, detector.most_pixels) ** 2
    detecting = worked_on * (SIFT_BYTES_PER_PIXEL if detector is SIFT else ORB_BYTES_PER_PIXEL)
    return int(max(decoding, detecting))


def matching_bytes(detector: Detector) -> int:
    """Return what matching one pair of photographs takes."""
    return MOST_FEATURES * (2 * detector.descriptor_bytes + MATCH_BYTES_PER_FEATURE)


def estimates(
    files: int, photographs: Iterable[Photograph], detector: Detector, *, most: int, cpus: int
) -> tuple[ResourceEstimate, ResourceEstimate, ResourceEstimate]:
    """
    Return the estimates of import, extraction and matching.

    The figure per item is that of the largest photograph: any of them may be in a batch.

    Args:
        files: How many files there are.
        photographs: The headers of those that have one.
        detector: What finds the features.
        most: The largest batch wanted.
        cpus: The CPUs of this machine.

    """
    headers = list(photographs)

    def estimate(kind: str, per_item: int, items: int) -> ResourceEstimate:
        largest = max(1, min(most, items))
        return ResourceEstimate(
            kind=kind,
            ram_bytes=FIXED_BYTES,
            ram_bytes_per_item=per_item,
            max_batch=largest,
            cpus=min(cpus, largest),
            min_cpus=1,
        )

    return (
        estimate("photo-import", max(map(import_bytes, headers), default=0), files),
        estimate(
            f"photo-{detector.name.lower()}",
            max((extraction_bytes(header, detector) for header in headers), default=0),
            len(headers),
        ),
        estimate("photo-match", matching_bytes(detector), len(headers) - 1),
    )
