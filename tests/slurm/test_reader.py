"""The reader: every doubt is an unknown outcome, and no answer is guessed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lardon.dispatch.errors import (
    DispatchError,
    ExpiredError,
    OutcomeUnknown,
    RefusedError,
    RequeueBitMaybeSet,
)
from lardon.dispatch.slurm.messages import UPDATE_REFUSALS
from lardon.dispatch.slurm.reader import Outcome, Verdict, read
from lardon.dispatch.slurm.wrapper import Call, requeue_calls

NONCE: Final = "0123456789abcdef0123456789abcdef"
OTHER: Final = "f" * 32
HOLD: Final = [Call(("scontrol", "update", "JobId=42", "StartTime=2036-10-11T20:00:07"))]
SUBMIT: Final = [Call(("sbatch", "--parsable", "--hold", "--wrap", "true"))]
CANCEL: Final = [Call(("scancel", "--name=dj-x", "42"))]
RELEASE: Final = [Call(("scontrol", "release", "42"))]
REQUEUE: Final = list(requeue_calls(42))
SUBMIT_FAILED: Final = "sbatch: error: Batch job submission failed: "
MEMORY: Final = "sbatch: error: Memory specification can not be satisfied\n"
SETTLES: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def frame(number: int, status: int, nonce: str = NONCE) -> str:
    return f"\x1eDSL {nonce} call {number} {status}\n"


def result(
    stderr: str, status: int | None, calls: Sequence[Call] = HOLD
) -> Outcome | DispatchError:
    """Return what `read` returns or raises."""
    try:
        return read(stderr, status, NONCE, calls, settles_at=SETTLES)
    except DispatchError as error:
        return error


def kind(found: Outcome | DispatchError) -> str:
    return type(found).__name__


# One call -------------------------------------------------------------------------


def test_status_0_is_applied() -> None:
    found = read(frame(1, 0), 0, NONCE, HOLD)

    assert [(a.number, a.status, a.verdict) for a in found.answers] == [(1, 0, Verdict.APPLIED)]


def test_status_75_is_expired_when_nothing_stands_beside_it() -> None:
    """Dispatch design, decisions: scontrol's own 75 is expired only without other output."""
    assert kind(result(frame(1, 75), 75)) == "ExpiredError"
    assert kind(result("date: not found\n" + frame(1, 75), 75)) == "OutcomeUnknown"


@pytest.mark.parametrize("message", sorted(UPDATE_REFUSALS))
def test_a_known_message_about_this_job_is_a_refusal(message: str) -> None:
    """Seed 002: only if every line is ``<message> for job <id>`` with a known message."""
    found = result(f"{message} for job 42\n{frame(1, 1)}", 1)

    assert isinstance(found, RefusedError)
    assert found.reason == message


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Unexpected message received for job 42\n",
        "Socket timed out on send/recv operation for job 42\n",
        "Unable to contact slurm controller (connect failure) for job 42\n",
        "Zero Bytes were transmitted or received for job 42\n",
        "Protocol authentication error for job 42\n",
        "Rate limit exceeded, please retry momentarily for job 42\n",
        "Job has already finished for job 421\n",
        "Job has already finished for job 4\n",
        "Job has already finished\n",
        "42: Job has already finished\n",
        "Job has already finished for job 42\nslurm_suspend error: Job has already finished\n",
        "Welcome to the cluster!\nJob has already finished for job 42\n",
        "Job has already finished for job 42\nUnexpected message received for job 42\n",
        "job has already finished for job 42\n",
    ],
)
def test_anything_else_with_status_1_is_unknown(said: str) -> None:
    """Dispatch design, 4.4: communication failures are printed in the same form."""
    assert kind(result(said + frame(1, 1), 1)) == "OutcomeUnknown"


def test_a_refusal_needs_status_1() -> None:
    for status in (2, 124, 125, 126, 127, 137, 255):
        said = f"Job has already finished for job 42\n{frame(1, status)}"
        assert kind(result(said, status)) == "OutcomeUnknown", status


@pytest.mark.parametrize(
    ("calls", "status", "said", "reason"),
    [
        (
            RELEASE, 1,
            "Job has already finished for job 42\nslurm_suspend error: Job has already finished\n",
            "Job has already finished",
        ),
        (
            SUBMIT, 1, f"{SUBMIT_FAILED}Invalid partition name specified\n",
            "Invalid partition name specified",
        ),
        (
            SUBMIT, 1, f"{MEMORY}{SUBMIT_FAILED}Requested node configuration is not available\n",
            "Requested node configuration is not available",
        ),
        (
            CANCEL, 210, "scancel: error: Kill job error on job id 42: Access/permission denied\n",
            "Access/permission denied",
        ),
    ],
)  # fmt: skip
def test_each_command_has_its_own_form_of_a_refusal(
    calls: list[Call], status: int, said: str, reason: str
) -> None:
    found = result(said + frame(1, status), status, calls)

    assert isinstance(found, RefusedError)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("calls", "status", "said"),
    [
        (RELEASE, 1, "slurm_suspend error: Job has already finished\n"),
        (SUBMIT, 1, "sbatch: error: Batch job submission failed: Socket timed out on send/recv\n"),
        (SUBMIT, 1, "sbatch: error: Memory specification can not be satisfied\n"),
        (CANCEL, 1, "scancel: error: Kill job error on job id 43: Access/permission denied\n"),
        ([Call(("other", "x"))], 1, "Job has already finished for job 42\n"),
    ],
)
def test_half_a_refusal_is_none(calls: list[Call], status: int, said: str) -> None:
    assert kind(result(said + frame(1, status), status, calls)) == "OutcomeUnknown"


@pytest.mark.parametrize("status", [124, 137])
def test_a_call_that_was_killed_may_still_land(status: int) -> None:
    found = result(f"Killed\n{frame(1, status)}", status)

    assert isinstance(found, OutcomeUnknown)
    assert found.settles_at == SETTLES
    assert "may still land" in str(found)


# The framing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stderr", "status"),
    [
        ("", 0),
        ("all is well\n", 0),
        (frame(1, 0), None),
        (frame(1, 0), 1),
        (frame(1, 0), -9),
        (frame(1, 0, OTHER), 0),
        (frame(1, 0) + frame(1, 0, OTHER), 0),
        (frame(1, 0) + frame(1, 0), 0),
        (frame(2, 0), 0),
        (frame(1, 0) + frame(2, 0), 0),
        (frame(1, 0) + "bye\n", 0),
        (frame(1, 0) + "\n", 0),
        (frame(1, 0)[:-1], 0),
        (frame(1, 0)[:-3], 0),
        (frame(1, 0).replace("call", "Call"), 0),
        (frame(1, 0).replace("call 1", "call 01"), 0),
        (frame(1, 0).replace("\n", "\r\n"), 0),
        ("\x1eDSL " + frame(1, 0), 0),
    ],
)
def test_a_report_that_does_not_add_up_is_unknown(stderr: str, status: int | None) -> None:
    """
    Seed 002, "How the answers are read".

    A line without the script's nonce, calls out of order, text after the last status line,
    an exit status that is not the last call's.
    """
    found = result(stderr, status)

    assert kind(found) == "OutcomeUnknown"
    assert isinstance(found, OutcomeUnknown)
    assert found.settles_at == SETTLES


def test_noise_around_the_call_is_no_status() -> None:
    """The nonce means that noise cannot be mistaken for a status; nor does it hide one."""
    said = f"motd\n\x1e other tool\nno newline at the end{frame(1, 0)}"

    assert kind(result(said, 0)) == "Outcome"


@given(st.text(), st.text(), st.integers(0, 255))
@example("DSL", "", 0)
def test_noise_changes_no_applied_call_and_makes_none(before: str, after: str, status: int) -> None:
    assume("\x1eDSL" not in before and "\x1eDSL" not in f"{before}\x1e")
    found = result(before + frame(1, status) + after, status)

    if after:
        assert kind(found) == "OutcomeUnknown"
    elif status == 0:
        assert kind(found) == "Outcome"
    else:
        assert kind(found) != "Outcome"


@given(st.data())
def test_a_truncated_report_is_never_an_answer(data: st.DataObject) -> None:
    """Wherever a connection breaks, nothing is taken for applied, refused or expired."""
    statuses = data.draw(st.lists(st.sampled_from([0, 1, 75, 137]), min_size=1, max_size=3))
    calls = [HOLD[0]] * len(statuses)
    whole = "".join(frame(number, one) for number, one in enumerate(statuses, start=1))
    kept = data.draw(st.integers(0, len(whole) - 1))

    assert kind(result(whole[:kept], statuses[-1], calls)) == "OutcomeUnknown"


@given(st.permutations([1, 2, 3]), st.lists(st.integers(0, 2), min_size=3, max_size=3))
def test_calls_out_of_order_are_unknown(order: list[int], statuses: list[int]) -> None:
    assume(order != [1, 2, 3])
    said = "".join(frame(number, status) for number, status in zip(order, statuses, strict=True))

    assert kind(result(said, statuses[-1], [HOLD[0]] * 3)) == "OutcomeUnknown"


# Several calls without conditions --------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (0, 0, "Outcome"),
        (75, 75, "ExpiredError"),
        (1, 1, "RefusedError"),
        (1, 75, "RefusedError"),
        (0, 1, "OutcomeUnknown"),
        (0, 75, "OutcomeUnknown"),
        (0, 137, "OutcomeUnknown"),
    ],
)
def test_a_part_that_was_applied_is_no_refusal(first: int, second: int, expected: str) -> None:
    said = "".join(
        ("Job has already finished for job 42\n" if status == 1 else "") + frame(number, status)
        for number, status in ((1, first), (2, second))
    )

    assert kind(result(said, second, [HOLD[0], HOLD[0]])) == expected


# The requeue ----------------------------------------------------------------------

REFUSED: Final = "Requested operation is presently disabled for job 42\n"
STEPS: Final = {
    "0": (0, ""),
    "75": (75, ""),
    "refused": (1, REFUSED),
    "unknown": (1, "Unexpected message received for job 42\n"),
    "killed": (137, "Killed\n"),
}


def requeued(*steps: str | None) -> Outcome | DispatchError:
    """Return what such answers of the three calls come to; None is a call that was skipped."""
    said, status = "", 0
    for number, step in enumerate(steps, start=1):
        if step is not None:
            status, output = STEPS[step]
            said += output + frame(number, status)
    return result(said, status, REQUEUE)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (("75", None, None), "ExpiredError"),
        (("refused", None, "0"), "RefusedError"),
        (("refused", None, "refused"), "RefusedError"),
        (("0", "0", "0"), "Outcome"),
        (("0", "refused", "0"), "RefusedError"),
        (("0", "unknown", "0"), "OutcomeUnknown"),
        (("0", "killed", "0"), "OutcomeUnknown"),
        (("0", "75", "0"), "ExpiredError"),
        (("0", "0", "75"), "RequeueBitMaybeSet"),
        (("0", "0", "unknown"), "RequeueBitMaybeSet"),
        (("0", "0", "refused"), "RequeueBitMaybeSet"),
        (("0", "refused", "75"), "RequeueBitMaybeSet"),
        (("0", "refused", "unknown"), "RequeueBitMaybeSet"),
        (("0", "75", "75"), "RequeueBitMaybeSet"),
        (("unknown", None, "0"), "RequeueBitMaybeSet"),
        (("killed", None, "0"), "RequeueBitMaybeSet"),
        (("unknown", None, "75"), "RequeueBitMaybeSet"),
        (("refused", None, "unknown"), "RequeueBitMaybeSet"),
        (("refused", None, "75"), "RequeueBitMaybeSet"),
        # Cut off.
        (("0", None, None), "RequeueBitMaybeSet"),
        (("0", "0", None), "RequeueBitMaybeSet"),
        (("refused", None, None), "RequeueBitMaybeSet"),
        # What the script's conditions cannot give.
        (("75", None, "0"), "RequeueBitMaybeSet"),
        (("refused", "0", "0"), "RequeueBitMaybeSet"),
        (("0", None, "0"), "RequeueBitMaybeSet"),
        ((None, None, "0"), "RequeueBitMaybeSet"),
    ],
)
def test_the_table_of_a_requeue(steps: tuple[str | None, ...], expected: str) -> None:
    """Dispatch design, 4.5 and decisions: the report of every sequence of answers."""
    assert kind(requeued(*steps)) == expected


@given(st.tuples(*[st.sampled_from([*STEPS, None])] * 3))
def test_a_requeue_is_no_clean_refusal_while_the_bit_may_be_set(
    steps: tuple[str | None, ...],
) -> None:
    """Seed 002: it is never reported as a clean refusal while the bit may still be set."""
    found = requeued(*steps)

    if isinstance(found, (RefusedError, ExpiredError, Outcome)):
        first, _, third = steps
        assert first == "75" or third == "0" or (first == third == "refused")
    else:
        assert isinstance(found, OutcomeUnknown)


def test_the_error_about_the_bit_carries_what_the_requeue_came_to() -> None:
    """Dispatch design, 4.5: error "bit may be left set" (plus 2's result)."""
    found = requeued("0", "refused", "unknown")

    assert isinstance(found, RequeueBitMaybeSet)
    assert isinstance(found.result, RefusedError)
    assert found.settles_at == SETTLES


def test_a_framing_failure_of_a_requeue_may_have_set_the_bit() -> None:
    for stderr in ("", frame(1, 0, OTHER), frame(1, 0) + "text\n"):
        assert kind(result(stderr, 0, REQUEUE)) == "RequeueBitMaybeSet"
    assert kind(result(frame(1, 0), None, REQUEUE)) == "RequeueBitMaybeSet"
