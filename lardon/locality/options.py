"""The options of a scheduler, checked at the border."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from lardon.errors import InvalidOption
from lardon.governor.checks import finite_number, refuse

Order: TypeAlias = Literal["random", "local-first"]
Cold: TypeAlias = Literal["wait", "now"]

_WORDS: Final = (("order", ("random", "local-first")), ("cold", ("wait", "now")))


@attrs.frozen(kw_only=True)
class Options:
    """
    How jobs wait, and which of them is handed out first.

    Raises:
        InvalidOption: an option breaks its rule; the error names field, value and rule.

    """

    cache_timeout_s: float
    """How long a job waits for the holders of its own result, if there are any."""
    deps_timeout_s: float
    """How long it waits, after that, for the holders of its dependencies."""
    order: Order = "random"
    """Which of a worker's queues is asked first."""
    cold: Cold = "wait"
    """Whether a job that nobody holds anything for waits all the same."""
    max_age_s: float | None = None
    """A job that waits so long goes before all that wait less; None is never."""
    lease_s: float | None = None
    """A worker that is silent so long has lost its jobs; None is never."""

    def __attrs_post_init__(self) -> None:
        """Check every field, and put plain numbers in their place."""
        for field in ("cache_timeout_s", "deps_timeout_s"):
            seconds = finite_number(InvalidOption, field, getattr(self, field))
            object.__setattr__(self, field, seconds)
        for field in ("max_age_s", "lease_s"):
            value = getattr(self, field)
            if value is not None:
                seconds = finite_number(InvalidOption, field, value, above=0)
                object.__setattr__(self, field, seconds)
        for field, words in _WORDS:
            value = getattr(self, field)
            if not isinstance(value, str) or value not in words:
                raise refuse(InvalidOption, field, value, " or ".join(map(repr, words)))
        if not self.cache_timeout_s < self.deps_timeout_s:
            rule = f"less than deps_timeout_s, which is {self.deps_timeout_s:g}"
            raise refuse(InvalidOption, "cache_timeout_s", self.cache_timeout_s, rule)
