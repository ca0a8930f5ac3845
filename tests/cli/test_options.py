"""What options say: one meaning for each text, and a reason for each refusal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lardon import GiB, MiB, Policy, ResourceEstimate
from lardon.cli.app import app
from lardon.cli.durations import format_duration, parse_duration
from lardon.cli.options import (
    BadOption,
    PolicyName,
    estimate_of,
    parse_batch,
    parse_count,
    policy_of,
    timeout_of,
)

if TYPE_CHECKING:
    from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        (" 90 s ", 90.0),
        ("500ms", 0.5),
        ("10m", 600.0),
        ("10min", 600.0),
        ("10M", 600.0),
        ("1.5h", 5400.0),
        (".5h", 1800.0),
        ("1d", 86400.0),
        ("0", 0.0),
    ],
)
def test_a_duration_has_one_meaning(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "-1s", "+1s", "nan", "inf", "1e3", "10 weeks", "1h30m", "s", "1.s", "1_0", "٣"],
)
def test_other_durations_are_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        parse_duration(text)

    assert repr(text) in str(caught.value)


def test_a_duration_beyond_every_number_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than a number can say"):
        parse_duration("9" * 400)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert math.isfinite(seconds)
    assert seconds >= 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (1, "1 s"),
        (59.4, "59 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_duration_is_shown_in_few_words(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("1:64", 1, 64), ("64", 64, 64), ("5:5", 5, 5), (" 1 : 2 ", 1, 2)],
)
def test_a_batch_is_a_range_or_one_size(text: str, least: int, most: int) -> None:
    assert parse_batch(text) == (least, most)


@pytest.mark.parametrize("text", ["", "0", "0:4", "5:4", ":", "1:", ":4", "1:2:3", "-1:4", "1.5"])
def test_other_batches_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_batch(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.5", "1e3", "nan", "0x10", "1_000", "٣", "two"])
def test_a_count_is_digits_alone(text: str) -> None:
    with pytest.raises(ValueError, match="not a count"):
        parse_count(text)


def test_every_option_has_its_field() -> None:
    asked = estimate_of(
        {
            "--ram": "4GiB",
            "--ram-per-item": "200MiB",
            "--gpu": "8GiB",
            "--gpu-per-item": "1 MiB",
            "--gpus": "2",
            "--batch": "1:64",
            "--cpus": "4",
            "--min-cpus": "2",
            "--io": "1",
        }
    )

    assert asked == ResourceEstimate(
        ram_bytes=4 * GiB,
        ram_bytes_per_item=200 * MiB,
        gpu_bytes=8 * GiB,
        gpu_bytes_per_item=MiB,
        gpus=2,
        min_batch=1,
        max_batch=64,
        cpus=4,
        min_cpus=2,
        io_slots=1,
    )


def test_options_that_are_not_given_keep_the_defaults() -> None:
    assert estimate_of({"--ram": None, "--batch": None, "--gpus": None}) == ResourceEstimate()
    assert estimate_of({"--gpu": "1"}).gpus == 1
    assert timeout_of(None) is None


@pytest.mark.parametrize(
    ("texts", "option", "reason"),
    [
        ({"--cpus": "0"}, "--cpus", "must be an integer of at least 1, not 0"),
        ({"--min-cpus": "3", "--cpus": "2"}, "--min-cpus", "must be at most --cpus (2), not 3"),
        ({"--gpu": "1G", "--gpus": "0"}, "--gpus", "must be at least 1 when GPU memory is asked"),
        ({"--batch": "0"}, "--batch", "not a range of batch sizes: '0'"),
        ({"--ram": "nan"}, "--ram", "not a size: 'nan'"),
        ({"--io": "-1"}, "--io", "not a count: '-1'"),
        ({"--ram": "9" * 5000}, "--ram", "longer than 1000 characters"),
        ({"--cpus": "9" * 5000}, "--cpus", "longer than 1000 characters"),
    ],
)
def test_a_refusal_names_the_option_and_the_reason(
    texts: dict[str, str | None], option: str, reason: str
) -> None:
    with pytest.raises(BadOption) as caught:
        estimate_of(texts)

    assert caught.value.option == option
    assert reason in str(caught.value)


def test_policies_by_name_and_budget() -> None:
    assert policy_of(PolicyName.DEFAULT) == Policy()
    assert policy_of(PolicyName.INTERACTIVE) == Policy.interactive()
    assert policy_of(PolicyName.UNLIMITED, "1G", "2G") == Policy.unlimited(
        ram_limit_bytes=GiB, gpu_limit_bytes=2 * GiB
    )
    with pytest.raises(BadOption) as caught:
        policy_of(PolicyName.DEFAULT, gpu_limit="much")
    assert caught.value.option == "--gpu-limit"


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "--ram", ""],
        ["explain", "--cpus", "nan"],
        ["explain", "--batch", "64:1"],
        ["explain", "--policy", "none"],
        ["explain", "--nosuch"],
        ["explain", "surplus"],
        ["info", "--ram", "1"],
        ["info", "--ram-limit", "2Gb"],
        ["run", "--timeout", "-1", "--", "true"],
        ["run", "--timeout", "nan", "true"],
        ["run", "--timeout", "10 weeks", "true"],
        ["run"],
        ["nosuch"],
    ],
    ids=" ".join,
)
def test_bad_input_is_status_2(command: Command, arguments: list[str]) -> None:
    answer = command(*arguments)

    assert answer.status == 2
    assert answer.out == ""
    assert answer.err


def test_typers_own_runner_gets_the_same_status(command: Command) -> None:
    """Whoever embeds the commands in an application of Typer's own is told as much."""
    runner = CliRunner()

    for arguments, status in [
        (["explain"], 0),
        (["explain", "--ram", "12G"], 11),
        (["explain", "--ram", "2Gb"], 2),
        (["run", "--", "sh", "-c", "exit 7"], 7),
        (["--version"], 0),
    ]:
        assert runner.invoke(app, arguments).exit_code == command(*arguments).status == status


def test_what_follows_the_commands_name_is_its_own(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    """Options behind the name are not ours, with `--` or without."""
    for separator in ([], ["--"]):
        answer = command("run", "--cpus", "2", *separator, "echo", "--cpus", "9", "--json")
        assert answer.status == 0
        assert capfd.readouterr().out == "--cpus 9 --json\n"
