"""What brings a pool's jobs about: its store, its operator and its supervisor."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Final

from lardon.dispatch.job_operator import Operator
from lardon.dispatch.records import FileRecords, MemoryRecords
from lardon.dispatch.supervisor import SKEW_S, Supervisor

if TYPE_CHECKING:
    from pathlib import Path

    from lardon.clock import Clock
    from lardon.dispatch.enums import UnmatchedPolicy
    from lardon.dispatch.records import Records
    from lardon.dispatch.remote.options import PoolTimings
    from lardon.dispatch.spi import Backend

_JOBS: Final = "jobs"


def check_parts(
    backend: Backend, clock: Clock, timings: PoolTimings, unmatched: UnmatchedPolicy
) -> None:
    """Raise what no operator and no supervisor can be made of, before a folder is made."""
    operator = operator_of(backend, MemoryRecords(), None, clock, timings)
    supervisor_of(operator, timings, unmatched).close()


def operator_of(
    backend: Backend,
    records: Records | None,
    folder: Path | None,
    clock: Clock,
    timings: PoolTimings,
) -> Operator:
    """Return the operator of a pool; without *records* they are in *folder*, or in memory."""
    if records is None:
        records = MemoryRecords() if folder is None else FileRecords(folder / _JOBS)
    return Operator(
        backend,
        records,
        clock,
        call_timeout_s=timings.call_timeout_s,
        poll_s=timings.poll_s,
    )


def supervisor_of(
    operator: Operator, timings: PoolTimings, unmatched: UnmatchedPolicy
) -> Supervisor:
    """Return a supervisor of a name that no other pool has; errors as for `Supervisor`."""
    return Supervisor(
        # On whatever host: two supervisors of one name would take each other's lease for theirs.
        f"pool-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        operator,
        unmatched=unmatched,
        unmatched_grace_s=timings.unmatched_grace_s,
        lease_s=timings.lease_s,
        skew_s=min(SKEW_S, timings.lease_s),
    )
