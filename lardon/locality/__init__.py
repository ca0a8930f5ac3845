"""
Which of several workers gets which job: the one that already holds its data, if it can.

    from lardon import MiB, ResourceEstimate
    from lardon.locality import WorkerPool

    with WorkerPool(workers=4, max_artifacts=8) as pool:
        estimate = ResourceEstimate(ram_bytes=500 * MiB)
        task = pool.submit(answer, question, estimate=estimate, deps=["model-7"])

Nothing else in lardon imports this package, so who does not use it does not pay for it.
"""

from lardon.errors import InvalidOption, SchedulerStopped, UnknownWorker, WorkerLost
from lardon.locality.child import ProcessContext
from lardon.locality.current import CurrentWorker, current_worker
from lardon.locality.job import Job, Stage
from lardon.locality.options import Options
from lardon.locality.pending import PendingJob
from lardon.locality.placement import Placement
from lardon.locality.pool import WorkerPool
from lardon.locality.pool_task import PoolTask
from lardon.locality.pool_views import PoolStatistics, WorkerView
from lardon.locality.scheduler import LocalityScheduler
from lardon.locality.statistics import LocalityStatistics
from lardon.locality.worker_spec import WorkerSpec

__all__ = [
    # Scheduling
    "Job",
    "LocalityScheduler",
    "LocalityStatistics",
    "Options",
    "PendingJob",
    "Placement",
    "Stage",
    # Running
    "CurrentWorker",
    "PoolStatistics",
    "PoolTask",
    "ProcessContext",
    "WorkerPool",
    "WorkerSpec",
    "WorkerView",
    "current_worker",
    # Errors
    "InvalidOption",
    "SchedulerStopped",
    "UnknownWorker",
    "WorkerLost",
]
