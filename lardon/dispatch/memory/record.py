"""One object as the scheduler in memory keeps it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

import attrs

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.holds import instance_held
from lardon.dispatch.model import JobSpec, Observation, Ref

# Started; stopped before it ran. Put back, ended. Revived.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.RUNNING, State.ENDED}),
    State.RUNNING: frozenset({State.PENDING, State.ENDED}),
    State.ENDED: frozenset({State.PENDING}),
}


@attrs.frozen
class Execution:
    """One run of an object's command, with what its environment says."""

    attempt: str
    epoch: int
    node: str

    def environment(self) -> dict[str, str]:
        """Return the variables that the backend gives it."""
        return {"DISPATCH_ATTEMPT": self.attempt, "DISPATCH_EPOCH": str(self.epoch)}


@attrs.frozen
class Annotations:
    """What is written beside a hold on Kubeflow, for people."""

    instance: int
    held_by: str
    held_until: datetime.datetime | None
    hold_reason: str


@attrs.frozen(kw_only=True)
class Truth(Observation):
    """
    What is so, which an observer cannot always see.

    Beside the fields of an observation, whose cause does not fade here.
    """

    start_time: datetime.datetime | None = None
    """Slurm shape: the start time that is the hold."""
    held_by: str = ""
    held_until: datetime.datetime | None = None
    hold_reason: str = ""
    executions: int = 0
    """How often its command was started."""
    node_lost: bool = False
    """Whether the node under its current execution is lost."""
    adrift: tuple[str, ...] = ()
    """Attempts that were given up with their node lost, and may run on there."""


@attrs.define(eq=False)
class Record:
    """Everything about one object. The world's lock guards it; times are monotonic seconds."""

    spec: JobSpec
    ref: Ref
    number: int
    """Counts what was ever created: a larger one is newer."""
    gated: bool
    state: State = State.PENDING
    cause: Cause | None = None
    exit_code: int | None = None
    admin_held: bool = False
    requeue_bit: bool = False
    restarts: int = 0
    start_time: datetime.datetime | None = None
    annotations: Annotations | None = None
    execution: Execution | None = None
    executions: int = 0
    lost_at: float | None = None
    """When the node under its current execution was lost."""
    adrift: tuple[Execution, ...] = ()
    """Executions that were given up with their node lost, and may run on there."""
    ended_at: float | None = None
    evidence_gone: bool = False
    told: Observation | None = None
    """What the watchers were told last."""

    def move(self, state: State, cause: Cause | None = None) -> None:
        """Change the state; what belongs to the old one goes with it."""
        assert state in TRANSITIONS[self.state], (self.ref, self.state, state)
        if self.lost_at is not None and self.execution is not None:
            self.adrift += (self.execution,)
        self.lost_at = None
        self.state = state
        self.cause = cause
        self.exit_code = None
        self.ended_at = None

    @property
    def instance(self) -> int | None:
        """Which hold is in place."""
        if self.annotations is not None:
            return self.annotations.instance
        return instance_held(self.ref, self.start_time)

    def observation(self) -> Observation:
        """Return what an observer sees."""
        cause, exit_code = self._cause(), self.exit_code
        if self.evidence_gone:
            cause, exit_code = Cause.UNKNOWN, None
        return Observation(cause=cause, exit_code=exit_code, **self._seen())

    def truth(self) -> Truth:
        """Return what is so."""
        return Truth(
            cause=self._cause(),
            exit_code=self.exit_code,
            start_time=self.start_time,
            held_by=self.annotations.held_by if self.annotations else "",
            held_until=self.annotations.held_until if self.annotations else None,
            hold_reason=self.annotations.hold_reason if self.annotations else "",
            executions=self.executions,
            node_lost=self.lost_at is not None,
            adrift=tuple(one.attempt for one in self.adrift),
            **self._seen(),
        )

    def _cause(self) -> Cause | None:
        if self.state is State.PENDING:
            if self.admin_held:
                return Cause.ADMIN_HELD
            if self.instance is not None:
                return Cause.HELD
        return self.cause

    def _seen(self) -> dict[str, Any]:
        ran = self.execution
        return {
            "ref": self.ref,
            "state": self.state,
            "restarts": self.restarts,
            "requeue_bit": self.requeue_bit,
            "gated": self.gated,
            "hold_instance": self.instance,
            "admin_held": self.admin_held,
            "attempt": ran.attempt if ran else None,
            "epoch": ran.epoch if ran else None,
            "nodes": (ran.node,) if ran else (),
        }
