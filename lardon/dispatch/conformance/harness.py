"""What a backend's own tests tell the suite: how to get one, and how to play its cluster."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from lardon.dispatch.conformance.timings import DEFAULT_TIMINGS, Timings
from lardon.dispatch.enums import Shape
from lardon.dispatch.model import Ref
from lardon.dispatch.spi import Backend


class Lacking(Exception):
    """A check cannot be made here, and why: the suite skips it with this reason."""


def _lacks(what: str) -> NoReturn:
    message = f"the harness cannot {what}"
    raise Lacking(message)


class Harness:
    """
    Subclass this; only `backend` must be given.

    A method that is not overridden, and a figure that stays None, skip the checks that need
    them, with a reason. A harness makes a new cluster, or an empty corner of a real one, for
    every call of `backend`; its other methods are about the one it made last.
    """

    shape: Shape = Shape.SLURM
    """Which of the two the backend behaves like, where these differ."""
    timings: Timings = DEFAULT_TIMINGS
    command: Sequence[str] = ("sleep", "3600")
    """What the jobs of the suite run; it must outlive every check."""
    adapter: str | None = None
    """The name that the adapter is registered under."""
    settings: Mapping[str, Any] | None = None
    """Settings that its factory takes."""
    max_job_id: int | None = None
    """After how many ids they begin anew; the suite starts as many objects."""
    min_job_age_s: float | None = None
    """How long an ended object is kept."""
    node_timeout_s: float | None = None
    """How long a lost node keeps its jobs running, where it does not wedge them."""
    evidence_window_s: float | None = None
    """How long a cause that was read from pods can be told."""
    watch_buffer: int | None = None
    """How many changes a watcher may be behind."""

    def backend(self) -> Backend:
        """Return a backend without objects."""
        raise NotImplementedError

    # Time

    def now(self) -> datetime.datetime:
        """Return what time the cluster has, in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    # The cluster

    def run(self, ref: Ref) -> None:
        """
        Start what may run; a real cluster does that by itself.

        It may raise `RefusedError` when something keeps the object from running.
        """

    def finish(self, ref: Ref, exit_code: int) -> None:
        """Let the command return *exit_code*."""
        _lacks("let a command return")

    def out_of_memory(self, ref: Ref) -> None:
        """Let it be killed for its memory."""
        _lacks("run a job out of memory")

    def time_out(self, ref: Ref) -> None:
        """Let it reach its time limit."""
        _lacks("let a job reach its time limit")

    def preempt(self, ref: Ref) -> None:
        """Let a more important job take its place."""
        _lacks("preempt a job")

    def lose_node(self, ref: Ref) -> None:
        """Lose the node under it."""
        _lacks("lose a node")

    def admin_hold(self, ref: Ref) -> None:
        """Hold it as an administrator."""
        _lacks("hold a job as an administrator")

    def cancel(self, ref: Ref) -> None:
        """Let somebody else stop it."""
        _lacks("let somebody else stop a job")

    def requeue_externally(self, ref: Ref) -> Ref:
        """Let somebody else requeue it, who leaves the bit set; return the ref it has then."""
        _lacks("let somebody else requeue a job")

    def environment(self, ref: Ref) -> Mapping[str, str]:
        """Return the DISPATCH_ variables of the current or last execution."""
        _lacks("read the environment of an execution")

    # The calls

    def late_call(self, started_at: datetime.datetime) -> contextlib.AbstractContextManager[None]:
        """Let the calls made inside start at *started_at*, later than they are made."""
        _lacks("make a call start late")

    def crash_between_steps(self) -> contextlib.AbstractContextManager[None]:
        """Let a requeue made inside be cut off after it has set the bit."""
        _lacks("crash between the steps of a requeue")

    def lose_answer(self, lands_after_s: float | None) -> contextlib.AbstractContextManager[None]:
        """
        Let the answers to calls made inside be lost.

        Args:
            lands_after_s: How long after the call it takes effect; None is never.

        """
        _lacks("lose the answer to a call")

    def read_only(self, backend: Backend) -> Backend:
        """Return a view of the same cluster that refuses every change."""
        _lacks("give a read-only view")
