"""lardon and its peers behind one interface, so that all are driven alike."""

from benchmarks.systems.base import System
from benchmarks.systems.cluster import Dask
from benchmarks.systems.governed import Lardon
from benchmarks.systems.parallel import JoblibInline, JoblibThreads
from benchmarks.systems.threads import (
    PlainReads,
    QueueFigures,
    QueueLoop,
    QueueReads,
    QueueSnapshots,
    ThreadPool,
)

SYSTEMS: dict[str, type[System]] = {
    system.key: system
    for system in (
        Lardon,
        ThreadPool,
        QueueLoop,
        QueueReads,
        QueueFigures,
        QueueSnapshots,
        PlainReads,
        JoblibInline,
        JoblibThreads,
        Dask,
    )
}

__all__ = ["SYSTEMS", "System"]
