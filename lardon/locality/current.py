"""The worker that a job runs on, as the job sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lardon.locality.job import Artifact

    News = Callable[[tuple[Artifact, ...], tuple[Artifact, ...]], object]


class CurrentWorker:
    """
    What stays on one worker from job to job, and what the scheduler is told of it.

    Made by the pool; a callback gets it from `current_worker`, and uses it on its own thread.
    """

    def __init__(
        self, name: str, device: str | None, max_artifacts: int | None, news: News
    ) -> None:
        self.name = name
        """The name of the worker."""
        self.device = device
        """The UUID of its GPU, or None."""
        self.state: dict[Artifact, Any] = {}
        """Whatever jobs leave for later ones. What is evicted is dropped from it, by its name."""
        self._max_artifacts = max_artifacts
        self._news = news
        # A set; the least recently used comes first.
        self._held: dict[Artifact, None] = {}

    def add_artifacts(self, ids: Iterable[Artifact]) -> None:
        """Say that this worker holds these now, the last one as the latest used."""
        fresh: list[Artifact] = []
        for artifact in tuple(ids):
            if artifact in self._held:
                del self._held[artifact]
            else:
                fresh.append(artifact)
            self._held[artifact] = None
        # Of more than fit, some are dropped before anybody was told of them.
        dropped = tuple(artifact for artifact in self._evict() if artifact not in fresh)
        added = tuple(artifact for artifact in fresh if artifact in self._held)
        if added or dropped:
            self._news(added, dropped)

    def remove_artifacts(self, ids: Iterable[Artifact]) -> None:
        """Say that this worker holds these no longer."""
        gone = tuple(artifact for artifact in ids if artifact in self._held)
        for artifact in gone:
            del self._held[artifact]
        if gone:
            self._news((), gone)

    def _evict(self) -> tuple[Artifact, ...]:
        """Drop the least recently used of what is too much, from `state` too."""
        if self._max_artifacts is None:
            return ()
        dropped = tuple(self._held)[: max(0, len(self._held) - self._max_artifacts)]
        for artifact in dropped:
            del self._held[artifact]
            self.state.pop(artifact, None)
        return dropped


class _Current(threading.local):
    worker: CurrentWorker | None = None


current: Final = _Current()


def current_worker() -> CurrentWorker | None:
    """Return the worker of the job that this thread is running, or None outside of a pool."""
    return current.worker
