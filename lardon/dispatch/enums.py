"""The closed sets of words of a dispatch: text on the wire, and no other word is taken."""

from __future__ import annotations

import enum

from lardon.dispatch.errors import InvalidError
from lardon.governor.checks import refuse


class ClosedEnum(enum.StrEnum):
    """An enumeration whose members are their own text; an unknown text is an `InvalidError`."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        words = ", ".join(member.value for member in cls)
        raise refuse(InvalidError, cls.__name__.lower(), value, f"one of {words}")


class State(ClosedEnum):
    """Where an object is in its life, as far as the scheduler says."""

    PENDING = "Pending"
    """It exists and does not run: gated, held, or waiting for its turn."""
    RUNNING = "Running"
    """An execution runs, or is not known to have ceased (see `CessationSignal`)."""
    ENDED = "Ended"
    """No execution of it runs, and none starts unless it is asked for."""
    UNKNOWN = "Unknown"
    """Nobody knows of the object: it never was, or its record is gone. Never a success."""


class Cause(ClosedEnum):
    """Why an object is in its state."""

    COMPLETED = "Completed"
    """Its command returned 0."""
    NON_ZERO_EXIT = "NonZeroExit"
    OUT_OF_MEMORY = "OutOfMemory"
    TIMEOUT = "Timeout"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    BOOT_FAIL = "BootFail"
    """A node did not come up for it, so its command never ran."""
    CANCELLED = "Cancelled"
    NO_CAPACITY = "NoCapacity"
    """Pending: no room for it now."""
    HELD = "Held"
    """Held by a `Holder`: waits, or was ended by the hold."""
    ADMIN_HELD = "AdminHeld"
    """Pending: held by the people who run the cluster; only they lift it."""
    REQUEUED = "Requeued"
    """Pending again after an execution."""
    UNKNOWN = "Unknown"
    """The evidence is gone, or there never was any."""


class Tristate(ClosedEnum):
    """Yes, no, or nobody knows."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Source(ClosedEnum):
    """How somebody came to know whether a thing is supported."""

    PROBED = "probed"
    """The cluster was asked."""
    CONFIGURED = "configured"
    """Somebody wrote it down."""
    ASSUMED = "assumed"
    """It is so on most clusters."""


class Capability(ClosedEnum):
    """What one cluster has and another lacks."""

    ACCOUNTING_HISTORY = "AccountingHistory"
    """An object whose record was purged is still found in the accounting."""
    REQUEUE_ENDED = "RequeueEnded"
    """A requeue revives an object that ended."""


class Action(ClosedEnum):
    """What a recovery policy may ask for."""

    RESTART = "restart"
    """Submit the job again, as a new object."""
    REQUEUE = "requeue"
    """Put the same object back to pending."""
    STOP = "stop"
    """Leave it ended."""


class Shape(ClosedEnum):
    """Which scheduler a backend behaves like."""

    SLURM = "slurm"
    """Names repeat, starting is gated, a lost node ends its jobs, a hold keeps from starting."""
    KUBEFLOW = "kubeflow"
    """Names are unique, a stop deletes, a lost node wedges its jobs, a hold ends a running one."""


class UnmatchedPolicy(ClosedEnum):
    """
    What to do with objects that no record claims.

    Such an object has a name of ours, has not ended, and the store knows no job of it. None of
    these adopts it: an object does not tell the command, the policy and the history that a
    record is made of.
    """

    LEAVE = "leave"
    """They are neither looked for nor touched."""
    REPORT = "report"
    """They are looked for, logged once each, and listed."""
    STOP = "stop"
    """
    They are reported, and stopped. Only for an account of which every job is in this one store:
    two stores on one account would stop each other's jobs.
    """
