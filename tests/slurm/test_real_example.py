"""The photo job on a real cluster: killed on the way, started again, and nothing done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.testing.slurm_cluster import SlurmCluster

for needed in ("cv2", "skimage", "matplotlib"):
    pytest.importorskip(needed, reason="the extra 'examples' is not installed")

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(150)]

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "slurm_features.py"
PATIENCE_S: Final = 120


class Runs:
    """The example as a program, on one cluster and one output folder."""

    def __init__(self, cluster: SlurmCluster, output: Path) -> None:
        self.output = output
        self.cluster = cluster
        self._environment = os.environ | cluster.environment
        self._started: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        options = ["--output", str(self.output), "--count", "6", "--per-job", "2", "--poll", "0.3"]
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), *options],
            env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def killed_at(self, words: str) -> list[str]:
        """Start the program, and kill it when it says *words*; return all that it said."""
        process = self.start()
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if words in line:
                process.kill()
                break
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, "".join(said)
        return said

    def nodes_are(self, state: str) -> None:
        """Let the nodes take no job, or take jobs again; what was opened waits meanwhile."""
        for node in self.cluster.nodes:
            change = (f"NodeName={node}", f"State={state}", "Reason=test")
            answer = self.cluster.client("scontrol", "update", *change)
            assert answer.returncode == 0, answer.stderr

    def end_all(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def runs(shared_cluster: SlurmCluster, tmp_path: Path, end_jobs: Any) -> Iterator[Runs]:
    end_jobs(shared_cluster)
    one = Runs(shared_cluster, tmp_path / "out")
    yield one
    one.end_all()
    end_jobs(shared_cluster)


def test_killed_and_started_again_it_adopts_its_jobs_and_does_nothing_twice(runs: Runs) -> None:
    runs.nodes_are("DRAIN")  # or what was opened would be done before it can be adopted
    runs.killed_at("submitted job")  # gated, and not opened by us
    runs.killed_at("opened job")
    again = runs.killed_at("adopted job")
    assert sum("submitted job" in line for line in again) == 0
    runs.nodes_are("RESUME")
    runs.killed_at("done by job")

    last = runs.start()
    said, _ = last.communicate(timeout=PATIENCE_S)

    assert last.returncode == 0, said
    assert "All 4 parts are done" in said
    plan = json.loads((runs.output / "plan.json").read_text())["parts"]
    # Whoever was killed on the way, the job of each part has begun once.
    log = (runs.output / "executions.log").read_text().split()
    assert Counter(log[::2]) == Counter(part["id"] for part in plan)
    assert len(list((runs.output / "features").iterdir())) == 6
    assert len(list((runs.output / "matches").iterdir())) == 5
    for part in plan:
        result = json.loads((runs.output / "results" / f"{part['id']}.json").read_text())
        # The governor of the job saw the job's own memory, not the machine's.
        assert sum(result["batches"]) == len(part["items"])
        assert result["ram_total_bytes"] < 500 << 20
        assert (result["attempt"], result["epoch"]) == (_attempt(log, part["id"]), "1000000")


def _attempt(log: list[str], part: str) -> str:
    return log[log.index(part) + 1]
