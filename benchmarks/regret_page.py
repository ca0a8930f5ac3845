"""The page and the picture of the regret, for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks import machine
from benchmarks.regret_race import Run
from benchmarks.regret_results import OURS, SUPERVISOR, Results, is_fixed
from benchmarks.regret_workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.report import Report

PAGE: Final = "regret.md"
PICTURE: Final = "regret.png"
# Colours that colour-blind people can tell apart (Okabe and Ito, 2008).
COLOUR_OF_OURS: Final = "#D55E00"
COLOUR_OF_FIXED: Final = "#0072B2"
COLOUR_OF_OTHERS: Final = "#999999"


def restored(report: Report) -> list[Results]:
    """Return the results that *report* was made of, less the workloads of the tests."""
    found = []
    for name, saved in report.data.items():
        runs = {
            label: [Run(**{**run, "sizes": tuple(run["sizes"])}) for run in rounds]
            for label, rounds in saved["runs"].items()
        }
        found.append(Results(WORKLOADS[name], runs, saved["best"]))
    return found


def publish(report: Report, facts: Mapping[str, Any], folder: Path) -> None:
    """Write page and picture into *folder*; raises OSError, and ImportError without matplotlib."""
    results = restored(report)
    (folder / PAGE).write_text(page(results, report, facts), encoding="utf-8")
    draw(results, folder / PICTURE)


def page(results: list[Results], report: Report, facts: Mapping[str, Any]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Regret",
        "",
        "What it costs not to know the best batch beforehand. Written by `make bench-full`; how it",
        "is measured stands in [adaptive batches](adaptive-batches.md#what-it-is-worth).",
        "",
        "```text",
        machine.describe(dict(facts)),
        report.question,
        "```",
        "",
        f"![Makespan of each policy on each workload]({PICTURE})",
        "",
        "Makespans are medians, in seconds. Regret is over the best fixed batch, in bold, found by",
        "other runs: the median over the rounds, for policies that ran in all of them. *In items*",
        "is the part of the makespan that the items themselves took, where they are done one after",
        "the other. But for the machine's noise it is the same under every such policy: *level*",
        "is the regret with the mean over all runs of both put in its place.",
    ]
    for one in results:
        best = one.best_fixed()
        lines += [
            "",
            f"## {one.workload.label}",
            "",
            "| policy | seconds | in items | regret | level | kills | finished | largest batch |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for label, runs in sorted(one.runs.items(), key=lambda row: _order(one, row[0])):
            seconds = one.seconds(label)
            sizes = [size for run in runs for size in run.sizes]
            cells = (
                f"**{label}**" if best is not None and label == best[0] else label,
                _figure(seconds),
                _figure(one.busy_seconds(label)),
                _figure(one.regret(label)),
                _figure(one.level_regret(label)),
                str(sum(run.kills for run in runs)),
                f"{sum(run.finished(one.workload) for run in runs)}/{len(runs)}",
                str(max(sizes)) if sizes else "—",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _order(results: Results, label: str) -> tuple[int, float]:
    seconds = results.seconds(label)
    group = 0 if label in OURS else 1 if is_fixed(label) else 2
    return group, float("inf") if seconds is None else seconds


def draw(results: list[Results], path: Path) -> None:
    """Write the picture: one panel for each workload."""
    from matplotlib.figure import Figure

    height = 2.9 * ((len(results) + 1) // 2)
    figure = Figure(figsize=(12, height), layout="constrained")
    panels = figure.subplots((len(results) + 1) // 2, 2, squeeze=False)
    for place, axes in enumerate(panels.flat):
        if place < len(results):
            _panel(axes, results[place])
        else:
            axes.set_visible(False)
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, results: Results) -> None:
    best = results.best_fixed()
    chosen = [
        label for label in results.runs if not is_fixed(label) or best is None or label == best[0]
    ]
    chosen.sort(key=lambda label: _order(results, label), reverse=True)
    # One that died may have taken minutes to do so, which would leave no room for the others.
    longest = max((results.seconds(label) or 0.0 for label in chosen), default=0.0) or 1.0
    for height, label in enumerate(chosen):
        seconds = results.seconds(label)
        colour = COLOUR_OF_FIXED if is_fixed(label) else COLOUR_OF_OTHERS
        if label in OURS:
            colour = COLOUR_OF_OURS
        if seconds is None:
            axes.barh(height, longest * 0.02, color="black")
            axes.text(longest * 0.03, height, "died", va="center", fontsize=7)
            continue
        kills = sum(run.kills for run in results.runs[label])
        axes.barh(height, seconds, color=colour)
        note = f"{seconds:.1f} s" + (f", {kills} kills" if label == SUPERVISOR and kills else "")
        axes.text(seconds, height, f" {note}", va="center", fontsize=7)
    if best is not None:
        axes.axvline(best[1], color=COLOUR_OF_FIXED, lw=0.8, ls="--")
    axes.set_yticks(range(len(chosen)), chosen)
    axes.set_title(results.workload.label, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(0, longest * 1.25)
