"""
A batch of questions to many models, on workers that can each keep a few.

    python examples/model_server_batch.py             # sized to what the governor grants
    python examples/model_server_batch.py --full      # 24 GiB of weights
    python examples/model_server_batch.py --jobs 1000 --workers 8

Every worker is a process that maps the weights of a model into its memory when it first
needs them, and drops the model that it has not used for longest when it has too many. Some
models are asked for often and most are not. The same jobs run twice: on whichever worker
comes first, and on the worker that already has the model, if it is free in time.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

# One thread for each job is what its estimate says; the workers inherit this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    from lardon import Governor, MiB, ResourceEstimate
    from lardon.locality import WorkerPool
    from lardon.units import format_bytes
    from model_server.weights import FILLED
    from model_server.work import Answer, answer
except ModuleNotFoundError as missing:
    print(
        f"model_server_batch.py needs the package of {missing.name!r}, which is not installed.\n"
        f"In a checkout of lardon:  pip install -e '.[examples]'",
        file=sys.stderr,
    )
    sys.exit(2)

MODEL_BYTES: Final = 256 * MiB
FULL_MODEL_BYTES: Final = 2048 * MiB
# The smallest that is still dearer to load than to use.
STEP_BYTES: Final = 16 * MiB


class Plan(NamedTuple):
    """How much of everything."""

    models: int
    model_bytes: int
    workers: int
    kept: int
    jobs: int


def plan(options: argparse.Namespace, governor: Governor, folder: Path) -> Plan:
    """Take the largest models for which the governor grants the RAM, and the disk has room."""
    wanted = FULL_MODEL_BYTES if options.full else MODEL_BYTES
    resident = ResourceEstimate(
        ram_bytes_per_item=options.workers * options.keep * STEP_BYTES // FILLED,
        max_batch=wanted // STEP_BYTES,
    )
    decision = governor.decide(resident)
    steps = decision.contract.batch_size if decision.contract is not None else 1
    on_disk = options.models * STEP_BYTES // FILLED
    steps = max(1, min(steps, shutil.disk_usage(folder).free // 4 // on_disk))
    if steps * STEP_BYTES < wanted:
        print(f"Models of {format_bytes(wanted)} would be too large here: {decision.reason}.")
    return Plan(options.models, steps * STEP_BYTES, options.workers, options.keep, options.jobs)


def stream(plan: Plan) -> list[str]:
    """Return the model that each job asks for: the first often, the last seldom (Zipf)."""
    names = [f"model-{number:02d}" for number in range(plan.models)]
    weights = [1 / (rank + 1) for rank in range(plan.models)]
    return random.Random(1).choices(names, weights, k=plan.jobs)


def run(governor: Governor, plan: Plan, *, locality: bool) -> tuple[list[Answer], float]:
    """Answer every question; return the answers and the seconds from the first to the last."""
    estimate = ResourceEstimate(ram_bytes=plan.model_bytes // FILLED + 64 * MiB)
    with (
        tempfile.TemporaryDirectory(prefix="lardon-models-") as folder,
        WorkerPool(governor, workers=plan.workers, process=True, max_artifacts=plan.kept) as pool,
    ):
        # The interpreters start before the clock does.
        while not all(view.ready for view in pool.workers()):
            time.sleep(0.01)
        before = time.perf_counter()
        tasks = [
            pool.submit(
                answer, Path(folder), model, plan.model_bytes, number,
                estimate=estimate, deps=[model] if locality else [],
            )
            for number, model in enumerate(stream(plan))
        ]  # fmt: skip
        answers = [task.result() for task in tasks]
        return answers, time.perf_counter() - before


def report(name: str, answers: Sequence[Answer], seconds: float) -> int:
    """Print one run, and return how often a model was loaded."""
    loads = sum(one.loaded for one in answers)
    print(
        f"{name:17} {loads:4} loads ({sum(one.load_s for one in answers):5.1f} s), "
        f"hit share {1 - loads / len(answers):4.0%}, makespan {seconds:5.1f} s"
    )
    return loads


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description="See the text at the top of this file.")
    parser.add_argument("--models", type=int, default=12, help="how many models there are")
    parser.add_argument("--workers", type=int, default=3, help="how many processes")
    parser.add_argument("--keep", type=int, default=4, help="models that a worker can keep")
    parser.add_argument("--jobs", type=int, default=150, help="how many questions")
    parser.add_argument("--full", action="store_true", help="models of 2 GiB instead of 256 MiB")
    options = parser.parse_args(arguments)
    if min(options.models, options.workers, options.keep, options.jobs) < 1:
        parser.error("every count must be at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the same jobs without and with locality, and compare."""
    options = parse(arguments)
    governor = Governor()
    sizes = plan(options, governor, Path(tempfile.gettempdir()))
    print(
        f"{sizes.models} models of {format_bytes(sizes.model_bytes)}, "
        f"{format_bytes(sizes.models * sizes.model_bytes)} in all; "
        f"{sizes.workers} workers keep {sizes.kept} each; {sizes.jobs} jobs."
    )
    anywhere, slow_s = run(governor, sizes, locality=False)
    without = report("without locality:", anywhere, slow_s)
    placed, fast_s = run(governor, sizes, locality=True)
    with_it = report("with locality:", placed, fast_s)
    same = [one.value for one in anywhere] == [one.value for one in placed]
    print(
        f"{without - with_it} loads avoided; {slow_s / fast_s:.1f} times as fast; the answers "
        f"are {'the same' if same else 'NOT the same'}."
    )


if __name__ == "__main__":
    main()
