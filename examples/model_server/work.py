"""What a worker does with one job. It runs in the worker's process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lardon.locality import ProcessContext, current_worker
from model_server.weights import COLUMNS, load

PROMPTS = 8


class Answer(NamedTuple):
    """What one job found, and what it cost."""

    value: float
    loaded: bool
    """Whether the model was not resident on this worker."""
    made: bool
    load_s: float


def answer(_context: ProcessContext, folder: Path, model: str, size_bytes: int, job: int) -> Answer:
    """Apply *model* to a few prompts, on a worker that keeps it for the next job."""
    worker = current_worker()
    assert worker is not None
    before = time.perf_counter()
    loaded, made = model not in worker.state, False
    if loaded:
        worker.state[model], made = load(folder, model, size_bytes)
        # Tells the scheduler; and what was used least is dropped, if it is one too many.
    worker.add_artifacts([model])
    load_s = time.perf_counter() - before
    prompts = np.random.default_rng(job).random((COLUMNS, PROMPTS), dtype=np.float32)
    scores = worker.state[model] @ prompts
    return Answer(float(scores.max()), loaded, made, load_s if loaded else 0.0)
