"""How a remote task can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lardon.dispatch.errors import DispatchError

if TYPE_CHECKING:
    from lardon.dispatch.enums import Cause
    from lardon.dispatch.job_record import Outcome


class RemoteFailed(DispatchError):
    """
    The job ended, and its command did not return 0: see `outcome`.

        except RemoteFailed as failed:
            if failed.cause is Cause.OUT_OF_MEMORY:
                ...  # a larger estimate, and another submit
    """

    name: str
    outcome: Outcome

    @property
    def cause(self) -> Cause:
        """Why it ended."""
        return self.outcome.cause


class ResultMissing(DispatchError):
    """The job of a function completed, and its result did not appear at `path` in time."""

    name: str
    path: str


class PoolClosed(DispatchError, RuntimeError):
    """The pool takes no more tasks, or was closed before the job `name` was over."""

    name: str = ""
