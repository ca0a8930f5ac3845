"""
The same governed work on other machines: jobs on a cluster, behind one interface.

    from lardon.dispatch import JobSpec
    from lardon.dispatch.registry import create

    backend = create("memory", {"shape": "slurm"})
    ref = backend.start(JobSpec(id="01ARZ3NDEKTSV4RRFFQ69G5FAV", command=["python", "train.py"]))
    backend.open(ref)

`import lardon` does not import this package, so who does not use it does not pay for it.
"""

from lardon.dispatch.enums import (
    Action,
    Capability,
    Cause,
    Shape,
    Source,
    State,
    Tristate,
    UnmatchedPolicy,
)
from lardon.dispatch.errors import (
    BackendClosed,
    CrashedError,
    DispatchError,
    DuplicateError,
    ExpiredError,
    FinishedError,
    InvalidError,
    MissingExtra,
    NotFoundError,
    OutcomeUnknown,
    RefusedError,
    RequeueBitMaybeSet,
    UnsupportedError,
    WatchClosed,
)
from lardon.dispatch.job_operator import Operator
from lardon.dispatch.job_record import JobRecord, Outcome
from lardon.dispatch.model import (
    EPOCH_BOUND,
    HOLD_BASE,
    CallMeta,
    Cessation,
    Declarations,
    HoldMeta,
    JobSpec,
    Observation,
    Ref,
    Support,
    epoch,
)
from lardon.dispatch.observer import JobView, Observer
from lardon.dispatch.records import FileRecords, MemoryRecords, RecordConflict, Records, StoreAway
from lardon.dispatch.recovery import NativePolicy, RecoveryPolicy, RecoveryRule
from lardon.dispatch.supervisor import Supervisor
from lardon.dispatch.ulid import new_ulid

__all__ = [
    # Jobs and what is seen of them
    "JobSpec",
    "Ref",
    "Observation",
    "State",
    "Cause",
    "Cessation",
    "new_ulid",
    "epoch",
    "EPOCH_BOUND",
    "HOLD_BASE",
    # Calls
    "CallMeta",
    "HoldMeta",
    # What a cluster can do
    "Action",
    "Capability",
    "Declarations",
    "Shape",
    "Source",
    "Support",
    "Tristate",
    # The core
    "Operator",
    "Observer",
    "Supervisor",
    "UnmatchedPolicy",
    "JobRecord",
    "JobView",
    "Outcome",
    "Records",
    "FileRecords",
    "MemoryRecords",
    # Recovery
    "NativePolicy",
    "RecoveryPolicy",
    "RecoveryRule",
    # Errors
    "BackendClosed",
    "CrashedError",
    "DispatchError",
    "DuplicateError",
    "ExpiredError",
    "FinishedError",
    "InvalidError",
    "MissingExtra",
    "NotFoundError",
    "OutcomeUnknown",
    "RecordConflict",
    "RefusedError",
    "RequeueBitMaybeSet",
    "StoreAway",
    "UnsupportedError",
    "WatchClosed",
]
