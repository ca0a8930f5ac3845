"""What a job does: the batches of its part, as many at once as the job's own limits hold."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import cv2

from lardon import GiB, Governor, MiB, Policy, ResourceEstimate, TaskContext, TaskQueue
from photo.costs import FIXED_BYTES, extraction_bytes, import_bytes, matching_bytes
from photo.features import ORB, detect, match
from photo.pictures import UnreadableError, check, headers_of, load_grey
from photo.results import load_features, save_features, save_matches, written_whole
from slurm_photo.plan import FEATURES, Part, log_file, result_file

# Python with OpenCV, NumPy and Pillow loaded, before any photograph: 130 MiB were measured.
LIBRARIES_BYTES: Final = 192 * MiB
# The governor keeps an eighth of a machine free, 2 GiB at most, and a job is a machine to it.
_KEPT_FREE: Final = 8
Item = tuple[str, ...]


def estimate_of(part: Part, at_once: int) -> ResourceEstimate:
    """Return what the part needs: the same figures for the cluster and for the job's governor."""
    if part.step == FEATURES:
        headers = headers_of(Path(path) for (path,) in part.items)
        per_item = max((max(import_bytes(h), extraction_bytes(h, ORB)) for h in headers), default=0)
    else:
        per_item = matching_bytes(ORB)
    return ResourceEstimate(
        kind=f"photo-{part.step}",
        ram_bytes=FIXED_BYTES,
        ram_bytes_per_item=per_item,
        max_batch=max(1, min(at_once, len(part.items))),
    )


def job_ram_bytes(estimate: ResourceEstimate) -> int:
    """Return the memory to ask the cluster for, so that the full batch fits into the job."""
    batch = estimate.ram_bytes + estimate.max_batch * estimate.ram_bytes_per_item
    wanted = LIBRARIES_BYTES + batch
    return wanted + min(2 * GiB, wanted // (_KEPT_FREE - 1))


def work(output: Path, part: Part, at_once: int) -> None:
    """Do *part* in this job; its result appears whole, and last."""
    with log_file(output).open("a") as log:
        log.write(f"{part.id} {os.environ.get('DISPATCH_ATTEMPT', 'by hand')}\n")
    do = _extract if part.step == FEATURES else _match
    # It sees what the job was given: its cgroup, or SLURM_MEM_PER_NODE and SLURM_CPUS_ON_NODE.
    governor = Governor(Policy())
    with TaskQueue(governor, name=part.step) as queue:
        task = queue.submit(_in_batches, output, part, do, estimate=estimate_of(part, at_once))
        batches, left_out = task.result()
    machine = governor.snapshot()
    said = {
        "step": part.step,
        "items": len(part.items),
        "batches": batches,
        "left_out": left_out,
        "ram_total_bytes": machine.ram_total_bytes,
        "cpus": machine.cpus,
        "attempt": os.environ.get("DISPATCH_ATTEMPT"),
        "epoch": os.environ.get("DISPATCH_EPOCH"),
    }
    with written_whole(result_file(output, part)) as file:
        file.write(json.dumps(said, indent=1).encode())
    print(f"{part.step}: {len(part.items)} items in batches of {batches}")
    for reason in left_out:
        print(f"left out: {reason}")


def _in_batches(
    context: TaskContext, output: Path, part: Part, do: Callable[[Path, Item], str]
) -> tuple[list[int], list[str]]:
    """Return the sizes of the batches, and why items were left out."""
    reasons: list[str] = []

    def run(batch: Sequence[Item]) -> int:
        cv2.setNumThreads(max(1, context.contract.cpus // len(batch)))
        with ThreadPoolExecutor(len(batch)) as threads:
            reasons.extend(filter(None, threads.map(lambda item: do(output, item), batch)))
        return len(batch)

    return context.map_batches(run, list(part.items)), reasons


def _extract(output: Path, item: Item) -> str:
    """Save the features of one photograph; return why not, or an empty text."""
    (path,) = item
    try:
        photograph = check(Path(path))
    except UnreadableError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno is not None:
            # The system could not read it; another node, or a later try, may.
            raise
        return str(error)
    grey, scale = load_grey(photograph, ORB.most_pixels)
    save_features(_features(output, path), detect(grey, ORB, scale))
    return ""


def _match(output: Path, item: Item) -> str:
    """Save the matches of two photographs; return why not, or an empty text."""
    names = "--".join(Path(path).name for path in item)
    try:
        left, right = (load_features(_features(output, path)) for path in item)
    except FileNotFoundError:
        return f"{names}: one of them was left out"
    save_matches(output / "matches" / f"{names}.npz", match(left, right, ORB))
    return ""


def _features(output: Path, path: str) -> Path:
    return output / "features" / f"{Path(path).name}.npz"
