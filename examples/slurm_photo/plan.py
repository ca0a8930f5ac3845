"""What is to be done, written down before anything is submitted, so that it can be found again."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import secrets
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs

from lardon.dispatch import new_ulid
from photo.results import written_whole

FEATURES: Final = "features"
MATCHES: Final = "matches"


@attrs.frozen
class Part:
    """The work of one job. Its id is its name on the cluster, however often it is submitted."""

    id: str
    step: str
    items: tuple[tuple[str, ...], ...]
    """Photographs, or pairs of neighbours, as paths."""


@attrs.frozen
class Plan:
    """All parts, in the order of their steps; kept in a file beside the results."""

    parts: tuple[Part, ...]

    def step(self, name: str) -> list[Part]:
        """Return the parts of one step."""
        return [part for part in self.parts if part.step == name]


def plan_file(output: Path) -> Path:
    """Return where the plan lies."""
    return output / "plan.json"


def result_file(output: Path, part: Part) -> Path:
    """Return where the job of *part* says, as its last act, that it is done."""
    return output / "results" / f"{part.id}.json"


def log_file(output: Path) -> Path:
    """Return where every execution writes a line when it begins."""
    return output / "executions.log"


def executions(output: Path, part_id: str) -> int:
    """Return how often a job of that part has begun."""
    try:
        lines = log_file(output).read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(line.split(" ")[0] == part_id for line in lines)


class InUseError(Exception):
    """Another run follows the jobs of this output folder."""


@contextlib.contextmanager
def alone(output: Path) -> Iterator[None]:
    """
    Keep every other run out of *output*: two would submit the same parts.

    The system lets go of the file when the program ends, however it ends.

    Raises:
        InUseError: another run is there.

    """
    with (output / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another run uses {output}; it may go on, or give another --output"
            raise InUseError(message) from None
        yield


def make_plan(photographs: Sequence[Path], per_job: int) -> Plan:
    """Return a plan for *photographs*, of which each job takes up to *per_job*."""
    paths = [str(path.resolve()) for path in photographs]
    features = [
        Part(_new_id(), FEATURES, tuple((path,) for path in paths[first : first + per_job]))
        for first in range(0, len(paths), per_job)
    ]
    matches = Part(_new_id(), MATCHES, tuple(pairwise(paths)))
    return Plan((*features, *([matches] if matches.items else [])))


def save_plan(output: Path, plan: Plan) -> None:
    """Write the plan, whole or not at all."""
    with written_whole(plan_file(output)) as file:
        file.write(json.dumps(attrs.asdict(plan), indent=1).encode())


def load_plan(output: Path) -> Plan | None:
    """Return the plan of an earlier run, None when there was none."""
    try:
        document: dict[str, Any] = json.loads(plan_file(output).read_text())
    except FileNotFoundError:
        return None
    return Plan(
        tuple(
            Part(part["id"], part["step"], tuple(tuple(item) for item in part["items"]))
            for part in document["parts"]
        )
    )


def _new_id() -> str:
    return new_ulid(datetime.datetime.now(datetime.UTC), secrets.randbits)
