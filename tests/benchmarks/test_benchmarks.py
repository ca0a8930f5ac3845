"""The pure parts of the benchmarks, and every measurement once; no test asserts on time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from benchmarks import machine
from benchmarks.__main__ import main, parse, run_topic
from benchmarks.child import RESULT, Unavailable, run_child
from benchmarks.child import parse as parse_child
from benchmarks.effort import SHORT, SMOKE, Deadline
from benchmarks.formats import MISSING, microseconds, noise, number
from benchmarks.procfs import ThreadCounters, numbers
from benchmarks.regret import _take_best
from benchmarks.regret_page import publish
from benchmarks.regret_race import Run
from benchmarks.regret_results import Results
from benchmarks.regret_workloads import WORKLOADS
from benchmarks.report import Report, Row
from benchmarks.rounds import interleave
from benchmarks.stats import median, nanoseconds_per_call, paired_ratio, percentile, spread_percent
from benchmarks.tables import render, summary, table
from benchmarks.targets import Bound, Outcome, Target
from benchmarks.topics import TOPICS, Topic, shares

if TYPE_CHECKING:
    from pathlib import Path

RATIO = Target(what="lardon ÷ peer", limit=4.0)
REACH = Target(what="throughput", limit=0.8, bound=Bound.AT_LEAST)
ZERO = Target(what="wake-ups", limit=0, unit="wake-ups")

# They come with the extra `bench`.
OPTIONAL = {"dask", "joblib_inline", "joblib_threads"}


# ---------------------------------------------------------------- statistics
def test_percentiles_are_measured_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]

    assert percentile(values, 50) == 3.0
    assert percentile(values, 95) == 5.0
    assert percentile(values, 0) == 1.0
    assert percentile([7.0], 50) == 7.0


def test_median_and_spread() -> None:
    assert median([3, 1, 2]) == 2
    assert spread_percent([8, 10, 12]) == pytest.approx(20)
    assert spread_percent([0, 0]) == 0


def test_a_paired_ratio_is_not_moved_by_one_slow_minute() -> None:
    """The round in which the whole machine was ten times slower has the same ratio."""
    assert paired_ratio([20, 200, 20], [10, 100, 10]) == 2


def test_a_paired_ratio_leaves_out_half_rounds() -> None:
    assert paired_ratio([20, None, 60], [10, 10, None]) == 2
    assert paired_ratio([20], [0]) is None
    assert paired_ratio([], []) is None


def test_nanoseconds_per_call_calls_as_often_as_it_says() -> None:
    calls: list[int] = []

    assert nanoseconds_per_call(lambda: calls.append(1), 7, warm_ups=2) >= 0
    assert len(calls) == 9


# ------------------------------------------------------------------- targets
@pytest.mark.parametrize(
    ("target", "measured", "outcome", "words"),
    [
        (RATIO, 3.0, Outcome.MET, "met, 25 % to spare"),
        (RATIO, 4.0, Outcome.MET, "met, 0 % to spare"),
        (RATIO, 5.0, Outcome.MISSED, "MISSED by 25 %"),
        (REACH, 0.8, Outcome.MET, "met, 0 % to spare"),
        (REACH, 0.4, Outcome.MISSED, "MISSED by 50 %"),
        (ZERO, 0, Outcome.MET, "met"),
        (ZERO, 20, Outcome.MISSED, "MISSED by 20 wake-ups"),
        (RATIO, None, Outcome.NOT_MEASURED, "not measured"),
    ],
)
def test_verdicts(target: Target, measured: float | None, outcome: Outcome, words: str) -> None:
    verdict = target.judge(measured, reason="the peer is not installed")

    assert verdict.outcome is outcome
    assert str(verdict) == words


def test_targets_show_their_bound() -> None:
    assert str(RATIO) == "≤ 4 x"
    assert str(REACH) == "≥ 0.8 x"
    assert str(Target(what="pynvml", limit=0, unit="")) == "≤ 0"


# -------------------------------------------------------------------- tables
def report(*rows: Row, notes: tuple[str, ...] = ()) -> Report:
    return Report(
        topic="Topic",
        question="What?",
        columns=("µs",),
        peer="peer",
        rows=rows,
        notes=notes,
        data={"lardon": [1]},
    )


def test_tables_align() -> None:
    lines = table(["", "n"], [["long label", "1"], ["x", "1,000"]]).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert lines[2].endswith("|     1 |")


def test_a_report_shows_ratio_target_verdict_and_notes() -> None:
    text = render(
        report(
            Row(label="lardon", figures=("5",), ratio=2.0, verdict=RATIO.judge(2.0)),
            Row(label="peer", figures=("2.5",)),
            notes=("A note.",),
        )
    )

    assert "÷ peer" in text
    assert "2.00 x" in text
    assert "met, 50 % to spare" in text
    assert text.endswith("* A note.")


def test_a_report_without_ratios_or_verdicts_has_no_such_columns() -> None:
    text = render(report(Row(label="lardon", figures=("5",))))

    assert "target" not in text
    assert "÷" not in text


def test_a_missing_figure_is_told_once() -> None:
    row = Row(label="lardon", figures=(MISSING,), verdict=RATIO.judge(None, reason="no peer"))

    assert render(report(row, row)).count("no peer") == 1
    assert render(report(row, notes=("peer: no peer",))).count("no peer") == 1


def test_the_summary_counts_every_outcome() -> None:
    verdicts = [RATIO.judge(2.0), RATIO.judge(8.0), RATIO.judge(None, reason="no peer")]
    text = summary([report(*(Row(label="", figures=("",), verdict=each) for each in verdicts))])

    assert text.endswith("1 met, 1 missed, 1 not measured")


def test_reports_are_json() -> None:
    content = report(Row(label="lardon", figures=("5",), verdict=RATIO.judge(2.0))).as_json()

    assert json.loads(json.dumps(content))["rows"][0]["outcome"] == "met"


def test_formats() -> None:
    assert number(1234.5) == "1,234"
    assert microseconds(1500) == "1.5"
    assert noise(12.4) == "±12 %"
    assert number(None) == microseconds(None) == noise(None) == MISSING


# -------------------------------------------------------------------- rounds
def test_rounds_interleave_and_turn_around() -> None:
    order = []

    def measure(name: str, timeout_s: float) -> dict[str, Any]:
        assert timeout_s > 0
        order.append(name)
        return {"value": len(order)}

    rounds = interleave(("a", "b"), measure, Deadline(SHORT), rounds=2)

    assert order == ["a", "b", "b", "a"]
    assert rounds.values("a", "value") == [1, 4]
    assert rounds.median("a", "value") == 2.5
    assert rounds.ratio("b", "a", "value") == pytest.approx((2 / 1 + 3 / 4) / 2)
    assert rounds.spread_percent("a", "value") == pytest.approx(60)


def test_a_system_for_context_sits_rounds_out_and_comes_last() -> None:
    order = []

    def measure(name: str, timeout_s: float) -> dict[str, Any]:
        assert timeout_s > 0
        order.append(name)
        return {"value": 1}

    rounds = interleave(("c", "a", "b"), measure, Deadline(SHORT), rounds=3, context=["c"])

    assert order == ["a", "b", "c", "b", "a", "a", "b"]
    assert rounds.results["c"] == [{"value": 1}, None, None]


def test_a_system_that_cannot_run_is_asked_once() -> None:
    asked = []

    def measure(name: str, timeout_s: float) -> dict[str, Any]:
        del timeout_s
        asked.append(name)
        if name == "absent":
            message = "not installed"
            raise Unavailable(message)
        return {"value": 1}

    rounds = interleave(("absent", "present"), measure, Deadline(SHORT), rounds=3)

    assert asked.count("absent") == 1
    assert rounds.missing == {"absent": "not installed"}
    assert rounds.median("absent", "value") is None
    assert rounds.ratio("present", "absent", "value") is None
    assert rounds.why_missing("absent", "present") == "absent: not installed"
    assert rounds.why_missing("present") == "no round was completed"


def test_nothing_starts_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = Deadline(SHORT)
    monkeypatch.setattr("benchmarks.effort.time.monotonic", lambda: float("inf"))

    rounds = interleave(("a",), lambda *_: {"value": 1}, deadline, rounds=3)

    assert rounds.results == {"a": []}
    assert "time" in rounds.missing["a"]


def test_a_topic_gets_one_round_however_late_it_is() -> None:
    deadline = Deadline(SHORT)
    deadline.begin_topic(share=0)

    assert deadline.allows_round(0, 5)
    assert not deadline.allows_round(1, 5)


def test_a_topic_with_time_gets_the_rounds_it_wants() -> None:
    deadline = Deadline(SHORT)
    deadline.begin_topic(share=1)

    assert deadline.allows_round(4, 5)
    assert not deadline.allows_round(5, 5)


def test_the_last_topic_may_take_all_the_time_that_is_left() -> None:
    parts = shares(list(TOPICS))

    assert list(parts) == list(TOPICS)
    assert parts[list(TOPICS)[-1]] == 1
    assert all(0 < part <= 1 for part in parts.values())


# ------------------------------------------------------------------ children
def test_a_child_returns_what_its_target_returned() -> None:
    result = run_child("benchmarks.topics.throughput:measure", system="queue_loop", tasks=20)

    assert result["tasks"] == 20


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(Unavailable, match="KeyError"):
        run_child("benchmarks.topics.latency:measure", system="no such system", samples=1)


def test_a_child_that_takes_too_long_is_ended() -> None:
    with pytest.raises(Unavailable, match="longer"):
        run_child("benchmarks.topics.idle:hold", timeout_s=0.01, state="thread_pool")


def test_the_output_of_a_child_may_have_other_lines() -> None:
    assert parse_child(f'noise\n{RESULT}{{"value": 1}}\n', "", 0) == {"value": 1}
    with pytest.raises(Unavailable, match="not here"):
        parse_child(f'{RESULT}{{"unavailable": "not here"}}\n', "", 0)
    with pytest.raises(Unavailable, match="no output"):
        parse_child("", "", 1)


# ------------------------------------------------------------------- counters
def test_status_lines() -> None:
    text = "Name:\tpython\nVmRSS:\t  120 kB\nvoluntary_ctxt_switches:\t7\nEmpty:\n"

    assert numbers(text) == {"VmRSS": 120, "voluntary_ctxt_switches": 7}


def test_counters_subtract() -> None:
    later = ThreadCounters(cpu_ns=30, voluntary=5, involuntary=2)
    earlier = ThreadCounters(cpu_ns=10, voluntary=5, involuntary=1)

    assert later - earlier == ThreadCounters(cpu_ns=20, voluntary=0, involuntary=1)


def test_the_machine_is_noted() -> None:
    facts = machine.notes()

    assert facts["cpus"] >= 1
    assert json.dumps(facts)
    assert facts["python"] in machine.describe(facts)


# --------------------------------------------------------------------- smoke
def test_an_unknown_topic_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["no_such_topic"])

    assert "latency" in capsys.readouterr().err


def test_a_topic_that_breaks_does_not_cost_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(deadline: Deadline) -> Report:
        raise RuntimeError(deadline.effort.name)

    monkeypatch.setitem(TOPICS, "latency", Topic(run=broken, weight=1))

    assert "RuntimeError" in render(run_topic("latency", Deadline(SMOKE)))
    assert "Traceback" in capsys.readouterr().err


def reasons(found: Any) -> dict[str, str]:
    """Return why systems have no figures, from anywhere in the rounds of a topic."""
    if isinstance(found, list):
        return {name: why for each in found for name, why in reasons(each).items()}
    if not isinstance(found, dict):
        return {}
    own: dict[str, str] = {name: why for name, why in found.items() if name == "unavailable"}
    own |= found.get("missing", {})
    return own | reasons([value for name, value in found.items() if name != "missing"])


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_runs_and_is_saved(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each measurement runs with the least effort and judges all of its targets."""
    assert main([topic, "--smoke", "--results", str(tmp_path)]) == 0

    (path,) = tmp_path.iterdir()
    saved = json.loads(path.read_text(encoding="utf-8"))
    (found,) = saved["topics"]
    outcomes = [row["outcome"] for row in found["rows"]]
    assert saved["machine"]["after"] is not None
    assert any(outcomes)
    assert "not measured" not in outcomes
    assert set(reasons(found["rounds"])) <= OPTIONAL
    assert "## Targets" in capsys.readouterr().out


def test_the_page_of_the_regret_tells_who_died_and_who_was_best(tmp_path: Path) -> None:
    """From a report as it is saved; nothing is measured here."""
    pytest.importorskip("matplotlib")

    def run(
        done: int, seconds: float, *, kills: int = 0, busy_s: float | None = None
    ) -> dict[str, Any]:
        return {
            "busy_s": busy_s,
            "done": done,
            "seconds": seconds,
            "kills": kills,
            "status": 0 if done == 200 else -9,
            "sizes": [8, 16],
            "error": "",
        }

    report = Report(
        topic="regret",
        question="Batches under a limit.",
        columns=(),
        peer="",
        rows=(),
        data={
            "constant": {
                "best": "fixed batch 12",
                "runs": {
                    "fixed batch 8": [run(200, 3.9)],
                    "fixed batch 12": [run(200, 4.0, busy_s=3.5)],
                    "fixed batch 16": [run(32, 1.0, kills=1)],
                    "lardon map_batches": [run(200, took, busy_s=3.5) for took in (4.1, 4.2, 4.3)],
                    "lardon map_items": [run(200, 3.0)],
                },
            }
        },
    )

    publish(report, machine.notes(), tmp_path)

    page = (tmp_path / "regret.md").read_text(encoding="utf-8")
    assert "| lardon map_batches | 4.20 | 3.50 | 1.05 | 1.05 | 0 | 3/3 | 16 |" in page
    assert "| **fixed batch 12** | 4.00 | 3.50 | 1.00 | 1.00 | 0 | 1/1 | 16 |" in page
    assert "| fixed batch 16 | — | — | — | — | 1 | 0/1 | 16 |" in page
    assert (tmp_path / "regret.png").stat().st_size > 1000


def test_a_fixed_batch_that_was_tried_less_often_is_not_the_best() -> None:
    def ran(seconds: float) -> Run:
        return Run(done=200, seconds=seconds, kills=0, status=0, sizes=())

    results = Results(WORKLOADS["constant"])
    results.runs = {"fixed batch 1": [ran(1.0)], "fixed batch 8": [ran(3.0), ran(2.0), ran(4.0)]}

    assert results.best_fixed() == ("fixed batch 8", 3.0)


def _ran(*seconds: float, done: int = 200) -> list[Run]:
    return [Run(done=done, seconds=took, kills=0, status=0, sizes=()) for took in seconds]


def test_the_batch_to_compare_with_is_the_chosen_one_unless_it_died() -> None:
    results = Results(WORKLOADS["constant"], best="fixed batch 8")
    results.runs = {"fixed batch 4": _ran(1.0), "fixed batch 8": _ran(2.0)}
    assert results.best_fixed() == ("fixed batch 8", 2.0)

    results.runs["fixed batch 8"] += _ran(1.0, done=3)
    assert results.best_fixed() == ("fixed batch 4", 1.0)


def test_regret_is_taken_round_by_round_where_both_ran_in_each() -> None:
    """Twice the best in every round; the medians of the rounds would say 1.5."""
    results = Results(WORKLOADS["constant"], best="fixed batch 8")
    results.runs = {
        "fixed batch 8": _ran(1.0, 2.0, 8.0),
        "lardon map_batches": _ran(3.0, 3.0, 16.0),
    }
    assert results.regret("lardon map_batches") == 2.0

    results.runs["lardon map_batches"] = _ran(3.0)
    assert results.regret("lardon map_batches") == 1.5


def test_the_level_regret_leaves_out_how_long_the_items_happened_to_take() -> None:
    """0.5 s besides the items to 0.25, however slow the machine was in a run of 1 to 3 s."""
    results = Results(WORKLOADS["constant"], best="fixed batch 8")
    results.runs = {
        "fixed batch 8": [attrs.evolve(run, busy_s=1.0) for run in _ran(1.25, 1.25)],
        "lardon map_batches": [attrs.evolve(run, busy_s=3.0) for run in _ran(3.5, 3.5)],
    }

    assert results.level_regret("lardon map_batches") == 2.5 / 2.25
    assert results.regret("lardon map_batches") == 2.8
    results.runs["lardon map_batches"] += _ran(3.5)
    assert results.level_regret("lardon map_batches") is None


def test_who_dies_while_being_compared_with_is_replaced_by_the_next() -> None:
    results = Results(WORKLOADS["constant"])
    results.runs = {"fixed batch 8": _ran(2.0), "fixed batch 9": _ran(1.0)}
    candidates = [9, 8]

    (first,) = _take_best(results, candidates, 3)
    assert first.label == "fixed batch 9"
    assert "fixed batch 9" not in results.runs  # what made it the best is not counted
    results.runs["fixed batch 9"] = _ran(1.0)
    assert _take_best(results, candidates, 3) == [first]
    results.runs["fixed batch 9"] += _ran(1.0, done=3)
    (second,) = _take_best(results, candidates, 3)
    assert second.label == "fixed batch 8"
    results.runs["fixed batch 8"] = _ran(1.0, done=3)
    assert _take_best(results, candidates, 3) == []


def test_the_costs_of_a_workload_are_the_same_every_time() -> None:
    heavy = WORKLOADS["heavy"]

    assert heavy.costs == attrs.evolve(heavy).costs
    assert max(heavy.costs) <= heavy.item_bytes * heavy.longest
    assert sum(heavy.costs) / len(heavy.costs) == pytest.approx(heavy.item_bytes, rel=0.1)
