"""How patient the suite is."""

from __future__ import annotations

from typing import Final

import attrs

from lardon.dispatch.rules import apply_rules, must, seconds


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class Timings:
    """How long the suite waits, in the seconds of the harness's clock."""

    wait_s: float = attrs.field(default=60.0, metadata=must(seconds(above=0)))
    """For what must happen."""
    quiet_s: float = attrs.field(default=30.0, metadata=must(seconds(above=0)))
    """For what must not happen; shorter than anything that the cluster does by itself."""
    poll_s: float = attrs.field(default=5.0, metadata=must(seconds(above=0)))
    """Between two looks."""


DEFAULT_TIMINGS: Final = Timings()
"""Sized for a backend in memory, where waiting costs nothing."""
