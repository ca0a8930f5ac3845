"""What one topic found, for the terminal and for the JSON file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.targets import Verdict


@attrs.frozen(kw_only=True)
class Row:
    """One line of a topic's table."""

    label: str
    figures: tuple[str, ...]
    """Measured medians, formatted; one for each column of the report."""
    ratio: float | None = None
    """This line over the peer that the report names; None where there is none."""
    verdict: Verdict | None = None


@attrs.frozen(kw_only=True)
class Report:
    """The table of one topic, with everything that was measured for it."""

    topic: str
    question: str
    """What the table answers, in one line."""
    columns: tuple[str, ...]
    peer: str
    """Heads the column of ratios."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = attrs.field(factory=dict)
    """Every round, as the child processes returned it."""
    seconds: float = 0.0
    """How long this topic took."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of all rows, in order."""
        return tuple(row.verdict for row in self.rows if row.verdict is not None)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values for `json.dump`."""
        return {
            "topic": self.topic,
            "question": self.question,
            "columns": list(self.columns),
            "peer": self.peer,
            "rows": [
                {
                    "label": row.label,
                    "figures": list(row.figures),
                    "ratio": row.ratio,
                    "target": str(row.verdict.target) if row.verdict else None,
                    "measured": row.verdict.measured if row.verdict else None,
                    "outcome": row.verdict.outcome.value if row.verdict else None,
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
            "seconds": round(self.seconds, 2),
            "rounds": dict(self.data),
        }
