"""Noticing a fork without a system call."""

from __future__ import annotations

import os

_forks = 0


def _count() -> None:
    global _forks  # noqa: PLW0603  it counts for the process, not for an object
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


def forks() -> int:
    """
    Return a number that differs between a forked child and its parent.

    What belongs to one process remembers it. `os.getpid` would do as well; it is a system
    call, which a queue would make at every submit.
    """
    return _forks
