"""The command line: `python -m benchmarks [--full] [TOPIC …]`."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
import traceback
from pathlib import Path

import attrs

from benchmarks import machine
from benchmarks.effort import FULL, SHORT, SMOKE, Deadline, Effort
from benchmarks.regret_page import publish
from benchmarks.report import Report, Row
from benchmarks.tables import render, summary
from benchmarks.targets import Outcome
from benchmarks.topics import TOPICS, shares

RESULTS = Path(__file__).resolve().parent / "results"
PAGES = Path(__file__).resolve().parent.parent / "docs"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", help=f"run only these: {', '.join(TOPICS)}"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--full", action="store_true", help="more rounds, and 1,000,000 tasks")
    form.add_argument(
        "--smoke", action="store_true", help="run every line once; the figures mean nothing"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 unless all targets are met")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    parser.add_argument(
        "--pages", type=Path, help="folder for page and picture of the regret (--full: docs)"
    )
    options = parser.parse_args(arguments)
    unknown = [topic for topic in options.topics if topic not in TOPICS]
    if unknown:
        parser.error(f"no such topic: {', '.join(unknown)} (there are {', '.join(TOPICS)})")
    return options


def run_topic(name: str, deadline: Deadline, share: float = 1.0) -> Report:
    """Return the report of one topic; one that breaks must not cost the others."""
    deadline.begin_topic(share)
    started = time.monotonic()
    try:
        report = TOPICS[name].run(deadline)
    except Exception as error:  # noqa: BLE001 - the next topics go on
        traceback.print_exc()
        report = Report(
            topic=name,
            question="This topic broke.",
            columns=("error",),
            peer="",
            rows=(Row(label=type(error).__name__, figures=(str(error),)),),
        )
    return attrs.evolve(report, seconds=time.monotonic() - started)


def save(folder: Path, effort: Effort, facts: dict[str, object], reports: list[Report]) -> Path:
    """Write everything as JSON and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    path = folder / f"{effort.name}-{now:%Y%m%dT%H%M%SZ}.json"
    content = {
        "form": effort.name,
        "finished_at": now.isoformat(timespec="seconds"),
        "machine": facts,
        "topics": [report.as_json() for report in reports],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run, print and save; return the exit status."""
    options = parse(arguments)
    effort = FULL if options.full else SMOKE if options.smoke else SHORT
    deadline = Deadline(effort)
    started = time.monotonic()
    facts = machine.notes()
    print(machine.describe(facts), flush=True)
    reports = []
    for name, share in shares(options.topics or list(TOPICS)).items():
        print(f"\n… {name}", end="", file=sys.stderr, flush=True)
        reports.append(run_topic(name, deadline, share))
        print(f": {reports[-1].seconds:.0f} s", file=sys.stderr, flush=True)
        print(f"\n{render(reports[-1])}", flush=True)
    for report in reports:
        pages = options.pages or (PAGES if effort is FULL else None)
        if report.topic == "regret" and report.data and pages is not None:
            publish(report, facts, pages)
    facts["after"] = machine.present()
    print(f"\n{summary(reports)}")
    print(f"\nafter:   {machine.describe_present(machine.present())}")
    path = save(options.results, effort, facts, reports)
    print(f"{time.monotonic() - started:.0f} s in all; every round is in {path}")
    met = all(verdict.outcome is Outcome.MET for each in reports for verdict in each.verdicts)
    return 1 if options.strict and not met else 0


if __name__ == "__main__":
    sys.exit(main())
