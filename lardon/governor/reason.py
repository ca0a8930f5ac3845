"""Why the governor answered as it did: a code and the figures."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

import attrs

Fact: TypeAlias = int | float | str

# Beyond this many bits an integer is not written out: Python refuses to print very long
# ones, and no reader gains from the digits.
_FACT_BITS: Final = 1024
_FACT_LIMIT: Final = 1 << _FACT_BITS


class ReasonCode(enum.StrEnum):
    """What bound a decision or ended a task. Codes are appended, never renamed."""

    OK = "OK"
    INVALID_SNAPSHOT = "INVALID_SNAPSHOT"
    STALE_SNAPSHOT = "STALE_SNAPSHOT"
    RAM_CAPACITY = "RAM_CAPACITY"
    GPU_CAPACITY = "GPU_CAPACITY"
    NO_GPU = "NO_GPU"
    CPU_CAPACITY = "CPU_CAPACITY"
    IO_CAPACITY = "IO_CAPACITY"
    RAM_SHORT = "RAM_SHORT"
    GPU_MEMORY_SHORT = "GPU_MEMORY_SHORT"
    GPU_MEMORY_UNKNOWN = "GPU_MEMORY_UNKNOWN"
    GPUS_BUSY = "GPUS_BUSY"
    CPUS_BUSY = "CPUS_BUSY"
    IO_SLOTS_BUSY = "IO_SLOTS_BUSY"
    MEMORY_PRESSURE = "MEMORY_PRESSURE"
    CPU_PRESSURE = "CPU_PRESSURE"
    IO_PRESSURE = "IO_PRESSURE"
    LOAD = "LOAD"
    PROBE_FAILED = "PROBE_FAILED"
    GOVERNOR_FAILED = "GOVERNOR_FAILED"
    LEARNED = "LEARNED"
    FORECAST = "FORECAST"
    ZONE = "ZONE"
    CALLBACK_RAISED = "CALLBACK_RAISED"
    CANCELLED = "CANCELLED"
    START_TIMEOUT = "START_TIMEOUT"

    @property
    def slots_only(self) -> bool:
        """
        Whether only lardon's own releases can end such a wait.

        Then no timer is needed; any other wait is on live readings, which another
        process may change without telling anybody.
        """
        return self in _SLOT_CODES

    @property
    def fades(self) -> bool:
        """
        Whether only more readings can end such a wait: no news is to be expected.

        A queue asks again by itself, even under a policy that rechecks nothing.
        """
        return self in _FADING_CODES


_SLOT_CODES: Final = frozenset(
    {ReasonCode.GPUS_BUSY, ReasonCode.CPUS_BUSY, ReasonCode.IO_SLOTS_BUSY}
)
_FADING_CODES: Final = frozenset({ReasonCode.ZONE, ReasonCode.FORECAST, ReasonCode.LEARNED})


class Facts(dict[str, Fact]):
    """
    A mapping that cannot be changed, and that `json.dumps` takes as it is.

    `types.MappingProxyType` would be the usual choice; it can be neither pickled nor
    written as JSON.
    """

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        message = "the facts of a reason cannot be changed"
        raise TypeError(message)

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict sets None: ours are constant
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Facts], tuple[dict[str, Fact]]]:
        # The default would fill an empty copy item by item.
        return Facts, (dict(self),)

    def __copy__(self) -> Facts:
        return self

    def __deepcopy__(self, memo: Any) -> Facts:
        return self


# The facts of a START, in the order of the tuple that stands for them until somebody reads.
_GRANT_FACTS: Final = ("resource", "asked", "found", "limit", "batch", "holders")


def _checked_facts(facts: Mapping[str, Fact] | tuple[Fact, ...]) -> Facts | tuple[Fact, ...]:
    if isinstance(facts, (Facts, tuple)):
        return facts
    for value in facts.values():
        if not isinstance(value, str) and not -_FACT_LIMIT < value < _FACT_LIMIT:
            return Facts({name: _readable(value) for name, value in facts.items()})
    return Facts(facts)


def _unpacked(facts: Mapping[str, Fact] | tuple[Fact, ...]) -> Mapping[str, Fact]:
    if isinstance(facts, tuple):
        return Facts(zip(_GRANT_FACTS, map(_readable, facts), strict=True))
    return facts


def _readable(value: Fact) -> Fact:
    if isinstance(value, int) and value.bit_length() > _FACT_BITS:
        return f"about 2^{value.bit_length() - 1}"
    return value


@attrs.frozen(kw_only=True)
class Reason:
    """
    Why a decision was taken, or why a task ended.

    `text` is one English sentence; where none was given it is written from `facts` when
    somebody reads it, so that a decision which nobody explains costs no formatting. The
    facts of a START are likewise a tuple until they are read.
    """

    code: ReasonCode
    _text: str = attrs.field(default="", alias="text", repr=False)
    _facts: Mapping[str, Fact] | tuple[Fact, ...] = attrs.field(
        factory=Facts,
        alias="facts",
        converter=_checked_facts,
        eq=_unpacked,
        repr=lambda facts: repr(_unpacked(facts)),
    )

    @property
    def text(self) -> str:
        """One English sentence with the figures."""
        if self._text:
            return self._text
        # Imported here: a decision that nobody explains does without.
        from lardon.governor.sentences import SENTENCES

        write = SENTENCES.get(self.code)
        return write(self.facts) if write is not None else self.code.value

    @property
    def facts(self) -> Mapping[str, Fact]:
        """
        JSON-safe figures: `asked`, `found`, `limit` where there are such, `resource`, `holders`.

        They satisfy the inequality that the sentence states.
        """
        return _unpacked(self._facts)

    def __str__(self) -> str:
        return self.text
