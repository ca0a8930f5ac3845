"""Jobs on a real cluster, for tests that have to wait for what others do."""

from __future__ import annotations

import datetime
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from lardon.dispatch.model import CallMeta, HoldMeta, JobSpec, Observation, Ref, State
from lardon.dispatch.slurm import LocalTransport, SlurmBackend
from lardon.dispatch.ulid import new_ulid
from lardon.testing.slurm_cluster import SlurmCluster

T = TypeVar("T")

# A scheduler tick is a second, and both cores may be busy with other things.
PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.1
# Above the MessageTimeout of the test cluster.
BOUND_S: Final = 5.0


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def within(seconds: float = 30) -> CallMeta:
    """Return a deadline that far from now."""
    return CallMeta(utc_now() + datetime.timedelta(seconds=seconds))


def hold_of(instance: int, seconds: float = 30) -> HoldMeta:
    """Return the hold of that number, to be placed or released in that time."""
    return HoldMeta(instance=instance, deadline=within(seconds).deadline)


def spec(*command: str, **fields: Any) -> JobSpec:
    """Return a new job that runs *command*."""
    return JobSpec(id=new_ulid(utc_now(), secrets.randbits), command=command, **fields)


def eventually(
    ask: Callable[[], T], holds: Callable[[T], object], patience_s: float = PATIENCE_S
) -> T:
    """
    Return what *ask* says once it *holds*.

    Nothing tells a test when a scheduler in another process has acted, so it is asked again.
    """
    end = time.monotonic() + patience_s
    pause = threading.Event()
    while True:
        found = ask()
        if holds(found):
            return found
        assert time.monotonic() < end, f"still {found!r} after {patience_s:g} s"
        pause.wait(_LOOK_S)


def seen(backend: SlurmBackend, ref: Ref) -> Observation:
    """Return the observation of *ref* now."""
    return backend.observe_many([ref])[ref]


def until(backend: SlurmBackend, ref: Ref, *states: State) -> Observation:
    """Return the observation of *ref* once it is in one of *states*."""
    return eventually(lambda: seen(backend, ref), lambda one: one.state in states)


def started(backend: SlurmBackend, *command: str, **fields: Any) -> Ref:
    """Submit *command*, open it, and return its ref once it runs."""
    ref = backend.start(spec(*command, **fields))
    backend.open(ref)
    until(backend, ref, State.RUNNING, State.ENDED)
    return ref


def shown(cluster: SlurmCluster, ref: Ref) -> dict[str, str]:
    """Return what `scontrol show job` says of *ref*, field by field."""
    printed = cluster.client("scontrol", "show", "job", "-o", str(ref.id)).stdout
    return dict(word.split("=", 1) for word in printed.split() if "=" in word)


class InTheMiddle:
    """A transport that lets a test act between a look-up and the call that follows it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._inner = LocalTransport(environment=environment)
        self.environment = self._inner.environment
        self.before: dict[str, Callable[[], object]] = {}
        """What is done, once, before a script that holds such a text is run."""

    @property
    def remote(self) -> bool:
        return False

    @property
    def setup_s(self) -> float:
        return 0.0

    def command(self, text: str) -> Sequence[str]:
        for part in [part for part in self.before if part in text]:
            self.before.pop(part)()
        return self._inner.command(text)
