"""
Tasks that run on a cluster, as handles of a pool: the queue's side of a dispatch.

    from lardon import GiB, ResourceEstimate
    from lardon.dispatch.registry import create
    from lardon.dispatch.remote import RemotePool

    with RemotePool(create("slurm"), jobs=8, cpus=64, ram_bytes=256 * GiB, folder="runs") as pool:
        handle = pool.submit(["python", "train.py"], estimate=ResourceEstimate(cpus=8))
        print(handle.result())
"""

from lardon.dispatch.remote.errors import (
    FolderInUse,
    PoolClosed,
    RecordLost,
    RemoteFailed,
    ResultMissing,
)
from lardon.dispatch.remote.handle import RemoteHandle
from lardon.dispatch.remote.options import PoolTimings, RemoteStatistics, TaskOptions
from lardon.dispatch.remote.pool import RemotePool

__all__ = [
    "FolderInUse",
    "PoolClosed",
    "PoolTimings",
    "RecordLost",
    "RemoteFailed",
    "RemoteHandle",
    "RemotePool",
    "RemoteStatistics",
    "ResultMissing",
    "TaskOptions",
]
