"""The model server: its parts, and a whole run with small models, as a user starts it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from lardon import GiB, Governor, MiB, Policy, ResourceSnapshot
from lardon.testing import ScriptedProbe

np = pytest.importorskip("numpy", reason="the extra 'examples' is not installed")

import model_server_batch  # noqa: E402  after the check that it can be imported
from model_server.weights import COLUMNS, FILLED, load  # noqa: E402

PROGRAM: Final = Path(__file__).parents[2] / "examples" / "model_server_batch.py"
# Interpreters start, on a busy machine.
PATIENCE_S: Final = 100


def planned(available_bytes: int, tmp_path: Path, *arguments: str) -> model_server_batch.Plan:
    """Return the plan on a machine with so much RAM available."""
    snapshot = ResourceSnapshot(
        taken_at=0.0, ram_total_bytes=64 * GiB, ram_available_bytes=available_bytes
    )
    governor = Governor(Policy.unlimited(), probe=ScriptedProbe(snapshot))
    return model_server_batch.plan(model_server_batch.parse(arguments), governor, tmp_path)


def test_the_models_are_as_large_as_the_governor_grants(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = ("--workers", "2", "--keep", "4", "--models", "1")

    assert planned(GiB, tmp_path, *counts).model_bytes == 256 * MiB
    assert capsys.readouterr().out == ""
    # Eight resident models, of which an eighth is filled: as many bytes as one model has.
    assert planned(100 * MiB, tmp_path, *counts).model_bytes == 96 * MiB
    assert "would be too large here: a batch of 16 items" in capsys.readouterr().out
    assert planned(MiB, tmp_path, *counts).model_bytes == 16 * MiB


def test_the_stream_is_the_same_every_time(tmp_path: Path) -> None:
    plan = planned(GiB, tmp_path, "--jobs", "500")
    models = model_server_batch.stream(plan)

    assert models == model_server_batch.stream(plan)
    assert models.count("model-00") > 2 * models.count("model-03") > 0


@pytest.mark.parametrize("count", ["--models", "--workers", "--keep", "--jobs"])
def test_counts_are_at_least_one(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        model_server_batch.parse([count, "0"])
    assert "at least 1" in capsys.readouterr().err


def test_weights_are_made_once_and_are_the_same(tmp_path: Path) -> None:
    first, made = load(tmp_path, "model", 16 * MiB)
    second, made_again = load(tmp_path, "model", 16 * MiB)

    assert (made, made_again) == (True, False)
    assert first.shape == (16 * MiB // (4 * COLUMNS) // FILLED, COLUMNS)
    assert np.array_equal(first, second)
    assert 0 < float(first.max()) <= 1 / COLUMNS, "scaled once, in its own memory"
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 16 * MiB


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S + 20)
def test_a_run_says_what_locality_avoided() -> None:
    counts = ["--models", "4", "--workers", "2", "--keep", "2", "--jobs", "40"]
    before = set(Path(tempfile.gettempdir()).glob("lardon-models-*"))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), *counts],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    loads = [int(number) for number in re.findall(r"(\d+) loads \(", done.stdout)]
    shares = re.findall(r"hit share +(\d+)%, makespan +[\d.]+ s", done.stdout)
    assert len(loads) == len(shares) == 2
    # Every model is loaded once at least. How often without locality is up to the threads.
    assert 4 <= loads[1] <= 40
    assert f"{loads[0] - loads[1]} loads avoided" in done.stdout
    assert "the answers are the same" in done.stdout
    assert set(Path(tempfile.gettempdir()).glob("lardon-models-*")) <= before
