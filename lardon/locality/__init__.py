"""
Which of several workers gets which job: the one that already holds its data, if it can.

    from lardon.locality import Job, LocalityScheduler

    scheduler = LocalityScheduler(cache_timeout_s=0.1, deps_timeout_s=1.0)

Nothing else in lardon imports this package, so who does not use it does not pay for it.
"""

from lardon.errors import InvalidOption, SchedulerStopped, UnknownWorker, WorkerLost
from lardon.locality.job import Job, Stage
from lardon.locality.pending import PendingJob
from lardon.locality.placement import Placement
from lardon.locality.scheduler import LocalityScheduler
from lardon.locality.statistics import LocalityStatistics

__all__ = [
    # Scheduling
    "Job",
    "LocalityScheduler",
    "LocalityStatistics",
    "PendingJob",
    "Placement",
    "Stage",
    # Errors
    "InvalidOption",
    "SchedulerStopped",
    "UnknownWorker",
    "WorkerLost",
]
