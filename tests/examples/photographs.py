"""A photograph that is cut short; who imports this is skipped without the extra 'examples'."""

from __future__ import annotations

from pathlib import Path

import pytest

for needed in ("cv2", "skimage", "rich", "matplotlib"):
    pytest.importorskip(needed, reason="the extra 'examples' is not installed")

import numpy as np  # noqa: E402  after the check that it is there
from PIL import Image  # noqa: E402


def truncated(path: Path) -> Path:
    """Write a JPEG whose second half is missing."""
    noise = np.random.default_rng(1).integers(0, 256, (200, 300, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path
