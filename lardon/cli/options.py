"""What the options of the command say, as an estimate, a policy and a time-out."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, assert_never

from lardon.cli.durations import parse_duration
from lardon.errors import InvalidEstimate, InvalidPolicy
from lardon.governor.checks import shown
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.policy import Policy
from lardon.units import parse_size

T = TypeVar("T")

_SIZES: Final = {
    "--ram": "ram_bytes",
    "--ram-per-item": "ram_bytes_per_item",
    "--gpu": "gpu_bytes",
    "--gpu-per-item": "gpu_bytes_per_item",
}
_COUNTS: Final = {
    "--cpus": "cpus",
    "--min-cpus": "min_cpus",
    "--gpus": "gpus",
    "--io": "io_slots",
}
_BATCH: Final = {"min_batch": "--batch", "max_batch": "--batch"}
_OPTION_OF: Final = {
    **{field: option for option, field in (_SIZES | _COUNTS).items()},
    **_BATCH,
    "ram_limit_bytes": "--ram-limit",
    "gpu_limit_bytes": "--gpu-limit",
}
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
# More digits than any amount that means something; Python itself refuses to read 4301.
_MAX_DIGITS: Final = 1000


class BadOption(ValueError):
    """An option that is refused: `option` and, as the message, the reason."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(reason)
        self.option = option


class PolicyName(enum.StrEnum):
    """The policies that `--policy` chooses from."""

    DEFAULT = "default"
    INTERACTIVE = "interactive"
    UNLIMITED = "unlimited"


def estimate_of(texts: Mapping[str, str | None]) -> ResourceEstimate:
    """
    Return the estimate that the options ask for.

    Args:
        texts: the text of each option by its name, such as ``--ram``; None is not given.

    Raises:
        BadOption: a text breaks its rule, alone or beside another one.

    """
    fields: dict[str, Any] = {}
    for option, text in texts.items():
        if text is None:
            continue
        if option == "--batch":
            fields["min_batch"], fields["max_batch"] = _read(parse_batch, option, text)
        elif option in _SIZES:
            fields[_SIZES[option]] = _read(parse_size, option, text)
        else:
            fields[_COUNTS[option]] = _read(parse_count, option, text)
    try:
        return ResourceEstimate(**fields)
    except InvalidEstimate as error:
        raise _named(error) from error


def policy_of(
    name: PolicyName, ram_limit: str | None = None, gpu_limit: str | None = None
) -> Policy:
    """Return the policy of that name, with the budgets that are given; or raise `BadOption`."""
    changes: dict[str, Any] = {}
    if ram_limit is not None:
        changes["ram_limit_bytes"] = _read(parse_size, "--ram-limit", ram_limit)
    if gpu_limit is not None:
        changes["gpu_limit_bytes"] = _read(parse_size, "--gpu-limit", gpu_limit)
    match name:
        case PolicyName.DEFAULT:
            return Policy(**changes)
        case PolicyName.INTERACTIVE:
            return Policy.interactive(**changes)
        case PolicyName.UNLIMITED:
            return Policy.unlimited(**changes)
        case _:
            assert_never(name)


def timeout_of(text: str | None) -> float | None:
    """Return the seconds of ``--timeout``, None for "as long as it takes"; or raise `BadOption`."""
    return None if text is None else _read(parse_duration, "--timeout", text)


def parse_count(text: str) -> int:
    """Return the integer that *text* is: digits alone; ValueError says why it is none."""
    stripped = text.strip()
    if _DIGITS.fullmatch(stripped) is None:
        message = f"not a count: {text!r}; write digits alone"
        raise ValueError(message)
    return int(stripped)


def parse_batch(text: str) -> tuple[int, int]:
    """Return the least and the most of ``1:64``; ``64`` stands for ``64:64``."""
    first, colon, second = text.partition(":")
    least = parse_count(first)
    most = parse_count(second) if colon else least
    if not 1 <= least <= most:
        message = f"not a range of batch sizes: {text!r}; write LEAST:MOST with 1 <= LEAST <= MOST"
        raise ValueError(message)
    return least, most


def _read(parse: Callable[[str], T], option: str, text: str) -> T:
    if len(text) > _MAX_DIGITS:
        raise BadOption(option, f"the text is longer than {_MAX_DIGITS} characters")
    try:
        return parse(text)
    except ValueError as error:
        raise BadOption(option, str(error)) from error


def _named(error: InvalidEstimate | InvalidPolicy) -> BadOption:
    """Return a refusal of a field as one of its option."""
    option = _OPTION_OF.get(error.field, error.field)
    rule = error.rule
    for field, name in _OPTION_OF.items():
        rule = re.sub(rf"\b{field}\b", name, rule)
    return BadOption(option, f"must be {rule}, not {shown(error.value)}")
