"""Recovery policies as values: what is to happen after which end, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from lardon.dispatch.enums import Action, Cause
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.rules import any_text, apply_rules, count, member, must, number, seconds
from lardon.governor.checks import refuse

# An hour: a broken node is found and drained by then, and a job that waits longer is lost.
LONGEST_DELAY_S: Final = 3600.0


@attrs.frozen(field_transformer=apply_rules)
class RecoveryRule:
    """What is to happen when an execution ends for one cause."""

    cause: Cause = attrs.field(metadata=must(member(Cause)))
    action: Action = attrs.field(metadata=must(member(Action)))
    limit: int = attrs.field(default=3, kw_only=True, metadata=must(count()))
    """How often, through the life of the job."""
    delay_s: float = attrs.field(default=10.0, kw_only=True, metadata=must(seconds()))
    """How long to wait before the first time."""
    delay_factor: float = attrs.field(default=2.0, kw_only=True, metadata=must(number(1)))
    """How much longer to wait before each further time."""
    max_delay_s: float = attrs.field(
        default=LONGEST_DELAY_S, kw_only=True, metadata=must(seconds())
    )
    ram_factor: float = attrs.field(default=1.0, kw_only=True, metadata=must(number(1)))
    """What the memory of the job is multiplied by each time; above 1 after `OUT_OF_MEMORY`."""

    @cause.validator
    def _check_cause(self, _: object, value: Cause) -> None:
        if value is Cause.COMPLETED:
            raise refuse(InvalidError, "cause", value.value, "a cause other than Completed")

    def delay_before(self, time: int) -> float:
        """Return the seconds to wait before the *time*-th time, from 1, that the rule applies."""
        delay = self.delay_s
        for _ in range(time - 1):
            delay *= self.delay_factor
            if delay >= self.max_delay_s:
                break
        return min(delay, self.max_delay_s)


def _rules(name: str, value: Any) -> tuple[RecoveryRule, ...]:
    rules = tuple(value) if isinstance(value, Iterable) else ()
    if not isinstance(value, Iterable) or not all(isinstance(one, RecoveryRule) for one in rules):
        raise refuse(InvalidError, name, value, "a sequence of RecoveryRule")
    causes = [one.cause for one in rules]
    if len(set(causes)) != len(causes):
        raise refuse(InvalidError, name, causes, "at most one rule for each cause")
    return rules


@attrs.frozen(field_transformer=apply_rules)
class RecoveryPolicy:
    """What is to happen after each end of a job; an end that no rule names is final."""

    rules: Sequence[RecoveryRule] = attrs.field(default=(), metadata=must(_rules))
    max_executions: int = attrs.field(default=10, kw_only=True, metadata=must(count(1)))
    """How many executions the job gets in all, whatever the rules still allow."""

    def rule_for(self, cause: Cause | None) -> RecoveryRule | None:
        """Return the rule that names *cause*, or None."""
        return next((one for one in self.rules if one.cause is cause), None)


@attrs.frozen(field_transformer=apply_rules)
class NativePolicy:
    """How a policy is divided between the scheduler and the one who supervises the job."""

    native: Sequence[RecoveryRule] = attrs.field(default=(), metadata=must(_rules))
    """What the scheduler enforces by itself."""
    supervised: Sequence[RecoveryRule] = attrs.field(default=(), metadata=must(_rules))
    """What is left to do."""
    detail: str = attrs.field(default="", metadata=must(any_text))
    """What the scheduler was told, in its own words."""
