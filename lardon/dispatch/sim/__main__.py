"""``python -m lardon.dispatch.sim``: makes many runs, or one again up to a step."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lardon.dispatch.enums import Shape, UnmatchedPolicy
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.rules import count
from lardon.dispatch.sim.setting import Setting, Violation
from lardon.dispatch.sim.simulation import simulate

if TYPE_CHECKING:
    from lardon.dispatch.sim.setting import Report

# How many lines of a trace lead to the place that somebody looks at.
_TAIL = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that *arguments* ask for; return 0, 1 for a violation, 2 for bad arguments."""
    # What the supervisors warn of is what a run is made of; nobody is to be told of it.
    logging.getLogger("lardon.dispatch").addHandler(logging.NullHandler())
    asked = _parser().parse_args(arguments)
    try:
        count(1)("runs", asked.runs)
        settings = list(_settings(asked))
    except InvalidError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    begun, reports = time.monotonic(), 0
    totals = {"executions": 0, "unknown": 0, "crashes": 0}
    for setting in settings:
        try:
            report = simulate(setting)
        except Violation as violation:
            _show_violation(violation)
            return 1
        reports += 1
        for name in totals:
            totals[name] += getattr(report, name)
        if len(settings) == 1:
            _show(report)
    seconds = time.monotonic() - begun
    print(
        f"{reports} runs in {seconds:.1f} s, every invariant held: {totals['executions']} "
        f"executions, {totals['unknown']} lost answers, {totals['crashes']} crashes"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lardon.dispatch.sim",
        description="Make simulated runs of the core of lardon.dispatch, and judge every step.",
    )
    add = parser.add_argument
    add("--seed", type=int, default=0, help="the first seed (default 0)")
    add("--runs", type=int, default=1, help="how many seeds, for each shape and policy (default 1)")
    add(
        "--shape",
        choices=[*map(str, Shape), "both"],
        default="slurm",
        help="what the cluster is like",
    )
    told = "what supervisors do with objects that no record claims (default leave)"
    add("--unmatched", choices=[*map(str, UnmatchedPolicy), "each"], default="leave", help=told)
    add("--supervisors", type=int, default=2, help="how many serve the jobs (default 2)")
    add("--jobs", type=int, default=3, help="how many jobs there are (default 3)")
    add("--steps", type=int, default=250, help="how many steps the faults last (default 250)")
    add("--stop-at", type=int, default=None, help="stop one run after this step, and dump it")
    return parser


def _settings(asked: argparse.Namespace) -> Iterator[Setting]:
    shapes = list(Shape) if asked.shape == "both" else [Shape(asked.shape)]
    each = asked.unmatched == "each"
    policies = list(UnmatchedPolicy) if each else [UnmatchedPolicy(asked.unmatched)]
    for shape, policy in itertools.product(shapes, policies):
        for seed in range(asked.seed, asked.seed + asked.runs):
            yield Setting(
                seed=seed,
                shape=shape,
                unmatched=policy,
                supervisors=asked.supervisors,
                jobs=asked.jobs,
                steps=asked.steps,
                stop_at=asked.stop_at,
            )


def _show(report: Report) -> None:
    for step in report.trace[-_TAIL:]:
        print(str(step))
    print(report.dump)
    print(f"fingerprint {report.fingerprint}")


def _show_violation(violation: Violation) -> None:
    for step in violation.trace[-_TAIL:]:
        print(str(step))
    print(violation.dump)
    setting = violation.setting
    print(f"VIOLATION: {violation}")
    print(
        f"again: python -m lardon.dispatch.sim --seed {setting.seed} --shape {setting.shape} "
        f"--supervisors {setting.supervisors} --jobs {setting.jobs} --steps {setting.steps} "
        f"--unmatched {setting.unmatched} --stop-at {violation.step}"
    )


if __name__ == "__main__":
    sys.exit(main())
