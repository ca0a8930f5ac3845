"""Records and sights, by hand and as hypothesis makes them, for the pure half of the core."""

from __future__ import annotations

import datetime
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from lardon.dispatch.enums import Action, Cause, State
from lardon.dispatch.job_record import (
    Attempt,
    HoldWish,
    JobRecord,
    Lease,
    ObjectRecord,
    Operation,
    Outcome,
    PendingCall,
    Recovery,
)
from lardon.dispatch.model import Cessation, Declarations, JobSpec, Observation, Ref
from lardon.dispatch.planning import plan
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.sight import Sight, Terms

NOW: Final = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
JOB: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SPEC: Final = JobSpec(id=JOB, command=["work"])
GATED: Final = Terms(
    promises=Declarations(adapter="test", call_bound_s=20.0),
    can_hold=True,
    can_requeue=True,
    tells_cessation=True,
)
UNGATED: Final = attrs.evolve(
    GATED,
    promises=Declarations(adapter="test", call_bound_s=20.0, gated=False, unique_names=True),
    can_requeue=False,
)
OPENED: Final = {"opened_at": NOW}


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def ref(number: int) -> Ref:
    return Ref(SPEC.name, number, NOW.replace(microsecond=0) - datetime.timedelta(seconds=number))


def seen(number: int, state: State = State.PENDING, **fields: Any) -> Observation:
    return Observation(ref=ref(number), state=state, **fields)


def an_object(number: int, **fields: Any) -> ObjectRecord:
    return ObjectRecord(**{"ref": ref(number), "submission": 1, "claimed_at": NOW, **fields})


def a_record(**fields: Any) -> JobRecord:
    return JobRecord(**{"spec": SPEC, "created_at": NOW, **fields})


def a_call(operation: Operation, settles_in_s: float = 20.0, **fields: Any) -> PendingCall:
    given = {
        "number": 1,
        "operation": operation,
        "submission": 1,
        "begun_at": after(-1),
        "deadline": NOW,
        "settles_at": after(settles_in_s),
        "fence": 1,
        **fields,
    }
    return PendingCall(**given)


def a_sight(*objects: Observation, at: float = 0.0, ceased: bool = True) -> Sight:
    told = {one.ref: Cessation(ceased=ceased) for one in objects if not _goes_on(one)}
    return Sight(looked_at=after(at), objects=objects, cessations=told)


def _goes_on(one: Observation) -> bool:
    return one.state in (State.PENDING, State.RUNNING) and one.cause is None


def a_lease() -> Lease:
    return Lease(holder="one", fence=1, expires_at=after(60))


def ended(
    cause: Cause, policy: RecoveryPolicy, *, ceased: bool = True, **fields: Any
) -> tuple[JobRecord, Sight]:
    """Return a job whose only execution ended, and what is seen of it."""
    record = a_record(objects=[an_object(1, **OPENED)], kept=ref(1), policy=policy, **fields)
    return record, a_sight(seen(1, State.ENDED, cause=cause, attempt="a"), ceased=ceased)


def policy_for(cause: Cause, action: Action = Action.RESTART, **fields: Any) -> RecoveryPolicy:
    return RecoveryPolicy([RecoveryRule(cause, action, **fields)])


def operation(record: JobRecord, sight: Sight, terms: Terms = GATED) -> Operation | None:
    """Return the operation that is decided on, if any is."""
    decided = plan(record, sight, terms)
    return None if decided.call is None else decided.call.operation


# Everything that a record can be, sense or nonsense: it is read back as it was.

moments = st.integers(-(10**8), 10**8).map(lambda micros: after(micros / 1000))
numbers = st.integers(1, 999)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
some_texts = texts.filter(bool)
refs = st.builds(
    Ref,
    some_texts,
    st.one_of(st.integers(0, 10**9), some_texts),
    moments.map(lambda moment: moment.replace(microsecond=0)),
    sluid=st.none() | some_texts,
)
specs = st.builds(
    JobSpec,
    id=st.just(JOB),
    submission=numbers,
    command=st.lists(some_texts, min_size=1, max_size=3),
    nodes=numbers,
    cpus=numbers,
    gpus=st.integers(0, 9),
    ram_bytes=st.none() | numbers,
    time_limit_s=st.none() | st.floats(0.001, 1e9),
    directory=st.none() | some_texts,
    environment=st.dictionaries(
        st.text("ABCxyz", min_size=1, max_size=4).filter(lambda name: name != "DISPATCH_"), texts
    ),
    extensions=st.dictionaries(
        st.sampled_from(["slurm", "other"]), st.dictionaries(some_texts, texts, max_size=2)
    ),
)
rules = st.builds(
    RecoveryRule,
    st.sampled_from([cause for cause in Cause if cause is not Cause.COMPLETED]),
    st.sampled_from(Action),
    limit=st.integers(0, 9),
    delay_s=st.floats(0, 1e4),
    delay_factor=st.floats(1, 9),
    ram_factor=st.floats(1, 9),
)
policies = st.builds(
    RecoveryPolicy,
    st.lists(rules, unique_by=lambda rule: rule.cause, max_size=3),
    max_executions=numbers,
)
calls = st.builds(
    PendingCall,
    number=numbers,
    operation=st.sampled_from(Operation),
    ref=st.none() | refs,
    instance=st.none() | numbers,
    submission=numbers,
    begun_at=moments,
    deadline=moments,
    settles_at=moments,
    fence=numbers,
)
objects = st.builds(
    ObjectRecord,
    ref=refs,
    submission=numbers,
    claimed_at=moments,
    opened_at=st.none() | moments,
    stop_asked_at=st.none() | moments,
    over=st.booleans(),
    verdict=st.none() | st.sampled_from(Cause),
)
attempts = st.builds(
    Attempt,
    attempt=some_texts,
    epoch=st.none() | numbers,
    submission=numbers,
    ref=refs,
    seen_at=moments,
    ended_at=st.none() | moments,
    cause=st.none() | st.sampled_from(Cause),
    exit_code=st.none() | st.integers(0, 255),
    nodes=st.lists(texts, max_size=2),
)
recoveries = st.builds(
    Recovery,
    cause=st.sampled_from(Cause),
    action=st.sampled_from(Action),
    submission=numbers,
    decided_at=moments,
    not_before=moments,
)
outcomes = st.builds(
    Outcome,
    cause=st.sampled_from(Cause),
    exit_code=st.none() | st.integers(0, 255),
    ended_at=moments,
    executions=st.integers(0, 9),
    submissions=numbers,
    nodes=st.lists(texts, max_size=2),
    reason=texts,
)
holds = st.builds(
    HoldWish,
    instance=numbers,
    asked_at=moments,
    placed_by=texts,
    until=st.none() | moments,
    reason=texts,
    in_force_at=st.none() | moments,
    refused_for=st.none() | some_texts,
)
records = st.builds(
    JobRecord,
    spec=specs,
    policy=policies,
    label=texts,
    position=st.integers(0, 9),
    created_at=moments,
    notes=st.dictionaries(some_texts, texts, max_size=2),
    may_start=st.booleans(),
    may_open=st.booleans(),
    stop_asked_at=st.none() | moments,
    hold=st.none() | holds,
    holds_asked=st.integers(0, 9),
    objects=st.lists(objects, max_size=2),
    kept=st.none() | refs,
    calls=st.lists(calls, max_size=2),
    calls_made=st.integers(0, 9),
    starts_settle_at=st.none() | moments,
    attempts=st.lists(attempts, max_size=2),
    recoveries=st.lists(recoveries, max_size=2),
    due=st.none() | recoveries,
    refusals=st.integers(0, 9),
    start_faults=st.integers(0, 9),
    retry_at=st.none() | moments,
    last_refusal=texts,
    outcome=st.none() | outcomes,
    lease=st.none() | st.builds(Lease, holder=some_texts, fence=numbers, expires_at=moments),
    version=st.integers(0, 9),
)

# What may be seen of a few objects of one job, and what its record may say of them.

observations = st.builds(
    seen,
    st.integers(1, 4),
    st.sampled_from(State),
    cause=st.none() | st.sampled_from(Cause),
    gated=st.booleans(),
    hold_instance=st.none() | st.integers(1, 3),
    admin_held=st.booleans(),
    requeue_bit=st.booleans(),
    restarts=st.integers(0, 1),
    attempt=st.none() | st.sampled_from(["a", "b", "c"]),
)
sights = st.builds(
    lambda objects, ceased: Sight(
        looked_at=NOW,
        objects=tuple(objects),
        cessations={one.ref: Cessation(ceased=ceased) for one in objects},
    ),
    st.lists(observations, unique_by=lambda one: one.ref, max_size=4),
    st.booleans(),
)
near = st.integers(-60, 60).map(after)
known_objects = st.builds(
    an_object,
    st.integers(1, 4),
    opened_at=st.none() | near,
    over=st.booleans(),
)
pending = st.builds(
    lambda operation, number, settles_at: PendingCall(
        number=1,
        operation=operation,
        ref=None if operation is Operation.START else ref(number),
        instance=1,
        submission=1,
        begun_at=after(-100),
        deadline=after(-90),
        settles_at=settles_at,
        fence=1,
    ),
    st.sampled_from(Operation),
    st.integers(1, 4),
    near,
)
states_of_a_job = st.builds(
    a_record,
    policy=policies,
    objects=st.lists(known_objects, unique_by=lambda one: one.ref, max_size=4),
    kept=st.none() | st.integers(1, 4).map(ref),
    calls=st.lists(pending, max_size=1),
    calls_made=st.just(1),
    hold=st.none() | st.builds(HoldWish, instance=st.integers(1, 3), asked_at=near),
    stop_asked_at=st.none() | near,
    may_start=st.booleans(),
    may_open=st.booleans(),
    due=st.none()
    | st.builds(
        Recovery,
        cause=st.sampled_from([Cause.PREEMPTED, Cause.NODE_LOST]),
        action=st.sampled_from([Action.RESTART, Action.REQUEUE]),
        submission=st.just(1),
        decided_at=near,
        not_before=near,
    ),
    lease=st.just(a_lease()),
)
