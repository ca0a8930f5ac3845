"""Plain-text tables that also read as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.targets import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.report import Report


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned; all but the first to the right."""
    cells = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        first = row[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = (
        "|"
        + "|".join(
            "-" * (width + 1) + (":" if index else "-") for index, width in enumerate(widths)
        )
        + "|"
    )
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def ratio_text(ratio: float | None) -> str:
    """Return a ratio as the tables show it, or nothing."""
    return "" if ratio is None else f"{ratio:.2f} x"


def render(report: Report) -> str:
    """Return the heading, the table and the notes of one report."""
    has_ratio = any(row.ratio is not None for row in report.rows)
    has_verdict = any(row.verdict is not None for row in report.rows)
    headers = ["", *report.columns]
    headers += [f"÷ {report.peer}"] if has_ratio else []
    headers += ["target", "verdict"] if has_verdict else []
    rows = []
    for row in report.rows:
        cells = [row.label, *row.figures]
        cells += [ratio_text(row.ratio)] if has_ratio else []
        if has_verdict:
            cells += [str(row.verdict.target), str(row.verdict)] if row.verdict else ["", ""]
        rows.append(cells)
    lines = [f"## {report.topic}", "", report.question, "", table(headers, rows)]
    notes = [*report.notes, *_reasons(report)]
    if notes:
        lines += ["", *(f"* {note}" for note in notes)]
    return "\n".join(lines)


def _reasons(report: Report) -> list[str]:
    """Return once each why figures are missing, unless a note of the report says it."""
    reasons = dict.fromkeys(
        verdict.reason for verdict in report.verdicts if verdict.outcome is Outcome.NOT_MEASURED
    )
    return [
        f"not measured: {reason}"
        for reason in reasons
        if not any(reason in note for note in report.notes)
    ]


def summary(reports: Sequence[Report]) -> str:
    """Return one table of every target of every report."""
    rows = []
    counts = dict.fromkeys(Outcome, 0)
    for report in reports:
        for verdict in report.verdicts:
            counts[verdict.outcome] += 1
            figure = "" if verdict.measured is None else f"{verdict.measured:.3g}"
            measured = f"{figure} {verdict.target.unit}".rstrip() if figure else ""
            rows.append([verdict.target.what, measured, str(verdict.target), str(verdict)])
    total = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items())
    return "\n".join(
        ["## Targets", "", table(["", "measured", "target", "verdict"], rows), "", total]
    )
