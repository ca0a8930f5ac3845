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
    """
    The pool takes no more calls, or was closed before the job `name` was over.

    Where it belongs to another process, of which this one is a fork, `owner_pid` says to which.
    """

    name: str = ""
    owner_pid: int | None = None


class RecordLost(DispatchError):
    """
    Somebody removed the record of the task `name`, so that its end cannot be told.

    `job` is the id that its objects bear on the cluster, where it may still run.
    """

    name: str
    job: str


class FolderInUse(DispatchError):
    """Another pool works in `folder`: that of process `pid` on `host`, where those are known."""

    folder: str
    pid: int | None = None
    host: str | None = None
