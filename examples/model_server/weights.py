"""Stand-ins for the weights of models: large files, made on first use, mapped into memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Matrix: TypeAlias = npt.NDArray[np.float32]

COLUMNS: Final = 4096
ROW_BYTES: Final = COLUMNS * 4
# As in a mixture of experts most of which are never asked: the rest of the file is a hole,
# which takes no room on the disk and is never read.
FILLED: Final = 8


def load(folder: Path, model: str, size_bytes: int) -> tuple[Matrix, bool]:
    """
    Return the rows in use of *model*, scaled and resident, and whether its file had to be made.

    The mapping is private: what is written stays in this process, a page at a time.
    """
    path = folder / f"{model}.weights"
    made = not path.exists()
    if made:
        _make(path, model, size_bytes)
    rows = size_bytes // ROW_BYTES
    mapped = np.memmap(path, dtype=np.float32, mode="c", shape=(rows, COLUMNS))
    used: Matrix = mapped[: rows // FILLED]
    used *= np.float32(1 / COLUMNS)
    return used, made


def _make(path: Path, model: str, size_bytes: int) -> None:
    """Write the file under another name first: two workers may do so at once."""
    rng = np.random.default_rng(list(model.encode()))
    rows = size_bytes // ROW_BYTES // FILLED
    own = path.with_suffix(f".{os.getpid()}")
    with own.open("wb") as file:
        for _ in range(rows // 64):
            file.write(rng.random((64, COLUMNS), dtype=np.float32).tobytes())
        file.truncate(size_bytes)
    own.replace(path)
