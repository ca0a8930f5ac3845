"""A hold as a start time that nobody lives to see, and back."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from lardon.dispatch.model import EPOCH_BOUND, HOLD_BASE

if TYPE_CHECKING:
    from lardon.dispatch.model import Ref


def hold_start(ref: Ref, instance: int) -> datetime.datetime:
    """Return the start time that holds *ref* under the number *instance*."""
    return ref.submitted_at + datetime.timedelta(seconds=HOLD_BASE + instance)


def instance_held(ref: Ref, start_time: datetime.datetime | None) -> int | None:
    """
    Return which hold *start_time* is, or None when it is no hold.

    A start time that somebody else asked for, or that Slurm sets after a requeue, is far
    below `HOLD_BASE`.
    """
    if start_time is None:
        return None
    instance = round((start_time - ref.submitted_at).total_seconds()) - HOLD_BASE
    return instance if 0 < instance < EPOCH_BOUND else None
