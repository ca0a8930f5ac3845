"""Finding features in one photograph, and matching the features of two."""

from __future__ import annotations

from typing import Any, Final

import attrs
import cv2
import numpy as np
from numpy.typing import NDArray

from photo.pictures import Grey

# More features find more matches, and the time to match grows with the square.
MOST_FEATURES: Final = 5000
# OpenCV's default of 20 finds little in soft pictures: 577 corners in the upscaled rocket
# crop, where 7 finds 3882. ORB keeps the strongest either way.
FAST_THRESHOLD: Final = 7
# Lowe's test: the best candidate must be this much nearer than the second best.
RATIO: Final = 0.8
# A match fits the epipolar geometry when it is this near to its line, in pixels.
EPIPOLAR_PIXELS: Final = 3.0
# Fewer matches determine no fundamental matrix.
FEWEST_MATCHES: Final = 8


@attrs.frozen(kw_only=True)
class Detector:
    """One way to find features, and the size it works at."""

    name: str
    most_pixels: int
    """Larger photographs are scaled down to this."""
    norm: int
    """How two descriptors are compared."""
    descriptor_bytes: int


ORB: Final = Detector(
    name="ORB", most_pixels=6000 * 4000, norm=cv2.NORM_HAMMING, descriptor_bytes=32
)
SIFT: Final = Detector(
    name="SIFT", most_pixels=2000 * 1500, norm=cv2.NORM_L2, descriptor_bytes=128 * 4
)


@attrs.frozen(kw_only=True, eq=False)
class Features:
    """The features of one photograph; a row in each array is one feature."""

    points: NDArray[np.float32]
    """x and y in pixels of the photograph at its full size."""
    sizes: NDArray[np.float32]
    angles: NDArray[np.float32]
    strengths: NDArray[np.float32]
    descriptors: NDArray[Any]
    """ORB: 32 bytes a row. SIFT: 128 floats a row."""

    def __len__(self) -> int:
        return len(self.points)


@attrs.frozen(kw_only=True, eq=False)
class Matches:
    """What two photographs have in common."""

    pairs: NDArray[np.int32]
    """Row by row: the feature in the left photograph, and the one in the right."""
    inliers: NDArray[np.bool_]
    """Which pairs fit one camera movement."""
    fundamental: NDArray[np.float64]
    """The fundamental matrix; all zero when nothing fits."""


def detect(grey: Grey, detector: Detector, scale: float = 1.0) -> Features:
    """Return the features of a grey picture that was scaled by *scale*."""
    if detector is SIFT:
        keypoints, descriptors = cv2.SIFT.create(MOST_FEATURES).detectAndCompute(grey, None)
    else:
        orb = cv2.ORB.create(MOST_FEATURES, fastThreshold=FAST_THRESHOLD)
        keypoints, descriptors = orb.detectAndCompute(grey, None)
    if descriptors is None:  # nothing found
        kind = np.float32 if detector is SIFT else np.uint8
        descriptors = np.empty((0, detector.descriptor_bytes // np.dtype(kind).itemsize), kind)
    # SIFT returns more than asked for when several share the last place.
    kept = keypoints[:MOST_FEATURES]
    return Features(
        points=np.array([k.pt for k in kept], np.float32).reshape(-1, 2) / np.float32(scale),
        sizes=np.array([k.size for k in kept], np.float32) / np.float32(scale),
        angles=np.array([k.angle for k in kept], np.float32),
        strengths=np.array([k.response for k in kept], np.float32),
        descriptors=descriptors[:MOST_FEATURES],
    )


def match(left: Features, right: Features, detector: Detector) -> Matches:
    """Return the pairs that pass the ratio test, and which of them fit one movement."""
    pairs = _similar(left, right, detector)
    inliers = np.zeros(len(pairs), np.bool_)
    fundamental = np.zeros((3, 3))
    if len(pairs) >= FEWEST_MATCHES:
        found, mask = cv2.findFundamentalMat(
            left.points[pairs[:, 0]],
            right.points[pairs[:, 1]],
            cv2.USAC_MAGSAC,
            EPIPOLAR_PIXELS,
            0.999,
            10_000,
        )
        if found is not None and found.shape == (3, 3):
            fundamental, inliers = found.astype(np.float64), mask.ravel().astype(np.bool_)
    return Matches(pairs=pairs, inliers=inliers, fundamental=fundamental)


def _similar(left: Features, right: Features, detector: Detector) -> NDArray[np.int32]:
    if len(left) == 0 or len(right) < 2:
        return np.empty((0, 2), np.int32)
    candidates = cv2.BFMatcher.create(detector.norm).knnMatch(
        left.descriptors, right.descriptors, k=2
    )
    # A feature of the right photograph goes to the one of the left that is nearest to it:
    # what many resemble says nothing.
    nearest: dict[int, cv2.DMatch] = {}
    for first, second in candidates:
        if first.distance < RATIO * second.distance:
            rival = nearest.get(first.trainIdx)
            if rival is None or first.distance < rival.distance:
                nearest[first.trainIdx] = first
    pairs = sorted((found.queryIdx, found.trainIdx) for found in nearest.values())
    return np.array(pairs, np.int32).reshape(-1, 2)
