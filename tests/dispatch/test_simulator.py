"""
The simulator makes seeded runs, judges every step, and replays a run up to any of them.

"Seeded, on the memory backend and a manual clock, several supervisors, faults between steps,
invariants checked after every step, replay of a seed to a given step with a dump."
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from lardon.dispatch import InvalidError
from lardon.dispatch.enums import Shape, UnmatchedPolicy
from lardon.dispatch.sim import Setting, Simulation, Violation, simulate
from lardon.dispatch.sim.__main__ import main

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = 130


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", list(UnmatchedPolicy))
@pytest.mark.parametrize("shape", list(Shape))
def test_every_invariant_holds_in_some_hundred_runs(shape: Shape, policy: UnmatchedPolicy) -> None:
    """`make soak` makes 10,000 of them."""
    settings = [Setting(seed=seed, shape=shape, unmatched=policy) for seed in range(RUNS)]
    reports = [simulate(setting) for setting in settings]

    # They are no runs in which nothing happened.
    assert sum(report.executions for report in reports) > 2 * RUNS
    assert sum(report.unknown for report in reports) > RUNS // 2
    assert sum(report.crashes for report in reports) > RUNS
    swept = sum(report.swept for report in reports)
    assert swept > RUNS if policy is UnmatchedPolicy.STOP else swept == 0


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(Shape))
def test_three_supervisors_and_five_jobs_break_nothing(shape: Shape) -> None:
    for seed in range(15):
        simulate(Setting(seed=seed, shape=shape, supervisors=3, jobs=5, steps=500))


def test_the_same_seed_gives_the_same_steps() -> None:
    first, again = (simulate(Setting(seed=11)) for _ in range(2))

    assert first.trace == again.trace
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != simulate(Setting(seed=12)).fingerprint


def test_a_run_is_replayed_up_to_a_step_and_shows_what_is_so() -> None:
    whole = simulate(Setting(seed=11))
    part = simulate(Setting(seed=11, stop_at=100))

    assert part.trace == whole.trace[:100]
    assert "executing:" in part.dump
    assert part.dump != whole.dump


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 1, "shape": "slurmy"}, "shape"),
        ({"seed": 1, "supervisors": 0}, "supervisors"),
        ({"seed": 1, "quiet_bound_s": 0}, "quiet_bound_s"),
        ({"seed": 1, "unmatched": "adopt"}, "unmatched"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(fields: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidError) as caught:
        Setting(**fields)  # type: ignore[arg-type]  # that is the point

    assert caught.value.path == path


def test_the_command_makes_runs_and_counts_what_happened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = ["--shape", "both", "--unmatched", "each"]
    assert main(["--seed", "3", "--runs", "2", *both]) == 0

    printed = capsys.readouterr().out
    assert "12 runs in" in printed
    assert "every invariant held" in printed


@pytest.mark.parametrize("option", ["--shape", "--unmatched"])
def test_the_command_names_its_choices_as_they_are_typed(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    with pytest.raises(SystemExit):
        main([option, "nonsense"])
    told = capsys.readouterr().err
    assert "'nonsense'" in told
    assert "<" not in told


def test_the_command_stops_at_a_step_and_dumps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--stop-at", "40"]) == 0

    printed = capsys.readouterr().out
    assert "   40 " in printed
    assert "   41 " not in printed
    assert "fingerprint" in printed


def test_the_command_tells_how_to_see_a_violation_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(setting: Setting) -> None:
        Simulation(setting)._violated("two of them run")

    monkeypatch.setattr("lardon.dispatch.sim.__main__.simulate", broken)

    assert main(["--seed", "3"]) == 1
    printed = capsys.readouterr().out
    assert "VIOLATION: two of them run (seed 3, step 0)" in printed
    assert "--seed 3 --shape slurm --supervisors 2 --jobs 3 --steps 250" in printed
    assert "--unmatched leave --stop-at 0" in printed


def test_a_wrong_argument_of_the_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("jobs", "runs"):
        assert main(["--seed", "3", f"--{name}", "0"]) == 2
        # Of no run at all nothing is said that held.
        told = capsys.readouterr()
        assert f"{name} must be an integer of at least 1" in told.err
        assert not told.out


@pytest.mark.slow
def test_the_command_gives_the_same_run_in_every_process() -> None:
    """The order of sets and of hashes differs from process to process; a run does not."""
    told: set[str] = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "lardon.dispatch.sim", "--seed", "7"],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=15,
            check=True,
        )
        told.update(line for line in done.stdout.splitlines() if "fingerprint" in line)

    assert len(told) == 1


def test_a_violation_names_rule_seed_and_step() -> None:
    with pytest.raises(Violation) as caught:
        Simulation(Setting(seed=5))._violated("a rule")

    assert str(caught.value) == "a rule (seed 5, step 0)"
    assert caught.value.rule == "a rule"
    assert caught.value.dump
