"""The deadline wrapper as a text: what `build` makes, and what it refuses to make."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.slurm.wrapper import Call, build, last_second, requeue_calls

NONCE = "0123456789abcdef0123456789abcdef"
DEADLINE = datetime.datetime(2026, 10, 12, 9, 36, 40, 700_000, tzinfo=datetime.UTC)
HOLD = Call(("scontrol", "update", "JobId=4242", "StartTime=2036-10-11T20:00:07"))
SHIELDED = 'sh -c \'trap "" HUP PIPE; exec "$0" "$@"\''


def test_the_script_of_a_hold_is_the_documents() -> None:
    """
    Seed 002, "This is the script for a hold", with the shield against HUP behind timeout.

    The deadline's fraction is cut, and the last second that lets the call begin is one less.
    """
    assert build([HOLD], DEADLINE, 25, NONCE) == (
        "trap '' PIPE HUP\n"
        "_dsl_s=75\n"
        f'if [ "$(date +%s)" -le {int(DEADLINE.timestamp()) - 1} ]; then\n'
        f"  TZ=UTC0 timeout -s KILL 25s {SHIELDED} scontrol update JobId=4242 "
        "StartTime=2036-10-11T20:00:07 </dev/null\n"
        "  _dsl_s=$?\n"
        "fi\n"
        f"printf '\\036DSL {NONCE} call 1 %d\\n' \"$_dsl_s\" >&2\n"
        'exit "$_dsl_s"\n'
    )


def test_a_requeue_is_three_calls() -> None:
    """Seed 002, "Why a requeue is three calls"."""
    first, second, third = requeue_calls(7)

    assert first == Call(("scontrol", "update", "JobId=7", "Requeue=1"))
    assert second == Call(("scontrol", "requeue", "7"), only_if_previous=True)
    assert third == Call(("scontrol", "update", "JobId=7", "Requeue=0"), always_if_attempted=True)


def test_every_call_of_a_requeue_stands_behind_the_same_check() -> None:
    """Seed 002: "Requeue is one script with three calls, each behind the same deadline check"."""
    script = build(requeue_calls(7), DEADLINE, 25, NONCE)

    check = f'if [ "$(date +%s)" -le {last_second(DEADLINE)} ]; then'
    assert script.splitlines().count(check) == 3
    assert script.count("timeout -s KILL 25s") == 3


@pytest.mark.parametrize(
    ("bound_s", "text"), [(25, " 25s "), (2.5, " 2.5s "), (1, " 1s "), (86_400, " 86400s ")]
)
def test_the_bound_is_written_as_timeout_reads_it(bound_s: float, text: str) -> None:
    assert f"timeout -s KILL{text}" in build([HOLD], DEADLINE, bound_s, NONCE)


@given(st.datetimes(min_value=DEADLINE.replace(tzinfo=None), timezones=st.just(datetime.UTC)))
def test_a_clock_that_shows_the_last_second_is_before_the_deadline(
    deadline: datetime.datetime,
) -> None:
    """Seed 002, step 3: the script goes ahead only while the host's clock is before it."""
    latest = last_second(deadline)

    # date +%s shows `latest` until just before the next second begins.
    assert latest + 1 <= deadline.timestamp()
    assert deadline.timestamp() - latest < 2


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("deadline", {"deadline": DEADLINE.replace(tzinfo=None)}),
        ("deadline", {"deadline": "2026-01-01"}),
        ("bound_s", {"bound_s": 0}),
        ("bound_s", {"bound_s": 0.5}),
        ("bound_s", {"bound_s": 86_401}),
        ("bound_s", {"bound_s": float("nan")}),
        ("bound_s", {"bound_s": "25s"}),
        ("nonce", {"nonce": "0123"}),
        ("nonce", {"nonce": NONCE.upper()}),
        ("nonce", {"nonce": f"{NONCE[:-1]}\n"}),
        ("calls", {"calls": []}),
        ("calls", {"calls": ["scontrol"]}),
        ("calls", {"calls": [Call(("true",), only_if_previous=True)]}),
        ("calls", {"calls": [Call(("true",), always_if_attempted=True)]}),
    ],
)
def test_what_no_script_can_be_made_of_is_refused(field: str, change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"calls": [HOLD], "deadline": DEADLINE, "bound_s": 25, "nonce": NONCE}

    with pytest.raises(InvalidError) as refused:
        build(**(good | change))

    assert refused.value.path == field


@pytest.mark.parametrize("argv", [(), ("",), ("-x",), ("a\0b",), "scontrol", ("scontrol", 3)])
def test_a_command_line_that_no_shell_could_run_is_refused(argv: Any) -> None:
    with pytest.raises(InvalidError) as refused:
        Call(argv)

    assert refused.value.path == "argv"


def test_a_call_has_one_condition() -> None:
    with pytest.raises(InvalidError, match="only_if_previous"):
        Call(("true",), only_if_previous=True, always_if_attempted=True)


@pytest.mark.parametrize("job_id", [0, -1, "", "7_1", "7; rm", "+7", True, 7.0, None])
def test_only_the_number_of_a_job_is_requeued(job_id: Any) -> None:
    """Array elements are written with an underscore; the adapter submits none."""
    with pytest.raises(InvalidError, match="job_id"):
        requeue_calls(job_id)
